"""Small blocks of append blobs: they are stored in the ledger, up to a limit, and folded into
segments."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import pytest
from awscrt.checksums import crc64nvme

from etagere.bodies import folding, intervals
from etagere.bodies.contents import EXTENTS, SEGMENTS
from etagere.bodies.maps import INTERVALS
from etagere.bodies.segments import Reap, reap
from etagere.engine.memory import MemoryEngine
from etagere.jobs.folding import Folding
from etagere.model.appends import AppendBlock, Appended, SealBlob
from etagere.model.blobs import (
    AppendTraits,
    Blob,
    BlobName,
    DeleteBlob,
    DeleteSnapshot,
    DeleteSnapshots,
    GetBlob,
    OpenBlob,
)
from etagere.model.bodies import Body, Mapped, Piece, Segment
from etagere.model.containers import CreateContainer
from etagere.model.ids import new_id
from etagere.operations.blob.appends import (
    FoldBlocks,
    append_small_block,
    find_fold,
    fold_blocks,
    seal_blob,
)
from etagere.operations.blob.blobs import delete_blob, open_blob, put_blob
from etagere.operations.blob.containers import create_container
from etagere.operations.blob.snapshots import delete_snapshot
from etagere.protocol.blob.handlers.appends import append
from etagere.rules.appends import APPENDED_BLOCKS_MAX
from tests.clocks import SharedClock
from tests.operations.blob.consistency import rows
from tests.operations.blob.fixture import BOX, BlobFixture, blob_test
from tests.operations.blob.test_appends import NAME, _append, _begin, _made, _run
from tests.operations.fixture import code_of

KIB = 1024


def _small(data: bytes, name: BlobName = NAME, **asked: Any) -> AppendBlock:
    return AppendBlock(name, Body(b"", len(data), crc64nvme(data), data), new_id(), **asked)


async def _add(blobs: BlobFixture, data: bytes) -> Appended:
    done = await blobs.write(append_small_block, _small(data))
    assert done is not None
    return done


def _mapped(blob: Blob) -> Mapped:
    assert isinstance(blob.content, Mapped)
    return blob.content


async def _shown(blobs: BlobFixture, name: str = "log") -> Blob:
    ask = OpenBlob(GetBlob(BlobName(BOX, name)))
    opened = await blobs.read(open_blob, ask)
    assert opened is not None
    return opened.result.blob


async def _intervals(blobs: BlobFixture) -> int:
    return len(await blobs.read(rows, INTERVALS))


@pytest.fixture
def due_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lowers the limits. The writer process is forked afterwards, so it has the same ones."""
    monkeypatch.setattr(intervals, "INLINE_INTERVAL_BYTES_MAX", 0)
    monkeypatch.setattr(folding, "INTERVALS_DUE", 8)
    monkeypatch.setattr(folding, "INTERVALS_MAX", 32)
    monkeypatch.setattr(folding, "_FOLDED_INTERVALS_MAX", 12)


# Appending


@blob_test
async def test_small_blocks_follow_each_other_and_larger_ones(blobs: BlobFixture) -> None:
    await _begin(blobs)
    assert (await _add(blobs, b"one ")).offset == 0
    assert (await _append(blobs, b"two ")).offset == 4
    done = await _add(blobs, b"three ")
    assert (done.offset, done.blob.traits) == (8, AppendTraits(3))
    await _add(blobs, b"four")
    assert len(await blobs.read(rows, EXTENTS)) == 1
    assert await blobs.get("log") == b"one two three four"
    assert await blobs.get("log", 2, 9) == b"e two th"
    await blobs.require_sound()
    await blobs.write(delete_blob, DeleteBlob(NAME))
    await blobs.require_empty()


@blob_test
async def test_small_blocks_have_the_same_preconditions(blobs: BlobFixture) -> None:
    await _begin(blobs)
    await _add(blobs, b"12345")
    for code, command in (
        ("AppendPositionConditionNotMet", _small(b"678", position=4)),
        ("MaxBlobSizeConditionNotMet", _small(b"678", length_max=7)),
    ):
        assert await code_of(blobs.write(append_small_block, command)) == code
    missing = _small(b"x", BlobName(BOX, "missing"))
    assert await code_of(blobs.write(append_small_block, missing)) == "BlobNotFound"
    await blobs.write(seal_blob, SealBlob(NAME))
    assert await code_of(blobs.write(append_small_block, _small(b"x"))) == "BlobIsSealed"
    assert await blobs.get("log") == b"12345"


