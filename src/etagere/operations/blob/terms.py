"""On what terms a blob may be read, changed and replaced: leases first, then conditions, then what
state the blob is in."""

from __future__ import annotations

from etagere.engine.interface import Refused, abort_if
from etagere.errors import Refusal
from etagere.model.blobs import Blob, BlobKind, CopyStatus, PutBlob, PutBlockList
from etagere.model.conditions import Conditions
from etagere.model.leases import NO_LEASE, LeaseKind
from etagere.rules import conditions as condition_rules
from etagere.rules import leases as lease_rules
from etagere.rules import tags as tag_rules


def check_read(blob: Blob, conditions: Conditions, lease_id: bytes | None, now: int) -> None:
    abort_if(lease_rules.check_read(blob.lease, lease_id, now, LeaseKind.BLOB))
    abort_if(condition_rules.check_read(conditions, blob.stamp))
    _check_tags(blob, conditions)


def check_change(blob: Blob, conditions: Conditions, lease_id: bytes | None, now: int) -> None:
    abort_if(lease_rules.check_write(blob.lease, lease_id, now, LeaseKind.BLOB))
    abort_if(condition_rules.check_write(conditions, blob.stamp))
    _check_tags(blob, conditions)
    check_settled(blob)


def check_beside(blob: Blob, conditions: Conditions, lease_id: bytes | None, now: int) -> None:
    """For what leaves the blob as it is, so that its lease keeps nobody from it, but is refused
    like a change."""
    check_tag_read(blob, conditions, lease_id, now)
    check_ordinary(blob)
    check_settled(blob)


def check_tag_read(blob: Blob, conditions: Conditions, lease_id: bytes | None, now: int) -> None:
    """For Get Blob Tags: a read whose unmet conditions are failures, never "not modified"."""
    abort_if(lease_rules.check_read(blob.lease, lease_id, now, LeaseKind.BLOB))
    abort_if(condition_rules.check_write(conditions, blob.stamp))
    _check_tags(blob, conditions)


def check_snapshots_delete(
    blob: Blob, conditions: Conditions, lease_id: bytes | None, now: int
) -> None:
    """For a delete of nothing but the snapshots of a blob, which needs the blob's lease."""
    abort_if(lease_rules.check_write(blob.lease, lease_id, now, LeaseKind.BLOB))
    abort_if(condition_rules.check_write(conditions, blob.stamp))
    _check_tags(blob, conditions)


def check_replace(old: Blob | None, command: PutBlob | PutBlockList, now: int) -> None:
    """Whether a blob may be put where there is this one."""
    lease = old.lease if old is not None else NO_LEASE
    abort_if(lease_rules.check_write(lease, command.lease_id, now, LeaseKind.BLOB))
    by_holder = command.lease_id is not None
    stamp = old.stamp if old is not None else None
    abort_if(condition_rules.check_create(command.conditions, stamp, by_holder=by_holder))
    abort_if(tag_rules.check_condition(command.conditions.if_tags, old.tags if old else ()))
    if old is None:
        return
    if command.only_if_absent:
        raise Refused(Refusal("UnauthorizedBlobOverwrite"))
    check_ordinary(old)
    if old.kind is not (command.kind if isinstance(command, PutBlob) else BlobKind.BLOCK):
        raise Refused(Refusal("InvalidBlobType"))
    check_settled(old)


def check_absent(conditions: Conditions, lease_id: bytes | None, now: int) -> None:
    """For what is done to a name without a blob, of which nothing can be as a request wants it."""
    abort_if(lease_rules.check_write(NO_LEASE, lease_id, now, LeaseKind.BLOB))
    abort_if(condition_rules.check_create(conditions, None))
    abort_if(tag_rules.check_condition(conditions.if_tags, ()))


def check_ordinary(blob: Blob) -> None:
    """What snapshots are copied to one after the other is shown, copied to and deleted: no more."""
    if blob.copied is not None and blob.copied.incremental:
        raise Refused(Refusal("OperationNotAllowedOnIncrementalCopyBlob"))


def check_settled(blob: Blob) -> None:
    """While a copy is under way nothing else changes the blob."""
    if blob.copied is not None and blob.copied.status is CopyStatus.PENDING:
        raise Refused(Refusal("PendingCopyOperation"))


def _check_tags(blob: Blob, conditions: Conditions) -> None:
    if conditions.if_tags is not None:
        abort_if(tag_rules.check_condition(conditions.if_tags, blob.tags))
