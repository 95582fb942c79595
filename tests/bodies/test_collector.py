"""The collector reclaims space and never removes bytes that are in use."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from etagere.bodies.collector import Collector
from etagere.bodies.contents import MOVES
from etagere.engine.interface import ReadTxn
from etagere.model.bodies import SegmentState
from tests.bodies import objects
from tests.model.consistency import require_empty, rows
from tests.model.disks import WatchedDisk
from tests.model.front_ends import SMALL, LocalFrontEnd, StoreCluster, noise
from tests.model.processes import HelperProcess

PIECE, SEGMENT = SMALL.piece_bytes_max, SMALL.segment_bytes_max
LARGE = noise(0, 6 * PIECE)
"""A few pieces without chunks: most of a segment."""
LISTED = noise(1, 20 * PIECE)
"""Chunked, over several segments."""


@pytest.fixture(params=["files", "objects"])
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[StoreCluster]:
    in_objects = request.param == "objects"
    with StoreCluster(tmp_path, disk=WatchedDisk(), in_objects=in_objects) as opened:
        yield opened


in_files = pytest.mark.parametrize("cluster", ["files"], indirect=True)


def seal_all(cluster: StoreCluster) -> None:
    """Seals the current segments, as a restart would."""
    cluster.reopen_local()


# Space


def test_dead_segments_are_removed(cluster: StoreCluster) -> None:
    cluster.local.call("put", "a", LISTED)
    seal_all(cluster)
    held = cluster.segment_files()
    assert len(held) >= 2
    cluster.local.call("delete", "a")
    collected = cluster.local.call("collect")
    assert collected.segments_removed == len(held)
    assert collected.bytes_removed == len(LISTED)
    assert collected.chunks_reaped == 1
    assert cluster.segment_files() == set() and cluster.segments() == {}
    cluster.run(cluster.local.front_end.engine.read(require_empty, None))


def test_sparse_segments_are_rewritten_and_full_ones_kept(cluster: StoreCluster) -> None:
    cluster.local.call("put", "full", LARGE)
    seal_all(cluster)
    (full,) = cluster.segment_files()
    cluster.put_sparse("a", LARGE)
    collected = cluster.local.call("collect")
    assert collected.extents_moved == 6
    assert collected.segments_removed == 1
    assert full in cluster.segment_files()
    assert cluster.remote.call("get", "a") == LARGE
    assert cluster.local.call("get", "full") == LARGE
    cluster.require_balanced()
    assert cluster.local.call("collect") == (0, 0, 0, 0)


def test_disk_use_is_close_to_the_live_bytes(cluster: StoreCluster) -> None:
    """After everything was overwritten twice by two processes."""
    names = [f"name {number}" for number in range(60)]
    for version in range(3):
        for number, name in enumerate(names):
            front_end = (cluster.local, cluster.remote)[(version + number) % 2]
            front_end.call("put", name, noise(1000 * version + number, 3 * PIECE + number))
        cluster.remote.call("tidy")
    for _ in range(3):
        cluster.remote.call("maintain")
        cluster.local.call("tidy")
    live = sum(extent.length for extent in cluster.extents().values())
    assert live == sum(3 * PIECE + number for number in range(60))
    assert cluster.segment_bytes() <= 1.25 * live
    for number, name in enumerate(names):
        assert cluster.local.call("get", name) == noise(2000 + number, 3 * PIECE + number)


def test_an_open_segment_with_many_dead_bytes_is_sealed(cluster: StoreCluster) -> None:
    cluster.local.call("put", "a", LARGE)
    cluster.local.call("delete", "a")
    assert cluster.segment_files()
    cluster.local.call("tidy")
    assert cluster.segment_files() == set()


def test_refused_uploads_leave_nothing_behind(cluster: StoreCluster) -> None:
    cluster.local.call("put", "a", LARGE)
    for _ in range(6):
        assert cluster.local.call("put", "a", LARGE, 1) == 0
    assert len(cluster.segment_files()) > 3
    cluster.local.call("tidy")
    seal_all(cluster)
    cluster.local.call("collect")
    assert len(cluster.segment_files()) <= 2
    assert cluster.local.call("get", "a") == LARGE
    cluster.require_balanced()


# Readers


def overwrite(cluster: StoreCluster) -> None:
    cluster.local.call("put", "a", noise(5, 5 * PIECE))


def delete(cluster: StoreCluster) -> None:
    cluster.remote.call("delete", "a")


def move(cluster: StoreCluster) -> None:
    """Keeps the object and has its segment rewritten."""
    cluster.local.call("delete", "neighbour")


@pytest.mark.parametrize("side", ["local", "remote"])
@pytest.mark.parametrize("change", [overwrite, delete, move])
@pytest.mark.parametrize("data", [LARGE, LISTED], ids=["pieces", "chunked"])
def test_a_started_reader_can_finish(
    cluster: StoreCluster, side: str, change: Callable[[StoreCluster], None], data: bytes
) -> None:
    cluster.local.call("put", "neighbour", noise(7, PIECE * 7))
    cluster.local.call("put", "a", data)
    seal_all(cluster)
    front_end = front_end_of(cluster, side)
    handle = front_end.call("begin_read", "a")
    first = front_end.call("step_read", handle)
    late = front_end.call("begin_read", "a")
    before = cluster.segment_files()
    change(cluster)
    for _ in range(3):
        cluster.local.call("tidy")
        cluster.remote.call("tidy")
    retired = {
        number for number, s in cluster.segments().items() if s.state is SegmentState.RETIRED
    }
    assert retired and retired <= before <= cluster.segment_files()
    assert first + front_end.call("finish_read", handle) == data
    cluster.local.call("collect")
    assert retired <= cluster.segment_files()
    # The other reader has read nothing yet; it has only looked up its extents.
    assert front_end.call("finish_read", late) == data
    cluster.local.call("collect")
    assert not retired & cluster.segment_files()
    cluster.require_balanced()


def front_end_of(cluster: StoreCluster, side: str) -> LocalFrontEnd | HelperProcess:
    return cluster.local if side == "local" else cluster.remote


def test_a_reader_after_the_retirement_does_not_keep_the_file(cluster: StoreCluster) -> None:
    cluster.put_sparse("a", LARGE)
    early = cluster.remote.call("begin_read", "a")
    cluster.local.call("tidy")
    held = cluster.segment_files()
    late = cluster.local.call("begin_read", "a")
    assert cluster.remote.call("finish_read", early) == LARGE
    assert cluster.local.call("collect").segments_removed == 1
    assert cluster.segment_files() < held
    assert cluster.local.call("finish_read", late) == LARGE


@pytest.mark.parametrize("side", ["local", "remote"])
def test_a_pin_protects_later_lookups(cluster: StoreCluster, side: str) -> None:
    """A file that was retired after the pin and before the lookup may be in a cached plan."""
    cluster.put_sparse("a", LARGE)
    front_end = front_end_of(cluster, side)
    handle = front_end.call("begin_read", "a")
    front_end.call("step_read", handle)
    cluster.local.call("delete", "a")
    cluster.local.call("tidy")
    assert any(s.state is SegmentState.RETIRED for s in cluster.segments().values())
    front_end.call("finish_read", handle)
    cluster.local.call("tidy")
    assert cluster.segment_files() == set()


def test_a_killed_reader_releases_its_segments(cluster: StoreCluster) -> None:
    cluster.put_sparse("a", LARGE)
    handle = cluster.remote.call("begin_read", "a")
    cluster.remote.call("step_read", handle)
    cluster.local.call("delete", "a")
    cluster.local.call("collect")
    assert cluster.segment_files()
    cluster.remote.kill()
    cluster.local.call("collect")
    assert cluster.segment_files() == set()


# Uploads


@pytest.mark.parametrize("side", ["local", "remote"])
@pytest.mark.parametrize("data", [LARGE, LISTED], ids=["pieces", "chunked"])
def test_an_upload_in_flight_is_not_collected(
    cluster: StoreCluster, side: str, data: bytes
) -> None:
    front_end = front_end_of(cluster, side)
    front_end.call("put", "other", LARGE)
    handle = front_end.call("begin_upload", "a", data)
    # Its neighbours die, so the segment is due for rewriting.
    front_end.call("delete", "other")
    for _ in range(4):
        cluster.local.call("tidy")
        cluster.remote.call("tidy")
    front_end.call("adopt", handle)
    assert cluster.local.call("get", "a") == data
    assert cluster.remote.call("get", "a") == data
    cluster.local.call("tidy")
    cluster.require_balanced()


def test_an_abandoned_upload_is_collected(cluster: StoreCluster) -> None:
    cluster.local.call("abandon", cluster.local.call("begin_upload", "a", LISTED))
    cluster.local.call("tidy")
    seal_all(cluster)
    cluster.local.call("collect")
    assert cluster.segment_files() == set()


def test_the_upload_of_a_killed_process_is_collected(cluster: StoreCluster) -> None:
    cluster.remote.call("put", "kept", LARGE)
    cluster.remote.call("begin_upload", "a", LISTED)
    cluster.local.call("collect")
    held = cluster.segment_files()
    cluster.remote.kill()
    cluster.local.call("collect")
    cluster.local.call("collect")
    assert not held & cluster.segment_files()
    assert cluster.local.call("get", "kept") == LARGE
    assert cluster.local.call("get", "a") is None
    cluster.require_balanced()
    cluster.require_clean()


# Several collectors


def test_concurrent_collectors(cluster: StoreCluster) -> None:
    for round_ in range(6):
        for number in range(10):
            front_end = (cluster.local, cluster.remote)[number % 2]
            front_end.call("put", f"{number}", noise(round_ * 100 + number, 2 * PIECE + number))
        cluster.remote.send("tidy")
        cluster.local.call("tidy")
        cluster.remote.receive()
        for number in range(10):
            expected = noise(round_ * 100 + number, 2 * PIECE + number)
            assert cluster.local.call("get", f"{number}") == expected
        cluster.require_balanced()
    cluster.require_clean()


@in_files
def test_only_one_collects_at_a_time(cluster: StoreCluster) -> None:
    cluster.put_sparse("a", LARGE)
    disk = cluster.disk

    async def collect_while_stuck() -> None:
        disk.hold("read")
        stuck = asyncio.create_task(cluster.local.front_end.collect())
        assert await asyncio.to_thread(disk.reached, "read")
        assert await asyncio.to_thread(cluster.remote.call, "collect") == (0, 0, 0, 0)
        disk.let_go("read")
        assert (await stuck).segments_removed == 1

    cluster.run(collect_while_stuck())
    assert cluster.local.call("get", "a") == LARGE


# Changes during a move


@in_files
@pytest.mark.parametrize("call", ["read", "write", "sync"])
def test_extents_that_die_while_they_are_copied(cluster: StoreCluster, call: str) -> None:
    cluster.put_sparse("a", LARGE)
    disk = cluster.disk

    async def delete_while_copying() -> None:
        disk.hold(call)
        collecting = asyncio.create_task(cluster.local.front_end.collect())
        assert await asyncio.to_thread(disk.reached, call)
        assert await asyncio.to_thread(cluster.remote.call, "delete", "a")
        disk.let_go(call)
        assert (await collecting).extents_moved == 0

    cluster.run(delete_while_copying())
    cluster.require_balanced()
    seal_all(cluster)
    cluster.local.call("collect")
    assert cluster.segment_files() == set()


@in_files
@pytest.mark.parametrize("call", ["read", "write", "sync"])
def test_extents_that_gain_a_reference_while_they_are_copied(
    cluster: StoreCluster, call: str
) -> None:
    cluster.put_sparse("a", LISTED)
    disk = cluster.disk

    async def share_while_copying() -> None:
        disk.hold(call)
        collecting = asyncio.create_task(cluster.local.front_end.collect())
        assert await asyncio.to_thread(disk.reached, call)
        await asyncio.to_thread(cluster.remote.call, "list_blocks", "a", (0, 0, 3, 1))
        disk.let_go(call)
        await collecting

    cluster.run(share_while_copying())
    cluster.require_balanced()
    blocks = [LISTED[number * PIECE :][:PIECE] for number in (0, 0, 3, 1)]
    assert cluster.local.call("get", "a") == b"".join(blocks)


def test_an_extent_is_moved_again_and_again(cluster: StoreCluster) -> None:
    cluster.local.call("put", "a", LARGE)
    seal_all(cluster)
    for number in range(4):
        # The extents moved last are among those that die now.
        cluster.local.call("put", "neighbour", noise(50 + number, PIECE))
        seal_all(cluster)
        make_sparse(cluster)
        assert cluster.local.call("collect").extents_moved >= 6
        assert cluster.remote.call("get", "a") == LARGE
        cluster.require_balanced()
    origins = [extent.origin for extent in cluster.extents().values() if extent.origin]
    step = 1 << 32 if cluster.in_objects else PIECE
    assert sorted(place for place in origins if place[0] == 1) == [
        (1, number * step) for number in range(6)
    ]
    cluster.local.call("delete", "a")
    cluster.local.call("delete", "neighbour")
    seal_all(cluster)
    cluster.local.call("collect")
    assert cluster.segment_files() == set()
    cluster.run(cluster.local.front_end.engine.read(require_empty, None))


def make_sparse(cluster: StoreCluster) -> None:
    """Makes the collector rewrite every segment, whatever its dead share."""
    front_end = cluster.local.front_end
    keen = dataclasses.replace(SMALL, sparse_dead_share=-1.0)
    front_end.collector = Collector(front_end.engine, front_end.store, keen)


def test_moved_blocks_can_be_listed(cluster: StoreCluster) -> None:
    """References to a moved extent are counted where it lies now."""
    cluster.local.call("stage", "a", [noise(number, PIECE) for number in range(5)])
    cluster.local.call("list_blocks", "a", ())
    seal_all(cluster)
    make_sparse(cluster)
    assert cluster.local.call("collect").extents_moved == 5
    cluster.local.call("list_blocks", "a", (4, 4, 0))
    cluster.local.call("copy", "a", "b")
    cluster.require_balanced()
    cluster.local.call("collect")
    cluster.require_balanced()
    expected = noise(4, PIECE) * 2 + noise(0, PIECE)
    assert cluster.remote.call("get", "b") == expected


def test_move_records_are_removed_with_their_extents(cluster: StoreCluster) -> None:
    cluster.put_sparse("a", LARGE)
    cluster.local.call("collect")

    def count_moves(txn: ReadTxn, _: None) -> int:
        return len(rows(txn, MOVES))

    read = cluster.local.front_end.engine.read
    assert cluster.run(read(count_moves, None)) == 6
    cluster.run(cluster.local.front_end.engine.write(objects.delete_object, "a"))
    assert cluster.run(read(count_moves, None)) == 0
