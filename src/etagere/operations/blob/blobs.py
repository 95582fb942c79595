"""Blobs: put whole, shown, described, leased and deleted."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from etagere.bodies.contents import Plan, adopt, is_long, locate, release
from etagere.engine.interface import EXCLUSIVE, ReadTxn, Refused, WriteTxn, abort_if, operation
from etagere.errors import Refusal
from etagere.model.blobs import (
    Blob,
    BlobKind,
    BlobName,
    DeleteBlob,
    GetBlob,
    LeaseBlob,
    OpenBlob,
    PutBlob,
    PutBlockList,
    SetBlobHeaders,
    SetBlobMetadata,
    ShownBlob,
    SnapshotsToo,
)
from etagere.model.bodies import Content
from etagere.model.conditions import Conditions
from etagere.model.leases import NO_LEASE, LeaseKind
from etagere.operations.blob import snapshots, staging
from etagere.operations.blob.collections import BLOBS, SNAPSHOTS
from etagere.operations.blob.containers import find, find_guarded
from etagere.rules import conditions as condition_rules
from etagere.rules import leases as lease_rules

_Key = tuple[bytes, str]


class OpenedBlob(NamedTuple):
    """A range of a blob, and where its bytes are."""

    shown: ShownBlob
    start: int
    length: int
    plan: Plan


# Put whole


def foresee_put(txn: ReadTxn, command: PutBlob) -> None:
    """A courtesy before a long upload: refuses what would be refused if it ended now."""
    container = find(txn, command.blob.container)
    check_replace(txn.get(BLOBS, (container.id, command.blob.name)), command, txn.now)


@operation
def put_blob(txn: WriteTxn, command: PutBlob) -> Blob:
    """The decision that counts: whatever was foreseen before the upload may be otherwise now."""
    key, old = find_for_change(txn, command.blob)
    check_replace(old, command, txn.now)
    staging.discard(txn, key)
    return replace(txn, key, old, command, adopt(txn, command.body))


def check_replace(old: Blob | None, command: PutBlob | PutBlockList, now: int) -> None:
    """Refuses to put a block blob where there is this one."""
    lease = old.lease if old is not None else NO_LEASE
    abort_if(lease_rules.check_write(lease, command.lease_id, now, LeaseKind.BLOB))
    by_holder = command.lease_id is not None
    stamp = old.stamp if old is not None else None
    abort_if(condition_rules.check_create(command.conditions, stamp, by_holder=by_holder))
    if old is not None and command.only_if_absent:
        raise Refused(Refusal("AuthorizationPermissionMismatch"))
    if old is not None and old.kind is not BlobKind.BLOCK:
        raise Refused(Refusal("InvalidBlobType"))


def replace(
    txn: WriteTxn, key: _Key, old: Blob | None, command: PutBlob | PutBlockList, content: Content
) -> Blob:
    """All of a blob but its lease and the day it was made."""
    lease = old.lease if old is not None else NO_LEASE
    blob = Blob(
        BlobKind.BLOCK,
        old.created if old is not None else txn.stamp,
        txn.stamp,
        content,
        command.headers,
        command.metadata,
        lease_rules.after_write(lease, txn.now, LeaseKind.BLOB),
        command.tier,
        txn.stamp if command.tier else 0,
    )
    txn.put(BLOBS, key, blob)
    if old is not None:
        release(txn, old.content)
    return blob


# Shown


def get_blob(txn: ReadTxn, command: GetBlob) -> ShownBlob:
    blob = find_shown(txn, command.blob, command.snapshot)
    abort_if(lease_rules.check_read(blob.lease, command.lease_id, txn.now, LeaseKind.BLOB))
    abort_if(condition_rules.check_read(command.conditions, blob.stamp))
    return ShownBlob(txn.now, blob)


def find_shown(txn: ReadTxn, name: BlobName, snapshot: int | None) -> Blob:
    """A blob, or what it was."""
    container_id = find(txn, name.container).id
    if snapshot is None:
        blob = txn.get(BLOBS, (container_id, name.name))
    else:
        blob = txn.get(SNAPSHOTS, (container_id, name.name, snapshot))
    if blob is None:
        raise Refused(Refusal("BlobNotFound"))
    return blob


def open_blob(txn: ReadTxn, command: OpenBlob) -> OpenedBlob | None:
    """In one snapshot: the blob, where the range begins, how long it is, and where its bytes lie.
    Pin before. None if it takes long and must not."""
    shown = get_blob(txn, command.ask)
    if command.brief and is_long(txn, shown.blob.content):
        return None
    total = shown.blob.content.length
    start, end = 0, total
    if command.first is not None:
        if command.first >= total:
            raise Refused(Refusal("InvalidRange", {"ContentLength": total}))
        start = command.first
        end = total if command.last is None else min(command.last + 1, total)
    plan = locate(txn, shown.blob.content, start, end - start)
    return OpenedBlob(shown, start, end - start, plan)


# Described


@operation
def set_blob_headers(txn: WriteTxn, command: SetBlobHeaders) -> Blob:
    key, blob = _writable(txn, command.blob, command.lease_id, command.conditions)
    return txn.put(
        BLOBS, key, _changed(txn, msgspec.structs.replace(blob, headers=command.headers))
    )


@operation
def set_blob_metadata(txn: WriteTxn, command: SetBlobMetadata) -> Blob:
    key, blob = _writable(txn, command.blob, command.lease_id, command.conditions)
    described = msgspec.structs.replace(blob, metadata=command.metadata)
    return txn.put(BLOBS, key, _changed(txn, described))


# Leased


@operation
def lease_blob(txn: WriteTxn, command: LeaseBlob) -> ShownBlob:
    """A lease changes neither the ETag nor the date."""
    key, blob = find_for_change(txn, command.blob)
    if blob is None:
        raise Refused(Refusal("BlobNotFound"))
    abort_if(condition_rules.check_write(command.conditions, blob.stamp))
    lease = lease_rules.step(blob.lease, command.action, txn.now)
    if isinstance(lease, Refusal):
        raise Refused(lease)
    changed = txn.put(BLOBS, key, msgspec.structs.replace(blob, lease=lease))
    return ShownBlob(txn.now, changed)


# Deleted


@operation(reclaims=True)
def delete_blob(txn: WriteTxn, command: DeleteBlob) -> None:
    if command.snapshots is SnapshotsToo.ONLY:
        snapshots.delete_all(txn, _kept(txn, command))
        return
    key, blob = _writable(txn, command.blob, command.lease_id, command.conditions)
    if command.snapshots is SnapshotsToo.INCLUDE:
        snapshots.delete_all(txn, key)
    elif snapshots.are_there(txn, key):
        raise Refused(Refusal("SnapshotsPresent"))
    staging.discard(txn, key)
    txn.delete(BLOBS, key)
    release(txn, blob.content)


def _kept(txn: WriteTxn, command: DeleteBlob) -> _Key:
    """A blob that stays as it is, so that its lease keeps nobody from what is done beside it."""
    key, blob = find_for_change(txn, command.blob)
    if blob is None:
        raise Refused(Refusal("BlobNotFound"))
    abort_if(lease_rules.check_read(blob.lease, command.lease_id, txn.now, LeaseKind.BLOB))
    abort_if(condition_rules.check_write(command.conditions, blob.stamp))
    return key


# What all changes do first


def find_for_change(txn: WriteTxn, name: BlobName) -> tuple[_Key, Blob | None]:
    key = (find_guarded(txn, name.container).id, name.name)
    return key, txn.get(BLOBS, key, EXCLUSIVE)


def _writable(
    txn: WriteTxn, name: BlobName, lease_id: bytes | None, conditions: Conditions
) -> tuple[_Key, Blob]:
    """A blob that is there and that this caller may change now."""
    key, blob = find_for_change(txn, name)
    if blob is None:
        raise Refused(Refusal("BlobNotFound"))
    abort_if(lease_rules.check_write(blob.lease, lease_id, txn.now, LeaseKind.BLOB))
    abort_if(condition_rules.check_write(conditions, blob.stamp))
    return key, blob


def _changed(txn: WriteTxn, blob: Blob) -> Blob:
    """A change gives a new stamp, and makes an ended lease forgotten."""
    lease = lease_rules.after_write(blob.lease, txn.now, LeaseKind.BLOB)
    return msgspec.structs.replace(blob, stamp=txn.stamp, lease=lease)
