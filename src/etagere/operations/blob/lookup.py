"""Looking up blobs: the one place that knows where the current state of a blob and its snapshots
are kept.

A change or delete of a snapshot guards its blob, so that the guard of the blob protects all of its
states.
"""

from __future__ import annotations

from typing import NamedTuple

from etagere.engine.interface import EXCLUSIVE, SHARED, ReadTxn, Refused, WriteTxn
from etagere.errors import Refusal
from etagere.model.blobs import Blob, BlobName, BlobRef
from etagere.operations.blob.collections import BLOBS, SNAPSHOTS
from etagere.operations.blob.containers import find, find_guarded

BlobKey = tuple[bytes, str]


def find_blob(txn: ReadTxn, ref: BlobRef) -> Blob:
    """Returns the state that a reference names."""
    name = ref.blob
    blob = _get(txn, (find(txn, name.container).id, name.name), ref)
    if blob is None:
        raise Refused(Refusal("BlobNotFound"))
    return blob


def find_source(txn: WriteTxn, ref: BlobRef) -> Blob:
    """Returns the state that a reference names, guarded against changes until the commit."""
    name = ref.blob
    key = (find_guarded(txn, name.container).id, name.name)
    current = txn.get(BLOBS, key, SHARED)
    blob = current if ref.is_current else _get(txn, key, ref)
    if blob is None:
        raise Refused(Refusal("BlobNotFound"))
    return blob


def find_for_change(txn: WriteTxn, name: BlobName) -> tuple[BlobKey, Blob | None]:
    """Returns the key of a blob and its current state, if there is one, guarded to be changed."""
    key = (find_guarded(txn, name.container).id, name.name)
    return key, txn.get(BLOBS, key, EXCLUSIVE)


class FoundBlob(NamedTuple):
    """A state of a blob that is about to be changed."""

    key: BlobKey
    """The key of the blob."""
    ref: BlobRef
    blob: Blob

    def put(self, txn: WriteTxn, changed: Blob) -> Blob:
        snapshot = self.ref.snapshot
        if snapshot is None:
            return txn.put(BLOBS, self.key, changed)
        return txn.put(SNAPSHOTS, (*self.key, snapshot), changed)

    def delete(self, txn: WriteTxn) -> None:
        snapshot = self.ref.snapshot
        if snapshot is None:
            txn.delete(BLOBS, self.key)
        else:
            txn.delete(SNAPSHOTS, (*self.key, snapshot))


def find_ref_for_change(txn: WriteTxn, ref: BlobRef) -> FoundBlob:
    """Returns the state that a reference names, guarded to be changed."""
    key, current = find_for_change(txn, ref.blob)
    blob = current if ref.is_current else _get(txn, key, ref)
    if blob is None:
        raise Refused(Refusal("BlobNotFound"))
    return FoundBlob(key, ref, blob)


def _get(txn: ReadTxn | WriteTxn, key: BlobKey, ref: BlobRef) -> Blob | None:
    if ref.snapshot is None:
        return txn.get(BLOBS, key)
    return txn.get(SNAPSHOTS, (*key, ref.snapshot))
