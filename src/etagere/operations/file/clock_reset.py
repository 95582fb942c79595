"""Resets the dates of shares and files that a wrong clock has left in the future.

The ids of entries and the numbers of permissions are stamps, too. They are lowered with them, so
that no new entry gets the id of an existing one. Every row moves to a key that is not greater, and
in the order of the keys: no row meets one that has not moved yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from msgspec.structs import replace

from etagere.clock import TICKS_PER_SECOND
from etagere.engine.interface import WriteTxn
from etagere.engine.records import Collection, K, R
from etagere.model.files import (
    Entry,
    FileNode,
    FilePermissionNumber,
    FileTimes,
    InheritedPermission,
)
from etagere.model.shares import HistoryToPurge, Share
from etagere.operations.file.collections import (
    DELETED_SHARES,
    ENTRIES,
    EXPIRING_SHARES,
    FORMER_ENTRIES,
    HISTORIES_TO_PURGE,
    INHERITED_PERMISSIONS,
    PENDING_FILE_COPIES,
    PERMISSION_NUMBERS,
    PERMISSIONS,
    SHARE_SNAPSHOTS,
    SHARES,
)
from etagere.operations.scans import all_rows

Lower = Callable[[int], int]
_FROM_START: Final = HistoryToPurge()


def stamps(txn: WriteTxn) -> Iterator[int]:
    """Yields every stamp, including ids and numbers."""
    for _, share in all_rows(txn, SHARES):
        yield from (share.created, share.stamp)
    for (_, _, version), kept in all_rows(txn, DELETED_SHARES):
        yield from (version, kept.share.created, kept.share.stamp)
    for _, snapshot in all_rows(txn, SHARE_SNAPSHOTS):
        yield snapshot.stamp
    for _, entry in all_rows(txn, ENTRIES):
        yield from _stamps_of_entry(entry)
    for _, entry in all_rows(txn, FORMER_ENTRIES):
        yield from _stamps_of_entry(entry)
    for (_, number), _ in all_rows(txn, PERMISSIONS):
        yield number


def _stamps_of_entry(entry: Entry) -> tuple[int, ...]:
    return entry.stamp, entry.id, entry.parent_id, entry.permission


def reset(txn: WriteTxn, wall: int, lower: Lower) -> int:
    """Resets everything; returns the number of changed records."""
    return (
        _reset_shares(txn, wall, lower)
        + _reset_snapshots(txn, wall, lower)
        + _reset_entries(txn, wall, lower)
        + _reset_permissions(txn, lower)
    )


def _reset_shares(txn: WriteTxn, wall: int, lower: Lower) -> int:
    changed = 0
    for name, share in all_rows(txn, SHARES):
        changed += _move(txn, SHARES, (name, name), (share, _lower_share(share, wall, lower)))
    for key, kept in all_rows(txn, DELETED_SHARES):
        lowered = replace(
            kept,
            share=_lower_share(kept.share, wall, lower),
            deleted=min(kept.deleted, wall),
        )
        new_key = (*key[:2], lower(key[2]))
        changed += _move(txn, DELETED_SHARES, (key, new_key), (kept, lowered))
    for row, mark in all_rows(txn, EXPIRING_SHARES):
        _move(txn, EXPIRING_SHARES, (row, (*row[:3], lower(row[3]))), (mark, mark))
    return changed


def _lower_share(share: Share, wall: int, lower: Lower) -> Share:
    return replace(
        share,
        created=lower(share.created),
        stamp=lower(share.stamp),
        tier_changed=min(share.tier_changed, wall),
        last_snapshot=min(share.last_snapshot, wall),
    )


def _reset_snapshots(txn: WriteTxn, wall: int, lower: Lower) -> int:
    """Resets snapshots. Their times stay whole seconds, in the same order."""
    changed = 0
    future: Counter[bytes] = Counter()
    for key, snapshot in all_rows(txn, SHARE_SNAPSHOTS):
        share_id, moment = key
        lowered = replace(
            snapshot,
            stamp=lower(snapshot.stamp),
            tier_changed=min(snapshot.tier_changed, wall),
        )
        if moment > wall:
            future[share_id] += 1
            second = wall // TICKS_PER_SECOND + future[share_id]
            moment = min(moment, second * TICKS_PER_SECOND)
        changed += _move(txn, SHARE_SNAPSHOTS, (key, (share_id, moment)), (snapshot, lowered))
    return changed


def _reset_entries(txn: WriteTxn, wall: int, lower: Lower) -> int:
    changed = 0
    for key, entry in all_rows(txn, ENTRIES):
        new_key = (key[0], lower(key[1]), key[2])
        changed += _move(txn, ENTRIES, (key, new_key), (entry, _lower_entry(entry, wall, lower)))
    for place, former in all_rows(txn, FORMER_ENTRIES):
        new_place = (place[0], lower(place[1]), *place[2:])
        lowered = _lower_entry(former, wall, lower)
        changed += _move(txn, FORMER_ENTRIES, (place, new_place), (former, lowered))
    for copy_key, pending in all_rows(txn, PENDING_FILE_COPIES):
        new_copy_key = (copy_key[0], lower(copy_key[1]), copy_key[2])
        _move(txn, PENDING_FILE_COPIES, (copy_key, new_copy_key), (pending, pending))
    for mark, progress in all_rows(txn, HISTORIES_TO_PURGE):
        _move(txn, HISTORIES_TO_PURGE, (mark, mark), (progress, _FROM_START))
    return changed


def _lower_entry(entry: Entry, wall: int, lower: Lower) -> Entry:
    """Clients may set times of the future; they stay if the change itself was in the past."""
    times, node = entry.times, entry.node
    if entry.stamp > wall:
        times = FileTimes(
            min(times.created, wall),
            min(times.written, wall),
            min(times.changed, wall),
            None if times.accessed is None else min(times.accessed, wall),
        )
    if isinstance(node, FileNode) and node.copied is not None:
        node = replace(node, copied=replace(node.copied, ended=min(node.copied.ended, wall)))
    return replace(
        entry,
        stamp=lower(entry.stamp),
        id=lower(entry.id),
        parent_id=lower(entry.parent_id),
        permission=lower(entry.permission),
        times=times,
        node=node,
    )


def _reset_permissions(txn: WriteTxn, lower: Lower) -> int:
    changed = 0
    for key, permission in all_rows(txn, PERMISSIONS):
        new_key = (key[0], lower(key[1]))
        changed += _move(txn, PERMISSIONS, (key, new_key), (permission, permission))
    for digest, known in all_rows(txn, PERMISSION_NUMBERS):
        lowered = FilePermissionNumber(lower(known.number))
        changed += _move(txn, PERMISSION_NUMBERS, (digest, digest), (known, lowered))
    for parent, inherited in all_rows(txn, INHERITED_PERMISSIONS):
        new_parent = (parent[0], lower(parent[1]), parent[2])
        new = InheritedPermission(lower(inherited.number))
        changed += _move(txn, INHERITED_PERMISSIONS, (parent, new_parent), (inherited, new))
    return changed


def _move(
    txn: WriteTxn, collection: Collection[K, R], keys: tuple[K, K], records: tuple[R, R]
) -> int:
    """Stores a record under its new key; returns 1 if key or record has changed."""
    (old_key, new_key), (old, new) = keys, records
    if old_key == new_key and old == new:
        return 0
    if old_key != new_key:
        txn.delete(collection, old_key)
    txn.put(collection, new_key, new)
    return 1
