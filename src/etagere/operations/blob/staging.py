"""Uncommitted blocks.

The uncommitted blocks of a name belong to a staging. It is discarded as a whole when the name gets
a blob, when its blob is deleted, or a week after the last block; its blocks are removed later, in
steps.

A change of the staging of a name guards its record, present or not.
"""

from __future__ import annotations

from etagere.bodies.contents import create_extents, drop_references
from etagere.clock import TICKS_PER_SECOND
from etagere.engine.interface import (
    EXCLUSIVE,
    SHARED,
    ReadTxn,
    Refused,
    WriteTxn,
    abort_if,
    operation,
)
from etagere.engine.records import Span
from etagere.errors import Refusal
from etagere.model.base import Command
from etagere.model.blobs import (
    Blob,
    BlobKind,
    DiscardedStaging,
    PutBlock,
    StagedBlock,
    Staging,
    StagingAge,
)
from etagere.model.leases import NO_LEASE, LeaseKind
from etagere.operations.blob.collections import (
    BLOBS,
    DISCARDED_STAGINGS,
    STAGED_BLOCKS,
    STAGING_AGES,
    STAGINGS,
)
from etagere.operations.blob.containers import find, find_guarded
from etagere.operations.blob.preconditions import check_no_pending_copy
from etagere.rules import leases as lease_rules
from etagere.rules.blocks import check_staged_count, check_staged_name

_Key = tuple[bytes, str]

STALE_SECONDS = 7 * 24 * 3600
_TICKS_PER_HOUR = 3600 * TICKS_PER_SECOND


def precheck_block(txn: ReadTxn, command: PutBlock) -> None:
    """Refuses, before a long upload, what would be refused if the upload ended now."""
    key = (find(txn, command.blob.container).id, command.blob.name)
    _check(txn.get(BLOBS, key), command, txn.steady_now)


def _check(blob: Blob | None, command: PutBlock, now: int) -> None:
    lease = blob.lease if blob is not None else NO_LEASE
    abort_if(lease_rules.check_write(lease, command.lease_id, now, LeaseKind.BLOB))
    if blob is None:
        return
    if command.only_if_absent:
        raise Refused(Refusal("UnauthorizedBlobOverwrite"))
    if blob.kind is not BlobKind.BLOCK:
        raise Refused(Refusal("InvalidBlobType"))
    check_no_pending_copy(blob)


@operation
def put_block(txn: WriteTxn, command: PutBlock) -> None:
    """Stages a block, and replaces an earlier one of the same name. The blob, if there is one, does
    not change."""
    key = (find_guarded(txn, command.blob.container).id, command.blob.name)
    _check(txn.get(BLOBS, key, SHARED), command, txn.steady_now)
    staging = txn.get(STAGINGS, key, EXCLUSIVE)
    if staging is None:
        staging = Staging(command.staging_id, len(command.block), 0, 0, 0)
    abort_if(check_staged_name(command.block, staging.block_name_bytes))
    place = (staging.id, command.block)
    former = txn.get(STAGED_BLOCKS, place)
    count = staging.count + (former is None)
    abort_if(check_staged_count(count))
    create_extents(txn, command.body.pieces)
    txn.put(STAGED_BLOCKS, place, StagedBlock(command.body.pieces, command.body.length))
    if former is not None:
        drop_references(txn, former.pieces)
    _note_age(txn, key, staging)
    changed = Staging(staging.id, staging.block_name_bytes, count, txn.stamp, txn.steady_now)
    txn.put(STAGINGS, key, changed)


def exists(txn: WriteTxn, key: _Key) -> bool:
    """Returns whether a name has uncommitted blocks; guards the staging."""
    return txn.get(STAGINGS, key, EXCLUSIVE) is not None


def discard(txn: WriteTxn, key: _Key) -> None:
    """Discards the uncommitted blocks of a name."""
    staging = txn.get(STAGINGS, key, EXCLUSIVE)
    if staging is not None:
        forget(txn, key, staging)


def forget(txn: WriteTxn, key: _Key, staging: Staging) -> None:
    """Discards a guarded staging; its blocks are removed later."""
    txn.delete(STAGINGS, key)
    txn.delete(STAGING_AGES, (_hour(staging.staged), *key))
    txn.put(DISCARDED_STAGINGS, (staging.id,), DiscardedStaging())


def _note_age(txn: WriteTxn, key: _Key, staging: Staging) -> None:
    """Updates the index of stagings by age, only once an hour, so that most blocks cost nothing
    more."""
    hour, before = _hour(txn.steady_now), _hour(staging.staged)
    if hour != before:
        if staging.count:
            txn.delete(STAGING_AGES, (before, *key))
        txn.put(STAGING_AGES, (hour, *key), StagingAge())


def _hour(moment: int) -> int:
    return moment // _TICKS_PER_HOUR


# Removal


class PurgeStagings(Command, frozen=True):
    rows_max: int = 200


def stale(now: int) -> Span:
    """Returns the span of the stagings that are old enough to be discarded."""
    ended = max(0, _hour(now - STALE_SECONDS * TICKS_PER_SECOND))
    return Span(STAGING_AGES.all().start, STAGING_AGES.under((ended,)).start)


@operation(reclaims=True)
def discard_stale(txn: WriteTxn, command: PurgeStagings) -> int:
    """Discards stagings a week after their last block; returns how many."""
    rows = txn.scan(STAGING_AGES, stale(txn.steady_now), command.rows_max, claim=True)
    for (hour, container_id, name), _ in rows:
        key = (container_id, name)
        staging = txn.get(STAGINGS, key, EXCLUSIVE)
        if staging is not None and _hour(staging.staged) == hour:
            forget(txn, key, staging)
        txn.delete(STAGING_AGES, (hour, *key))
    return len(rows)


@operation(reclaims=True)
def purge_discarded(txn: WriteTxn, command: PurgeStagings) -> int:
    """Removes blocks of discarded stagings in one bounded step; returns how many rows (0: nothing
    is left to remove)."""
    for (staging_id,), _ in txn.scan(DISCARDED_STAGINGS, DISCARDED_STAGINGS.all(), 1, claim=True):
        rows = txn.scan(STAGED_BLOCKS, STAGED_BLOCKS.under((staging_id,)), command.rows_max)
        for place, _ in rows:
            txn.delete(STAGED_BLOCKS, place)
        drop_references(txn, [piece for _, block in rows for piece in block.pieces])
        if len(rows) < command.rows_max:
            txn.delete(DISCARDED_STAGINGS, (staging_id,))
        return len(rows) + 1
    return 0
