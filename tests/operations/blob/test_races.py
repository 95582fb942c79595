"""Any two operations on one blob, one of them run at every point within the other.

The engine in memory shows what a decision rests on that was not guarded: each pair must come to
what it comes to one after the other, in one order or the other, and every count must be right.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from itertools import permutations
from typing import Any, NamedTuple

import pytest

from etagere.bodies.contents import SEGMENTS, Plan, locate
from etagere.bodies.segments import Reap, reap
from etagere.clock import TICKS_PER_SECOND
from etagere.engine.interface import Conflict, ReadTxn, Refused, WriteTxn
from etagere.engine.memory import MemoryEngine, MemoryReadTxn, MemoryWriteTxn
from etagere.model.blobs import (
    AbandonDraft,
    BlobName,
    BlobRead,
    DeleteBlob,
    DeleteSnapshot,
    DeleteSnapshots,
    ExtendDraft,
    LeaseBlob,
    PutBlob,
    PutBlock,
    PutBlockList,
    RecordReads,
    SetBlobMetadata,
    SnapshotBlob,
)
from etagere.model.bodies import Body, Piece, Segment
from etagere.model.containers import CreateContainer, DeleteContainer
from etagere.model.ids import new_id
from etagere.model.leases import Acquire
from etagere.operations.blob import block_lists, staging
from etagere.operations.blob.blobs import delete_blob, lease_blob, put_blob, set_blob_metadata
from etagere.operations.blob.collections import (
    BLOBS,
    CONTAINERS,
    DRAFTS,
    SNAPSHOTS,
    STAGED_BLOCKS,
    STAGINGS,
)
from etagere.operations.blob.containers import create_container, delete_container
from etagere.operations.blob.last_access import record_reads
from etagere.operations.blob.purging import PurgeContainers, purge_containers
from etagere.operations.blob.snapshots import delete_snapshot, snapshot_blob
from etagere.protocol.blob.drafting import Drafting
from tests.clocks import SharedClock
from tests.operations.blob.accounts import require_balanced, require_orderly, rows
from tests.operations.blob.shelf import BOX, committed, latest

pytestmark = pytest.mark.usefixtures("short_chunks")

NAME = BlobName(BOX, "blob")
SEGMENT = 1
LEASE_ID = b"\xaa" * 16
A, B, C, D, E = b"a", b"b", b"c", b"d", b"e"


class Call(NamedTuple):
    """An operation and what it is asked."""

    operation: Callable[[WriteTxn, Any], Any]
    command: Any


def _body(number: int) -> Body:
    """An upload of ten bytes at a place of its own."""
    return Body(new_id(), 10, 0, pieces=(Piece(SEGMENT, 10 * number, 10),))


def _block(name: bytes, number: int) -> Call:
    return Call(staging.put_block, PutBlock(NAME, name, _body(number), new_id()))


def _run(engine: MemoryEngine, call: Call) -> str:
    return _finish(engine.begin(), call)


def _finish(txn: MemoryWriteTxn, call: Call) -> str:
    """What a call comes to: a refusal's code, or whether it has an answer."""
    try:
        answer = call.operation(txn, call.command)
        txn.commit()
    except Refused as refused:
        return refused.refusal.code
    finally:
        txn.rollback()
    return "nothing" if answer is None else "something"


def _look(engine: MemoryEngine, question: Callable[[MemoryReadTxn, Any], Any]) -> Any:
    txn = engine.begin_read()
    try:
        return question(txn, None)
    finally:
        txn.close()


async def _all(steps: AsyncIterator[ExtendDraft]) -> list[ExtendDraft]:
    return [step async for step in steps]


class World(NamedTuple):
    """A blob with everything that a blob can have, and what can be done to it."""

    engine: MemoryEngine
    calls: dict[str, Call]


