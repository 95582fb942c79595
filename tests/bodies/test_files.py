"""Uploads into segment files: sizes, order, durability and errors."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from awscrt.checksums import crc64nvme

from etagere.bodies.contents import DEAD_TOTALS, EXTENTS
from etagere.bodies.disk import Disk
from etagere.bodies.files import FileBodyStore
from etagere.config import KIB, MIB, Config
from etagere.engine.interface import Fault, FaultReason, ReadTxn
from etagere.model.bodies import Segment, SegmentState
from tests.bodies import objects
from tests.bodies.objects import PutObject
from tests.model.consistency import rows
from tests.model.disks import WatchedDisk
from tests.model.front_ends import SMALL, StoreCluster, noise
from tests.model.uploads import WIDE, require_stored, state_of, store_of, write

INLINE, PIECE, SEGMENT = SMALL.inline_bytes_max, SMALL.piece_bytes_max, SMALL.segment_bytes_max
FLUSH = 1 * MIB


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StoreCluster]:
    with StoreCluster(tmp_path, others=0, disk=WatchedDisk()) as opened:
        yield opened


@pytest.fixture
def wide(tmp_path: Path) -> Iterator[StoreCluster]:
    with StoreCluster(tmp_path, WIDE, others=0, disk=WatchedDisk()) as opened:
        yield opened


# Sizes

SMALL_SIZES = [
    0, 1, INLINE - 1, INLINE, INLINE + 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE,
    SEGMENT - 1, SEGMENT, SEGMENT + 1, 3 * SEGMENT + 5,
]  # fmt: skip
WIDE_SIZES = [
    FLUSH - 1, FLUSH, FLUSH + 1, 2 * FLUSH + 1,
    WIDE.piece_bytes_max - 1, WIDE.piece_bytes_max, WIDE.piece_bytes_max + 1,
    WIDE.segment_bytes_max - 1, WIDE.segment_bytes_max + 1,
]  # fmt: skip


async def every_hint(store: FileBodyStore, size: int, piece_bytes_max: int) -> None:
    data = noise(size, size)
    for hint in (size, None, 0, size // 2, size + 1, 2 * size + 7, 1 << 40):
        for step in (64 * KIB, 1000, size or 1):
            body = await write(store, data, hint, step=step)
            await require_stored(store, body, data)
            assert bool(body.pieces) == (size > INLINE)
            assert all(piece.length <= piece_bytes_max for piece in body.pieces)


@pytest.mark.parametrize("size", SMALL_SIZES)
def test_small_boundaries(cluster: StoreCluster, size: int) -> None:
    cluster.run(every_hint(store_of(cluster), size, PIECE))


@pytest.mark.parametrize("size", WIDE_SIZES)
def test_wide_boundaries(wide: StoreCluster, size: int) -> None:
    data = noise(size, size)

    async def both() -> None:
        for hint in (size, None, size // 3):
            body = await write(store_of(wide), data, hint)
            await require_stored(store_of(wide), body, data)
            assert all(piece.length <= WIDE.piece_bytes_max for piece in body.pieces)

    wide.run(both())


def test_blocks_are_stored_in_pieces_of_any_size(cluster: StoreCluster) -> None:
    async def blocks() -> None:
        for size in (1, INLINE, INLINE + 1):
            body = await write(store_of(cluster), noise(size, size), size, inline=False)
            (piece,) = body.pieces
            assert (piece.length, piece.crc) == (size, crc64nvme(noise(size, size)))
        assert (await write(store_of(cluster), b"", 0, inline=False)).pieces == ()

    cluster.run(blocks())


def test_many_tiny_appends(wide: StoreCluster) -> None:
    data = noise(3, FLUSH // 16)

    async def tiny() -> None:
        body = await write(store_of(wide), data, step=1)
        await require_stored(store_of(wide), body, data)

    wide.run(tiny())


def test_half_a_million_buffers_are_written_in_seconds(tmp_path: Path) -> None:
    """A client may send a body byte by byte; the cost of writes must not be quadratic."""
    buffers = [memoryview(b"x")] * 500_000
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    began = time.process_time()
    Disk().write(descriptor, buffers, 0)
    os.close(descriptor)
    # A third of a second if linear, fifteen if quadratic.
    assert time.process_time() - began < 5


def test_empty_appends(cluster: StoreCluster) -> None:
    async def nothing() -> None:
        async with store_of(cluster).writer() as writer:
            for part in (b"", b"a" * PIECE, b"", b"", b"b", b""):
                await writer.append(part)
            body = await writer.seal()
        await require_stored(store_of(cluster), body, b"a" * PIECE + b"b")

    cluster.run(nothing())


def test_a_long_upload_of_unknown_length_has_few_pieces(wide: StoreCluster) -> None:
    data = noise(4, 6 * FLUSH)
    body = wide.run(write(store_of(wide), data))
    assert len(body.pieces) <= 4


def test_adjacent_reservations_form_one_piece(wide: StoreCluster) -> None:
    """Space is reserved several times with no other upload in between."""
    data = noise(5, WIDE.piece_bytes_max)
    body = wide.run(write(store_of(wide), data))
    (piece,) = body.pieces
    assert piece.crc == crc64nvme(data)


def test_unused_space_is_released(cluster: StoreCluster) -> None:
    async def two() -> None:
        first = await write(store_of(cluster), noise(1, 1000), 4000)
        second = await write(store_of(cluster), noise(2, 1000), 4000)
        assert second.pieces[0].offset == first.pieces[0].offset + 1000

    cluster.run(two())


def test_space_before_another_upload_is_kept(wide: StoreCluster) -> None:
    async def interleaved() -> None:
        store = store_of(wide)
        one, other = noise(1, FLUSH), noise(2, FLUSH)
        async with store.writer(3 * MIB) as writer, store.writer(FLUSH) as second:
            await writer.append(one)
            await second.append(other)
            bodies = [await writer.seal(), await second.seal()]
        third = await write(store, noise(3, 1000))
        await require_stored(store, bodies[0], one)
        await require_stored(store, bodies[1], other)
        await require_stored(store, third, noise(3, 1000))

    wide.run(interleaved())


def test_interleaved_uploads_do_not_mix(wide: StoreCluster) -> None:
    async def upload(seed: int) -> None:
        data = noise(seed, FLUSH // 2 + seed * 300_000)
        async with store_of(wide).writer(None if seed % 2 else len(data)) as writer:
            for at in range(0, len(data), 100_000):
                await writer.append(data[at : at + 100_000])
                await asyncio.sleep(0)
            body = await writer.seal()
        await require_stored(store_of(wide), body, data)

    async def all_at_once() -> None:
        await asyncio.gather(*(upload(seed) for seed in range(12)))

    wide.run(all_at_once())


# Segments


def test_full_segments_are_sealed_when_nothing_is_in_flight(cluster: StoreCluster) -> None:
    async def roll() -> None:
        store, engine = store_of(cluster), cluster.local.front_end.engine
        async with store.writer() as writer:
            await writer.append(noise(1, SEGMENT))
            body = await writer.seal()
            await engine.write(objects.put_object, PutObject("a", body))
            await objects.upload(engine, store, "b", noise(2, SEGMENT))
            await store.maintain()
            assert (await state_of(cluster, 1)).state is SegmentState.OPEN
        await store.maintain()
        owner = store.coordinator.process_id
        sealed = Segment(
            owner,
            SegmentState.SEALED,
            SEGMENT,
            closed=True,
            counted_to=SEGMENT,
            covered_bytes=SEGMENT,
        )
        assert await state_of(cluster, 1) == sealed
        assert (await state_of(cluster, 2)).state is SegmentState.OPEN

    cluster.run(roll())
    cluster.require_balanced()


def test_unadopted_bytes_are_dead_once_sealed(cluster: StoreCluster) -> None:
    cluster.run(write(store_of(cluster), noise(1, 2 * PIECE)))
    cluster.local.call("put", "a", noise(2, PIECE))
    cluster.run(write(store_of(cluster), noise(3, 100), inline=False))
    cluster.reopen_local()
    cluster.require_balanced()

    def look(txn: ReadTxn, _: None) -> tuple[list[Any], list[Any]]:
        dead = [(key, row.length) for key, row in rows(txn, DEAD_TOTALS).items()]
        return dead, list(rows(txn, EXTENTS))

    dead, live = cluster.run(cluster.local.front_end.engine.read(look, None))
    assert live == [(1, 2 * PIECE)]
    assert dead == [((1,), 2 * PIECE + 100)]


def test_a_piece_larger_than_a_segment(tmp_path: Path) -> None:
    config = Config(
        durable=False, inline_bytes_max=10, piece_bytes_max=5000, segment_bytes_max=3000
    )
    with StoreCluster(tmp_path, config, others=0) as cluster:
        data = noise(1, 12_000)
        body = cluster.run(write(store_of(cluster), data))
        assert [piece.length for piece in body.pieces] == [5000, 5000, 2000]
        assert len({piece.segment for piece in body.pieces}) == 3
        cluster.run(require_stored(store_of(cluster), body, data))


# Durability


def test_concurrent_seals_share_their_syncs(cluster: StoreCluster) -> None:
    class Slow(WatchedDisk):
        def sync(self, descriptor: int) -> None:
            super().sync(descriptor)
            time.sleep(0.03)

    cluster.local.front_end.disk = Slow()
    cluster.reopen_local()

    async def at_once() -> None:
        bodies = await asyncio.gather(
            *(write(store_of(cluster), noise(n, 600), 600) for n in range(40))
        )
        for number, body in enumerate(bodies):
            await require_stored(store_of(cluster), body, noise(number, 600))

    cluster.run(at_once())
    assert 1 <= cluster.disk.calls["sync"] <= 5


def test_a_running_sync_does_not_cover_later_writes(cluster: StoreCluster) -> None:
    async def during() -> None:
        disk, store = cluster.disk, store_of(cluster)
        disk.hold("sync")
        first = asyncio.create_task(write(store, noise(1, 600)))
        assert await asyncio.to_thread(disk.reached, "sync")
        large = asyncio.create_task(write(store, noise(2, PIECE + 1)))
        small = [asyncio.create_task(write(store, noise(n, 600))) for n in range(3, 6)]
        while disk.calls["write"] < 3:
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        late = [large, *small]
        assert disk.calls["sync"] == 1 and not any(task.done() for task in late)
        disk.let_go("sync")
        bodies = await asyncio.gather(first, *late)
        # Small adjacent writes are written as one, with their sync.
        assert (disk.calls["write"], disk.calls["sync"]) == (4, 2)
        for number, body in enumerate(bodies, 1):
            length = PIECE + 1 if number == 2 else 600
            await require_stored(store, body, noise(number, length))

    cluster.run(during())


def test_a_failed_write_is_refused_and_the_segment_stays_in_use(
    cluster: StoreCluster,
) -> None:
    class FullOnce(WatchedDisk):
        def write(
            self, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int
        ) -> None:
            super().write(descriptor, buffers, offset)
            if self.calls["write"] == 1:
                raise OSError(errno.ENOSPC, "no space left")

    cluster.local.front_end.disk = FullOnce()
    cluster.reopen_local()

    async def fill() -> None:
        store = store_of(cluster)
        results = await asyncio.gather(
            *[write(store, noise(n, 600)) for n in range(3)], return_exceptions=True
        )
        assert {type(result) for result in results} == {Fault}
        body = await write(store, noise(9, 600))
        assert body.pieces[0].segment == 1
        await require_stored(store, body, noise(9, 600))

    cluster.run(fill())


def test_after_a_failed_sync_the_segment_is_not_used_again(cluster: StoreCluster) -> None:
    class FailsOnce(WatchedDisk):
        def sync(self, descriptor: int) -> None:
            super().sync(descriptor)
            if self.calls["sync"] == 1:
                raise OSError(errno.EIO, "input/output error")

    cluster.local.front_end.disk = FailsOnce()
    cluster.reopen_local()

    async def fail() -> None:
        store = store_of(cluster)
        async with store.writer() as writer:
            await writer.append(noise(1, 600))
            with pytest.raises(Fault) as failed:
                await writer.seal()
            assert failed.value.reason is FaultReason.FAILED
            # An upload that had bytes in that segment before cannot be made durable either.
            with pytest.raises(Fault):
                await writer.seal()
        body = await write(store, noise(2, 600))
        assert body.pieces[0].segment == 2
        await require_stored(store, body, noise(2, 600))

    cluster.run(fail())


def test_few_files_are_kept_open_for_readers(tmp_path: Path) -> None:
    config = Config(
        durable=False,
        inline_bytes_max=10,
        piece_bytes_max=1000,
        segment_bytes_max=1000,
        segment_files_max=3,
    )
    with StoreCluster(tmp_path, config, others=0) as cluster:
        data = noise(1, 12_000)
        cluster.local.call("put", "a", data)
        cluster.reopen_local()
        for _ in range(2):
            handles = [cluster.local.call("begin_read", "a") for _ in range(3)]
            for handle in handles:
                assert cluster.local.call("step_read", handle) == data[:1000]
            for handle in handles:
                assert cluster.local.call("finish_read", handle) == data[1000:]
        assert len(store_of(cluster)._files) <= 3
