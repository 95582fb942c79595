"""Uploads on damaged, full and slow disks, cancelled uploads, and closing a store."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from etagere.bodies.files import FileBodyStore
from etagere.bodies.plans import SegmentRange
from etagere.bodies.segment_files import segment_path
from etagere.bodies.store import BodyCorrupt
from etagere.config import MIB
from etagere.engine.interface import Fault, FaultReason
from etagere.model.bodies import Body, SegmentState
from tests.bodies import objects
from tests.model.disks import WatchedDisk
from tests.model.front_ends import SMALL, StoreCluster, noise
from tests.model.uploads import WIDE, read, require_stored, state_of, store_of, write

INLINE, PIECE, SEGMENT = SMALL.inline_bytes_max, SMALL.piece_bytes_max, SMALL.segment_bytes_max


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StoreCluster]:
    with StoreCluster(tmp_path, others=0, disk=WatchedDisk()) as opened:
        yield opened


@pytest.fixture
def wide(tmp_path: Path) -> Iterator[StoreCluster]:
    with StoreCluster(tmp_path, WIDE, others=0, disk=WatchedDisk()) as opened:
        yield opened


# Damage


def test_a_damaged_piece_is_found_before_its_end(wide: StoreCluster) -> None:
    data = noise(1, MIB)
    body = wide.run(write(store_of(wide), data))
    path = segment_path(wide.directory, body.pieces[0].segment)
    with path.open("r+b") as file:
        file.seek(body.pieces[0].offset + 5)
        file.write(b"\x00\x01\x02")

    async def read_all() -> None:
        received = 0
        plan = tuple(SegmentRange(p.segment, p.offset, p.length, p.crc) for p in body.pieces)
        with pytest.raises(BodyCorrupt):
            async for chunk in store_of(wide).open_reader().chunks(plan):
                received += len(chunk)
        assert received < len(data)

    wide.run(read_all())


def test_a_truncated_file(cluster: StoreCluster) -> None:
    body = cluster.run(write(store_of(cluster), noise(1, PIECE)))
    os.truncate(segment_path(cluster.directory, 1), PIECE - 1)
    with pytest.raises(BodyCorrupt):
        cluster.run(read(store_of(cluster), body))
    # Part of a piece has no checksum; missing bytes are detected anyway.
    cluster.run(locate_tail(cluster, body))


async def locate_tail(cluster: StoreCluster, body: Body) -> None:
    tail = (SegmentRange(body.pieces[0].segment, PIECE - 100, 100, None),)
    with pytest.raises(BodyCorrupt):
        assert [chunk async for chunk in store_of(cluster).open_reader().chunks(tail)]


def test_a_missing_file(cluster: StoreCluster) -> None:
    body = cluster.run(write(store_of(cluster), noise(1, PIECE)))
    cluster.reopen_local()
    segment_path(cluster.directory, 1).unlink()
    with pytest.raises(BodyCorrupt, match="missing"):
        cluster.run(read(store_of(cluster), body))


# Full disks


def test_the_reserved_space_is_kept_free(cluster: StoreCluster) -> None:
    cluster.disk.free = SMALL.reserve_bytes + PIECE - 1
    with pytest.raises(Fault) as failed:
        cluster.run(write(store_of(cluster), noise(1, PIECE)))
    assert failed.value.reason is FaultReason.DISK_FULL
    assert cluster.segments() == {}
    # Bodies in the ledger need no check, and a slightly smaller one fits.
    cluster.run(write(store_of(cluster), noise(1, INLINE)))
    cluster.run(write(store_of(cluster), noise(1, PIECE - 1)))


def test_a_disk_that_fills_up_during_an_upload(wide: StoreCluster) -> None:
    class Filling(WatchedDisk):
        def write(
            self, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int
        ) -> None:
            if self.calls["write"] == 2:
                raise OSError(errno.ENOSPC, "no space left on device")
            super().write(descriptor, buffers, offset)

    wide.local.front_end.disk = Filling()
    wide.reopen_local()
    with pytest.raises(Fault) as failed:
        wide.local.call("put", "a", noise(1, 4 * MIB))
    assert failed.value.reason is FaultReason.DISK_FULL
    assert wide.local.call("get", "a") is None
    wide.local.front_end.disk = WatchedDisk()
    wide.reopen_local()
    wide.local.call("collect")
    assert wide.segments() == {} and wide.segment_bytes() == 0


def test_a_segment_that_cannot_be_created(cluster: StoreCluster) -> None:
    class NoFiles(WatchedDisk):
        def create(self, path: Path) -> int:
            raise OSError(errno.ENOSPC, "no space left on device")

    cluster.local.front_end.disk = NoFiles()
    cluster.reopen_local()
    with pytest.raises(Fault) as failed:
        cluster.run(write(store_of(cluster), noise(1, PIECE)))
    assert failed.value.reason is FaultReason.DISK_FULL
    cluster.local.call("collect")
    assert cluster.segments() == {}


# Cancellation


def test_a_cancelled_write_does_not_affect_later_uploads(cluster: StoreCluster) -> None:
    """The write is still running in its thread when others write."""

    async def cancel() -> None:
        disk, store = cluster.disk, store_of(cluster)
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

    cluster.run(cancel())


def test_a_cancelled_write_does_not_affect_another_file(cluster: StoreCluster) -> None:
    """Its segment is sealed and closed before the write starts; the descriptor number may then
    belong to another file."""

    async def cancel() -> None:
        disk, store = cluster.disk, store_of(cluster)
        await store.maintain()
        disk.hold("write")
        stuck = asyncio.create_task(write(store, b"x" * (PIECE + 1)))
        assert await asyncio.to_thread(disk.reached, "write")
        await cancelled(stuck)
        gate = disk.let_others_go("write")
        # Others fill the segment; it is sealed and replaced by a new one.
        filling = noise(1, SEGMENT - 2 * PIECE)
        body = await write(store, filling)
        assert {piece.segment for piece in body.pieces} == {1}
        await write(store, noise(2, 600))
        await store.maintain()
        assert (await state_of(cluster, 1)).state is SegmentState.SEALED
        later = [await write(store, noise(n, SEGMENT)) for n in range(3, 6)]
        gate.set()
        await until_written(disk, disk.calls["write"])
        for number, body in enumerate(later, 3):
            await require_stored(store, body, noise(number, SEGMENT))

    cluster.run(cancel())


async def cancelled(task: asyncio.Task[Body]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def until_written(disk: WatchedDisk, count: int) -> None:
    async with asyncio.timeout(10):
        while len(disk.sizes) < count:
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("call", ["create", "write", "sync"])
def test_a_cancelled_upload_blocks_nothing(cluster: StoreCluster, call: str) -> None:
    async def cancel() -> None:
        disk, store = cluster.disk, store_of(cluster)
        disk.hold(call)
        stuck = asyncio.create_task(write(store, noise(9, PIECE)))
        assert await asyncio.to_thread(disk.reached, call)
        await cancelled(stuck)
        disk.let_go(call)
        for number in range(4):
            data = noise(number, 3 * PIECE)
            await require_stored(store, await write(store, data), data)

    cluster.run(cancel())
    cluster.local.call("put", "a", noise(1, PIECE))
    cluster.reopen_local()
    cluster.local.call("tidy")
    assert cluster.local.call("get", "a") == noise(1, PIECE)
    cluster.require_balanced()


def test_an_upload_cancelled_while_a_segment_is_created(cluster: StoreCluster) -> None:
    """The new segment is used by the next upload or closed."""

    async def cancel() -> None:
        disk, store = cluster.disk, store_of(cluster)
        disk.hold("create")
        stuck = asyncio.create_task(write(store, noise(9, PIECE)))
        assert await asyncio.to_thread(disk.reached, "create")
        await cancelled(stuck)
        disk.let_go("create")
        await objects.upload(cluster.local.front_end.engine, store, "a", noise(1, PIECE))
        await store.maintain()

    cluster.run(cancel())
    states = [segment.state for segment in cluster.segments().values()]
    assert states.count(SegmentState.OPEN) == 1


# Closing


def test_closing_seals_and_later_uploads_fail(cluster: StoreCluster) -> None:
    async def close_in_flight() -> None:
        front_end = cluster.local.front_end
        store = FileBodyStore(cluster.directory, front_end.engine, SMALL, WatchedDisk())
        await objects.upload(front_end.engine, store, "a", noise(1, PIECE))
        writer = await store.writer().__aenter__()
        await writer.append(noise(2, PIECE))
        await writer.seal()
        await store.close()
        # The collector takes over its segment, because the owner is gone.
        assert (await state_of(cluster, 1)).state is SegmentState.OPEN
        with pytest.raises((Fault, RuntimeError)):
            await write(store, noise(3, PIECE))

    cluster.run(close_in_flight())
    cluster.local.call("tidy")
    cluster.local.call("tidy")
    assert cluster.local.call("get", "a") == noise(1, PIECE)
    cluster.require_balanced()


def test_no_descriptor_outlives_its_use(cluster: StoreCluster) -> None:
    def open_files() -> list[str]:
        found = []
        for entry in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                found.append(str(entry.readlink()))
        return [name for name in found if str(cluster.directory / "segments") in name]

    for number in range(12):
        cluster.local.call("put", "a", noise(number, SEGMENT))
        cluster.local.call("get", "a")
    cluster.local.call("put", "b", b"")
    cluster.local.call("tidy")
    cluster.local.call("tidy")
    assert not any(name.endswith("(deleted)") for name in open_files())
    cluster.reopen_local()
    assert open_files() == []
