"""Space comes back, and never the bytes that somebody still wants."""

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
from tests.model.accounts import require_empty, rows
from tests.model.disks import WatchedDisk
from tests.model.fronts import SMALL, Here, Shop, noise
from tests.model.processes import Helper

PIECE, SEGMENT = SMALL.piece_bytes_max, SMALL.segment_bytes_max
LARGE = noise(0, 6 * PIECE)
"""A few pieces, but no chunk: most of a segment."""
LISTED = noise(1, 20 * PIECE)
"""Chunked, over several segments."""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with Shop(tmp_path, disk=WatchedDisk()) as opened:
        yield opened


def seal_all(shop: Shop) -> None:
    """Ends the current segments here, as a new process would begin its own."""
    shop.reopen_here()


# Space


def test_dead_segments_go(shop: Shop) -> None:
    shop.here.call("put", "a", LISTED)
    seal_all(shop)
    held = shop.segment_files()
    assert len(held) >= 2
    shop.here.call("delete", "a")
    collected = shop.here.call("collect")
    assert collected.segments_removed == len(held)
    assert collected.bytes_removed == len(LISTED)
    assert collected.chunks_reaped == 1
    assert shop.segment_files() == set() and shop.segments() == {}
    shop.run(shop.here.front.engine.read(require_empty, None))


def test_sparse_segments_are_rewritten_and_full_ones_left_alone(shop: Shop) -> None:
    shop.here.call("put", "full", LARGE)
    seal_all(shop)
    (full,) = shop.segment_files()
    shop.put_sparse("a", LARGE)
    collected = shop.here.call("collect")
    assert collected.extents_moved == 6
    assert collected.segments_removed == 1
    assert full in shop.segment_files()
    assert shop.there.call("get", "a") == LARGE
    assert shop.here.call("get", "full") == LARGE
    shop.require_balanced()
    assert shop.here.call("collect") == (0, 0, 0, 0)


def test_little_more_than_what_is_alive_remains(shop: Shop) -> None:
    """After everything was overwritten twice, from two processes."""
    names = [f"name {number}" for number in range(60)]
    for version in range(3):
        for number, name in enumerate(names):
            front = (shop.here, shop.there)[(version + number) % 2]
            front.call("put", name, noise(1000 * version + number, 3 * PIECE + number))
        shop.there.call("tidy")
    for _ in range(3):
        shop.there.call("maintain")
        shop.here.call("tidy")
    live = sum(extent.length for extent in shop.extents().values())
    assert live == sum(3 * PIECE + number for number in range(60))
    assert shop.segment_bytes() <= 1.25 * live
    for number, name in enumerate(names):
        assert shop.here.call("get", name) == noise(2000 + number, 3 * PIECE + number)


def test_an_open_segment_of_much_dead_space_is_given_up(shop: Shop) -> None:
    shop.here.call("put", "a", LARGE)
    shop.here.call("delete", "a")
    assert shop.segment_files()
    shop.here.call("tidy")
    assert shop.segment_files() == set()


def test_refused_uploads_leave_nothing_behind(shop: Shop) -> None:
    shop.here.call("put", "a", LARGE)
    for _ in range(6):
        assert shop.here.call("put", "a", LARGE, 1) == 0
    assert len(shop.segment_files()) > 3
    shop.here.call("tidy")
    seal_all(shop)
    shop.here.call("collect")
    assert len(shop.segment_files()) <= 2
    assert shop.here.call("get", "a") == LARGE
    shop.require_balanced()


# Readers


def overwrite(shop: Shop) -> None:
    shop.here.call("put", "a", noise(5, 5 * PIECE))


def delete(shop: Shop) -> None:
    shop.there.call("delete", "a")


def move(shop: Shop) -> None:
    """Leaves the object as it is and lets its segment be rewritten under it."""
    shop.here.call("delete", "neighbour")


@pytest.mark.parametrize("side", ["here", "there"])
@pytest.mark.parametrize("change", [overwrite, delete, move])
@pytest.mark.parametrize("data", [LARGE, LISTED], ids=["pieces", "chunked"])
def test_a_reader_that_has_begun_finishes(
    shop: Shop, side: str, change: Callable[[Shop], None], data: bytes
) -> None:
    shop.here.call("put", "neighbour", noise(7, PIECE * 7))
    shop.here.call("put", "a", data)
    seal_all(shop)
    front = front_of(shop, side)
    handle = front.call("begin_read", "a")
    first = front.call("step_read", handle)
    late = front.call("begin_read", "a")
    before = shop.segment_files()
    change(shop)
    for _ in range(3):
        shop.here.call("tidy")
        shop.there.call("tidy")
    retired = {number for number, s in shop.segments().items() if s.state is SegmentState.RETIRED}
    assert retired and retired <= before <= shop.segment_files()
    assert first + front.call("finish_read", handle) == data
    shop.here.call("collect")
    assert retired <= shop.segment_files()
    # The other has read nothing yet: it has only looked up where the bytes are.
    assert front.call("finish_read", late) == data
    shop.here.call("collect")
    assert not retired & shop.segment_files()
    shop.require_balanced()