@blob_test
async def test_bytes_in_the_ledger_are_limited(blobs: BlobFixture) -> None:
    await _begin(blobs)
    block, calls = bytes(32 * KIB), []
    for _ in range(folding.BYTES_MAX // len(block)):
        calls.append((await _add(blobs, block)).fold_due)
    assert [number for number, called in enumerate(calls, 1) if called] == [8, 16, 24, 32]
    before = await _shown(blobs)
    assert await blobs.write(append_small_block, _small(b"x")) is None
    assert await _shown(blobs) == before
    assert (await _append(blobs, b"x")).offset == folding.BYTES_MAX
    assert await blobs.write(append_small_block, _small(b"x")) is None


@pytest.mark.usefixtures("due_soon")
@blob_test
async def test_blocks_in_the_ledger_are_limited(blobs: BlobFixture) -> None:
    await _begin(blobs)
    for _ in range(32):
        await _add(blobs, b"x")
    assert await blobs.write(append_small_block, _small(b"x")) is None


@pytest.mark.usefixtures("due_soon")
@blob_test
async def test_blocks_beyond_the_limits_go_to_a_segment(blobs: BlobFixture) -> None:
    """Nothing is folded here, as if the job did not keep up."""
    await _begin(blobs)
    folding = Folding(blobs.engine, blobs.store)
    expected = b""
    for number in range(40):
        data = b"block %d;" % number
        done = await append(blobs.engine, blobs.store, folding, _small(data))
        assert done.offset == len(expected)
        expected += data
    content = _mapped(await _shown(blobs))
    assert content.inline_intervals == 32
    assert len(await blobs.read(rows, EXTENTS)) == 8
    assert await blobs.get("log") == expected
    while await folding.fold(NAME):
        pass
    assert await blobs.get("log") == expected
    assert _mapped(await _shown(blobs)).inline_intervals < 8
    await blobs.require_sound()


def _one() -> AppendBlock:
    return AppendBlock(NAME, Body(b"", 10, 0, b"0123456789"), b"child".ljust(16))


@pytest.mark.parametrize("row_bytes_max", [0, intervals.INLINE_INTERVAL_BYTES_MAX])
def test_the_last_block_costs_what_the_first_did(
    monkeypatch: pytest.MonkeyPatch, row_bytes_max: int
) -> None:
    monkeypatch.setattr(intervals, "INLINE_INTERVAL_BYTES_MAX", row_bytes_max)
    engine = MemoryEngine(SharedClock())
    opening = engine.begin()
    opening.put(SEGMENTS, (1,), Segment(new_id()))
    opening.commit()
    _run(engine, create_container, CreateContainer(BOX, new_id()))
    _run(engine, put_blob, _made())
    _run(engine, append_small_block, _one())
    second = _run(engine, append_small_block, _one())
    assert second["put intervals"] == 1
    folds, folds_cost = 0, []
    for number in range(2, APPENDED_BLOCKS_MAX - 1):
        _run(engine, append_small_block, _one())
        found = None if number % 256 else asyncio.run(engine.read(find_fold, NAME))
        if found is not None:
            data = b"".join(found.data)
            piece = Piece(1, 10_000 * folds, len(data), crc64nvme(data))
            body = Body(b"", len(data), crc64nvme(data), pieces=(piece,))
            folds_cost.append(_run(engine, fold_blocks, FoldBlocks(NAME, found.fold, body, b"")))
            folds += 1
    if not row_bytes_max:
        assert folds > 190
        assert folds_cost[-1] == folds_cost[1]
    assert _run(engine, append_small_block, _one()) == second
    one_more = engine.write(append_small_block, _one())
    assert asyncio.run(code_of(one_more)) == "BlockCountExceedsLimit"


def test_commands_can_be_encoded() -> None:
    fold = folding.Fold(b"map", 1, 9, (folding.InlineRun(1, 3), folding.InlineRun(5, 9)), 3)
    command = FoldBlocks(NAME, fold, Body(b"", 6, 1), new_id())
    sent = msgspec.msgpack.encode(command)
    assert msgspec.msgpack.decode(sent, type=FoldBlocks) == command


# Folding


@pytest.mark.usefixtures("due_soon")
@blob_test
async def test_folding_moves_bytes_and_changes_nothing_else(blobs: BlobFixture) -> None:
    await _begin(blobs)
    folding, expected = Folding(blobs.engine, blobs.store), b""
    for number in range(24):
        data = bytes([65 + number]) * (number + 1)
        expected += data
        await (_append if number in (3, 11) else _add)(blobs, data)
    before = await _shown(blobs)
    assert await folding.fold(NAME)
    assert await blobs.get("log") == expected
    assert not await folding.fold(NAME)
    after = await _shown(blobs)
    assert await blobs.get("log") == expected
    assert await blobs.get("log", 5, 40) == expected[5:41]
    assert after == msgspec.structs.replace(before, content=after.content)
    content = _mapped(after)
    assert (content.inline_bytes, content.inline_intervals, content.folded) == (0, 0, len(expected))
    # Runs before, between and after the two larger blocks, the last in two steps.
    assert await _intervals(blobs) == 6
    assert not await folding.fold(NAME)
    await blobs.require_sound()
    assert (await _add(blobs, b"more")).offset == len(expected)
    assert await blobs.get("log") == expected + b"more"
    await blobs.write(delete_blob, DeleteBlob(NAME))
    await blobs.require_empty()


@pytest.mark.usefixtures("due_soon")
@blob_test
async def test_few_blocks_are_not_folded(blobs: BlobFixture) -> None:
    await _begin(blobs)
    folding = Folding(blobs.engine, blobs.store)
    for _ in range(7):
        await _add(blobs, b"x")
    assert not await folding.fold(NAME)
    assert await _intervals(blobs) == 7


@pytest.mark.usefixtures("due_soon")
@blob_test
async def test_snapshots_keep_their_content(blobs: BlobFixture) -> None:
    await _begin(blobs)
    folding, expected = Folding(blobs.engine, blobs.store), b""
    kept: dict[int, bytes] = {}
    for number in range(60):
        data = b"%04d" % number
        await _add(blobs, data)
        expected += data
        if number % 7 == 3:
            kept[await blobs.snapshot("log")] = expected
        if number % 10 == 9:
            await folding.fold(NAME)
            kept[await blobs.snapshot("log")] = expected
            for moment, data in kept.items():
                assert await blobs.get("log", snapshot=moment) == data
    assert await blobs.get("log") == expected
    await blobs.require_sound()
    moments = list(kept)
    random.Random(1).shuffle(moments)
    for moment in moments[::2]:
        await blobs.write(delete_snapshot, DeleteSnapshot(NAME, moment))
        while await blobs.write(reap, Reap()):
            pass
    for moment in moments[1::2]:
        assert await blobs.get("log", snapshot=moment) == kept[moment]
    await blobs.require_sound()
    await blobs.write(delete_blob, DeleteBlob(NAME, snapshots=DeleteSnapshots.INCLUDE))
    await blobs.require_empty()


@pytest.mark.usefixtures("due_soon")
@blob_test
async def test_blocks_are_not_folded_into_a_replaced_blob(blobs: BlobFixture) -> None:
    await _begin(blobs)
    for _ in range(9):
        await _add(blobs, b"old")
    found = await blobs.read(find_fold, NAME)
    assert found is not None
    async with blobs.store.writer(27, inline=False) as writer:
        await writer.append(b"".join(found.data))
        command = FoldBlocks(NAME, found.fold, await writer.seal(), new_id())
        await blobs.write(put_blob, _made())
        for _ in range(9):
            await _add(blobs, b"new")
        assert not await blobs.write(fold_blocks, command)
        assert await blobs.get("log") == b"new" * 9
        await blobs.write(delete_blob, DeleteBlob(NAME))
        assert not await blobs.write(fold_blocks, command)
        await blobs.put("log", b"a block blob")
        assert not await blobs.write(fold_blocks, command)
        assert await blobs.get("log") == b"a block blob"
    await blobs.require_sound()


@pytest.mark.usefixtures("due_soon")
@blob_test
async def test_folded_blocks_are_not_folded_again(blobs: BlobFixture) -> None:
    await _begin(blobs)
    for _ in range(9):
        await _add(blobs, b"data")
    folding = Folding(blobs.engine, blobs.store)
    await asyncio.gather(*(folding.fold(NAME) for _ in range(4)))
    assert await blobs.get("log") == b"data" * 9
    assert len(await blobs.read(rows, EXTENTS)) == 1
    await blobs.require_sound()
