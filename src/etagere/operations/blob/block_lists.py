"""Block lists: blobs made of blocks, and what they are made of.

A list becomes a blob in one step, whatever its length. A long one would keep the others waiting,
so it is drafted first: read aside, and put together in short steps that nobody sees. The last
step decides, as for a short one, and takes the draft if it still is what is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator

from etagere.bodies.contents import (
    MissingRecord,
    begin_list,
    blocks_of,
    compose,
    extend_list,
    plan_chunks,
    release,
)
from etagere.clock import TICKS_PER_SECOND
from etagere.engine.interface import EXCLUSIVE, ReadTxn, Refused, WriteTxn, abort_if, operation
from etagere.errors import Refusal
from etagere.model.base import Command
from etagere.model.blobs import (
    AbandonDraft,
    Blob,
    BlockSize,
    Draft,
    DraftPlan,
    ExtendDraft,
    GetBlockList,
    PutBlockList,
    PutDraft,
    ShownBlockList,
    StagedBlock,
    Staging,
)
from etagere.model.bodies import Block, Chunked, ChunkUse, Content, Empty
from etagere.model.leases import NO_LEASE, LeaseKind
from etagere.operations.blob import staging as stagings
from etagere.operations.blob.blobs import find_for_change, find_shown, replace
from etagere.operations.blob.collections import BLOBS, DRAFTS, STAGED_BLOCKS, STAGINGS
from etagere.operations.blob.containers import find
from etagere.operations.blob.terms import check_replace
from etagere.rules import leases as lease_rules
from etagere.rules import tags as tag_rules
from etagere.rules.blocks import STAGED_BLOCKS_MAX, looks_at_committed, resolve

_DRAFT_SECONDS_MAX = 3600
# In one step, so that nobody waits for it for more than a millisecond or two.
DRAFTED_PIECES_MAX = 128
_SHARED_CHUNKS_MAX = 16
# Rows of a scan for which one could be looked up by its key.
_LOOKUPS_WORTH = 4


@operation
def put_block_list(txn: WriteTxn, command: PutBlockList) -> Blob:
    key, old = find_for_change(txn, command.blob)
    check_replace(old, command, txn.now)
    staging = txn.get(STAGINGS, key, EXCLUSIVE)
    base = old.content if old is not None and isinstance(old.content, Chunked) else None
    staged, committed = _blocks(txn, staging, base, command)
    blocks = resolve(command.blocks, staged, committed)
    if isinstance(blocks, Refusal):
        raise Refused(blocks)
    content: Content = Empty()
    if blocks:
        borrowed = {piece.extent for block in committed.values() for piece in block.pieces}
        content = compose(txn, command.content_id, blocks, base=base, borrowed=borrowed)
    if staging is not None:
        _take(txn, staging, staged, blocks)
        stagings.forget(txn, key, staging)
    return replace(txn, key, old, command, content)


def _blocks(
    txn: ReadTxn | WriteTxn,
    staging: Staging | None,
    base: Chunked | None,
    command: PutBlockList,
) -> tuple[dict[bytes, Block], dict[bytes, Block]]:
    """Those that are staged, and those of the blob as it is if the list may mean them."""
    staged: dict[bytes, Block] = {}
    if staging is not None:
        for name, block in _staged(txn, staging, {block.name for block in command.blocks}):
            staged[name] = Block(name, block.pieces)
    committed: dict[bytes, Block] = {}
    if base is not None and looks_at_committed(command.blocks):
        committed = {block.name: block for block in blocks_of(txn, base)}
    return staged, committed


def _staged(
    txn: ReadTxn | WriteTxn, staging: Staging, wanted: set[bytes]
) -> Iterator[tuple[bytes, StagedBlock]]:
    """The staged blocks of these names, and perhaps others."""
    if len(wanted) * _LOOKUPS_WORTH < staging.count:
        for name in wanted:
            block = txn.get(STAGED_BLOCKS, (staging.id, name))
            if block is not None:
                yield name, block
        return
    span = STAGED_BLOCKS.under((staging.id,))
    for (_, name), block in txn.scan(STAGED_BLOCKS, span, STAGED_BLOCKS_MAX):
        yield name, block


def _take(txn: WriteTxn, staging: Staging, staged: dict[bytes, Block], blocks: list[Block]) -> None:
    """Lets the list have the references of the blocks that it took from the staging."""
    for name in {block.name for block in blocks if staged.get(block.name) is block}:
        txn.delete(STAGED_BLOCKS, (staging.id, name))


# Drafts of long lists


def plan_draft(txn: ReadTxn, command: PutBlockList) -> DraftPlan:
    """What to put together; refuses what would be refused if it were to be decided now."""
    key = (find(txn, command.blob.container).id, command.blob.name)
    old, staging = txn.get(BLOBS, key), txn.get(STAGINGS, key)
    check_replace(old, command, txn.now)
    base = old.content if old is not None and isinstance(old.content, Chunked) else None
    blocks = resolve(command.blocks, *_blocks(txn, staging, base, command))
    if isinstance(blocks, Refusal):
        raise Refused(blocks)
    if not looks_at_committed(command.blocks):
        base = None
    return DraftPlan(
        tuple(plan_chunks(txn, blocks, base, DRAFTED_PIECES_MAX)),
        staging.stamp if staging is not None else None,
        base.id if base is not None else None,
    )


def has_base(txn: ReadTxn, command: PutBlockList) -> bool:
    """Whether a list may be made of blocks of the blob as it is: then it is planned as a whole, to
    share as much with that as it can. Otherwise it can be planned bit by bit."""
    old = txn.get(BLOBS, (find(txn, command.blob.container).id, command.blob.name))
    if old is None or not isinstance(old.content, Chunked):
        return False
    return looks_at_committed(command.blocks)


def steps(plan: DraftPlan, content_id: bytes, *, begins: bool = True) -> list[ExtendDraft]:
    """Commands that put a draft together, each short. `begins`: these are the first."""
    found: list[ExtendDraft] = []
    shared: list[ChunkUse] = []
    for chunk in plan.chunks:
        new = () if isinstance(chunk, ChunkUse) else chunk
        if isinstance(chunk, ChunkUse):
            shared.append(chunk)
        if new or len(shared) == _SHARED_CHUNKS_MAX:
            found.append(ExtendDraft(content_id, tuple(shared), new, begins and not found))
            shared = []
    if shared:
        found.append(ExtendDraft(content_id, tuple(shared), begins=begins and not found))
    return found


@operation
def extend_draft(txn: WriteTxn, command: ExtendDraft) -> None:
    """One step of a draft. Refused if what it is to be made of is not there any more."""
    key = (command.content_id,)
    draft = txn.get(DRAFTS, key, EXCLUSIVE)
    if (draft is None) != command.begins:
        # It was purged meanwhile: what would be put now is a blob without its beginning.
        raise Refused(Refusal("InvalidBlockList"))
    if draft is None:
        draft = Draft(begin_list(txn, command.content_id), txn.now)
    try:
        content = extend_list(txn, draft.content, command.shared, command.blocks)
    except MissingRecord:
        raise Refused(Refusal("InvalidBlockList")) from None
    txn.put(DRAFTS, key, Draft(content, draft.begun))


@operation
def put_draft(txn: WriteTxn, command: PutDraft) -> Blob | None:
    """None if the draft is not what is asked for any more."""
    asked = command.command
    key, old = find_for_change(txn, asked.blob)
    check_replace(old, asked, txn.now)
    staging = txn.get(STAGINGS, key, EXCLUSIVE)
    draft = txn.get(DRAFTS, (asked.content_id,), EXCLUSIVE)
    base_id = old.content.id if old is not None and isinstance(old.content, Chunked) else None
    if draft is None or command.staging_stamp != (staging.stamp if staging else None):
        return None
    if command.base_id is not None and command.base_id != base_id:
        return None
    txn.delete(DRAFTS, (asked.content_id,))
    if staging is not None:
        stagings.forget(txn, key, staging)
    return replace(txn, key, old, asked, draft.content)


@operation(reclaims=True)
def abandon_draft(txn: WriteTxn, command: AbandonDraft) -> None:
    draft = txn.get(DRAFTS, (command.content_id,), EXCLUSIVE)
    if draft is not None:
        txn.delete(DRAFTS, (command.content_id,))
        release(txn, draft.content)


class PurgeDrafts(Command, frozen=True):
    rows_max: int = 100


@operation(reclaims=True)
def purge_drafts(txn: WriteTxn, command: PurgeDrafts) -> int:
    """Abandons the drafts of front ends that are gone; returns how many."""
    ended = txn.now - _DRAFT_SECONDS_MAX * TICKS_PER_SECOND
    rows = txn.scan(DRAFTS, DRAFTS.all(), command.rows_max, claim=True)
    old = [(key, draft) for key, draft in rows if draft.begun < ended]
    for key, draft in old:
        txn.delete(DRAFTS, key)
        release(txn, draft.content)
    return len(old)


# Shown


def get_block_list(txn: ReadTxn, command: GetBlockList) -> ShownBlockList:
    """A name with nothing but staged blocks has a list too."""
    key = (find(txn, command.blob.container).id, command.blob.name)
    staging = txn.get(STAGINGS, key) if command.snapshot is None else None
    blob = None
    if staging is None or txn.get(BLOBS, key) is not None:
        blob = find_shown(txn, command.blob, command.snapshot)
    lease = blob.lease if blob is not None else NO_LEASE
    abort_if(lease_rules.check_read(lease, command.lease_id, txn.now, LeaseKind.BLOB))
    abort_if(tag_rules.check_condition(command.if_tags, blob.tags if blob is not None else ()))
    committed: tuple[BlockSize, ...] = ()
    if command.committed and blob is not None and isinstance(blob.content, Chunked):
        listed = blocks_of(txn, blob.content)
        committed = tuple(BlockSize(block.name, block.length) for block in listed if block.name)
    uncommitted: tuple[BlockSize, ...] = ()
    if staging is not None and command.uncommitted:
        span = STAGED_BLOCKS.under((staging.id,))
        rows = txn.scan(STAGED_BLOCKS, span, STAGED_BLOCKS_MAX)
        uncommitted = tuple(BlockSize(name, block.length) for (_, name), block in rows)
    return ShownBlockList(txn.now, blob, committed, uncommitted)
