"""Synchronous copies.

A copy within the store shares the bytes of its source, whatever their size. It is made in one
transaction, so it is a consistent version of its source. The bytes of sources on other servers have
been read before.
"""

from __future__ import annotations

import msgspec

from etagere.bodies.contents import adopt_body, release, share
from etagere.engine.interface import (
    ReadTxn,
    Refused,
    WriteTxn,
    abort_if,
    operation,
)
from etagere.errors import Refusal
from etagere.model.blobs import Blob, BlobKind, Copied, CopyStatus
from etagere.model.copies import (
    BlobSource,
    CopyBlob,
    CopyIncrementally,
    Destination,
    PutCopy,
)
from etagere.model.leases import NO_LEASE, LeaseKind
from etagere.operations.blob import preconditions, staging, tags
from etagere.operations.blob.collections import BLOBS, SNAPSHOTS
from etagere.operations.blob.containers import find
from etagere.operations.blob.lookup import find_for_change, find_source
from etagere.rules import conditions as condition_rules
from etagere.rules import copies as rules
from etagere.rules import leases as lease_rules
from etagere.rules import tags as tag_rules
from etagere.rules import tiers as tier_rules

_Key = tuple[bytes, str]

# Copies


@operation
def copy_blob(txn: WriteTxn, command: CopyBlob) -> Blob | None:
    """Copies a blob within the store; returns None if the source has changed since it was
    checked."""
    destination = command.destination
    key, old = find_for_change(txn, destination.blob)
    source = find_source(txn, command.source.ref)
    if command.source.stamp not in (None, source.stamp):
        return None
    _check_source(source, command.source)
    check_destination(old, destination, source.kind, txn.steady_now)
    abort_if(rules.check_tier(source, destination.tier, txn.steady_now))
    traits = rules.copied_traits(source, destination.seals)
    shared = share(txn, source.content)
    length = shared.length
    copied = copy_state(destination, CopyStatus.SUCCESS, length, length, txn.now)
    copy = msgspec.structs.replace(source, content=shared, traits=traits)
    return replace_by_copy(txn, key, old, destination, copy, copied)


@operation
def put_copy(txn: WriteTxn, command: PutCopy) -> Blob:
    """Creates a copy from bytes that have been read from another server."""
    destination, length = command.destination, command.body.length
    key, old = find_for_change(txn, destination.blob)
    check_destination(old, destination, BlobKind.BLOCK, txn.steady_now)
    content = adopt_body(txn, command.body)
    copied = copy_state(destination, CopyStatus.SUCCESS, length, length, txn.now)
    copy = Blob(BlobKind.BLOCK, 0, 0, content, command.headers, command.metadata)
    return replace_by_copy(txn, key, old, destination, copy, copied)


def precheck_copy(txn: ReadTxn, destination: Destination) -> None:
    """Refuses, before a source on another server is read, what would be refused now."""
    container = find(txn, destination.blob.container)
    old = txn.get(BLOBS, (container.id, destination.blob.name))
    check_destination(old, destination, BlobKind.BLOCK, txn.steady_now)


@operation
def copy_incrementally(txn: WriteTxn, command: CopyIncrementally) -> Blob:
    """Copies a snapshot incrementally, to a new snapshot of the destination. The destination itself
    can be read only through its snapshots."""
    destination, source_name = command.destination, command.source.blob
    key, old = find_for_change(txn, destination.blob)
    source = find_source(txn, command.source.ref)
    _check_conditions(old, destination, txn.steady_now)
    abort_if(rules.check_incremental(old, source, source_name, command.source.snapshot))
    length = source.content.length
    copied = copy_state(destination, CopyStatus.SUCCESS, length, length, txn.now)
    contents = [share(txn, source.content) for _ in ("the blob", "its snapshot")]
    copy = msgspec.structs.replace(source, content=contents[0])
    moment = txn.stamp
    copied = msgspec.structs.replace(copied, incremental=True, snapshot=moment)
    blob = replace_by_copy(txn, key, old, destination, copy, copied)
    taken = msgspec.structs.replace(blob, content=contents[1], lease=NO_LEASE)
    txn.put(SNAPSHOTS, (*key, moment), taken)
    return blob


def _check_source(source: Blob, asked: BlobSource) -> None:
    """Checks the source, before the destination, as the service does."""
    abort_if(condition_rules.check_source(asked.conditions, source.stamp))
    abort_if(tag_rules.check_condition(asked.conditions.if_tags, source.tags))
    abort_if(rules.check_source(source))
    if asked.ref.is_current:
        preconditions.check_not_incremental_copy(source)


def check_destination(old: Blob | None, destination: Destination, kind: BlobKind, now: int) -> None:
    """Checks whether a copy may replace the destination. An asynchronous one needs an infinite
    lease, if any."""
    _check_conditions(old, destination, now)
    if destination.tier:
        abort_if(tier_rules.check_kind(destination.tier, kind))
    if old is not None:
        preconditions.check_not_incremental_copy(old)
        abort_if(rules.check_kind(old, kind))
        preconditions.check_no_pending_copy(old)
        abort_if(tier_rules.check_online(old, now))


def _check_conditions(old: Blob | None, destination: Destination, now: int) -> None:
    lease, lease_id = old.lease if old is not None else NO_LEASE, destination.lease_id
    if destination.asynchronous:
        abort_if(lease_rules.check_copy_destination(lease, lease_id, now))
    else:
        abort_if(lease_rules.check_write(lease, lease_id, now, LeaseKind.BLOB))
    conditions, stamp = destination.conditions, old.stamp if old is not None else None
    by_holder = lease_id is not None
    abort_if(condition_rules.check_create(conditions, stamp, by_holder=by_holder))
    abort_if(tag_rules.check_condition(conditions.if_tags, old.tags if old else ()))
    if old is not None and destination.only_if_absent:
        raise Refused(Refusal("UnauthorizedBlobOverwrite"))


def copy_state(
    destination: Destination, status: CopyStatus, copied: int, total: int, ended: int
) -> Copied:
    """Returns the copy properties of the destination."""
    return Copied(destination.copy_id, destination.source, status, copied, total, ended)


def replace_by_copy(
    txn: WriteTxn,
    key: _Key,
    old: Blob | None,
    destination: Destination,
    copy: Blob,
    copied: Copied,
) -> Blob:
    """Replaces the destination by the copy. It keeps its lease, its creation time and its last
    recorded read; properties in the request replace those of the source."""
    staging.discard(txn, key)
    lease = old.lease if old is not None else NO_LEASE
    blob = msgspec.structs.replace(
        copy,
        created=old.created if old is not None else txn.stamp,
        stamp=txn.stamp,
        metadata=destination.metadata or copy.metadata,
        lease=lease_rules.after_write(lease, txn.steady_now, LeaseKind.BLOB),
        tier=destination.tier,
        tier_changed=txn.stamp if destination.tier else 0,
        tags=copy.tags if destination.source_tags else destination.tags,
        copied=copied,
        rehydration=None,
        read_at=old.read_at if old is not None else 0,
    )
    txn.put(BLOBS, key, blob)
    tags.index(txn, key, destination.blob.container, old.tags if old else (), blob.tags)
    if old is not None:
        release(txn, old.content)
    return blob