def _world() -> World:
    clock = SharedClock()
    clock.freeze()
    engine = MemoryEngine(clock)
    opening = engine.begin()
    opening.put(SEGMENTS, (SEGMENT,), Segment(new_id()))
    opening.commit()
    made = PutBlockList(NAME, new_id(), tuple(latest(A, B, C, D, A)))
    for call in (
        Call(create_container, CreateContainer(BOX, new_id())),
        *(_block(name, number) for number, name in enumerate((A, B, C, D, E))),
        Call(block_lists.put_block_list, made),  # which leaves a block to be removed
        Call(snapshot_blob, SnapshotBlob(NAME)),
        _block(C, 6),
        _block(E, 7),
    ):
        _run(engine, call)
    stamp: int = next(iter(_look(engine, lambda txn, _: rows(txn, BLOBS)).values())).stamp
    moment: int = next(iter(_look(engine, lambda txn, _: rows(txn, SNAPSHOTS))))[2]
    asked = PutBlockList(NAME, new_id(), tuple(latest(*(A, B, C, D) * 2, E)))
    drafting = Drafting(engine, asked, asked.content_id)
    *steps, last = asyncio.run(_all(drafting.steps()))
    assert steps
    for step in steps:
        _run(engine, Call(block_lists.extend_draft, step))
    # By now what waits is stale, and so is the draft: both may be used, and may be dropped.
    clock.advance(8 * 24 * 3600 * TICKS_PER_SECOND)
    calls = {
        "put": Call(put_blob, PutBlob(NAME, _body(8))),
        "stage": _block(A, 9),
        "stage again": _block(C, 10),
        "commit": Call(
            block_lists.put_block_list,
            PutBlockList(NAME, new_id(), (*latest(E, C), *committed(A, B, C, D))),
        ),
        "extend": Call(block_lists.extend_draft, last),
        "put draft": Call(block_lists.put_draft, drafting.decision()),
        "abandon": Call(block_lists.abandon_draft, AbandonDraft(asked.content_id)),
        "snapshot": Call(snapshot_blob, SnapshotBlob(NAME)),
        "describe": Call(set_blob_metadata, SetBlobMetadata(NAME, (("Key", "value"),))),
        "lease": Call(lease_blob, LeaseBlob(NAME, Acquire(LEASE_ID, None))),
        "record read": Call(record_reads, RecordReads((BlobRead(NAME, stamp),))),
        "delete": Call(delete_blob, DeleteBlob(NAME)),
        "delete all": Call(delete_blob, DeleteBlob(NAME, snapshots=DeleteSnapshots.INCLUDE)),
        "delete snapshots": Call(delete_blob, DeleteBlob(NAME, snapshots=DeleteSnapshots.ONLY)),
        "delete one": Call(delete_snapshot, DeleteSnapshot(NAME, moment)),
        "delete container": Call(delete_container, DeleteContainer(BOX)),
        "drop stale": Call(staging.discard_stale, staging.PurgeStagings()),
        "purge drafts": Call(block_lists.purge_drafts, block_lists.PurgeDrafts()),
        **_LATER,
    }
    return World(engine, calls)


_LATER = {
    "purge containers": Call(purge_containers, PurgeContainers()),
    "purge blocks": Call(staging.purge_discarded, staging.PurgeStagings()),
    "reap": Call(reap, Reap()),
}
"""What nobody sees, whenever it is done."""
_COME_AGAIN = ("drop stale", "purge drafts")
"""They skip what another is busy with, and find it the next time."""


def _visible(txn: ReadTxn, _: None) -> object:
    """What clients can see."""
    container = txn.get(CONTAINERS, BOX.key)
    if container is None:
        return "no container"
    key = (container.id, NAME.name)
    blob, waiting = txn.get(BLOBS, key), txn.get(STAGINGS, key)
    staged: list[object] = []
    if waiting is not None:
        span = STAGED_BLOCKS.under((waiting.id,))
        staged = [(name, block.pieces) for (_, name), block in txn.scan(STAGED_BLOCKS, span, 10)]
    taken: list[Plan] = [locate(txn, found.content) for found in rows(txn, SNAPSHOTS).values()]
    drafted = [draft.content.length for draft in rows(txn, DRAFTS).values()]
    shown: object = None
    if blob is not None:
        shown = (locate(txn, blob.content), blob.lease, blob.metadata, bool(blob.read_at))
    return shown, staged, taken, drafted


