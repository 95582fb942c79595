"""Operations on whole blobs: put, get, properties, leases and deletes."""

from __future__ import annotations

import msgspec

from etagere.bodies import intervals
from etagere.bodies.contents import adopt_body, release
from etagere.bodies.plans import Plan, locate, try_locate
from etagere.engine.interface import (
    ReadTxn,
    Refused,
    WriteTxn,
    abort_if,
    operation,
    unwrap,
)
from etagere.errors import Refusal
from etagere.model.base import Result
from etagere.model.blobs import (
    AppendTraits,
    Blob,
    BlobKind,
    BlobName,
    BlobResult,
    DeleteBlob,
    DeleteSnapshots,
    GetBlob,
    LeaseBlob,
    OpenBlob,
    PageTraits,
    PutBlob,
    PutBlockList,
    SetBlobHeaders,
    SetBlobMetadata,
)
from etagere.model.bodies import Content
from etagere.model.conditions import Conditions
from etagere.model.leases import NO_LEASE, LeaseKind
from etagere.operations.blob import preconditions, snapshots, staging, tags
from etagere.operations.blob.collections import BLOBS
from etagere.operations.blob.containers import find
from etagere.operations.blob.lookup import BlobKey, find_blob, find_for_change
from etagere.rules import conditions as condition_rules
from etagere.rules import last_access as last_access_rules
from etagere.rules import leases as lease_rules
from etagere.rules import tags as tag_rules
from etagere.rules import tiers as tier_rules


class OpenedBlob(Result, frozen=True):
    """A range of a blob, and the location of its bytes."""

    result: BlobResult
    start: int
    length: int
    plan: Plan
    is_range: bool = False
    """Whether a range was requested, and applies to this version of the blob."""
    is_read_to_record: bool = False
    """Whether accesses are tracked, and this one is to be recorded."""


# Put


def precheck_put(txn: ReadTxn, command: PutBlob) -> None:
    """Refuses, before a long upload, what would be refused if the upload ended now."""
    container = find(txn, command.blob.container)
    old = txn.get(BLOBS, (container.id, command.blob.name))
    preconditions.check_replace(old, command, txn.steady_now)
    if old is not None:
        abort_if(tier_rules.check_online(old, txn.steady_now))


@operation
def put_blob(txn: WriteTxn, command: PutBlob) -> Blob:
    """Puts a blob. This check decides: the state may have changed since the one before the
    upload."""
    key, old = find_for_change(txn, command.blob)
    preconditions.check_replace(old, command, txn.steady_now)
    staging.discard(txn, key)
    return replace_blob(txn, key, old, command, _content(txn, command))


def _content(txn: WriteTxn, command: PutBlob) -> Content:
    if command.kind is BlobKind.BLOCK:
        return adopt_body(txn, command.body)
    abort_if(tier_rules.check_length(command.tier, command.length))
    return intervals.begin(txn, command.content_id, command.length)


def _traits(command: PutBlob | PutBlockList) -> PageTraits | AppendTraits | None:
    kind = command.kind if isinstance(command, PutBlob) else BlobKind.BLOCK
    if isinstance(command, PutBlob) and kind is BlobKind.PAGE:
        return PageTraits(command.sequence_number)
    return AppendTraits() if kind is BlobKind.APPEND else None


def replace_blob(
    txn: WriteTxn, key: BlobKey, old: Blob | None, command: PutBlob | PutBlockList, content: Content
) -> Blob:
    """Replaces everything of a blob except its lease, its creation time and the last recorded read.
    Archived blobs are refused."""
    if old is not None:
        abort_if(tier_rules.check_online(old, txn.steady_now))
    lease = old.lease if old is not None else NO_LEASE
    kind = command.kind if isinstance(command, PutBlob) else BlobKind.BLOCK
    blob = Blob(
        kind,
        old.created if old is not None else txn.stamp,
        txn.stamp,
        content,
        command.headers,
        command.metadata,
        lease_rules.after_write(lease, txn.steady_now, LeaseKind.BLOB),
        command.tier,
        txn.stamp if command.tier else 0,
        command.tags,
        _traits(command),
        read_at=old.read_at if old is not None else 0,
    )
    txn.put(BLOBS, key, blob)
    had = old.tags if old is not None else ()
    tags.index(txn, key, command.blob.container, had, command.tags)
    if old is not None:
        release(txn, old.content)
    return blob


# Get


def get_blob(txn: ReadTxn, command: GetBlob) -> BlobResult:
    blob = find_blob(txn, command.ref)
    now = txn.steady_now
    preconditions.check_read(blob, command.conditions, command.lease_id, now)
    return BlobResult(now, blob)


def open_blob(txn: ReadTxn, command: OpenBlob) -> OpenedBlob | None:
    """Returns, from one snapshot, the blob, the range and the location of its bytes. The caller
    must have opened a reader before. Returns None if the lookup would take long and the command
    asks not to wait."""
    return open_found(txn, command, get_blob(txn, command.ask))


