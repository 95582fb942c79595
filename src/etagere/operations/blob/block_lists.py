"""Operations on block lists.

A block list becomes a blob in one transaction. A long list would delay other requests, so it is
drafted first: looked up and assembled in short steps that are not visible. The last step decides,
as for a short list, and uses the draft if its sources have not changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set

from etagere.bodies.contents import (
    MissingRecord,
    begin_list,
    blocks_in,
    blocks_of,
    chunks_of,
    compose,
    extend_list,
    release,
)
from etagere.clock import TICKS_PER_SECOND
from etagere.engine.interface import (
    EXCLUSIVE,
    ReadTxn,
    Refused,
    WriteTxn,
    abort_if,
    operation,
    unwrap,
)
from etagere.errors import Refusal
from etagere.model.base import Command
from etagere.model.blobs import (
    AbandonDraft,
    Blob,
    BlobKind,
    BlockListResult,
    BlockSize,
    Draft,
    DraftSources,
    ExtendDraft,
    FindCommittedBlocks,
    FindStagedBlocks,
    GetBlockList,
    ListStagedBlocks,
    OpenedBlockList,
    PutBlockList,
    PutDraft,
    StagedBlock,
    Staging,
)
from etagere.model.bodies import Block, Chunked, ChunkUse, Content, Empty
from etagere.model.leases import NO_LEASE, LeaseKind
from etagere.operations.blob import staging as stagings
from etagere.operations.blob.blobs import replace_blob
from etagere.operations.blob.collections import BLOBS, DRAFTS, STAGED_BLOCKS, STAGINGS
from etagere.operations.blob.containers import find
from etagere.operations.blob.lookup import find_blob, find_for_change
from etagere.operations.blob.preconditions import check_replace
from etagere.rules import leases as lease_rules
from etagere.rules import tags as tag_rules
from etagere.rules.blocks import STAGED_BLOCKS_MAX, may_refer_to_committed, resolve

_DRAFT_SECONDS_MAX = 3600
# A lookup by key costs as much as this many rows of a scan.
_LOOKUPS_WORTH = 2


@operation
def put_block_list(txn: WriteTxn, command: PutBlockList) -> Blob | None:
    """Puts a block list; returns None if more of the current blob would have to be read than the
    command allows."""
    key, old = find_for_change(txn, command.blob)
    check_replace(old, command, txn.steady_now)
    staging = txn.get(STAGINGS, key, EXCLUSIVE)
    staged = _staged_blocks(txn, staging, command)
    blocks = resolve(command.blocks, staged, {})
    base, committed = None, dict[bytes, Block]()
    if isinstance(blocks, Refusal) and may_refer_to_committed(command.blocks):
        # Some may be those of the current blob.
        base = _base(old)
        if base is not None:
            most = command.base_chunks_max
            if most is not None and len(chunks_of(txn, base)) > most:
                return None
            committed = {block.name: block for block in blocks_of(txn, base)}
            blocks = resolve(command.blocks, staged, committed)
    blocks = unwrap(blocks)
    content: Content = Empty()
    if blocks:
        borrowed = {piece.extent for block in committed.values() for piece in block.pieces}
        content = compose(txn, command.content_id, blocks, base=base, borrowed=borrowed)
    if staging is not None:
        _take(txn, staging, staged, blocks)
        stagings.forget(txn, key, staging)
    return replace_blob(txn, key, old, command, content)


def _staged_blocks(
    txn: WriteTxn, staging: Staging | None, command: PutBlockList
) -> dict[bytes, Block]:
    if staging is None:
        return {}
    wanted = {block.name for block in command.blocks}
    return {name: Block(name, block.pieces) for name, block in _staged(txn, staging, wanted)}


def _staged(
    txn: ReadTxn | WriteTxn, staging: Staging, wanted: Set[bytes]
) -> Iterator[tuple[bytes, StagedBlock]]:
    """Yields the staged blocks of these names, and perhaps others."""
    if len(wanted) * _LOOKUPS_WORTH < staging.count:
        names = tuple(wanted)
        found = txn.get_all(STAGED_BLOCKS, [(staging.id, name) for name in names])
        for name, block in zip(names, found, strict=True):
            if block is not None:
                yield name, block
        return
    span = STAGED_BLOCKS.under((staging.id,))
    for (_, name), block in txn.scan(STAGED_BLOCKS, span, STAGED_BLOCKS_MAX):
        yield name, block


def _take(txn: WriteTxn, staging: Staging, staged: dict[bytes, Block], blocks: list[Block]) -> None:
    """Moves the references of the used staged blocks to the list."""
    for name in {block.name for block in blocks if staged.get(block.name) is block}:
        txn.delete(STAGED_BLOCKS, (staging.id, name))


# Drafts of long lists


def draft_sources(txn: ReadTxn, command: PutBlockList) -> DraftSources:
    """Returns the sources of a draft. Like every read of them, refuses what would be refused
    now."""
    old, staging = _current_state(txn, command)
    base = _base(old) if may_refer_to_committed(command.blocks) else None
    return DraftSources(
        staging.stamp if staging is not None else None,
        base.id if base is not None else None,
        chunks_of(txn, base) if base is not None else (),
    )


def find_staged_blocks(txn: ReadTxn, command: FindStagedBlocks) -> dict[bytes, Block] | None:
    """Returns the staged blocks of these names, and perhaps others; None if the sources have
    changed."""
    old, staging = _current_state(txn, command.asked)
    if not _are_same(command.sources, old, staging):
        return None
    if staging is None:
        return {}
    found = _staged(txn, staging, command.names)
    return {name: Block(name, block.pieces) for name, block in found}


def find_committed_blocks(
    txn: ReadTxn, command: FindCommittedBlocks
) -> list[tuple[Block, ...]] | None:
    """Returns the blocks of each chunk; None if the sources have changed."""
    if not _are_same(command.sources, *_current_state(txn, command.asked)):
        return None
    return [blocks_in(txn, use) for use in command.chunks]


def _current_state(txn: ReadTxn, command: PutBlockList) -> tuple[Blob | None, Staging | None]:
    key = (find(txn, command.blob.container).id, command.blob.name)
    old = txn.get(BLOBS, key)
    check_replace(old, command, txn.steady_now)
    return old, txn.get(STAGINGS, key)


def _are_same(sources: DraftSources | PutDraft, old: Blob | None, staging: Staging | None) -> bool:
    """Returns whether the sources of a draft are unchanged. Staged blocks change with their stamp,
    and the blocks of a content never change; sources that the list does not use may change."""
    if sources.staging_stamp != (staging.stamp if staging is not None else None):
        return False
    base = _base(old)
    return sources.base_id is None or (base is not None and base.id == sources.base_id)


def _base(old: Blob | None) -> Chunked | None:
    """Returns the content with the committed blocks, if there is one."""
    return old.content if old is not None and isinstance(old.content, Chunked) else None


@operation
def extend_draft(txn: WriteTxn, command: ExtendDraft) -> None:
    """Adds a step to a draft. Refused if its sources are gone."""
    key = (command.content_id,)
    draft = txn.get(DRAFTS, key, EXCLUSIVE)
    if (draft is None) != command.begins:
        # It was purged meanwhile: the blob would lack its beginning.
        raise Refused(Refusal("InvalidBlockList"))
    if draft is None:
        draft = Draft(begin_list(txn, command.content_id), txn.steady_now)
    try:
        content = extend_list(txn, draft.content, command.shared, command.blocks)
    except MissingRecord:
        raise Refused(Refusal("InvalidBlockList")) from None
    txn.put(DRAFTS, key, Draft(content, draft.begun))


@operation
def put_draft(txn: WriteTxn, command: PutDraft) -> Blob | None:
    """Puts a blob from a draft; returns None if the sources have changed."""
    asked = command.command
    key, old = find_for_change(txn, asked.blob)
    check_replace(old, asked, txn.steady_now)
    staging = txn.get(STAGINGS, key, EXCLUSIVE)
    draft = txn.get(DRAFTS, (asked.content_id,), EXCLUSIVE)
    if draft is None or not _are_same(command, old, staging):
        return None
    txn.delete(DRAFTS, (asked.content_id,))
    if staging is not None:
        stagings.forget(txn, key, staging)
    return replace_blob(txn, key, old, asked, draft.content)


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
    """Deletes abandoned drafts; returns how many."""
    ended = txn.steady_now - _DRAFT_SECONDS_MAX * TICKS_PER_SECOND
    rows = txn.scan(DRAFTS, DRAFTS.all(), command.rows_max, claim=True)
    old = [(key, draft) for key, draft in rows if draft.begun < ended]
    for key, draft in old:
        txn.delete(DRAFTS, key)
        release(txn, draft.content)
    return len(old)


# Get Block List


def get_block_list(txn: ReadTxn, command: GetBlockList) -> BlockListResult:
    """Returns a whole block list from one snapshot, which takes long for a long list."""
    opened = open_block_list(txn, command)
    committed = _sizes(txn, opened.chunks)
    uncommitted: list[BlockSize] = []
    if opened.staging is not None:
        uncommitted = _staged_sizes(txn, opened.staging, b"", STAGED_BLOCKS_MAX)
    return BlockListResult(txn.steady_now, opened.blob, tuple(committed), tuple(uncommitted))


def open_block_list(txn: ReadTxn, command: GetBlockList) -> OpenedBlockList:
    """Returns the sources of a listing. A name with only uncommitted blocks has a list too, except
    for anonymous callers."""
    key = (find(txn, command.blob.container).id, command.blob.name)
    staging = None
    if command.ref.is_current and not command.public:
        staging = txn.get(STAGINGS, key)
    blob = None
    if staging is None or txn.get(BLOBS, key) is not None:
        blob = find_blob(txn, command.ref)
    lease = blob.lease if blob is not None else NO_LEASE
    abort_if(lease_rules.check_read(lease, command.lease_id, txn.steady_now, LeaseKind.BLOB))
    abort_if(tag_rules.check_condition(command.if_tags, blob.tags if blob is not None else ()))
    if blob is not None and blob.kind is not BlobKind.BLOCK:
        raise Refused(Refusal("InvalidBlobType"))
    base = _base(blob) if command.committed else None
    chunks = chunks_of(txn, base) if base is not None else ()
    return OpenedBlockList(
        txn.steady_now, blob, key, chunks, staging if command.uncommitted else None
    )


def list_committed_blocks(txn: ReadTxn, chunks: tuple[ChunkUse, ...]) -> list[BlockSize] | None:
    """Returns the blocks in some chunks of an opened list; None if they are gone. Chunks never
    change."""
    try:
        return _sizes(txn, chunks)
    except MissingRecord:
        return None


def list_staged_blocks(txn: ReadTxn, command: ListStagedBlocks) -> list[BlockSize] | None:
    """Returns the next staged blocks of an opened list; None if the staging has changed."""
    if txn.get(STAGINGS, command.key) != command.staging:
        return None
    return _staged_sizes(txn, command.staging, command.after, command.limit)


def _sizes(txn: ReadTxn, chunks: Iterable[ChunkUse]) -> list[BlockSize]:
    listed = (block for use in chunks for block in blocks_in(txn, use))
    return [BlockSize(block.name, block.length) for block in listed if block.name]


def _staged_sizes(txn: ReadTxn, staging: Staging, after: bytes, limit: int) -> list[BlockSize]:
    """Returns the sizes of staged blocks after a name. Block names are never empty, so b"" is
    before all."""
    span = STAGED_BLOCKS.under((staging.id,))
    rows = txn.scan(STAGED_BLOCKS, STAGED_BLOCKS.after(span, (staging.id, after)), limit)
    return [BlockSize(name, block.length) for (_, name), block in rows]