def _settled(engine: MemoryEngine, world: World, names: tuple[str, str]) -> object:
    """What can be seen when nothing is left to be removed, every count having been right before
    and after."""
    _look(engine, require_balanced)
    for name in names:
        if name in _COME_AGAIN:
            _run(engine, world.calls[name])
    _look(engine, require_balanced)
    for call in _LATER.values():
        while _removed(engine, call):
            pass
    _look(engine, require_balanced)
    _look(engine, require_orderly)
    return _look(engine, _visible)


def _removed(engine: MemoryEngine, call: Call) -> int:
    txn = engine.begin()
    count: int = call.operation(txn, call.command)
    txn.commit()
    return count


Outcome = tuple[dict[str, str], object]


def _one_after_the_other(world: World, names: tuple[str, str]) -> Outcome:
    engine = world.engine.restarted()
    codes = {name: _run(engine, world.calls[name]) for name in names}
    return codes, _settled(engine, world, names)


def _one_within_the_other(world: World, outer: str, inner: str, step: int) -> Outcome | None:
    """What the two come to if the inner is run before this step of the outer; None if the outer
    has no such step. Whoever meets a conflict is run again afterwards, as the engine does."""
    engine = world.engine.restarted()
    codes: dict[str, str] = {}
    steps = 0

    def interrupt() -> None:
        nonlocal steps
        steps += 1
        if steps == step:
            with suppress(Conflict):
                codes[inner] = _run(engine, world.calls[inner])

    try:
        codes[outer] = _finish(engine.begin(interrupt), world.calls[outer])
    except Conflict:
        codes[outer] = _run(engine, world.calls[outer])
    if steps < step:
        return None
    if inner not in codes:
        codes[inner] = _run(engine, world.calls[inner])
    return codes, _settled(engine, world, (outer, inner))


OPERATIONS = (
    "put",
    "stage",
    "stage again",
    "commit",
    "extend",
    "put draft",
    "abandon",
    "snapshot",
    "describe",
    "lease",
    "record read",
    "delete",
    "delete all",
    "delete snapshots",
    "delete one",
    "delete container",
    "drop stale",
    "purge drafts",
    *_LATER,
)


def _require_some_order(world: World, outer: str, inner: str) -> None:
    serial = [_one_after_the_other(world, names) for names in ((outer, inner), (inner, outer))]
    step = 1
    while (found := _one_within_the_other(world, outer, inner, step)) is not None:
        assert found in serial, (outer, inner, step)
        step += 1
    assert step > 2


@pytest.mark.parametrize("outer", OPERATIONS)
def test_any_two_come_to_what_they_come_to_in_turn(outer: str) -> None:
    world = _world()
    assert list(world.calls) == list(OPERATIONS)
    for inner in OPERATIONS:
        if inner != outer:
            _require_some_order(world, outer, inner)


def test_so_do_those_that_come_first() -> None:
    """Where nothing is, a decision rests on what is absent."""
    engine = MemoryEngine()
    opening = engine.begin()
    opening.put(SEGMENTS, (SEGMENT,), Segment(new_id()))
    opening.commit()
    _run(engine, Call(create_container, CreateContainer(BOX, new_id())))
    only = PutBlock(NAME, A, _body(1), new_id(), only_if_absent=True)
    calls = {
        "put": Call(put_blob, PutBlob(NAME, _body(0))),
        "stage": Call(staging.put_block, only),
        "stage another": _block(B, 2),
        "commit": Call(block_lists.put_block_list, PutBlockList(NAME, new_id(), ())),
        "delete container": Call(delete_container, DeleteContainer(BOX)),
    }
    for outer, inner in permutations(calls, 2):
        _require_some_order(World(engine, calls), outer, inner)
