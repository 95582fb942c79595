"""Folding small blocks of append blobs while others append, read, snapshot and delete."""

from __future__ import annotations

import asyncio
import random
from itertools import permutations

import msgspec
import pytest
from awscrt.checksums import crc64nvme

from etagere.bodies.contents import SEGMENTS
from etagere.bodies.folding import Fold, InlineRun, is_due
from etagere.bodies.reaping import Flatten, flatten
from etagere.bodies.segments import Reap, reap
from etagere.engine.memory import MemoryEngine
from etagere.jobs.folding import Folding
from etagere.jobs.supervision import Job
from etagere.model.appends import AppendBlock, SealBlob
from etagere.model.blobs import (
    BlobKind,
    BlobName,
    DeleteBlob,
    DeleteSnapshot,
    DeleteSnapshots,
    PutBlob,
    SnapshotBlob,
)
from etagere.model.bodies import Body, Piece, Segment
from etagere.model.containers import CreateContainer, DeleteContainer
from etagere.model.ids import new_id
from etagere.operations.blob.appends import (
    FoldBlocks,
    append_block,
    append_small_block,
    fold_blocks,
    seal_blob,
)
from etagere.operations.blob.blobs import delete_blob, put_blob
from etagere.operations.blob.collections import SNAPSHOTS
from etagere.operations.blob.containers import create_container, delete_container
from etagere.operations.blob.snapshots import delete_snapshot, snapshot_blob
from tests.clocks import SharedClock
from tests.operations.blob import test_races as races
from tests.operations.blob.consistency import rows
from tests.operations.blob.fixture import BOX, NOTHING_SENT, BlobFixture, blob_test
from tests.operations.blob.test_appends import NAME, _append, _begin
from tests.operations.blob.test_folding import (
    _add,
    _intervals,
    _mapped,
    _shown,
    _small,
    due_soon,
)
from tests.operations.interleaving import Call, look

__all__ = ["due_soon"]

_FOLD_SECONDS_MAX = 20.0


@pytest.mark.usefixtures("due_soon")
@blob_test
async def test_concurrent_folding_neither_loses_nor_repeats_bytes(blobs: BlobFixture) -> None:
    await _begin(blobs)
    folding = Folding(blobs.engine, blobs.store)
    running = asyncio.create_task(Job("folding", folding.fold_next, 0).run())
    block = b"block %06d;"
    done, stopped = 0, False

    async def add(writer: int) -> dict[int, bytes]:
        nonlocal done
        offsets = {}
        for number in range(80):
            data = block % (writer * 1_000 + number)
            added = await blobs.write(append_small_block, _small(data))
            if added is None or added.fold_due:
                folding.request(NAME)
            if added is None:
                added = await _append(blobs, data)
            offsets[added.offset] = data
            done += 1
        return offsets

    async def keep() -> None:
        while not stopped:
            before = await blobs.get("log")
            moment = await blobs.snapshot("log")
            kept = await blobs.get("log", snapshot=moment)
            assert kept.startswith(before)
            await asyncio.sleep(0.01)
            assert await blobs.get("log", snapshot=moment) == kept
            assert (await blobs.get("log")).startswith(kept)
            if random.random() < 0.7:
                await blobs.write(delete_snapshot, DeleteSnapshot(NAME, moment))
                await blobs.write(reap, Reap())
                await blobs.write(flatten, Flatten())

    keeping = asyncio.create_task(keep())
    written = await asyncio.gather(*(add(writer) for writer in range(4)))
    stopped = True
    await keeping
    content = await blobs.get("log")
    assert len(content) == 4 * 80 * len(block % 0)
    for offsets in written:
        for offset, data in offsets.items():
            assert content[offset : offset + len(data)] == data
    folding.request(NAME)
    async with asyncio.timeout(_FOLD_SECONDS_MAX):
        while is_due(_mapped(await _shown(blobs))):
            await asyncio.sleep(0.02)
    assert await blobs.get("log") == content
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await blobs.require_sound()
    await blobs.write(delete_blob, DeleteBlob(NAME, snapshots=DeleteSnapshots.INCLUDE))
    await blobs.require_empty()


@pytest.mark.usefixtures("due_soon")
@blob_test
async def test_the_job_skips_missing_blobs(blobs: BlobFixture) -> None:
    await _begin(blobs)
    folding = Folding(blobs.engine, blobs.store)
    running = asyncio.create_task(Job("folding", folding.fold_next, 0).run())
    for _ in range(8):
        await _add(blobs, b"data")
    for number in range(20):
        folding.request(BlobName(BOX, f"missing {number}"))
    folding.request(NAME)
    async with asyncio.timeout(_FOLD_SECONDS_MAX):
        while await _intervals(blobs) != 1:
            await asyncio.sleep(0.02)
    await blobs.write(delete_container, DeleteContainer(BOX))
    folding.request(NAME)
    await asyncio.sleep(0.05)
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


# Pairs of concurrent changes


def test_pairs_of_changes_are_serializable() -> None:
    clock = SharedClock()
    clock.freeze()
    engine = MemoryEngine(clock)
    opening = engine.begin()
    opening.put(SEGMENTS, (races.SEGMENT,), Segment(new_id()))
    opening.commit()
    name, call = races.NAME, Call
    made = PutBlob(name, NOTHING_SENT, kind=BlobKind.APPEND, content_id=new_id())
    for step in (
        call(create_container, CreateContainer(BOX, new_id())),
        call(put_blob, made),
        call(append_small_block, _small(b"one", name)),
        call(append_small_block, _small(b"two", name)),
        call(snapshot_blob, SnapshotBlob(name)),
        call(append_small_block, _small(b"three", name)),
    ):
        assert races.run(engine, step) == "something"
    moment = next(iter(look(engine, lambda txn, _: rows(txn, SNAPSHOTS))))[2]
    fold = Fold(made.content_id, 0, 11, (InlineRun(0, 11),), 3)

    def folding(offset: int) -> Call:
        crc = crc64nvme(b"onetwothree")
        body = Body(b"", 11, crc, pieces=(Piece(races.SEGMENT, offset, 11, crc),))
        return call(fold_blocks, FoldBlocks(name, fold, body, new_id()))

    in_pieces = Body(b"", 5, 0, pieces=(Piece(races.SEGMENT, 500, 5),))
    calls = {
        "fold": folding(100),
        "fold too": folding(200),
        "append small": call(append_small_block, _small(b"four", name)),
        "append there": call(append_small_block, _small(b"five", name, position=11)),
        "append": call(append_block, AppendBlock(name, in_pieces, new_id())),
        "seal": call(seal_blob, SealBlob(name)),
        "snapshot": call(snapshot_blob, SnapshotBlob(name)),
        "delete one": call(delete_snapshot, DeleteSnapshot(name, moment)),
        "delete all": call(delete_blob, DeleteBlob(name, snapshots=DeleteSnapshots.INCLUDE)),
        "put": call(put_blob, msgspec.structs.replace(made, content_id=new_id())),
        "reap": call(reap, Reap()),
    }
    pairs = races.interleavings(engine, calls)
    for outer, inner in permutations(pairs.calls, 2):
        pairs.require_serializable(outer, inner)