def open_found(txn: ReadTxn, command: OpenBlob, result: BlobResult) -> OpenedBlob | None:
    """Like `open_blob`, for the result of `get_blob` in the same transaction."""
    if command.ask.ref.is_current:
        preconditions.check_not_incremental_copy(result.blob)
    abort_if(tier_rules.check_online(result.blob, txn.steady_now))
    total = result.blob.content.length
    start, end = 0, total
    is_range = command.first is not None and condition_rules.is_same_version(
        command.if_range, result.blob.stamp
    )
    if command.first is not None and is_range:
        if command.first >= total:
            raise Refused(Refusal("InvalidRange", {"ContentLength": total}))
        start = command.first
        end = total if command.last is None else min(command.last + 1, total)
    find = try_locate if command.brief else locate
    plan = find(txn, result.blob.content, start, end - start)
    if plan is None:
        return None
    is_read_to_record = (
        command.tracks_access
        and command.ask.ref.is_current
        and last_access_rules.is_read_to_record(result.blob, txn.now)
    )
    return OpenedBlob(result, start, end - start, plan, is_range, is_read_to_record)


# Properties


@operation
def set_blob_headers(txn: WriteTxn, command: SetBlobHeaders) -> Blob:
    key, blob = find_changeable(txn, command.blob, command.lease_id, command.conditions)
    abort_if(tier_rules.check_online(blob, txn.steady_now))
    # Setting the properties of a blob clears its copy status.
    described = msgspec.structs.replace(blob, headers=command.headers, copied=None)
    return txn.put(BLOBS, key, with_new_stamp(txn, described))


@operation
def set_blob_metadata(txn: WriteTxn, command: SetBlobMetadata) -> Blob:
    key, blob = find_changeable(txn, command.blob, command.lease_id, command.conditions)
    abort_if(tier_rules.check_online(blob, txn.steady_now))
    described = msgspec.structs.replace(blob, metadata=command.metadata)
    return txn.put(BLOBS, key, with_new_stamp(txn, described))


# Leases


@operation
def lease_blob(txn: WriteTxn, command: LeaseBlob) -> BlobResult:
    """Carries out a lease action, which changes neither the ETag nor the date."""
    key, blob = find_for_change(txn, command.blob)
    if blob is None:
        raise Refused(Refusal("BlobNotFound"))
    abort_if(condition_rules.check_write(command.conditions, blob.stamp))
    abort_if(tag_rules.check_condition(command.conditions.if_tags, blob.tags))
    preconditions.check_not_incremental_copy(blob)
    preconditions.check_no_pending_copy(blob)
    lease = unwrap(lease_rules.step(blob.lease, command.action, txn.steady_now))
    changed = txn.put(BLOBS, key, msgspec.structs.replace(blob, lease=lease))
    return BlobResult(txn.steady_now, changed)


# Delete


@operation(reclaims=True)
def delete_blob(txn: WriteTxn, command: DeleteBlob) -> bool:
    """Deletes a blob; returns whether everything is deleted. A blob with very many snapshots takes
    several such steps: each of them decides again, and the last one deletes the blob."""
    if command.snapshots is DeleteSnapshots.ONLY:
        return snapshots.delete_some(txn, _kept(txn, command))
    key, blob = find_for_change(txn, command.blob)
    if blob is None:
        _delete_uncommitted(txn, key, command)
        return True
    preconditions.check_change(blob, command.conditions, command.lease_id, txn.steady_now)
    since, not_since = command.tier_modified_since, command.tier_unmodified_since
    abort_if(tier_rules.check_changed(blob, txn.steady_now, since=since, not_since=not_since))
    if command.snapshots is DeleteSnapshots.INCLUDE:
        if not snapshots.delete_some(txn, key):
            return False
    elif snapshots.exist(txn, key):
        raise Refused(Refusal("SnapshotsPresent"))
    staging.discard(txn, key)
    txn.delete(BLOBS, key)
    tags.index(txn, key, command.blob.container, blob.tags, ())
    release(txn, blob.content)
    return True


def _delete_uncommitted(txn: WriteTxn, key: BlobKey, command: DeleteBlob) -> None:
    """Deletes uncommitted blocks without a blob, which have no ETag, no tags and no lease."""
    if not command.uncommitted or not staging.exists(txn, key):
        raise Refused(Refusal("BlobNotFound"))
    preconditions.check_absent(command.conditions, command.lease_id, txn.steady_now)
    staging.discard(txn, key)


def _kept(txn: WriteTxn, command: DeleteBlob) -> BlobKey:
    """Returns the key of a blob whose snapshots, but not itself, are deleted."""
    key, blob = find_for_change(txn, command.blob)
    if blob is None:
        raise Refused(Refusal("BlobNotFound"))
    preconditions.check_snapshots_delete(blob, command.conditions, command.lease_id, txn.steady_now)
    return key


# Shared by all changes


def find_changeable(
    txn: WriteTxn, name: BlobName, lease_id: bytes | None, conditions: Conditions
) -> tuple[BlobKey, Blob]:
    """Returns an existing blob that the caller may change."""
    key, blob = find_for_change(txn, name)
    if blob is None:
        raise Refused(Refusal("BlobNotFound"))
    preconditions.check_change(blob, conditions, lease_id, txn.steady_now)
    preconditions.check_not_incremental_copy(blob)
    return key, blob


def with_new_stamp(txn: WriteTxn, blob: Blob) -> Blob:
    """Returns a changed blob with a new stamp, and without a lease that has ended."""
    lease = lease_rules.after_write(blob.lease, txn.steady_now, LeaseKind.BLOB)
    return msgspec.structs.replace(blob, stamp=txn.stamp, lease=lease)
