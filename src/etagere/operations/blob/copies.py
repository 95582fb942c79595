"""Copies of blobs that are made at once.

A copy of what is in this store shares the bytes of its source, whatever their size, and one
transaction sees both, so it is some version of its source, whole. What is elsewhere has been read
before.
"""

from __future__ import annotations

import msgspec

from etagere.bodies.contents import adopt, release, share
from etagere.engine.interface import (
    SHARED,
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
from etagere.operations.blob import staging, tags, terms
from etagere.operations.blob.blobs import find_for_change
from etagere.operations.blob.collections import BLOBS, SNAPSHOTS
from etagere.operations.blob.containers import find, find_guarded
from etagere.rules import conditions as condition_rules
from etagere.rules import copies as rules
from etagere.rules import leases as lease_rules
from etagere.rules import tags as tag_rules
from etagere.rules import tiers as tier_rules

_Key = tuple[bytes, str]

# At once


@operation
def copy_blob(txn: WriteTxn, command: CopyBlob) -> Blob | None:
    """None if the source is not any more what was looked at before."""
    destination = command.destination
    key, old = find_for_change(txn, destination.blob)
    source = _find_source(txn, command.source, key, old)
    if command.source.stamp not in (None, source.stamp):
        return None
    _check_source(source, command.source)
    check_destination(old, destination, source.kind, txn.steady_now)
    abort_if(rules.check_tier(source, destination.tier, txn.steady_now))
    traits = rules.copied_traits(source, destination.seals)
    shared = share(txn, source.content)
    length = shared.length
    copied = attempt(destination, CopyStatus.SUCCESS, length, length, txn.now)
    copy = msgspec.structs.replace(source, content=shared, traits=traits)
    return place(txn, key, old, destination, copy, copied)


@operation
def put_copy(txn: WriteTxn, command: PutCopy) -> Blob:
    """All bytes have been read."""
    destination, length = command.destination, command.body.length
    key, old = find_for_change(txn, destination.blob)
    check_destination(old, destination, BlobKind.BLOCK, txn.steady_now)
    content = adopt(txn, command.body)
    copied = attempt(destination, CopyStatus.SUCCESS, length, length, txn.now)
    copy = Blob(BlobKind.BLOCK, 0, 0, content, command.headers, command.metadata)
    return place(txn, key, old, destination, copy, copied)


def foresee_copy(txn: ReadTxn, destination: Destination) -> None:
    """A courtesy before something is read from elsewhere: refuses what would be refused if it
    were to be decided now."""
    container = find(txn, destination.blob.container)
    old = txn.get(BLOBS, (container.id, destination.blob.name))
    check_destination(old, destination, BlobKind.BLOCK, txn.steady_now)


@operation
def copy_incrementally(txn: WriteTxn, command: CopyIncrementally) -> Blob:
    """The copy of a snapshot is a snapshot too; the blob that it is taken of stands for it and
    is good for nothing else."""
    destination, source_name = command.destination, command.source.blob
    key, old = find_for_change(txn, destination.blob)
    source = _find_source(txn, command.source, key, old)
    _check_conditions(old, destination, txn.steady_now)
    abort_if(rules.check_incremental(old, source, source_name, command.source.snapshot))
    length = source.content.length
    copied = attempt(destination, CopyStatus.SUCCESS, length, length, txn.now)
    contents = [share(txn, source.content) for _ in ("the blob", "its snapshot")]
    copy = msgspec.structs.replace(source, content=contents[0])
    moment = txn.stamp
    copied = msgspec.structs.replace(copied, incremental=True, snapshot=moment)
    blob = place(txn, key, old, destination, copy, copied)
    taken = msgspec.structs.replace(blob, content=contents[1], lease=NO_LEASE)
    txn.put(SNAPSHOTS, (*key, moment), taken)
    return blob


def _find_source(txn: WriteTxn, source: BlobSource, key: _Key, old: Blob | None) -> Blob:
    """Nobody changes it until the copy is made."""
    place = (find_guarded(txn, source.blob.container).id, source.blob.name)
    if source.snapshot is not None:
        found = txn.get(SNAPSHOTS, (*place, source.snapshot), SHARED)
    else:
        found = old if place == key else txn.get(BLOBS, place, SHARED)
    if found is None:
        raise Refused(Refusal("BlobNotFound"))
    return found


def _check_source(source: Blob, asked: BlobSource) -> None:
    """Before the destination, as the service does."""
    abort_if(condition_rules.check_source(asked.conditions, source.stamp))
    abort_if(tag_rules.check_condition(asked.conditions.if_tags, source.tags))
    abort_if(rules.check_source(source))
    if asked.snapshot is None:
        terms.check_ordinary(source)


def check_destination(old: Blob | None, destination: Destination, kind: BlobKind, now: int) -> None:
    """Whether a copy may replace what is there. An asynchronous one needs a lease that does not
    end meanwhile."""
    _check_conditions(old, destination, now)
    if destination.tier:
        abort_if(tier_rules.check_kind(destination.tier, kind))
    if old is not None:
        terms.check_ordinary(old)
        abort_if(rules.check_kind(old, kind))
        terms.check_settled(old)
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


def attempt(
    destination: Destination, status: CopyStatus, copied: int, total: int, ended: int
) -> Copied:
    """What is kept of a copy that was asked for."""
    return Copied(destination.copy_id, destination.source, status, copied, total, ended)


def place(
    txn: WriteTxn,
    key: _Key,
    old: Blob | None,
    destination: Destination,
    copy: Blob,
    copied: Copied,
) -> Blob:
    """The copy in place of what was there. It has the lease and the day of that, and nothing of
    its source that the request says otherwise."""
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
    )
    txn.put(BLOBS, key, blob)
    tags.index(txn, key, destination.blob.container, old.tags if old else (), blob.tags)
    if old is not None:
        release(txn, old.content)
    return blob
