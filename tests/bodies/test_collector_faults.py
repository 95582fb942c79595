"""The collector on damaged files and full disks, and cut short at every step."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from etagere.bodies.collector import Collector
from etagere.bodies.files import segment_path
from etagere.bodies.segments import MoveExtents, Relocation, move_extents
from etagere.bodies.store import BodyCorrupt
from etagere.engine.interface import Engine, Fault, FaultReason, Refused
from etagere.model.bodies import SegmentState
from tests.bodies import objects
from tests.bodies.objects import PutObject
from tests.model.disks import WatchedDisk
from tests.model.fronts import SMALL, Shop, noise
from tests.model.processes import HelperError

PIECE = SMALL.piece_bytes_max
LARGE = noise(0, 6 * PIECE)
LISTED = noise(1, 20 * PIECE)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with Shop(tmp_path, disk=WatchedDisk()) as opened:
        yield opened


# Damage


def damage(shop: Shop, number: int, offset: int) -> None:
    descriptor = os.open(segment_path(shop.directory, number), os.O_RDWR)
    try:
        (byte,) = os.pread(descriptor, 1, offset)
        os.pwrite(descriptor, bytes([byte ^ 1]), offset)
    finally:
        os.close(descriptor)


def test_damaged_extents_are_left_where_they_are(shop: Shop) -> None:
    shop.put_sparse("a", LARGE)
    shop.here.call("put", "b", LARGE)
    (number,) = {number for number, _ in shop.extents() if number not in current(shop)}
    place = sorted(place for place in shop.extents() if place[0] == number)[2]
    damage(shop, *place)
    assert shop.here.call("collect").extents_moved == 5
    assert place in shop.extents()
    assert number in shop.segment_files()
    with pytest.raises(BodyCorrupt):
        shop.here.call("get", "a")
    with pytest.raises(HelperError, match="BodyCorrupt"):
        shop.there.call("get", "a")
    assert shop.here.call("collect") == (0, 0, 0, 0)
    assert shop.here.call("get", "b") == LARGE


def current(shop: Shop) -> set[int]:
    return {number for number, s in shop.segments().items() if s.state is SegmentState.OPEN}


def test_a_missing_file_does_not_stop_the_collector(shop: Shop) -> None:
    shop.put_sparse("lost", LARGE)
    (number,) = shop.segment_files()
    segment_path(shop.directory, number).unlink()
    shop.here.call("put", "a", LARGE)
    shop.reopen_here()
    shop.here.call("delete", "a")
    assert shop.here.call("collect").segments_removed == 1
    assert shop.segment_files() == set()


def test_dead_segments_go_though_the_disk_is_full(shop: Shop) -> None:
    """What can only be copied has to wait; what is dead altogether must not wait for it."""
    shop.put_sparse("a", LARGE)
    shop.here.call("put", "b", LARGE)
    shop.reopen_here()
    shop.here.call("delete", "b")
    shop.disk.free = 0
    assert shop.here.call("collect").segments_removed == 1
    shop.disk.free = None
    assert shop.here.call("collect").extents_moved == 6
    assert shop.here.call("get", "a") == LARGE


# Cut short


class CutShort(Exception):
    """Where a process would have ended."""


class FailingEngine:
    """An engine whose n-th call fails, before or after it has taken effect."""

    def __init__(self, beneath: Engine, calls_left: int, *, after: bool) -> None:
        self._beneath = beneath
        self._calls_left = calls_left
        self._after = after

    async def _step(self, call: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        self._calls_left -= 1
        if self._calls_left == 0 and not self._after:
            raise CutShort
        result = await call(*arguments)
        if self._calls_left == 0:
            raise CutShort
        return result

    async def read(self, operation: Any, command: Any) -> Any:
        return await self._step(self._beneath.read, operation, command)

    async def read_in_thread(self, operation: Any, command: Any, read_class: Any = None) -> Any:
        return await self._step(self._beneath.read_in_thread, operation, command, read_class)

    async def read_in_steps(self, operation: Any, command: Any, read_class: Any = None) -> Any:
        return await self._step(self._beneath.read_in_steps, operation, command, read_class)

    async def write(self, operation: Any, command: Any) -> Any:
        return await self._step(self._beneath.write, operation, command)

    async def close(self) -> None:
        await self._beneath.close()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_round_that_is_cut_short_anywhere_is_taken_up_again(shop: Shop, after: bool) -> None:
    cuts = 0
    while _cut_after(shop, cuts + 1, after=after):
        cuts += 1
    # Orphans, reaping, looking, moving, retiring, removing and forgetting, each at least once.
    assert cuts > 10


def _cut_after(shop: Shop, calls: int, *, after: bool) -> bool:
    """One store's worth of garbage, a round cut short, and another; says whether it was cut."""
    shop.reopen_here()
    kept = noise(calls, 3 * PIECE)
    for name in ("dead", "kept", "listed"):
        shop.here.call("put", f"neighbour of {name}", noise(2, PIECE))
        shop.here.call("put", name, LISTED if name == "listed" else kept)
    shop.here.call("delete", "dead")
    shop.here.call("list_blocks", "listed", (1, 5, 1))
    for name in ("dead", "kept", "listed"):
        shop.here.call("delete", f"neighbour of {name}")
    shop.reopen_here()
    cut = shop.run(_collect_cut_short(shop, calls, after=after))
    # The process that was cut short is gone, and so are its uploads.
    shop.reopen_here()
    for _ in range(2):
        shop.here.call("tidy")
    shop.require_balanced()
    assert shop.here.call("get", "kept") == kept
    blocks = [LISTED[number * PIECE :][:PIECE] for number in (1, 5, 1)]
    assert shop.there.call("get", "listed") == b"".join(blocks)
    live = sum(extent.length for extent in shop.extents().values())
    assert shop.segment_bytes() <= 1.25 * live
    shop.require_clean()
    return cut