def front_of(shop: Shop, side: str) -> Here | Helper:
    return shop.here if side == "here" else shop.there


def test_a_reader_after_the_retirement_does_not_keep_the_file(shop: Shop) -> None:
    shop.put_sparse("a", LARGE)
    early = shop.there.call("begin_read", "a")
    shop.here.call("tidy")
    held = shop.segment_files()
    late = shop.here.call("begin_read", "a")
    assert shop.there.call("finish_read", early) == LARGE
    assert shop.here.call("collect").segments_removed == 1
    assert shop.segment_files() < held
    assert shop.here.call("finish_read", late) == LARGE


@pytest.mark.parametrize("side", ["here", "there"])
def test_the_pin_alone_protects_what_is_looked_up_later(shop: Shop, side: str) -> None:
    """A file that was retired after the pin but before the lookup may be in a cached plan."""
    shop.put_sparse("a", LARGE)
    front = front_of(shop, side)
    handle = front.call("begin_read", "a")
    front.call("step_read", handle)
    shop.here.call("delete", "a")
    shop.here.call("tidy")
    assert any(s.state is SegmentState.RETIRED for s in shop.segments().values())
    front.call("finish_read", handle)
    shop.here.call("tidy")
    assert shop.segment_files() == set()


def test_a_killed_reader_holds_nothing_back(shop: Shop) -> None:
    shop.put_sparse("a", LARGE)
    handle = shop.there.call("begin_read", "a")
    shop.there.call("step_read", handle)
    shop.here.call("delete", "a")
    shop.here.call("collect")
    assert shop.segment_files()
    shop.there.kill()
    shop.here.call("collect")
    assert shop.segment_files() == set()


# Uploads


@pytest.mark.parametrize("side", ["here", "there"])
@pytest.mark.parametrize("data", [LARGE, LISTED], ids=["pieces", "chunked"])
def test_an_upload_in_flight_is_not_collected(shop: Shop, side: str, data: bytes) -> None:
    front = front_of(shop, side)
    front.call("put", "other", LARGE)
    handle = front.call("begin_upload", "a", data)
    # What lies beside it dies, so that there is every reason to clear its segment.
    front.call("delete", "other")
    for _ in range(4):
        shop.here.call("tidy")
        shop.there.call("tidy")
    front.call("adopt", handle)
    assert shop.here.call("get", "a") == data
    assert shop.there.call("get", "a") == data
    shop.here.call("tidy")
    shop.require_balanced()


def test_an_abandoned_upload_is_collected(shop: Shop) -> None:
    shop.here.call("abandon", shop.here.call("begin_upload", "a", LISTED))
    shop.here.call("tidy")
    seal_all(shop)
    shop.here.call("collect")
    assert shop.segment_files() == set()


def test_the_upload_of_a_killed_process_is_collected(shop: Shop) -> None:
    shop.there.call("put", "kept", LARGE)
    shop.there.call("begin_upload", "a", LISTED)
    shop.here.call("collect")
    held = shop.segment_files()
    shop.there.kill()
    shop.here.call("collect")
    shop.here.call("collect")
    assert not held & shop.segment_files()
    assert shop.here.call("get", "kept") == LARGE
    assert shop.here.call("get", "a") is None
    shop.require_balanced()
    shop.require_clean()


# Several collectors


def test_two_collectors_at_once_do_no_harm(shop: Shop) -> None:
    for round_ in range(6):
        for number in range(10):
            front = (shop.here, shop.there)[number % 2]
            front.call("put", f"{number}", noise(round_ * 100 + number, 2 * PIECE + number))
        shop.there.send("tidy")
        shop.here.call("tidy")
        shop.there.receive()
        for number in range(10):
            expected = noise(round_ * 100 + number, 2 * PIECE + number)
            assert shop.here.call("get", f"{number}") == expected
        shop.require_balanced()
    shop.require_clean()


