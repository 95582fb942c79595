"""Copies of what is elsewhere, which has to be read first.

Until then their place is held by a blob without bytes, which nobody else may change, and by a
record of the process that reads. If that process is gone, the copy has failed.
"""

from __future__ import annotations

import msgspec

from etagere.bodies.contents import adopt
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
from etagere.operations.blob.blobs import changed
from etagere.operations.blob.collections import BLOBS, CONTAINERS
from etagere.operations.blob.copies import attempt, check_destination, place
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
    copied = attempt(destination, CopyStatus.PENDING, 0, command.total, 0)
    copy = Blob(BlobKind.BLOCK, 0, 0, Empty(), command.headers, command.metadata)
    blob = place(txn, key, old, destination, copy, copied)
    container = destination.blob.container
    pending = PendingCopy(destination.copy_id, container, command.process)
    txn.put(PENDING_COPIES, key, pending)
    return BegunCopy(blob, CopyRef(container, *key, destination.copy_id))


@operation
def record_progress(txn: WriteTxn, command: RecordProgress) -> bool:
    """False if nobody waits for the copy any more. The blob has changed no more than before."""
    blob = _awaited(txn, command.copy_ref)
    if blob is None or blob.copied is None:
        return False
    copied = msgspec.structs.replace(blob.copied, copied=command.copied)
    txn.put(BLOBS, command.copy_ref.key, msgspec.structs.replace(blob, copied=copied))
    return True


@operation
def finish_copy(txn: WriteTxn, command: FinishCopy) -> bool:
    """False if nobody waits for the copy any more; what was read is then dropped."""
    blob = _awaited(txn, command.copy_ref)
    if blob is None:
        return False
    length = command.body.length
    finished = msgspec.structs.replace(blob, content=adopt(txn, command.body))
    _end(txn, command.copy_ref.key, finished, CopyStatus.SUCCESS, copied=length)
    return True


@operation(reclaims=True)
def fail_copy(txn: WriteTxn, command: FailCopy) -> bool:
    """False if it had ended already."""
    blob = _awaited(txn, command.copy_ref)
    if blob is None:
        return False
    _end(txn, command.copy_ref.key, blob, CopyStatus.FAILED, description=command.description)
    return True


@operation
def abort_copy(txn: WriteTxn, command: AbortCopy) -> None:
    """Leaves a blob without bytes, described as the copy would have been."""
    key, blob = find_for_change(txn, command.blob)
    if blob is None:
        raise Refused(Refusal("BlobNotFound"))
    abort_if(lease_rules.check_write(blob.lease, command.lease_id, txn.steady_now, LeaseKind.BLOB))
    if blob.copied is None or not rules.is_pending(blob):
        raise Refused(Refusal("NoPendingCopyOperation"))
    if blob.copied.id != command.copy_id:
        raise Refused(Refusal("CopyIdMismatch"))
    _end(txn, key, blob, CopyStatus.ABORTED)


def _awaited(txn: WriteTxn, copy_ref: CopyRef) -> Blob | None:
    """The destination, if it still waits for this copy. Of a copy that nothing waits for, nothing
    is kept."""
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
    txn.put(BLOBS, key, changed(txn, msgspec.structs.replace(blob, copied=ended)))


# Whoever carries them


def pending_copies(txn: ReadTxn, after: _Key | None) -> list[tuple[CopyRef, bytes]]:
    """Some copies that are under way behind this key, each with the process that carries it."""
    span = PENDING_COPIES.all()
    if after is not None:
        span = PENDING_COPIES.starting(span, after)
    rows = txn.scan(PENDING_COPIES, span, _ROWS_MAX)
    return [
        (CopyRef(pending.container, *key, pending.copy_id), pending.process)
        for key, pending in rows
        if key != after
    ]
