"""Uploads on damaged, full and slow disks, cancelled ones, and the end of a store."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from etagere.bodies.contents import SegmentRange
from etagere.bodies.files import FileBodyStore, segment_path
from etagere.bodies.store import BodyCorrupt
from etagere.config import MIB
from etagere.engine.interface import Fault, FaultReason
from etagere.model.bodies import Body, SegmentState
from tests.bodies import objects
from tests.model.disks import WatchedDisk
from tests.model.fronts import SMALL, Shop, noise
from tests.model.uploads import WIDE, read, require_stored, state_of, store_of, write

INLINE, PIECE, SEGMENT = SMALL.inline_bytes_max, SMALL.piece_bytes_max, SMALL.segment_bytes_max


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with Shop(tmp_path, others=0, disk=WatchedDisk()) as opened:
        yield opened


@pytest.fixture
def wide(tmp_path: Path) -> Iterator[Shop]:
    with Shop(tmp_path, WIDE, others=0, disk=WatchedDisk()) as opened:
        yield opened


# Damage


def test_a_damaged_piece_is_found_before_its_end(wide: Shop) -> None:
    data = noise(1, MIB)
    body = wide.run(write(store_of(wide), data))
    path = segment_path(wide.directory, body.pieces[0].segment)
    with path.open("r+b") as file:
        file.seek(body.pieces[0].offset + 5)
        file.write(b"\x00\x01\x02")

    async def all_of_it() -> None:
        received = 0
        plan = tuple(SegmentRange(p.segment, p.offset, p.length, p.crc) for p in body.pieces)
        with pytest.raises(BodyCorrupt):
            async for chunk in store_of(wide).open_reader().chunks(plan):
                received += len(chunk)
        assert received < len(data)

    wide.run(all_of_it())


def test_a_file_that_is_too_short(shop: Shop) -> None:
    body = shop.run(write(store_of(shop), noise(1, PIECE)))
    os.truncate(segment_path(shop.directory, 1), PIECE - 1)
    with pytest.raises(BodyCorrupt):
        shop.run(read(store_of(shop), body))
    # A part of the piece has no checksum; its absence is noticed all the same.
    shop.run(locate_tail(shop, body))


async def locate_tail(shop: Shop, body: Body) -> None:
    tail = (SegmentRange(body.pieces[0].segment, PIECE - 100, 100, None),)
    with pytest.raises(BodyCorrupt):
        assert [chunk async for chunk in store_of(shop).open_reader().chunks(tail)]


def test_a_file_that_is_missing(shop: Shop) -> None:
    body = shop.run(write(store_of(shop), noise(1, PIECE)))
    shop.reopen_here()
    segment_path(shop.directory, 1).unlink()
    with pytest.raises(BodyCorrupt, match="missing"):
        shop.run(read(store_of(shop), body))


# Full disks


def test_the_reserve_is_left_alone(shop: Shop) -> None:
    shop.disk.free = SMALL.reserve_bytes + PIECE - 1
    with pytest.raises(Fault) as failed:
        shop.run(write(store_of(shop), noise(1, PIECE)))
    assert failed.value.reason is FaultReason.DISK_FULL
    assert shop.segments() == {}
    # What goes into the ledger does not ask, and a little less fits.
    shop.run(write(store_of(shop), noise(1, INLINE)))
    shop.run(write(store_of(shop), noise(1, PIECE - 1)))


def test_a_disk_that_fills_up_in_the_middle(wide: Shop) -> None:
    class Filling(WatchedDisk):
        def write(
            self, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int
        ) -> None:
            if self.calls["write"] == 2:
                raise OSError(errno.ENOSPC, "no space left on device")
            super().write(descriptor, buffers, offset)

    wide.here.front.disk = Filling()
    wide.reopen_here()
    with pytest.raises(Fault) as failed:
        wide.here.call("put", "a", noise(1, 4 * MIB))
    assert failed.value.reason is FaultReason.DISK_FULL
    assert wide.here.call("get", "a") is None
    wide.here.front.disk = WatchedDisk()
    wide.reopen_here()
    wide.here.call("collect")
    assert wide.segments() == {} and wide.segment_bytes() == 0


def test_a_segment_that_cannot_be_created(shop: Shop) -> None:
    class NoFiles(WatchedDisk):
        def create(self, path: Path) -> int:
            raise OSError(errno.ENOSPC, "no space left on device")

    shop.here.front.disk = NoFiles()
    shop.reopen_here()
    with pytest.raises(Fault) as failed:
        shop.run(write(store_of(shop), noise(1, PIECE)))
    assert failed.value.reason is FaultReason.DISK_FULL
    shop.here.call("collect")
    assert shop.segments() == {}


# Cancelled


def test_a_cancelled_write_does_not_reach_later_uploads(shop: Shop) -> None:
    """It is still under way in its thread when others write."""

    async def cancel() -> None:
        disk, store = shop.disk, store_of(shop)
        disk.hold("write")
        stuck = asyncio.create_task(write(store, b"x" * (PIECE + 1)))
        assert await asyncio.to_thread(disk.reached, "write")
        await cancelled(stuck)
        gate = disk.let_others_go("write")
        data = noise(1, 2 * PIECE)
        body = await write(store, data)
        gate.set()
        await until_written(disk, 3)
        await require_stored(store, body, data)

    shop.run(cancel())


def test_a_cancelled_write_does_not_reach_another_file(shop: Shop) -> None:
    """Its segment is sealed and given up before the write begins: the number of its
    descriptor may then be that of another file."""

    async def cancel() -> None:
        disk, store = shop.disk, store_of(shop)
        await store.maintain()
        disk.hold("write")
        stuck = asyncio.create_task(write(store, b"x" * (PIECE + 1)))
        assert await asyncio.to_thread(disk.reached, "write")
        await cancelled(stuck)
        gate = disk.let_others_go("write")
        # Filled up by others, the segment is sealed, and a new one takes its place.
        filling = noise(1, SEGMENT - 2 * PIECE)
        body = await write(store, filling)
        assert {piece.segment for piece in body.pieces} == {1}
        await write(store, noise(2, 600))
        await store.maintain()
        assert (await state_of(shop, 1)).state is SegmentState.SEALED
        later = [await write(store, noise(n, SEGMENT)) for n in range(3, 6)]
        gate.set()
        await until_written(disk, disk.calls["write"])
        for number, body in enumerate(later, 3):
            await require_stored(store, body, noise(number, SEGMENT))

    shop.run(cancel())


async def cancelled(task: asyncio.Task[Body]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def until_written(disk: WatchedDisk, count: int) -> None:
    async with asyncio.timeout(10):
        while len(disk.sizes) < count:
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("call", ["create", "write", "sync"])
def test_a_cancelled_upload_leaves_nothing_in_the_way(shop: Shop, call: str) -> None:
    async def cancel() -> None:
        disk, store = shop.disk, store_of(shop)
        disk.hold(call)
        stuck = asyncio.create_task(write(store, noise(9, PIECE)))
        assert await asyncio.to_thread(disk.reached, call)
        await cancelled(stuck)
        disk.let_go(call)
        for number in range(4):
            data = noise(number, 3 * PIECE)
            await require_stored(store, await write(store, data), data)

    shop.run(cancel())
    shop.here.call("put", "a", noise(1, PIECE))
    shop.reopen_here()
    shop.here.call("tidy")
    assert shop.here.call("get", "a") == noise(1, PIECE)
    shop.require_balanced()


def test_an_upload_cancelled_while_a_segment_is_made(shop: Shop) -> None:
    """The segment that was made for it serves the next one, or is at least not left open."""

    async def cancel() -> None:
        disk, store = shop.disk, store_of(shop)
        disk.hold("create")
        stuck = asyncio.create_task(write(store, noise(9, PIECE)))
        assert await asyncio.to_thread(disk.reached, "create")
        await cancelled(stuck)
        disk.let_go("create")
        await objects.upload(shop.here.front.engine, store, "a", noise(1, PIECE))
        await store.maintain()

    shop.run(cancel())
    states = [segment.state for segment in shop.segments().values()]
    assert states.count(SegmentState.OPEN) == 1


# The end


def test_closing_seals_and_later_uploads_fail(shop: Shop) -> None:
    async def close_in_flight() -> None:
        front = shop.here.front
        store = FileBodyStore(shop.directory, front.engine, SMALL, WatchedDisk())
        await objects.upload(front.engine, store, "a", noise(1, PIECE))
        writer = await store.writer().__aenter__()
        await writer.append(noise(2, PIECE))
        await writer.seal()
        await store.close()
        # Its segment is left to the collector, which finds that its owner is gone.
        assert (await state_of(shop, 1)).state is SegmentState.OPEN
        with pytest.raises((Fault, RuntimeError)):
            await write(store, noise(3, PIECE))

    shop.run(close_in_flight())
    shop.here.call("tidy")
    shop.here.call("tidy")
    assert shop.here.call("get", "a") == noise(1, PIECE)
    shop.require_balanced()


def test_no_descriptor_outlives_its_use(shop: Shop) -> None:
    def open_files() -> list[str]:
        found = []
        for entry in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                found.append(str(entry.readlink()))
        return [name for name in found if str(shop.directory / "segments") in name]

    for number in range(12):
        shop.here.call("put", "a", noise(number, SEGMENT))
        shop.here.call("get", "a")
    shop.here.call("put", "b", b"")
    shop.here.call("tidy")
    shop.here.call("tidy")
    assert not any(name.endswith("(deleted)") for name in open_files())
    shop.reopen_here()
    assert open_files() == []
