"""Removal of deleted shares, and of former entries that no snapshot shows, in bounded steps."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from etagere.engine.interface import EXCLUSIVE, ReadTxn, WriteTxn, operation
from etagere.engine.records import Collection, Span
from etagere.model.base import Command
from etagere.model.files import Entry
from etagere.model.shares import HistoryToPurge, ShareToPurge
from etagere.operations.file.collections import (
    DELETED_SHARE_NAMES,
    DELETED_SHARES,
    ENTRIES,
    EXPIRING_SHARES,
    FORMER_ENTRIES,
    HISTORIES_TO_PURGE,
    INHERITED_PERMISSIONS,
    PENDING_FILE_COPIES,
    PERMISSION_NUMBERS,
    PERMISSION_USAGE,
    PERMISSIONS,
    SHARE_SNAPSHOTS,
    SHARE_USAGE,
    SHARES_TO_PURGE,
)
from etagere.operations.file.shares import SNAPSHOTS_MAX
from etagere.operations.file.tree import is_shown, release_content
from etagere.operations.removal import RemovalStep

_MARKS: Final[tuple[Collection[Any, Any], ...]] = (SHARES_TO_PURGE, HISTORIES_TO_PURGE)
OF_SHARES: Final[tuple[Collection[Any, Any], ...]] = (
    ENTRIES,
    FORMER_ENTRIES,
    PENDING_FILE_COPIES,
    SHARE_SNAPSHOTS,
    SHARE_USAGE,
    INHERITED_PERMISSIONS,
    PERMISSION_NUMBERS,
    PERMISSION_USAGE,
    PERMISSIONS,
)
"""The collections whose keys begin with the id of a share: first what refers to others."""


def may_purge(txn: ReadTxn, _: None) -> bool:
    """Returns whether there may be something to remove, so that nothing is written if there is
    not."""
    if txn.scan(EXPIRING_SHARES, _expired(txn), 1) or _expired_names(txn, PurgeShares().rows_max):
        return True
    return any(txn.scan(marks, marks.all(), 1) for marks in _MARKS)


class PurgeShares(Command, frozen=True):
    rows_max: int = 200


# Deleted shares


class MarkShare(Command, frozen=True):
    share_id: bytes


@operation(reclaims=True)
def mark_share(txn: WriteTxn, command: MarkShare) -> None:
    """Marks the records of a share that does not exist, which a check has found."""
    txn.put(SHARES_TO_PURGE, (command.share_id,), ShareToPurge())


@operation(reclaims=True)
def expire_shares(txn: WriteTxn, command: PurgeShares) -> int:
    """Marks deleted shares whose retention has ended for purging; returns how many (0: none is
    left)."""
    rows = txn.scan(EXPIRING_SHARES, _expired(txn), command.rows_max)
    for row, _ in rows:
        _, account, name, version = row
        kept = txn.get(DELETED_SHARES, (account, name, version), EXCLUSIVE)
        txn.delete(EXPIRING_SHARES, row)
        if kept is not None:
            txn.delete(DELETED_SHARES, (account, name, version))
            txn.put(SHARES_TO_PURGE, (kept.share.id,), ShareToPurge())
    return len(rows)


@operation(reclaims=True)
def forget_deleted_names(txn: WriteTxn, command: PurgeShares) -> int:
    """Removes the names of shares whose deletion cannot be repeated any more; returns how many (0:
    none is left among the first ones)."""
    names = _expired_names(txn, command.rows_max)
    for name in names:
        deleted = txn.get(DELETED_SHARE_NAMES, name, EXCLUSIVE)
        if deleted is not None and deleted.expires <= txn.steady_now:
            txn.delete(DELETED_SHARE_NAMES, name)
    return len(names)


def _expired_names(txn: ReadTxn | WriteTxn, rows_max: int) -> list[tuple[str, str]]:
    """Returns the expired ones of the first names. There are few names that have not expired: they
    do so within seconds."""
    rows = txn.scan(DELETED_SHARE_NAMES, DELETED_SHARE_NAMES.all(), rows_max)
    return [name for name, deleted in rows if deleted.expires <= txn.steady_now]


def _expired(txn: ReadTxn | WriteTxn) -> Span:
    everything = EXPIRING_SHARES.all()
    return Span(everything.start, EXPIRING_SHARES.pack((txn.steady_now + 1, "", "", 0)))


@operation(reclaims=True)
def purge_shares(txn: WriteTxn, command: PurgeShares) -> int:
    """Removes rows of deleted shares in one bounded step; returns how many (0: none is left)."""
    for (share_id,), _ in txn.scan(SHARES_TO_PURGE, SHARES_TO_PURGE.all(), 1, claim=True):
        step = RemovalStep(command.rows_max)
        removed = _purge_share(txn, share_id, step)
        if not step.is_over:
            txn.delete(HISTORIES_TO_PURGE, (share_id,))
            txn.delete(SHARES_TO_PURGE, (share_id,))
        return removed + 1
    return 0


def _purge_share(txn: WriteTxn, share_id: bytes, step: RemovalStep) -> int:
    removed = 0
    for collection in OF_SHARES:
        for key, _ in step.rows(txn, collection, collection.under((share_id,))):
            _remove(txn, collection, key)
            removed += 1
    return removed


def _remove(txn: WriteTxn, collection: Collection[Any, Any], key: tuple[Any, ...]) -> None:
    """Removes a row and releases its content, unless somebody else did it just now."""
    record = txn.get(collection, key, EXCLUSIVE)
    if isinstance(record, Entry):
        release_content(txn, record)
    txn.delete(collection, key)


# Histories


@operation(reclaims=True)
def purge_histories(txn: WriteTxn, command: PurgeShares) -> int:
    """Examines former entries of a share of which a snapshot was deleted, and removes those that no
    other snapshot shows; returns how many it examined (0: none is left)."""
    for (share_id,), mark in txn.scan(HISTORIES_TO_PURGE, HISTORIES_TO_PURGE.all(), 1, claim=True):
        return _purge_history(txn, share_id, mark, command.rows_max) + 1
    return 0


def _purge_history(txn: WriteTxn, share_id: bytes, mark: HistoryToPurge, rows_max: int) -> int:
    position = (share_id, mark.directory_id, mark.name, mark.replaced)
    span = FORMER_ENTRIES.starting(FORMER_ENTRIES.under((share_id,)), position)
    rows = txn.scan(FORMER_ENTRIES, span, rows_max)
    # The snapshots are read after the former entries: whatever is kept for a new snapshot becomes
    # visible together with it, or later.
    taken = txn.scan(SHARE_SNAPSHOTS, SHARE_SNAPSHOTS.under((share_id,)), SNAPSHOTS_MAX)
    generations = tuple(sorted(snapshot.generation for _, snapshot in taken))
    for key, former in rows:
        if not is_shown(generations, former.generation, key[3]):
            _remove(txn, FORMER_ENTRIES, key)
    if len(rows) == rows_max:
        _, directory_id, name, replaced = rows[-1][0]
        next_mark = replace(mark, directory_id=directory_id, name=name, replaced=replaced + 1)
        txn.put(HISTORIES_TO_PURGE, (share_id,), next_mark)
    elif mark.again:
        txn.put(HISTORIES_TO_PURGE, (share_id,), HistoryToPurge())
    else:
        txn.delete(HISTORIES_TO_PURGE, (share_id,))
    return len(rows)
