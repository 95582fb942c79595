"""Transfers of all extents to another store: which keep their places, and where the others go."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from awscrt.checksums import crc64nvme

from etagere.bodies.contents import COUNTERS, DEAD_TOTALS, EXTENTS, MOVES, SEGMENTS
from etagere.bodies.segment_files import DIRECTORY_NAME, segment_path
from etagere.bodies.transfer import DamagedExtent, ExtentsDamaged, Target, Transfer
from etagere.bodies.transfer_endpoints import FileSource, FileTarget, ObjectSource, ObjectTarget
from etagere.clock import SystemClock
from etagere.config import KIB, MIB, Config
from etagere.engine import timeline
from etagere.engine.loading import LedgerLoad, Rows, StoppedLedger
from etagere.engine.records import ENCODE, Collection
from etagere.model.bodies import Counter, Extent, Move, Segment, SegmentState
from tests.bodies.object_stores.drivers import MemoryObjectStore

OWNER = b"o" * 16
NEW_OWNER = b"n" * 16
Place = tuple[int, int]


class Store(NamedTuple):
    """A store of files, and the bytes of its extents by their origins."""

    directory: Path
    bodies: dict[Place, bytes]


class Loaded:
    """Records in memory, as the target of a transfer."""

    def __init__(self) -> None:
        self.records: dict[Collection[Any, Any], dict[Any, Any]] = {}

    def load(self, collection: Collection[Any, Any], rows: Rows) -> None:
        records = self.records.setdefault(collection, {})
        for key, value in rows:
            assert collection.unpack(key) not in records
            records[collection.unpack(key)] = collection.decode(value)

    def __getitem__(self, collection: Collection[Any, Any]) -> dict[Any, Any]:
        return self.records.get(collection, {})


def make_store(directory: Path, layout: dict[Place, int], moves: dict[Place, Place]) -> Store:
    """Makes a store with extents of these lengths, at these places; `moves` are the origins of
    those that were moved, by their places."""
    rng = random.Random(1)
    load = LedgerLoad(directory, SystemClock())
    bodies: dict[Place, bytes] = {}
    (directory / DIRECTORY_NAME).mkdir()
    for place, length in layout.items():
        data = rng.randbytes(length)
        path = segment_path(directory, place[0])
        path.touch()
        with path.open("r+b") as file:
            file.seek(place[1])
            file.write(data)
        origin = moves.get(place)
        bodies[origin or place] = data
        extent = Extent(length, crc64nvme(data), origin=origin)
        load.load(EXTENTS, [(EXTENTS.pack(place), ENCODE(extent))])
        if origin is not None:
            load.load(MOVES, [(MOVES.pack(origin), ENCODE(Move(*place)))])
    for number in {number for number, _ in layout}:
        record = ENCODE(Segment(OWNER, SegmentState.OPEN))
        load.load(SEGMENTS, [(SEGMENTS.pack((number,)), record)])
    load.load(COUNTERS, [(COUNTERS.pack((0,)), ENCODE(Counter(9)))])
    load.finish(timeline.begin(None, SystemClock()))
    return Store(directory, bodies)


@contextmanager
def opened(directory: Path) -> Iterator[StoppedLedger]:
    with StoppedLedger(directory, Config()) as ledger:
        yield ledger


def transfer(store: Store, target: Target) -> Loaded:
    async def run(ledger: StoppedLedger) -> Loaded:
        loaded = Loaded()
        work = Transfer(ledger, target, loaded.load, NEW_OWNER)
        seen: list[tuple[int, int]] = []
        copied = await work.run(FileSource(store.directory), lambda *done: seen.append(done))
        total = sum(map(len, store.bodies.values()))
        assert seen[-1] == (total, total)
        assert copied.extents == len(store.bodies)
        assert copied.extent_bytes == total
        return loaded

    with opened(store.directory) as ledger:
        return asyncio.run(run(ledger))


def found_places(store: Store, loaded: Loaded) -> dict[Place, Place]:
    """Returns where a reader looks for each extent, by its origin: it follows moves only where the
    segment is gone."""
    places: dict[Place, Place] = {}
    for origin, data in store.bodies.items():
        place = origin
        if (origin[0],) not in loaded[SEGMENTS]:
            move = loaded[MOVES][origin]
            place = move.segment, move.offset
        extent = loaded[EXTENTS][place]
        assert extent.length == len(data)
        assert extent.origin == (None if place == origin else origin)
        places[origin] = place
    assert len(loaded[EXTENTS]) == len(places)
    assert len(loaded[MOVES]) == sum(place != origin for origin, place in places.items())
    return places


def check_segments(loaded: Loaded, sizes: dict[int, int]) -> None:
    """Compares the records of segments with how much is stored in each."""
    assert {number for (number,) in loaded[SEGMENTS]} == sizes.keys()
    for (number,), segment in loaded[SEGMENTS].items():
        assert segment.state is SegmentState.SEALED
        assert segment.length == sizes[number]
        live = sum(extent.length for place, extent in loaded[EXTENTS].items() if place[0] == number)
        dead = loaded[DEAD_TOTALS].get((number,))
        assert (dead.length if dead else 0) == segment.length - live
    assert loaded[COUNTERS][(0,)].last >= max(sizes)


LAYOUT = {
    (1, 100): 50 * KIB,
    (1, 60 * KIB): 40 * KIB,
    # Longer than an object may be.
    (2, 0): 300 * KIB,
    (2, 65 * MIB): 100 * KIB,
    # The collector has moved one extent of segment 3 to segment 4, and has not moved the other one.
    (3, 50 * KIB): 40 * KIB,
    (4, 0): 45 * KIB,
    (4, 50 * KIB): 33 * KIB,
    # Moved earlier, from a segment that is gone.
    (7, 10): 40 * KIB,
}
MOVED = {(4, 0): (3, 0), (7, 10): (6, 123)}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return make_store(tmp_path / "store", LAYOUT, MOVED)


def test_to_objects_and_back_to_files(store: Store, tmp_path: Path) -> None:
    objects = MemoryObjectStore()
    target = ObjectTarget(objects, Config())
    loaded = transfer(store, target)
    places = found_places(store, loaded)
    for origin, place in places.items():
        name = f"segments/{place[0]:08x}/{place[1] >> 32:08x}"
        offset = place[1] & 0xFFFF_FFFF
        data = store.bodies[origin]
        assert objects.objects[name][offset : offset + len(data)] == data
    sizes: dict[int, int] = {}
    for name, data in objects.objects.items():
        number = int(name.split("/")[1], 16)
        sizes[number] = sizes.get(number, 0) + len(data)
    check_segments(loaded, sizes)
    assert {number for number in sizes if number <= 9} == {1, 4, 7}
    assert loaded[SEGMENTS][(1,)].owner == OWNER
    assert loaded[SEGMENTS][(10,)].owner == NEW_OWNER

    # From objects to files.
    listed = tmp_path / "listed"
    load = LedgerLoad(listed, SystemClock())
    for collection, records in loaded.records.items():
        rows = [(collection.pack(key), ENCODE(record)) for key, record in records.items()]
        load.load(collection, rows)
    load.finish(timeline.begin(None, SystemClock()))
    back = tmp_path / "back"
    files = FileTarget(back, Config(segment_bytes_max=300 * KIB))
    files.clear()

    async def run(ledger: StoppedLedger) -> Loaded:
        again = Loaded()
        await Transfer(ledger, files, again.load, NEW_OWNER).run(
            ObjectSource(objects), lambda *_: None
        )
        return again

    with opened(listed) as ledger:
        again = asyncio.run(run(ledger))
    for origin, (number, offset) in found_places(store, again).items():
        data = store.bodies[origin]
        assert segment_path(back, number).read_bytes()[offset : offset + len(data)] == data
    paths = (back / DIRECTORY_NAME).iterdir()
    check_segments(again, {int(path.stem, 16): path.stat().st_size for path in paths})


def test_files_keep_their_places(store: Store, tmp_path: Path) -> None:
    target = FileTarget(tmp_path / "copy", Config())
    target.clear()
    loaded = transfer(store, target)
    kept = {origin for origin, place in found_places(store, loaded).items() if origin == place}
    # Readers would look for what was moved from segment 3 in that segment, if it were kept.
    assert kept == {place for place in LAYOUT if place[0] in (1, 2)} | {(4, 50 * KIB)}


def test_all_damage_is_found(store: Store, tmp_path: Path) -> None:
    segment_path(store.directory, 7).unlink()
    with segment_path(store.directory, 1).open("r+b") as file:
        file.seek(60 * KIB)
        file.write(b"damage")
    with segment_path(store.directory, 4).open("r+b") as file:
        file.truncate(60 * KIB)
    objects = MemoryObjectStore()
    with pytest.raises(ExtentsDamaged) as raised:
        transfer(store, ObjectTarget(objects, Config()))
    places = [(1, 60 * KIB), (4, 50 * KIB), (7, 10)]
    assert raised.value.extents == [DamagedExtent(*place, LAYOUT[place]) for place in places]


def test_an_interrupted_transfer_is_removed(store: Store) -> None:
    objects = MemoryObjectStore()
    objects.objects = {"segments/00000001/00000000": b"old", "store-id": b"id"}
    target = ObjectTarget(objects, Config())
    assert not asyncio.run(target.is_empty())
    # One that appears after the removal is replaced.
    transfer(store, target)
    assert len(objects.objects["segments/00000001/00000000"]) == 100 * KIB
    asyncio.run(target.clear())
    assert objects.objects == {"store-id": b"id"}
    assert asyncio.run(target.is_empty())
