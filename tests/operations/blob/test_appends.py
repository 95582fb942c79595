"""Append blobs over every engine: what is added, on what terms, and what it costs; and what
becomes of two changes at once."""

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
    BlobHeaders,
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
from tests.operations.blob.accounts import rows
from tests.operations.blob.shelf import BOX, NOTHING_SENT, Shelf, code_of, on_a_shelf

NAME = BlobName(BOX, "log")
MISSING = BlobName(BOX, "missing")
SEGMENT = 1


def _made(name: BlobName = NAME) -> PutBlob:
    return PutBlob(name, NOTHING_SENT, kind=BlobKind.APPEND, content_id=new_id())


async def _begin(shelf: Shelf) -> Blob:
    await shelf.create()
    return await shelf.write(put_blob, _made())


async def _append(shelf: Shelf, data: bytes, name: BlobName = NAME, **asked: Any) -> Appended:
    async with shelf.store.writer(len(data), inline=False) as writer:
        await writer.append(data)
        command = AppendBlock(name, await writer.seal(), new_id(), **asked)
        return await shelf.write(append_block, command)


# What is added


@on_a_shelf
async def test_blocks_follow_each_other(shelf: Shelf) -> None:
    made = await _begin(shelf)
    assert made.traits == AppendTraits()
    assert await shelf.get("log") == b""
    stamps = [made.stamp]
    for number, (data, offset) in enumerate(((b"one ", 0), (b"two ", 4), (b"x" * 70_000, 8)), 1):
        done = await _append(shelf, data)
        assert done.offset == offset
        assert done.blob.traits == AppendTraits(number)
        assert done.blob.content.length == offset + len(data)
        stamps.append(done.blob.stamp)
    assert stamps == sorted(set(stamps))
    assert await shelf.get("log") == b"one two " + b"x" * 70_000
    assert await shelf.get("log", 2, 9) == b"e two xx"
    await shelf.require_sound()
    await shelf.write(delete_blob, DeleteBlob(NAME))
    await shelf.require_bare()


@on_a_shelf
async def test_a_snapshot_keeps_its_end(shelf: Shelf) -> None:
    await _begin(shelf)
    await _append(shelf, b"one ")
    first = await shelf.snapshot("log")
    await _append(shelf, b"two ")
    second = await shelf.snapshot("log")
    third = await shelf.snapshot("log")
    await _append(shelf, b"three ")
    assert await shelf.get("log", snapshot=first) == b"one "
    assert await shelf.get("log", snapshot=second) == b"one two "
    assert await shelf.get("log", snapshot=third) == b"one two "
    assert await shelf.get("log") == b"one two three "
    await shelf.require_sound()
    await shelf.write(delete_blob, DeleteBlob(NAME, snapshots=DeleteSnapshots.INCLUDE))
    await shelf.require_bare()


@on_a_shelf
async def test_put_again_it_begins_anew(shelf: Shelf) -> None:
    await _begin(shelf)
    await _append(shelf, b"old")
    await shelf.write(seal_blob, SealBlob(NAME))
    again = await shelf.write(put_blob, _made())
    assert again.traits == AppendTraits()
    assert (await _append(shelf, b"new")).offset == 0
    assert await shelf.get("log") == b"new"
    await shelf.require_sound()


@on_a_shelf
async def test_appenders_are_served_one_after_the_other(shelf: Shelf) -> None:
    await _begin(shelf)
    blocks = [bytes([65 + number]) * (10 + number) for number in range(20)]
    done = await asyncio.gather(*(_append(shelf, block) for block in blocks))
    content = await shelf.get("log")
    assert len(content) == sum(map(len, blocks))
    for block, appended in zip(blocks, done, strict=True):
        assert content[appended.offset : appended.offset + len(block)] == block
    counts = [found.blob.traits for found in done]
    assert {traits.blocks for traits in counts if isinstance(traits, AppendTraits)} == {
        *range(1, 21)
    }


@on_a_shelf
async def test_one_of_many_meets_a_position(shelf: Shelf) -> None:
    await _begin(shelf)
    for end in (0, 5, 10):
        tries = [code_of(_append(shelf, b"block", position=end)) for _ in range(8)]
        codes = await asyncio.gather(*tries)
        assert Counter(codes) == {"": 1, "AppendPositionConditionNotMet": 7}
    assert await shelf.get("log") == b"block" * 3


