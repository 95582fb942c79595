"""Pairs of concurrent operations on one blob: serializable, with every reference count right."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import permutations

import pytest

from etagere.bodies.contents import SEGMENTS
from etagere.bodies.plans import Plan, locate
from etagere.bodies.segments import Reap, reap
from etagere.clock import TICKS_PER_SECOND
from etagere.engine.interface import ReadTxn
from etagere.engine.memory import MemoryEngine
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
from tests.operations.blob.consistency import require_balanced, require_reachable, rows
from tests.operations.blob.fixture import BOX, committed, latest
from tests.operations.interleaving import Call, Interleavings, execute_until_done, look

pytestmark = pytest.mark.usefixtures("short_chunks")

NAME = BlobName(BOX, "blob")
SEGMENT = 1
LEASE_ID = b"\xaa" * 16
A, B, C, D, E = b"a", b"b", b"c", b"d", b"e"


def _body(number: int) -> Body:
    """Returns an upload of ten bytes at its own place."""
    return Body(new_id(), 10, 0, pieces=(Piece(SEGMENT, 10 * number, 10),))


def _block(name: bytes, number: int) -> Call:
    return Call(staging.put_block, PutBlock(NAME, name, _body(number), new_id()))


async def _all(steps: AsyncIterator[ExtendDraft]) -> list[ExtendDraft]:
    return [step async for step in steps]


def interleavings(engine: MemoryEngine, calls: dict[str, Call]) -> Interleavings:
    """Compares what clients can see: whether a call has a result, and the blob afterwards."""

    def show_outcome(engine: MemoryEngine, results: dict[str, object]) -> object:
        look(engine, require_balanced)
        for name in results:
            if name in _RETRIED:
                run(engine, calls[name])
        look(engine, require_balanced)
        for call in _BACKGROUND.values():
            execute_until_done(engine, call)
        look(engine, require_balanced)
        look(engine, require_reachable)
        return results, look(engine, _visible)

    return Interleavings(engine, calls, _show_result, show_outcome)


def _show_result(result: object) -> str:
    return "nothing" if result is None else "something"


def run(engine: MemoryEngine, call: Call) -> object:
    return interleavings(engine, {}).run(engine.begin(), call)


def _populated() -> Interleavings:
    """Creates a blob with everything that a blob can have, and the calls to run on it."""
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
        Call(block_lists.put_block_list, made),  # which leaves a block to remove
        Call(snapshot_blob, SnapshotBlob(NAME)),
        _block(C, 6),
        _block(E, 7),
    ):
        run(engine, call)
    stamp: int = next(iter(look(engine, lambda txn, _: rows(txn, BLOBS)).values())).stamp
    moment: int = next(iter(look(engine, lambda txn, _: rows(txn, SNAPSHOTS))))[2]
    asked = PutBlockList(NAME, new_id(), tuple(latest(*(A, B, C, D) * 2, E)))
    drafting = Drafting(engine, asked, asked.content_id)
    *steps, last = asyncio.run(_all(drafting.steps()))
    assert steps
    for step in steps:
        run(engine, Call(block_lists.extend_draft, step))
    # By now the staged blocks and the draft have expired: they may be used or dropped.
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
        **_BACKGROUND,
    }
    return interleavings(engine, calls)


_BACKGROUND = {
    "purge containers": Call(purge_containers, PurgeContainers()),
    "purge blocks": Call(staging.purge_discarded, staging.PurgeStagings()),
    "reap": Call(reap, Reap()),
}
"""Background removal, which is invisible to clients."""
_RETRIED = ("drop stale", "purge drafts")
"""These skip records that another call has locked, and find them the next time."""


def _visible(txn: ReadTxn, _: None) -> object:
    """Returns the state that clients can see."""
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
    *_BACKGROUND,
)


@pytest.mark.parametrize("outer", OPERATIONS)
def test_pairs_of_operations_are_serializable(outer: str) -> None:
    pairs = _populated()
    assert list(pairs.calls) == list(OPERATIONS)
    for inner in OPERATIONS:
        if inner != outer:
            pairs.require_serializable(outer, inner)


def test_pairs_on_an_empty_container_are_serializable() -> None:
    """Where nothing exists, a decision rests on the absence of records."""
    engine = MemoryEngine()
    opening = engine.begin()
    opening.put(SEGMENTS, (SEGMENT,), Segment(new_id()))
    opening.commit()
    run(engine, Call(create_container, CreateContainer(BOX, new_id())))
    only = PutBlock(NAME, A, _body(1), new_id(), only_if_absent=True)
    calls = {
        "put": Call(put_blob, PutBlob(NAME, _body(0))),
        "stage": Call(staging.put_block, only),
        "stage another": _block(B, 2),
        "commit": Call(block_lists.put_block_list, PutBlockList(NAME, new_id(), ())),
        "delete container": Call(delete_container, DeleteContainer(BOX)),
    }
    for outer, inner in permutations(calls, 2):
        interleavings(engine, calls).require_serializable(outer, inner)