def test_only_one_collects_at_a_time(shop: Shop) -> None:
    shop.put_sparse("a", LARGE)
    disk = shop.disk

    async def collect_while_stuck() -> None:
        disk.hold("read")
        stuck = asyncio.create_task(shop.here.front.collect())
        assert await asyncio.to_thread(disk.reached, "read")
        assert await asyncio.to_thread(shop.there.call, "collect") == (0, 0, 0, 0)
        disk.let_go("read")
        assert (await stuck).segments_removed == 1

    shop.run(collect_while_stuck())
    assert shop.here.call("get", "a") == LARGE


# While it copies


@pytest.mark.parametrize("call", ["read", "write", "sync"])
def test_extents_that_die_while_they_are_copied(shop: Shop, call: str) -> None:
    shop.put_sparse("a", LARGE)
    disk = shop.disk

    async def delete_while_copying() -> None:
        disk.hold(call)
        collecting = asyncio.create_task(shop.here.front.collect())
        assert await asyncio.to_thread(disk.reached, call)
        assert await asyncio.to_thread(shop.there.call, "delete", "a")
        disk.let_go(call)
        assert (await collecting).extents_moved == 0

    shop.run(delete_while_copying())
    shop.require_balanced()
    seal_all(shop)
    shop.here.call("collect")
    assert shop.segment_files() == set()


@pytest.mark.parametrize("call", ["read", "write", "sync"])
def test_extents_that_gain_a_reference_while_they_are_copied(shop: Shop, call: str) -> None:
    shop.put_sparse("a", LISTED)
    disk = shop.disk

    async def share_while_copying() -> None:
        disk.hold(call)
        collecting = asyncio.create_task(shop.here.front.collect())
        assert await asyncio.to_thread(disk.reached, call)
        await asyncio.to_thread(shop.there.call, "list_blocks", "a", (0, 0, 3, 1))
        disk.let_go(call)
        await collecting

    shop.run(share_while_copying())
    shop.require_balanced()
    blocks = [LISTED[number * PIECE :][:PIECE] for number in (0, 0, 3, 1)]
    assert shop.here.call("get", "a") == b"".join(blocks)


def test_an_extent_is_moved_again_and_again(shop: Shop) -> None:
    shop.here.call("put", "a", LARGE)
    seal_all(shop)
    for number in range(4):
        # What was moved last lies among what dies now.
        shop.here.call("put", "neighbour", noise(50 + number, PIECE))
        seal_all(shop)
        make_sparse(shop)
        assert shop.here.call("collect").extents_moved >= 6
        assert shop.there.call("get", "a") == LARGE
        shop.require_balanced()
    origins = [extent.origin for extent in shop.extents().values() if extent.origin]
    assert sorted(place for place in origins if place[0] == 1) == [
        (1, number * PIECE) for number in range(6)
    ]
    shop.here.call("delete", "a")
    shop.here.call("delete", "neighbour")
    seal_all(shop)
    shop.here.call("collect")
    assert shop.segment_files() == set()
    shop.run(shop.here.front.engine.read(require_empty, None))


def make_sparse(shop: Shop) -> None:
    """Has every segment rewritten, whatever is dead in it."""
    front = shop.here.front
    keen = dataclasses.replace(SMALL, sparse_dead_share=-1.0)
    front.collector = Collector(shop.directory, front.engine, front.store, keen, front.disk)


def test_moved_blocks_are_listed_again(shop: Shop) -> None:
    """References to a moved extent are counted where it lies now."""
    shop.here.call("stage", "a", [noise(number, PIECE) for number in range(5)])
    shop.here.call("list_blocks", "a", ())
    seal_all(shop)
    make_sparse(shop)
    assert shop.here.call("collect").extents_moved == 5
    shop.here.call("list_blocks", "a", (4, 4, 0))
    shop.here.call("copy", "a", "b")
    shop.require_balanced()
    shop.here.call("collect")
    shop.require_balanced()
    expected = noise(4, PIECE) * 2 + noise(0, PIECE)
    assert shop.there.call("get", "b") == expected


def test_moves_are_forgotten_with_their_extents(shop: Shop) -> None:
    shop.put_sparse("a", LARGE)
    shop.here.call("collect")

    def count_moves(txn: ReadTxn, _: None) -> int:
        return len(rows(txn, MOVES))

    read = shop.here.front.engine.read
    assert shop.run(read(count_moves, None)) == 6
    shop.run(shop.here.front.engine.write(objects.delete_object, "a"))
    assert shop.run(read(count_moves, None)) == 0
