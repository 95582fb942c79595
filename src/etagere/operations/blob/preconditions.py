"""The preconditions for reading, changing and replacing a blob, in the order in which they are
checked: the lease, the conditions of the request, the state of the blob."""

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
    check_no_pending_copy(blob)


def check_non_modifying(
    blob: Blob, conditions: Conditions, lease_id: bytes | None, now: int
) -> None:
    """Checks an operation that does not modify the blob, so that it needs no lease id, but is
    refused in the same states as a change."""
    check_tag_read(blob, conditions, lease_id, now)
    check_not_incremental_copy(blob)
    check_no_pending_copy(blob)


def check_tag_read(blob: Blob, conditions: Conditions, lease_id: bytes | None, now: int) -> None:
    """Checks Get Blob Tags: a read whose conditions fail with 412, never with 304."""
    abort_if(lease_rules.check_read(blob.lease, lease_id, now, LeaseKind.BLOB))
    abort_if(condition_rules.check_write(conditions, blob.stamp))
    _check_tags(blob, conditions)


def check_snapshots_delete(
    blob: Blob, conditions: Conditions, lease_id: bytes | None, now: int
) -> None:
    """Checks a delete of the snapshots of a blob, which needs the blob's lease."""
    abort_if(lease_rules.check_write(blob.lease, lease_id, now, LeaseKind.BLOB))
    abort_if(condition_rules.check_write(conditions, blob.stamp))
    _check_tags(blob, conditions)


def check_replace(old: Blob | None, command: PutBlob | PutBlockList, now: int) -> None:
    """Checks whether a blob may be created, or replace the old one."""
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
    check_not_incremental_copy(old)
    if old.kind is not (command.kind if isinstance(command, PutBlob) else BlobKind.BLOCK):
        raise Refused(Refusal("InvalidBlobType"))
    check_no_pending_copy(old)


def check_absent(conditions: Conditions, lease_id: bytes | None, now: int) -> None:
    """Checks an operation on a name without a blob, which matches no ETag, lease or tag."""
    abort_if(lease_rules.check_write(NO_LEASE, lease_id, now, LeaseKind.BLOB))
    abort_if(condition_rules.check_create(conditions, None))
    abort_if(tag_rules.check_condition(conditions.if_tags, ()))


def check_not_incremental_copy(blob: Blob) -> None:
    """Refuses the destination of an incremental copy. Its properties can be read, and it can be
    copied to and deleted, but nothing else."""
    if blob.copied is not None and blob.copied.incremental:
        raise Refused(Refusal("OperationNotAllowedOnIncrementalCopyBlob"))


def check_no_pending_copy(blob: Blob) -> None:
    """Refuses a blob whose copy is pending."""
    if blob.copied is not None and blob.copied.status is CopyStatus.PENDING:
        raise Refused(Refusal("PendingCopyOperation"))


def _check_tags(blob: Blob, conditions: Conditions) -> None:
    if conditions.if_tags is not None:
        abort_if(tag_rules.check_condition(conditions.if_tags, blob.tags))
