"""The collector with damaged files and full disks, and interrupted at every step."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from etagere.bodies.collector import Collector
from etagere.bodies.segment_files import segment_path
from etagere.bodies.segments import MoveExtents, Relocation, move_extents
from etagere.bodies.store import BodyCorrupt
from etagere.engine.interface import Engine, Fault, FaultReason, Refused
from etagere.model.bodies import SegmentState
from tests.bodies import objects
from tests.bodies.objects import PutObject
from tests.model.disks import WatchedDisk
from tests.model.front_ends import SMALL, StoreCluster, noise
from tests.model.processes import HelperError

PIECE = SMALL.piece_bytes_max
LARGE = noise(0, 6 * PIECE)
LISTED = noise(1, 20 * PIECE)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StoreCluster]:
    with StoreCluster(tmp_path, disk=WatchedDisk()) as opened:
        yield opened


# Damage


def damage(cluster: StoreCluster, number: int, offset: int) -> None:
    descriptor = os.open(segment_path(cluster.directory, number), os.O_RDWR)
    try:
        (byte,) = os.pread(descriptor, 1, offset)
        os.pwrite(descriptor, bytes([byte ^ 1]), offset)
    finally:
        os.close(descriptor)


def test_damaged_extents_are_not_moved(cluster: StoreCluster) -> None:
    cluster.put_sparse("a", LARGE)
    cluster.local.call("put", "b", LARGE)
    (number,) = {number for number, _ in cluster.extents() if number not in current(cluster)}
    place = sorted(place for place in cluster.extents() if place[0] == number)[2]
    damage(cluster, *place)
    assert cluster.local.call("collect").extents_moved == 5
    assert place in cluster.extents()
    assert number in cluster.segment_files()
    with pytest.raises(BodyCorrupt):
        cluster.local.call("get", "a")
    with pytest.raises(HelperError, match="BodyCorrupt"):
        cluster.remote.call("get", "a")
    assert cluster.local.call("collect") == (0, 0, 0, 0)
    assert cluster.local.call("get", "b") == LARGE


def current(cluster: StoreCluster) -> set[int]:
    return {number for number, s in cluster.segments().items() if s.state is SegmentState.OPEN}


def test_a_missing_file_does_not_stop_the_collector(cluster: StoreCluster) -> None:
    cluster.put_sparse("lost", LARGE)
    (number,) = cluster.segment_files()
    segment_path(cluster.directory, number).unlink()
    cluster.local.call("put", "a", LARGE)
    cluster.reopen_local()
    cluster.local.call("delete", "a")
    assert cluster.local.call("collect").segments_removed == 1
    assert cluster.segment_files() == set()


def test_dead_segments_are_removed_from_a_full_disk(cluster: StoreCluster) -> None:
    """Rewriting has to wait; removing segments without live bytes must not."""
    cluster.put_sparse("a", LARGE)
    cluster.local.call("put", "b", LARGE)
    cluster.reopen_local()
    cluster.local.call("delete", "b")
    cluster.disk.free = 0
    assert cluster.local.call("collect").segments_removed == 1
    cluster.disk.free = None
    assert cluster.local.call("collect").extents_moved == 6
    assert cluster.local.call("get", "a") == LARGE


# Interruption


class CollectionInterrupted(Exception):
    """Where a process would have ended."""


class FailingEngine:
    """An engine whose n-th call fails, before or after it takes effect."""

    def __init__(self, beneath: Engine, calls_left: int, *, after: bool) -> None:
        self._beneath = beneath
        self._calls_left = calls_left
        self._after = after

    async def _step(self, call: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        self._calls_left -= 1
        if self._calls_left == 0 and not self._after:
            raise CollectionInterrupted
        result = await call(*arguments)
        if self._calls_left == 0:
            raise CollectionInterrupted
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
def test_an_interrupted_round_is_resumed(cluster: StoreCluster, after: bool) -> None:
    cuts = 0
    while _interrupt_after(cluster, cuts + 1, after=after):
        cuts += 1
    # Orphans, reaping, scanning, moving, retiring, removing and forgetting, each at least once.
    assert cuts > 10


def _interrupt_after(cluster: StoreCluster, calls: int, *, after: bool) -> bool:
    """Creates garbage, interrupts one collection and runs another; reports whether the first was
    interrupted."""
    cluster.reopen_local()
    kept = noise(calls, 3 * PIECE)
    for name in ("dead", "kept", "listed"):
        cluster.local.call("put", f"neighbour of {name}", noise(2, PIECE))
        cluster.local.call("put", name, LISTED if name == "listed" else kept)
    cluster.local.call("delete", "dead")
    cluster.local.call("list_blocks", "listed", (1, 5, 1))
    for name in ("dead", "kept", "listed"):
        cluster.local.call("delete", f"neighbour of {name}")
    cluster.reopen_local()
    cut = cluster.run(_collect_interrupted(cluster, calls, after=after))
    # The interrupted process is gone, and so are its uploads.
    cluster.reopen_local()
    for _ in range(2):
        cluster.local.call("tidy")
    cluster.require_balanced()
    assert cluster.local.call("get", "kept") == kept
    blocks = [LISTED[number * PIECE :][:PIECE] for number in (1, 5, 1)]
    assert cluster.remote.call("get", "listed") == b"".join(blocks)
    live = sum(extent.length for extent in cluster.extents().values())
    assert cluster.segment_bytes() <= 1.25 * live
    cluster.require_clean()
    return cut


async def _collect_interrupted(cluster: StoreCluster, calls: int, *, after: bool) -> bool:
    front_end = cluster.local.front_end
    engine = FailingEngine(front_end.engine, calls, after=after)
    collector = Collector(engine, front_end.store, SMALL)
    try:
        await collector.collect()
    except CollectionInterrupted:
        return True
    return False


def test_a_disk_error_is_raised_and_nothing_is_lost(cluster: StoreCluster) -> None:
    cluster.put_sparse("a", LARGE)

    class BrokenDisk(WatchedDisk):
        def sync(self, descriptor: int) -> None:
            raise OSError("no")

    cluster.local.front_end.disk = BrokenDisk()
    cluster.reopen_local()
    with pytest.raises(Fault) as failed:
        cluster.local.call("collect")
    assert failed.value.reason is FaultReason.FAILED
    cluster.local.front_end.disk = WatchedDisk()
    cluster.reopen_local()
    cluster.local.call("tidy")
    assert cluster.local.call("get", "a") == LARGE
    cluster.require_balanced()


# Late commands


def test_a_late_adoption_by_a_killed_process_is_refused(cluster: StoreCluster) -> None:
    """Its command may wait in a socket while others clean up after it."""
    cluster.local.call("put", "a", LARGE)
    body = cluster.remote.call("body", cluster.remote.call("begin_upload", "a", LISTED))
    cluster.remote.kill()
    for _ in range(2):
        cluster.local.call("tidy")
    with pytest.raises((Fault, Refused)):
        cluster.run(cluster.local.front_end.engine.write(objects.put_object, PutObject("a", body)))
    assert cluster.local.call("get", "a") == LARGE
    cluster.require_clean()


def test_a_late_move_by_a_killed_collector_is_refused(cluster: StoreCluster) -> None:
    cluster.put_sparse("a", LARGE)
    (first, *_) = sorted(cluster.extents())
    copy = cluster.remote.call("body", cluster.remote.call("begin_upload", "a", LARGE))
    cluster.remote.kill()
    for _ in range(2):
        cluster.local.front_end.collector = without_rewriting(cluster)
        cluster.local.call("collect")
    late = Relocation(*first, *copy.pieces[0].extent)
    with pytest.raises(Fault):
        cluster.run(cluster.local.front_end.engine.write(move_extents, MoveExtents((late,))))
    assert cluster.local.call("get", "a") == LARGE
    cluster.require_clean()


def without_rewriting(cluster: StoreCluster) -> Collector:
    """Returns a collector that does not rewrite sparse segments."""
    front_end = cluster.local.front_end
    lazy = dataclasses.replace(SMALL, sparse_dead_share=0.9)
    return Collector(front_end.engine, front_end.store, lazy)
