"""Append blobs with every engine: appending, preconditions, cost, and pairs of concurrent
changes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import permutations
from typing import Any

import msgspec
import pytest

from etagere.bodies.contents import SEGMENTS
from etagere.bodies.segments import Reap, reap
from etagere.engine.interface import Guard, WriteTxn
from etagere.engine.memory import MemoryEngine
from etagere.model.appends import AppendBlock, Appended, SealBlob
from etagere.model.blobs import (
    AppendTraits,
    Blob,
    BlobKind,
    BlobName,
    DeleteBlob,
    DeleteSnapshot,
    DeleteSnapshots,
    PutBlob,
    SetBlobHeaders,
    SnapshotBlob,
)
from etagere.model.bodies import Body, Piece, Segment
from etagere.model.common import ContentHeaders
from etagere.model.conditions import Conditions
from etagere.model.containers import CreateContainer
from etagere.model.ids import new_id
from etagere.model.leases import Acquire, new_lease_id
from etagere.model.page_blobs import (
    ClearPages,
    PutPage,
    SequenceAction,
    SequenceChange,
    SequenceConditions,
    SetPageBlobProperties,
)
from etagere.operations.blob.appends import append_block, precheck_append, seal_blob
from etagere.operations.blob.blobs import delete_blob, put_blob, set_blob_headers
from etagere.operations.blob.collections import SNAPSHOTS
from etagere.operations.blob.containers import create_container
from etagere.operations.blob.page_blobs import clear_pages, put_page, set_page_blob_properties
from etagere.operations.blob.snapshots import delete_snapshot, snapshot_blob
from etagere.rules.appends import APPENDED_BLOCKS_MAX
from etagere.rules.conditions import format_etag
from etagere.rules.page_blobs import PAGE_BYTES as PAGE
from tests.clocks import SharedClock
from tests.operations.blob import test_races as races
from tests.operations.blob.consistency import rows
from tests.operations.blob.fixture import BOX, NOTHING_SENT, BlobFixture, blob_test
from tests.operations.fixture import code_of
from tests.operations.interleaving import Call, look

NAME = BlobName(BOX, "log")
MISSING = BlobName(BOX, "missing")
SEGMENT = 1


def _made(name: BlobName = NAME) -> PutBlob:
    return PutBlob(name, NOTHING_SENT, kind=BlobKind.APPEND, content_id=new_id())


async def _begin(blobs: BlobFixture) -> Blob:
    await blobs.create()
    return await blobs.write(put_blob, _made())


async def _append(blobs: BlobFixture, data: bytes, name: BlobName = NAME, **asked: Any) -> Appended:
    async with blobs.store.writer(len(data), inline=False) as writer:
        await writer.append(data)
        command = AppendBlock(name, await writer.seal(), new_id(), **asked)
        return await blobs.write(append_block, command)


# Appending


@blob_test
async def test_blocks_follow_each_other(blobs: BlobFixture) -> None:
    made = await _begin(blobs)
    assert made.traits == AppendTraits()
    assert await blobs.get("log") == b""
    stamps = [made.stamp]
    for number, (data, offset) in enumerate(((b"one ", 0), (b"two ", 4), (b"x" * 70_000, 8)), 1):
        done = await _append(blobs, data)
        assert done.offset == offset
        assert done.blob.traits == AppendTraits(number)
        assert done.blob.content.length == offset + len(data)
        stamps.append(done.blob.stamp)
    assert stamps == sorted(set(stamps))
    assert await blobs.get("log") == b"one two " + b"x" * 70_000
    assert await blobs.get("log", 2, 9) == b"e two xx"
    await blobs.require_sound()
    await blobs.write(delete_blob, DeleteBlob(NAME))
    await blobs.require_empty()


@blob_test
async def test_a_snapshot_keeps_its_end(blobs: BlobFixture) -> None:
    await _begin(blobs)
    await _append(blobs, b"one ")
    first = await blobs.snapshot("log")
    await _append(blobs, b"two ")
    second = await blobs.snapshot("log")
    third = await blobs.snapshot("log")
    await _append(blobs, b"three ")
    assert await blobs.get("log", snapshot=first) == b"one "
    assert await blobs.get("log", snapshot=second) == b"one two "
    assert await blobs.get("log", snapshot=third) == b"one two "
    assert await blobs.get("log") == b"one two three "
    await blobs.require_sound()
    await blobs.write(delete_blob, DeleteBlob(NAME, snapshots=DeleteSnapshots.INCLUDE))
    await blobs.require_empty()


@blob_test
async def test_putting_the_blob_again_empties_it(blobs: BlobFixture) -> None:
    await _begin(blobs)
    await _append(blobs, b"old")
    await blobs.write(seal_blob, SealBlob(NAME))
    again = await blobs.write(put_blob, _made())
    assert again.traits == AppendTraits()
    assert (await _append(blobs, b"new")).offset == 0
    assert await blobs.get("log") == b"new"
    await blobs.require_sound()


@blob_test
async def test_concurrent_appends_are_serialized(blobs: BlobFixture) -> None:
    await _begin(blobs)
    blocks = [bytes([65 + number]) * (10 + number) for number in range(20)]
    done = await asyncio.gather(*(_append(blobs, block) for block in blocks))
    content = await blobs.get("log")
    assert len(content) == sum(map(len, blocks))
    for block, appended in zip(blocks, done, strict=True):
        assert content[appended.offset : appended.offset + len(block)] == block
    counts = [found.blob.traits for found in done]
    assert {traits.blocks for traits in counts if isinstance(traits, AppendTraits)} == {
        *range(1, 21)
    }


@blob_test
async def test_one_of_many_appends_meets_a_position(blobs: BlobFixture) -> None:
    await _begin(blobs)
    for end in (0, 5, 10):
        tries = [code_of(_append(blobs, b"block", position=end)) for _ in range(8)]
        codes = await asyncio.gather(*tries)
        assert Counter(codes) == {"": 1, "AppendPositionConditionNotMet": 7}
    assert await blobs.get("log") == b"block" * 3


# Preconditions


@blob_test
async def test_refused_appends_change_nothing(blobs: BlobFixture) -> None:
    await _begin(blobs)
    blob = (await _append(blobs, b"12345")).blob
    await blobs.put("block blob", b"data")
    other = Conditions(if_match=('"0x1"',))
    for code, name, asked in (
        ("BlobNotFound", MISSING, {}),
        ("InvalidBlobType", BlobName(BOX, "block blob"), {}),
        ("ConditionNotMet", NAME, {"conditions": other}),
        ("ConditionNotMet", BlobName(BOX, "block blob"), {"conditions": other}),
        ("AppendPositionConditionNotMet", NAME, {"position": 4}),
        ("MaxBlobSizeConditionNotMet", NAME, {"length_max": 7}),
        ("LeaseNotPresentWithBlobOperation", NAME, {"lease_id": new_lease_id()}),
    ):
        announced = AppendBlock(name, Body(b"", 3, 0), new_id(), **asked)
        assert await code_of(blobs.read(precheck_append, announced)) == code
        assert await code_of(_append(blobs, b"678", name, **asked)) == code
    met = Conditions(if_match=(format_etag(blob.stamp),))
    done = await _append(blobs, b"678", position=5, length_max=8, conditions=met)
    assert (done.offset, done.blob.traits) == (5, AppendTraits(2))
    assert await blobs.get("log") == b"12345678"
    await blobs.require_sound()


@blob_test
async def test_a_lease_excludes_other_writers(blobs: BlobFixture) -> None:
    await _begin(blobs)
    lease_id = new_lease_id()
    await blobs.lease("log", Acquire(lease_id, None))
    assert await code_of(_append(blobs, b"x")) == "LeaseIdMissing"
    wrong = "LeaseIdMismatchWithBlobOperation"
    assert await code_of(_append(blobs, b"x", lease_id=new_lease_id())) == wrong
    assert await code_of(blobs.write(seal_blob, SealBlob(NAME))) == "LeaseIdMissing"
    await _append(blobs, b"mine", lease_id=lease_id)
    await blobs.write(seal_blob, SealBlob(NAME, lease_id=lease_id))
    assert await blobs.get("log") == b"mine"


@blob_test
async def test_a_sealed_blob_cannot_be_appended_to(blobs: BlobFixture) -> None:
    await _begin(blobs)
    before = (await _append(blobs, b"end")).blob
    await blobs.put("block blob", b"data")
    for code, command in (
        ("BlobNotFound", SealBlob(MISSING)),
        ("InvalidBlobType", SealBlob(BlobName(BOX, "block blob"))),
        ("AppendPositionConditionNotMet", SealBlob(NAME, 2)),
        ("ConditionNotMet", SealBlob(NAME, conditions=Conditions(if_none_match=("*",)))),
    ):
        assert await code_of(blobs.write(seal_blob, command)) == code
    sealed = await blobs.write(seal_blob, SealBlob(NAME, 3))
    assert sealed.traits == AppendTraits(1, sealed=True)
    assert sealed.stamp > before.stamp
    assert await blobs.write(seal_blob, SealBlob(NAME)) == sealed
    assert await code_of(_append(blobs, b"more")) == "BlobIsSealed"
    described = await blobs.write(
        set_blob_headers, SetBlobHeaders(NAME, ContentHeaders("text/plain"))
    )
    assert described.traits == sealed.traits
    assert await blobs.get("log") == b"end"


# Cost


class CountingWriteTxn:
    """A transaction that counts the calls and the rows."""

    def __init__(self, txn: WriteTxn) -> None:
        self._txn = txn
        self.steps: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._txn, name)

    def get(self, collection: Any, key: Any, guard: Guard | None = None) -> Any:
        self.steps["get"] += 1
        return self._txn.get(collection, key, guard)

    def scan(self, collection: Any, span: Any, limit: int, **how: Any) -> Any:
        found = self._txn.scan(collection, span, limit, **how)
        self.steps["scan"] += 1 + len(found)
        return found

    def put(self, collection: Any, key: Any, record: Any) -> Any:
        self.steps[f"put {collection.name}"] += 1
        return self._txn.put(collection, key, record)


def _run(engine: MemoryEngine, run: Callable[[Any, Any], Any], command: Any) -> Counter[str]:
    txn = engine.begin()
    counting = CountingWriteTxn(txn)
    try:
        run(counting, command)
        txn.commit()
    finally:
        txn.rollback()
    return counting.steps


def _one(number: int) -> AppendBlock:
    body = Body(b"", 10, 0, pieces=(Piece(SEGMENT, 10 * number, 10),))
    return AppendBlock(NAME, body, b"child".ljust(16))


def test_the_last_block_costs_what_the_first_did() -> None:
    engine = MemoryEngine(SharedClock())
    opening = engine.begin()
    opening.put(SEGMENTS, (SEGMENT,), Segment(new_id()))
    opening.commit()
    _run(engine, create_container, CreateContainer(BOX, new_id()))
    _run(engine, put_blob, _made())
    _run(engine, append_block, _one(0))
    second = _run(engine, append_block, _one(1))
    for number in range(2, APPENDED_BLOCKS_MAX - 1):
        _run(engine, append_block, _one(number))
    assert _run(engine, append_block, _one(APPENDED_BLOCKS_MAX - 1)) == second
    one_more = engine.write(append_block, _one(APPENDED_BLOCKS_MAX))
    assert asyncio.run(code_of(one_more)) == "BlockCountExceedsLimit"


def test_commands_can_be_encoded() -> None:
    command = AppendBlock(NAME, Body(b"", 10, 0), new_id(), 5, 10, borrowed=True)
    sent = msgspec.msgpack.encode(command)
    assert msgspec.msgpack.decode(sent, type=AppendBlock) == command


# Pairs of concurrent changes, of page blobs too


def _pages(first: int, behind: int) -> Body:
    """Returns an upload to its own place."""
    pieces = (Piece(races.SEGMENT, first * PAGE, (behind - first) * PAGE),)
    return Body(b"", (behind - first) * PAGE, 0, pieces=pieces)


def _calls(kind: BlobKind, moment: int) -> dict[str, Call]:
    name, call = races.NAME, Call
    common = {
        "snapshot": call(snapshot_blob, SnapshotBlob(name)),
        "delete one": call(delete_snapshot, DeleteSnapshot(name, moment)),
        "delete all": call(delete_blob, DeleteBlob(name, snapshots=DeleteSnapshots.INCLUDE)),
        "reap": call(reap, Reap()),
    }
    if kind is BlobKind.APPEND:
        return common | {
            "append": call(append_block, AppendBlock(name, _pages(10, 12), new_id())),
            "append more": call(append_block, AppendBlock(name, _pages(12, 13), new_id())),
            "append there": call(append_block, AppendBlock(name, _pages(13, 14), new_id(), 1024)),
            "seal": call(seal_blob, SealBlob(name)),
        }
    update = SequenceChange(SequenceAction.UPDATE, 7)
    only = SequenceConditions(equal=0)
    return common | {
        "write": call(put_page, PutPage(name, 0, _pages(10, 12), new_id())),
        "overwrite": call(put_page, PutPage(name, PAGE, _pages(12, 13), new_id(), sequence=only)),
        "clear": call(clear_pages, ClearPages(name, PAGE, 2 * PAGE, new_id())),
        "resize": call(
            set_page_blob_properties, SetPageBlobProperties(name, new_id(), length=PAGE)
        ),
        "number": call(
            set_page_blob_properties, SetPageBlobProperties(name, new_id(), sequence=update)
        ),
    }


@pytest.mark.parametrize("kind", [BlobKind.PAGE, BlobKind.APPEND])
def test_pairs_of_changes_are_serializable(kind: BlobKind) -> None:
    clock = SharedClock()
    clock.freeze()
    engine = MemoryEngine(clock)
    opening = engine.begin()
    opening.put(SEGMENTS, (races.SEGMENT,), Segment(new_id()))
    opening.commit()
    length = 2 * PAGE if kind is BlobKind.PAGE else 0
    name, call = races.NAME, Call
    made = PutBlob(name, NOTHING_SENT, kind=kind, content_id=new_id(), length=length)
    first = (
        call(put_page, PutPage(name, 0, _pages(0, 2), new_id()))
        if kind is BlobKind.PAGE
        else call(append_block, AppendBlock(name, _pages(0, 2), new_id()))
    )
    for step in (
        call(create_container, CreateContainer(BOX, new_id())),
        call(put_blob, made),
        first,
        call(snapshot_blob, SnapshotBlob(name)),
    ):
        assert races.run(engine, step) == "something"
    moment = next(iter(look(engine, lambda txn, _: rows(txn, SNAPSHOTS))))[2]
    pairs = races.interleavings(engine, _calls(kind, moment))
    for outer, inner in permutations(pairs.calls, 2):
        pairs.require_serializable(outer, inner)
