"""Backups while the garbage collector moves extents and removes segments."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from etagere.backup.points import Point
from etagere.backup.taking import take
from etagere.bodies.collector import Collector
from etagere.bodies.contents import EXTENTS
from etagere.bodies.files import FileBodyStore
from etagere.bodies.segment_files import DIRECTORY_NAME, segment_path
from etagere.bodies.segments import MoveExtents, Relocation, move_extents
from etagere.engine.interface import ReadTxn
from etagere.model.bodies import Extent
from tests.backup.stores import read, restored, verified
from tests.bodies.objects import delete_object, upload
from tests.bodies.stores import CONFIG, data_of
from tests.engine.sqlite_harness import SqliteHarness

_SIZE = 60_000
_OBJECTS = 12


class _Pause:
    """A backup that waits at a phase until it is let go on."""

    def __init__(self, phase: str) -> None:
        self.reached = threading.Event()
        self.goes_on = threading.Event()
        self._phase = phase

    def __call__(self, phase: str, _done: int, _total: int) -> None:
        if phase == self._phase and not self.reached.is_set():
            self.reached.set()
            assert self.goes_on.wait(20)


@pytest.mark.parametrize("phase", ["ledger", "segments"])
def test_segments_stay_until_they_are_copied(tmp_path: Path, phase: str) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup"
    point = asyncio.run(_back_up_and_collect(data, backup, phase))
    assert verified(backup).is_clean
    assert not point.lost
    target = restored(backup, point.name, tmp_path / "restored")
    names = [f"object-{number}" for number in range(_OBJECTS)]
    assert read(target, *names) == [data_of(name, _SIZE) for name in names]


async def _back_up_and_collect(data: Path, backup: Path, phase: str) -> Point:
    harness = SqliteHarness(data, CONFIG)
    harness.start()
    try:
        engine = await harness.open()
        store = FileBodyStore(data, engine, CONFIG)
        for number in range(_OBJECTS):
            name = f"object-{number}"
            await upload(engine, store, name, data_of(name, _SIZE))
        collector = Collector(engine, store, CONFIG)
        await store.maintain()
        before = _segments(data)
        pause = _Pause(phase)
        taking = asyncio.ensure_future(asyncio.to_thread(take, data, backup, pause))
        await asyncio.to_thread(pause.reached.wait, 20)
        # Every other object stays, and is moved, because its segment is half empty.
        for number in range(0, _OBJECTS, 2):
            await engine.write(delete_object, f"object-{number}")
        moved = 0
        for _ in range(3):
            await store.maintain()
            moved += (await collector.collect()).extents_moved
        assert moved
        assert len(before & _segments(data)) >= len(before) - 1
        pause.goes_on.set()
        point = await taking
        for _ in range(2):
            await collector.collect()
        # Nothing is pinned any more.
        assert len(before & _segments(data)) <= 1
        await store.close()
        return point
    finally:
        await harness.close()


def test_a_segment_that_was_moved_in_part(tmp_path: Path) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup"
    asyncio.run(_move_some_extents(data))
    names = [f"object-{number}" for number in range(_OBJECTS)]
    bodies = [data_of(name, _SIZE) for name in names]
    assert read(data, *names) == bodies
    point = take(data, backup, lambda *_: None)
    target = restored(backup, point.name, tmp_path / "restored")
    assert read(target, *names) == bodies


async def _move_some_extents(data: Path) -> None:
    """Moves extents of each segment that has several, as a collector that is interrupted does."""
    harness = SqliteHarness(data, CONFIG)
    harness.start()
    try:
        engine = await harness.open()
        store = FileBodyStore(data, engine, CONFIG)
        for number in range(_OBJECTS):
            name = f"object-{number}"
            await upload(engine, store, name, data_of(name, _SIZE))
        await store.close()  # seals the segments
        store = FileBodyStore(data, engine, CONFIG)
        extents: dict[int, list[tuple[int, int]]] = {}
        for (number, offset), extent in await engine.read(_all_extents, None):
            extents.setdefault(number, []).append((offset, extent.length))
        moved = 0
        for number, places in extents.items():
            reservations = store.reservations()
            relocations = []
            segment_bytes = segment_path(data, number).read_bytes()
            for offset, length in places[:-1]:
                copy = segment_bytes[offset : offset + length]
                segment, at, _ = await reservations.write(copy)
                relocations.append(Relocation(number, offset, segment.number, at))
            await reservations.sync()
            moved += await engine.write(move_extents, MoveExtents(tuple(relocations)))
            reservations.release()
        assert moved
        await store.close()
    finally:
        await harness.close()


def _all_extents(txn: ReadTxn, _: None) -> list[tuple[tuple[int, int], Extent]]:
    return txn.scan(EXTENTS, EXTENTS.all(), 10_000)


def _segments(directory: Path) -> set[str]:
    return {path.name for path in (directory / DIRECTORY_NAME).iterdir()}
