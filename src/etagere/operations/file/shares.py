"""Shares: creation, settings, leases, snapshots and deletion."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from etagere.clock import TICKS_PER_SECOND
from etagere.engine.interface import (
    EXCLUSIVE,
    SHARED,
    ReadTxn,
    Refused,
    WriteTxn,
    abort_if,
    operation,
    unwrap,
)
from etagere.errors import Refusal
from etagere.model.leases import NO_LEASE, Lease, LeaseKind
from etagere.model.service import NO_RETENTION, RetentionPolicy
from etagere.model.shares import (
    CreateShare,
    DeletedShare,
    DeletedShareName,
    DeleteShare,
    ExpiringShare,
    GetShare,
    HistoryToPurge,
    LeaseShare,
    RestoreShare,
    SetShareMetadata,
    SetSharePolicies,
    SetShareProperties,
    Share,
    ShareName,
    ShareSnapshot,
    ShareToPurge,
    ShareUsage,
    SnapshotShare,
    SnapshotsOfShare,
    TimedShare,
)
from etagere.operations.file.collections import (
    DELETED_SHARE_NAMES,
    DELETED_SHARES,
    EXPIRING_SHARES,
    HISTORIES_TO_PURGE,
    SHARE_SNAPSHOTS,
    SHARE_USAGE,
    SHARES,
    SHARES_TO_PURGE,
)
from etagere.operations.named import NamedResources, policies_reader
from etagere.operations.service import SERVICE_PROPERTIES
from etagere.rules import leases as lease_rules
from etagere.rules.file_names import check_share_name
from etagere.rules.shares import changed_settings

_NAMED: Final = NamedResources(SHARES, "ShareNotFound")
find = _NAMED.find
find_guarded = _NAMED.find_guarded
policies_of = policies_reader(SHARES, check_share_name)

SNAPSHOTS_MAX: Final = 200
USAGE_PARTS: Final = 16
"""The number of records that the usage of a share is counted in."""
_SECONDS_PER_DAY: Final = 24 * 3_600
_REPEATED_DELETION_SECONDS: Final = 30
"""How long deletions of a deleted share succeed. In the service this is the time that a deletion
takes at least; clients that repeat a request or delete all listed rows rely on it."""


@operation
def create_share(txn: WriteTxn, command: CreateShare) -> Share:
    if _NAMED.find_for_creation(txn, command.share) is not None:
        raise Refused(Refusal("ShareAlreadyExists"))
    created = Share(command.id, txn.stamp, txn.stamp, command.settings, command.metadata)
    return txn.put(SHARES, command.share.key, created)


def get_share(txn: ReadTxn, command: GetShare) -> TimedShare:
    found, snapshot = find(txn, command.ref.share), command.ref.snapshot
    if snapshot is not None:
        found = as_share(found, get_snapshot(txn, found.id, snapshot))
    abort_if(_check_use(found, command.lease_id, txn.steady_now))
    return TimedShare(txn.steady_now, found, snapshot)


def get_share_statistics(txn: ReadTxn, command: GetShare) -> TimedShare:
    found = find(txn, command.ref.share)
    abort_if(_check_use(found, command.lease_id, txn.steady_now))
    return TimedShare(txn.steady_now, found, None, usage(txn, found.id))


@operation
def set_share_properties(txn: WriteTxn, command: SetShareProperties) -> Share:
    found = _changeable(txn, command.share, command.lease_id)
    settings = unwrap(changed_settings(found.settings, command.change))
    changed = replace(found, settings=settings, stamp=txn.stamp)
    if settings.tier != found.settings.tier:
        changed = replace(changed, tier_changed=txn.now)
    return txn.put(SHARES, command.share.key, changed)


@operation
def set_share_metadata(txn: WriteTxn, command: SetShareMetadata) -> Share:
    found = _changeable(txn, command.share, command.lease_id)
    changed = replace(found, metadata=command.metadata, stamp=txn.stamp)
    return txn.put(SHARES, command.share.key, changed)


@operation
def set_share_policies(txn: WriteTxn, command: SetSharePolicies) -> Share:
    found = _changeable(txn, command.share, command.lease_id)
    changed = replace(found, policies=command.policies, stamp=txn.stamp)
    return txn.put(SHARES, command.share.key, changed)


@operation
def lease_share(txn: WriteTxn, command: LeaseShare) -> TimedShare:
    """Changes the lease of a share or snapshot. Neither the ETag nor the date changes."""
    ref = command.ref
    found = find_guarded(txn, ref.share, exclusive=True)
    if ref.snapshot is None:
        lease = unwrap(_step(found.lease, command, txn.steady_now))
        changed = txn.put(SHARES, ref.share.key, replace(found, lease=lease))
        return TimedShare(txn.steady_now, changed)
    snapshot = get_snapshot(txn, found.id, ref.snapshot)
    lease = unwrap(_step(snapshot.lease, command, txn.steady_now))
    txn.put(SHARE_SNAPSHOTS, (found.id, ref.snapshot), replace(snapshot, lease=lease))
    shown = replace(as_share(found, snapshot), lease=lease)
    return TimedShare(txn.steady_now, shown, ref.snapshot)


# Snapshots


@operation
def snapshot_share(txn: WriteTxn, command: SnapshotShare) -> TimedShare:
    """Takes a snapshot, whose time is a whole second and unique. The share itself stays as it is,
    except that entries that change from now on keep their old states."""
    found = find_guarded(txn, command.share, exclusive=True)
    if len(found.snapshot_generations) >= SNAPSHOTS_MAX:
        raise Refused(Refusal("ShareSnapshotCountExceeded"))
    moment = _next_snapshot_time(txn, found)
    snapshot = ShareSnapshot(
        found.generation,
        txn.stamp if command.metadata else found.stamp,
        found.settings,
        command.metadata or found.metadata,
        tier_changed=found.tier_changed,
    )
    txn.put(SHARE_SNAPSHOTS, (found.id, moment), snapshot)
    changed = replace(
        found,
        generation=found.generation + 1,
        snapshot_generations=(*found.snapshot_generations, found.generation),
        last_snapshot=moment,
    )
    txn.put(SHARES, command.share.key, changed)
    return TimedShare(txn.steady_now, as_share(changed, snapshot), moment)


def _next_snapshot_time(txn: WriteTxn, found: Share) -> int:
    """Returns the current second, or the one after the last snapshot if that is later."""
    now = txn.now // TICKS_PER_SECOND * TICKS_PER_SECOND
    last = found.last_snapshot
    # After a reset of the clock there may be snapshots that are later than the share says.
    for (_, moment), _ in txn.scan(
        SHARE_SNAPSHOTS, SHARE_SNAPSHOTS.under((found.id,)), 1, reverse=True
    ):
        last = max(last, moment)
    return max(now, last + TICKS_PER_SECOND)


# Deletion


@operation(reclaims=True)
def delete_share(txn: WriteTxn, command: DeleteShare) -> bool:
    """Deletes a share with its snapshots, or one snapshot. The name is free at once. The service
    properties say whether the share can be restored.

    Returns whether something was deleted: for a short time, the deletion of a share can be
    repeated.
    """
    ref = command.ref
    if ref.snapshot is None and _was_just_deleted(txn, ref.share):
        return False
    found = find_guarded(txn, ref.share, exclusive=True)
    if ref.snapshot is not None:
        _delete_snapshot(txn, ref.share, found, ref.snapshot, command.lease_id)
        return True
    abort_if(_check_change(found, command.lease_id, txn.steady_now))
    _check_snapshots(txn, found, command.snapshots)
    txn.delete(SHARES, ref.share.key)
    policy = _deleted_share_retention(txn, ref.share.account)
    if policy.enabled and policy.days is not None:
        _keep_deleted(txn, ref.share, found, policy.days)
    else:
        txn.put(SHARES_TO_PURGE, (found.id,), ShareToPurge())
    until = txn.steady_now + _REPEATED_DELETION_SECONDS * TICKS_PER_SECOND
    txn.put(DELETED_SHARE_NAMES, ref.share.key, DeletedShareName(until))
    return True


def _was_just_deleted(txn: WriteTxn, name: ShareName) -> bool:
    if txn.get(SHARES, name.key, EXCLUSIVE) is not None:
        return False
    deleted = txn.get(DELETED_SHARE_NAMES, name.key, SHARED)
    return deleted is not None and deleted.expires > txn.steady_now


def _deleted_share_retention(txn: WriteTxn, account: str) -> RetentionPolicy:
    properties = txn.get(SERVICE_PROPERTIES, (account, "file"), SHARED)
    return NO_RETENTION if properties is None else properties.share_delete_retention


def _keep_deleted(txn: WriteTxn, name: ShareName, found: Share, days: int) -> None:
    """Keeps a share so that it can be restored, with its snapshots."""
    expires = txn.steady_now + days * _SECONDS_PER_DAY * TICKS_PER_SECOND
    kept = DeletedShare(replace(found, lease=NO_LEASE), txn.now, expires)
    key = (*name.key, txn.stamp)
    txn.put(DELETED_SHARES, key, kept)
    txn.put(EXPIRING_SHARES, (expires, *key), ExpiringShare())


def _check_snapshots(txn: WriteTxn, found: Share, asked: SnapshotsOfShare) -> None:
    snapshots = txn.scan(SHARE_SNAPSHOTS, SHARE_SNAPSHOTS.under((found.id,)), SNAPSHOTS_MAX)
    if snapshots and asked is SnapshotsOfShare.REFUSE:
        raise Refused(Refusal("ShareHasSnapshots"))
    if asked is SnapshotsOfShare.INCLUDE_LEASED:
        return
    if any(_is_leased(snapshot.lease, txn.steady_now) for _, snapshot in snapshots):
        raise Refused(Refusal("DeleteShareWhenSnapshotLeased"))


def _delete_snapshot(
    txn: WriteTxn, name: ShareName, found: Share, moment: int, lease_id: bytes | None
) -> None:
    snapshot = get_snapshot(txn, found.id, moment)
    abort_if(_check_change(as_share(found, snapshot), lease_id, txn.steady_now))
    txn.delete(SHARE_SNAPSHOTS, (found.id, moment))
    left = tuple(each for each in found.snapshot_generations if each != snapshot.generation)
    txn.put(SHARES, name.key, replace(found, snapshot_generations=left))
    purged = txn.get(HISTORIES_TO_PURGE, (found.id,), EXCLUSIVE)
    mark = HistoryToPurge() if purged is None else replace(purged, again=True)
    txn.put(HISTORIES_TO_PURGE, (found.id,), mark)


@operation
def restore_share(txn: WriteTxn, command: RestoreShare) -> Share:
    """Restores a deleted share under its name, or under another one."""
    if _NAMED.find_for_creation(txn, command.share) is not None:
        raise Refused(Refusal("ShareAlreadyExists"))
    key = (command.share.account, command.deleted_name, command.version)
    kept = txn.get(DELETED_SHARES, key, EXCLUSIVE)
    if kept is None or kept.expires <= txn.steady_now:
        raise Refused(Refusal("ShareNotFound"))
    txn.delete(DELETED_SHARES, key)
    txn.delete(EXPIRING_SHARES, (kept.expires, *key))
    return txn.put(SHARES, command.share.key, replace(kept.share, stamp=txn.stamp))


# Usage


def usage(txn: ReadTxn | WriteTxn, share_id: bytes) -> int:
    """Returns the length of all files of a share, in bytes."""
    rows = txn.scan(SHARE_USAGE, SHARE_USAGE.under((share_id,)), USAGE_PARTS)
    return sum(part.length for _, part in rows)


def change_usage(
    txn: WriteTxn, found: Share, entry_id: int, added: int, *, enforce: bool = True
) -> None:
    """Counts bytes that a file gains or loses, and refuses what exceeds the quota, unless that was
    checked before (`enforce`)."""
    if not added:
        return
    if enforce and added > 0 and usage(txn, found.id) + added > found.settings.quota_gib << 30:
        raise Refused(Refusal("ShareSizeLimitReached"))
    key = (found.id, entry_id % USAGE_PARTS)
    part = txn.get(SHARE_USAGE, key, EXCLUSIVE)
    txn.put(SHARE_USAGE, key, ShareUsage((0 if part is None else part.length) + added))


# Leases


def _step(lease: Lease, command: LeaseShare, now: int) -> Lease | Refusal:
    return lease_rules.step(lease, command.action, now, LeaseKind.SHARE)


def _check_use(found: Share, lease_id: bytes | None, now: int) -> Refusal | None:
    return lease_rules.check_read(found.lease, lease_id, now, LeaseKind.SHARE)


def _check_change(found: Share, lease_id: bytes | None, now: int) -> Refusal | None:
    return lease_rules.check_write(found.lease, lease_id, now, LeaseKind.SHARE)


def _is_leased(lease: Lease, now: int) -> bool:
    return lease_rules.effective_state(lease, now) in lease_rules.LOCKED


def _changeable(txn: WriteTxn, name: ShareName, lease_id: bytes | None) -> Share:
    found = find_guarded(txn, name, exclusive=True)
    abort_if(_check_change(found, lease_id, txn.steady_now))
    return found


def get_snapshot(txn: ReadTxn | WriteTxn, share_id: bytes, moment: int) -> ShareSnapshot:
    snapshot = txn.get(SHARE_SNAPSHOTS, (share_id, moment))
    if snapshot is None:
        raise Refused(Refusal("ShareSnapshotNotFound"))
    return snapshot


def as_share(found: Share, snapshot: ShareSnapshot) -> Share:
    """Returns the share as the snapshot shows it."""
    return replace(
        found,
        stamp=snapshot.stamp,
        settings=snapshot.settings,
        metadata=snapshot.metadata,
        lease=snapshot.lease,
        tier_changed=snapshot.tier_changed,
    )
