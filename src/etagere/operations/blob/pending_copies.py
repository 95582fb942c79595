"""Asynchronous copies from other servers.

Until the source has been read, the destination is an empty blob that cannot be changed, and a
record names the process that reads. If that process is gone, the copy has failed.
"""

from __future__ import annotations

import msgspec

from etagere.bodies.contents import adopt_body
from etagere.engine.interface import (
    EXCLUSIVE,
    SHARED,
    ReadTxn,
    Refused,
    WriteTxn,
    abort_if,
    operation,
)
from etagere.engine.records import ID, TEXT, Collection
from etagere.errors import Refusal
from etagere.model.blobs import Blob, BlobKind, CopyStatus
from etagere.model.bodies import Empty
from etagere.model.copies import (
    AbortCopy,
    BeginCopy,
    BegunCopy,
    CopyRef,
    FailCopy,
    FinishCopy,
    PendingCopy,
    RecordProgress,
)
from etagere.model.leases import LeaseKind
from etagere.operations.blob.blobs import with_new_stamp
from etagere.operations.blob.collections import BLOBS, CONTAINERS
from etagere.operations.blob.copies import check_destination, copy_state, replace_by_copy
from etagere.operations.blob.lookup import find_for_change
from etagere.rules import copies as rules
from etagere.rules import leases as lease_rules

_Key = tuple[bytes, str]

PENDING_COPIES: Collection[_Key, PendingCopy] = Collection(
    "pending_copies", PendingCopy, (ID, TEXT)
)
_ROWS_MAX = 200


@operation
def begin_copy(txn: WriteTxn, command: BeginCopy) -> BegunCopy:
    destination = msgspec.structs.replace(command.destination, asynchronous=True)
    key, old = find_for_change(txn, destination.blob)
    check_destination(old, destination, BlobKind.BLOCK, txn.steady_now)
    copied = copy_state(destination, CopyStatus.PENDING, 0, command.total, 0)
    copy = Blob(BlobKind.BLOCK, 0, 0, Empty(), command.headers, command.metadata)
    blob = replace_by_copy(txn, key, old, destination, copy, copied)
    container = destination.blob.container
    pending = PendingCopy(destination.copy_id, container, command.process)
    txn.put(PENDING_COPIES, key, pending)
    return BegunCopy(blob, CopyRef(destination.copy_id, container, *key))


@operation
def record_progress(txn: WriteTxn, command: RecordProgress[CopyRef]) -> bool:
    """Records the progress of a copy; returns False if it is no longer pending. Neither the ETag
    nor the date change."""
    blob = _pending_destination(txn, command.copy_ref)
    if blob is None or blob.copied is None:
        return False
    copied = msgspec.structs.replace(blob.copied, copied=command.copied)
    txn.put(BLOBS, command.copy_ref.key, msgspec.structs.replace(blob, copied=copied))
    return True


@operation
def finish_copy(txn: WriteTxn, command: FinishCopy[CopyRef]) -> bool:
    """Completes a copy; returns False if it is no longer pending, in which case the bytes are
    dropped."""
    blob = _pending_destination(txn, command.copy_ref)
    if blob is None:
        return False
    length = command.body.length
    finished = msgspec.structs.replace(blob, content=adopt_body(txn, command.body))
    _end(txn, command.copy_ref.key, finished, CopyStatus.SUCCESS, copied=length)
    return True


@operation(reclaims=True)
def fail_copy(txn: WriteTxn, command: FailCopy[CopyRef]) -> bool:
    """Marks a copy as failed; returns False if it has ended already."""
    blob = _pending_destination(txn, command.copy_ref)
    if blob is None:
        return False
    _end(txn, command.copy_ref.key, blob, CopyStatus.FAILED, description=command.description)
    return True


@operation
def abort_copy(txn: WriteTxn, command: AbortCopy) -> None:
    """Aborts a pending copy. The destination stays, without bytes, but with the properties of the
    copy."""
    key, blob = find_for_change(txn, command.blob)
    if blob is None:
        raise Refused(Refusal("BlobNotFound"))
    abort_if(lease_rules.check_write(blob.lease, command.lease_id, txn.steady_now, LeaseKind.BLOB))
    if blob.copied is None or not rules.is_pending(blob):
        raise Refused(Refusal("NoPendingCopyOperation"))
    if blob.copied.id != command.copy_id:
        raise Refused(Refusal("CopyIdMismatch"))
    _end(txn, key, blob, CopyStatus.ABORTED)


def _pending_destination(txn: WriteTxn, copy_ref: CopyRef) -> Blob | None:
    """Returns the destination, if this copy is still pending. Otherwise deletes the record of the
    copy."""
    key = copy_ref.key
    container = txn.get(CONTAINERS, copy_ref.container.key, SHARED)
    pending = txn.get(PENDING_COPIES, key, EXCLUSIVE)
    if pending is None or pending.copy_id != copy_ref.copy_id:
        return None
    blob = None
    if container is not None and container.id == copy_ref.container_id:
        blob = txn.get(BLOBS, key, EXCLUSIVE)
    if blob is None or blob.copied is None or blob.copied.id != copy_ref.copy_id:
        txn.delete(PENDING_COPIES, key)
        return None
    return blob


def _end(
    txn: WriteTxn,
    key: _Key,
    blob: Blob,
    status: CopyStatus,
    *,
    copied: int | None = None,
    description: str = "",
) -> None:
    assert blob.copied is not None
    ended = msgspec.structs.replace(
        blob.copied,
        status=status,
        copied=blob.copied.copied if copied is None else copied,
        total=blob.copied.total if copied is None else copied,
        ended=txn.now,
        description=description,
    )
    txn.delete(PENDING_COPIES, key)
    txn.put(BLOBS, key, with_new_stamp(txn, msgspec.structs.replace(blob, copied=ended)))


# Monitoring


def pending_copies(txn: ReadTxn, after: CopyRef | None) -> list[tuple[CopyRef, bytes]]:
    """Returns some pending copies after this one, each with the process that runs it."""
    span, last = PENDING_COPIES.all(), None if after is None else after.key
    if last is not None:
        span = PENDING_COPIES.starting(span, last)
    rows = txn.scan(PENDING_COPIES, span, _ROWS_MAX)
    return [
        (CopyRef(pending.copy_id, pending.container, *key), pending.process)
        for key, pending in rows
        if key != last
    ]