# On what terms


@on_a_shelf
async def test_what_is_refused_changes_nothing(shelf: Shelf) -> None:
    await _begin(shelf)
    blob = (await _append(shelf, b"12345")).blob
    await shelf.put("block blob", b"data")
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
        assert await code_of(shelf.read(precheck_append, announced)) == code
        assert await code_of(_append(shelf, b"678", name, **asked)) == code
    met = Conditions(if_match=(format_etag(blob.stamp),))
    done = await _append(shelf, b"678", position=5, length_max=8, conditions=met)
    assert (done.offset, done.blob.traits) == (5, AppendTraits(2))
    assert await shelf.get("log") == b"12345678"
    await shelf.require_sound()


@on_a_shelf
async def test_a_lease_keeps_others_away(shelf: Shelf) -> None:
    await _begin(shelf)
    lease_id = new_lease_id()
    await shelf.lease("log", Acquire(lease_id, None))
    assert await code_of(_append(shelf, b"x")) == "LeaseIdMissing"
    wrong = "LeaseIdMismatchWithBlobOperation"
    assert await code_of(_append(shelf, b"x", lease_id=new_lease_id())) == wrong
    assert await code_of(shelf.write(seal_blob, SealBlob(NAME))) == "LeaseIdMissing"
    await _append(shelf, b"mine", lease_id=lease_id)
    await shelf.write(seal_blob, SealBlob(NAME, lease_id=lease_id))
    assert await shelf.get("log") == b"mine"


@on_a_shelf
async def test_a_sealed_blob_takes_no_more(shelf: Shelf) -> None:
    await _begin(shelf)
    before = (await _append(shelf, b"end")).blob
    await shelf.put("block blob", b"data")
    for code, command in (
        ("BlobNotFound", SealBlob(MISSING)),
        ("InvalidBlobType", SealBlob(BlobName(BOX, "block blob"))),
        ("AppendPositionConditionNotMet", SealBlob(NAME, 2)),
        ("ConditionNotMet", SealBlob(NAME, conditions=Conditions(if_none_match=("*",)))),
    ):
        assert await code_of(shelf.write(seal_blob, command)) == code
    sealed = await shelf.write(seal_blob, SealBlob(NAME, 3))
    assert sealed.traits == AppendTraits(1, sealed=True)
    assert sealed.stamp > before.stamp
    assert await shelf.write(seal_blob, SealBlob(NAME)) == sealed
    assert await code_of(_append(shelf, b"more")) == "BlobIsSealed"
    described = await shelf.write(set_blob_headers, SetBlobHeaders(NAME, BlobHeaders("text/plain")))
    assert described.traits == sealed.traits
    assert await shelf.get("log") == b"end"


# What it costs


class Counting:
    """A transaction that counts what is done with it."""

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
    counting = Counting(txn)
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


def test_commands_travel() -> None:
    command = AppendBlock(NAME, Body(b"", 10, 0), new_id(), 5, 10, borrowed=True)
    sent = msgspec.msgpack.encode(command)
    assert msgspec.msgpack.decode(sent, type=AppendBlock) == command


# In each other's way, and page blobs likewise


def _pages(first: int, behind: int) -> Body:
    """An upload at a place of its own."""
    pieces = (Piece(races.SEGMENT, first * PAGE, (behind - first) * PAGE),)
    return Body(b"", (behind - first) * PAGE, 0, pieces=pieces)


def _calls(kind: BlobKind, moment: int) -> dict[str, races.Call]:
    name, call = races.NAME, races.Call
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
def test_any_two_come_to_what_they_come_to_in_turn(kind: BlobKind) -> None:
    clock = SharedClock()
    clock.freeze()
    engine = MemoryEngine(clock)
    opening = engine.begin()
    opening.put(SEGMENTS, (races.SEGMENT,), Segment(new_id()))
    opening.commit()
    length = 2 * PAGE if kind is BlobKind.PAGE else 0
    name, call = races.NAME, races.Call
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
        assert races._run(engine, step) == "something"
    moment = next(iter(races._look(engine, lambda txn, _: rows(txn, SNAPSHOTS))))[2]
    world = races.World(engine, _calls(kind, moment))
    for outer, inner in permutations(world.calls, 2):
        races._require_some_order(world, outer, inner)