async def _collect_cut_short(shop: Shop, calls: int, *, after: bool) -> bool:
    front = shop.here.front
    engine = FailingEngine(front.engine, calls, after=after)
    collector = Collector(shop.directory, engine, front.store, SMALL, front.disk)
    try:
        await collector.collect()
    except CutShort:
        return True
    return False


def test_a_fault_of_the_disk_is_passed_on_and_nothing_is_lost(shop: Shop) -> None:
    shop.put_sparse("a", LARGE)

    class BrokenDisk(WatchedDisk):
        def sync(self, descriptor: int) -> None:
            raise OSError("no")

    shop.here.front.disk = BrokenDisk()
    shop.reopen_here()
    with pytest.raises(Fault) as failed:
        shop.here.call("collect")
    assert failed.value.reason is FaultReason.FAILED
    shop.here.front.disk = WatchedDisk()
    shop.reopen_here()
    shop.here.call("tidy")
    assert shop.here.call("get", "a") == LARGE
    shop.require_balanced()


# Late words


def test_the_late_adoption_of_a_killed_process_is_not_believed(shop: Shop) -> None:
    """Its command may wait in a socket while others find that it is gone and clear up."""
    shop.here.call("put", "a", LARGE)
    body = shop.there.call("body", shop.there.call("begin_upload", "a", LISTED))
    shop.there.kill()
    for _ in range(2):
        shop.here.call("tidy")
    with pytest.raises((Fault, Refused)):
        shop.run(shop.here.front.engine.write(objects.put_object, PutObject("a", body)))
    assert shop.here.call("get", "a") == LARGE
    shop.require_clean()


def test_the_late_move_of_a_killed_collector_is_not_believed(shop: Shop) -> None:
    shop.put_sparse("a", LARGE)
    (first, *_) = sorted(shop.extents())
    copy = shop.there.call("body", shop.there.call("begin_upload", "a", LARGE))
    shop.there.kill()
    for _ in range(2):
        shop.here.front.collector = without_rewriting(shop)
        shop.here.call("collect")
    late = Relocation(*first, *copy.pieces[0].extent)
    with pytest.raises(Fault):
        shop.run(shop.here.front.engine.write(move_extents, MoveExtents((late,))))
    assert shop.here.call("get", "a") == LARGE
    shop.require_clean()


def without_rewriting(shop: Shop) -> Collector:
    """A collector that leaves sparse segments as they are."""
    front = shop.here.front
    lazy = dataclasses.replace(SMALL, sparse_dead_share=0.9)
    return Collector(shop.directory, front.engine, front.store, lazy, front.disk)
