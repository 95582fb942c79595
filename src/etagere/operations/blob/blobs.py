"""Blobs: put whole, shown, described and deleted."""

from __future__ import annotations

import msgspec

from etagere.bodies.contents import Plan, adopt, holds, locate, release
from etagere.engine.interface import EXCLUSIVE, ReadTxn, Refused, WriteTxn, abort_if, operation
from etagere.engine.records import ID, TEXT, Collection
from etagere.errors import Refusal
from etagere.model.base import Command
from etagere.model.blobs import (
    Blob,
    BlobKind,
    BlobName,
    DeleteBlob,
    GetBlob,
    OpenBlob,
    PutBlob,
    SetBlobHeaders,
    SetBlobMetadata,
    ShownBlob,
)
from etagere.model.conditions import Conditions
from etagere.model.leases import NO_LEASE, LeaseKind
from etagere.operations.blob.containers import DELETED_CONTAINERS, find, find_guarded
from etagere.rules import conditions as condition_rules
from etagere.rules import leases as lease_rules

BLOBS: Collection[tuple[bytes, str], Blob] = Collection("blobs", Blob, (ID, TEXT))
holds(BLOBS, contents=lambda blob: (blob.content,))

_Key = tuple[bytes, str]


def foresee_put(txn: ReadTxn, command: PutBlob) -> None:
    """A courtesy before a long upload: refuses what would be refused if it ended now."""
    container = find(txn, command.blob.container)
    _check_put(txn.get(BLOBS, (container.id, command.blob.name)), command, txn.now)


def _check_put(old: Blob | None, command: PutBlob, now: int) -> None:
    lease = old.lease if old is not None else NO_LEASE
    abort_if(lease_rules.check_write(lease, command.lease_id, now, LeaseKind.BLOB))
    abort_if(condition_rules.check_create(command.conditions, old.stamp if old else None))
    if old is not None and command.only_if_absent:
        raise Refused(Refusal("AuthorizationPermissionMismatch"))
    if old is not None and old.kind is not BlobKind.BLOCK:
        raise Refused(Refusal("InvalidBlobType"))


@operation
def put_blob(txn: WriteTxn, command: PutBlob) -> Blob:
    """The decision that counts: whatever was foreseen before the upload may be otherwise now."""
    key, old = _guarded(txn, command.blob)
    _check_put(old, command, txn.now)
    lease = old.lease if old is not None else NO_LEASE
    blob = Blob(
        BlobKind.BLOCK,
        old.created if old is not None else txn.stamp,
        txn.stamp,
        adopt(txn, command.body),
        command.headers,
        command.metadata,
        lease_rules.after_write(lease, txn.now, LeaseKind.BLOB),
    )
    txn.put(BLOBS, key, blob)
    if old is not None:
        release(txn, old.content)
    return blob


def get_blob(txn: ReadTxn, command: GetBlob) -> ShownBlob:
    blob = txn.get(BLOBS, (find(txn, command.blob.container).id, command.blob.name))
    if blob is None:
        raise Refused(Refusal("BlobNotFound"))
    abort_if(lease_rules.check_read(blob.lease, command.lease_id, txn.now, LeaseKind.BLOB))
    abort_if(condition_rules.check_read(command.conditions, blob.stamp))
    return ShownBlob(txn.now, blob)


def open_blob(txn: ReadTxn, command: OpenBlob) -> tuple[ShownBlob, int, int, Plan]:
    """In one snapshot: the blob, where the range begins, how long it is, and where its bytes lie.
    Pin before."""
    shown = get_blob(txn, command.ask)
    total = shown.blob.content.length
    start, end = 0, total
    if command.first is not None:
        if command.first >= total:
            raise Refused(Refusal("InvalidRange", {"ContentLength": total}))
        start = command.first
        end = total if command.last is None else min(command.last + 1, total)
    return shown, start, end - start, locate(txn, shown.blob.content, start, end - start)


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


@operation(reclaims=True)
def delete_blob(txn: WriteTxn, command: DeleteBlob) -> None:
    key, blob = _writable(txn, command.blob, command.lease_id, command.conditions)
    txn.delete(BLOBS, key)
    release(txn, blob.content)


class PurgeContainers(Command, frozen=True):
    blobs_max: int = 200


@operation(reclaims=True)
def purge_containers(txn: WriteTxn, command: PurgeContainers) -> int:
    """One bounded step of removing the blobs of deleted containers; returns how many rows that
    were (0: nothing is left to remove)."""
    for (container_id,), _ in txn.scan(DELETED_CONTAINERS, DELETED_CONTAINERS.all(), 1, claim=True):
        rows = txn.scan(BLOBS, BLOBS.under((container_id,)), command.blobs_max)
        for key, blob in rows:
            txn.delete(BLOBS, key)
            release(txn, blob.content)
        if len(rows) < command.blobs_max:
            txn.delete(DELETED_CONTAINERS, (container_id,))
        return len(rows) + 1
    return 0


def _guarded(txn: WriteTxn, name: BlobName) -> tuple[_Key, Blob | None]:
    key = (find_guarded(txn, name.container).id, name.name)
    return key, txn.get(BLOBS, key, EXCLUSIVE)


def _writable(
    txn: WriteTxn, name: BlobName, lease_id: bytes | None, conditions: Conditions
) -> tuple[_Key, Blob]:
    """A blob that is there and that this caller may change now."""
    key, blob = _guarded(txn, name)
    if blob is None:
        raise Refused(Refusal("BlobNotFound"))
    abort_if(lease_rules.check_write(blob.lease, lease_id, txn.now, LeaseKind.BLOB))
    abort_if(condition_rules.check_write(conditions, blob.stamp))
    return key, blob


def _changed(txn: WriteTxn, blob: Blob) -> Blob:
    """A change gives a new stamp, and makes an ended lease forgotten."""
    lease = lease_rules.after_write(blob.lease, txn.now, LeaseKind.BLOB)
    return msgspec.structs.replace(blob, stamp=txn.stamp, lease=lease)
