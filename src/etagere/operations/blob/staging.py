"""Blocks that were uploaded and are in no blob yet.

The blocks of a name hang on a staging, which is dropped at once, whatever it holds: when the
name gets a blob, when its blob is deleted, and a week after the last block. What hung on it is
removed later, in steps.

Whoever changes the staging of a name guards its record, present or not.
"""

from __future__ import annotations

from etagere.bodies.contents import drop, hold
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
from etagere.operations.blob.terms import check_settled
from etagere.rules import leases as lease_rules
from etagere.rules.blocks import check_staged_count, check_staged_name

_Key = tuple[bytes, str]

STALE_SECONDS = 7 * 24 * 3600
_TICKS_PER_HOUR = 3600 * TICKS_PER_SECOND


def foresee_block(txn: ReadTxn, command: PutBlock) -> None:
    """A courtesy before a long upload: refuses what would be refused if it ended now."""
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
    check_settled(blob)


@operation
def put_block(txn: WriteTxn, command: PutBlock) -> None:
    """The last one of a name counts. The blob, if there is one, does not change."""
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
    hold(txn, command.body.pieces)
    txn.put(STAGED_BLOCKS, place, StagedBlock(command.body.pieces, command.body.length))
    if former is not None:
        drop(txn, former.pieces)
    _note_age(txn, key, staging)
    changed = Staging(staging.id, staging.block_name_bytes, count, txn.stamp, txn.steady_now)
    txn.put(STAGINGS, key, changed)


def is_there(txn: WriteTxn, key: _Key) -> bool:
    """Whether blocks wait under a name; guards that."""
    return txn.get(STAGINGS, key, EXCLUSIVE) is not None


def discard(txn: WriteTxn, key: _Key) -> None:
    """None of the blocks that wait will be part of anything."""
    staging = txn.get(STAGINGS, key, EXCLUSIVE)
    if staging is not None:
        forget(txn, key, staging)


def forget(txn: WriteTxn, key: _Key, staging: Staging) -> None:
    """Drops a staging that was guarded; the blocks that still hang on it go later."""
    txn.delete(STAGINGS, key)
    txn.delete(STAGING_AGES, (_hour(staging.staged), *key))
    txn.put(DISCARDED_STAGINGS, (staging.id,), DiscardedStaging())


def _note_age(txn: WriteTxn, key: _Key, staging: Staging) -> None:
    """Once an hour, so that most blocks cost nothing more."""
    hour, before = _hour(txn.steady_now), _hour(staging.staged)
    if hour != before:
        if staging.count:
            txn.delete(STAGING_AGES, (before, *key))
        txn.put(STAGING_AGES, (hour, *key), StagingAge())


def _hour(moment: int) -> int:
    return moment // _TICKS_PER_HOUR


# What is removed later


class PurgeStagings(Command, frozen=True):
    rows_max: int = 200


def stale(now: int) -> Span:
    """Where the ages of stagings lie that are to be dropped."""
    ended = max(0, _hour(now - STALE_SECONDS * TICKS_PER_SECOND))
    return Span(STAGING_AGES.all().start, STAGING_AGES.under((ended,)).start)


@operation(reclaims=True)
def discard_stale(txn: WriteTxn, command: PurgeStagings) -> int:
    """Drops stagings a week after their last block; returns how many."""
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
    """One bounded step of removing blocks of dropped stagings; returns how many rows that were
    (0: nothing is left to remove)."""
    for (staging_id,), _ in txn.scan(DISCARDED_STAGINGS, DISCARDED_STAGINGS.all(), 1, claim=True):
        rows = txn.scan(STAGED_BLOCKS, STAGED_BLOCKS.under((staging_id,)), command.rows_max)
        for place, _ in rows:
            txn.delete(STAGED_BLOCKS, place)
        drop(txn, [piece for _, block in rows for piece in block.pieces])
        if len(rows) < command.rows_max:
            txn.delete(DISCARDED_STAGINGS, (staging_id,))
        return len(rows) + 1
    return 0
