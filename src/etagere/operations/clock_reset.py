"""Resets dates that a wrong clock has left in the future.

For a store that was used while the machine's clock was far ahead. Stamps in the future become
stamps of the present, in the same order: they stay unique in the store, and greater than every
earlier stamp. Stamps identify versions, so the ETags of these objects change, and so do the names
of snapshots that were taken then. The times of messages are shifted by the difference.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable

import msgspec

from etagere.engine.interface import WriteTxn, operation
from etagere.engine.records import Collection, K, R
from etagere.model.accounts import Account
from etagere.model.base import Command, Result
from etagere.model.blobs import Blob, Copied
from etagere.model.queues import Message, MessageIndexRow
from etagere.model.tables import PropertyIndex
from etagere.operations.account_records import ACCOUNTS
from etagere.operations.blob.collections import BLOBS, CONTAINERS, SNAPSHOTS, STAGINGS
from etagere.operations.file import clock_reset as file_clock_reset
from etagere.operations.queue.collections import EXPIRING, MESSAGES, VISIBLE
from etagere.operations.scans import all_rows
from etagere.operations.table.collections import ENTITIES, TABLES


class ResetClock(Command, frozen=True):
    wall: int
    """The current date; later times are in the future."""
    ahead: int
    """How far `now` was ahead of it, in ticks."""


class TimesReset(Result, frozen=True):
    last_stamp: int
    """The greatest stamp in the store."""
    records: int
    """The number of changed records."""


class _Stamps:
    """The future stamps of all records, and their replacements."""

    def __init__(self, command: ResetClock, stamps: array[int]) -> None:
        self._wall = command.wall
        self._base = command.wall + 1
        self._future = array("q", sorted(set(stamps)))

    @property
    def last(self) -> int:
        return self._base + len(self._future) - 1

    def lower(self, stamp: int) -> int:
        if stamp <= self._wall:
            return stamp
        return self._base + bisect_left(self._future, stamp)


@operation
def reset_clock(txn: WriteTxn, command: ResetClock) -> TimesReset:
    """Resets all dates in one transaction: for a store that nothing else uses."""
    stamps = _Stamps(command, _future_stamps(txn, command.wall))
    lower = stamps.lower
    changed = 0
    for name, container in all_rows(txn, CONTAINERS):
        changed += _put(txn, CONTAINERS, name, container, stamp=lower(container.stamp))
    for key, staging in all_rows(txn, STAGINGS):
        changed += _put(txn, STAGINGS, key, staging, stamp=lower(staging.stamp))
    for row, entity in all_rows(txn, ENTITIES):
        changed += _put(txn, ENTITIES, row, entity, stamp=lower(entity.stamp))
    for table_name, table in all_rows(txn, TABLES):
        indexes = tuple([_reset_index(index, command.wall) for index in table.indexes])
        if indexes != table.indexes:
            txn.put(TABLES, table_name, msgspec.structs.replace(table, indexes=indexes))
            changed += 1
    for account_name, account in all_rows(txn, ACCOUNTS):
        changed += _put(
            txn,
            ACCOUNTS,
            account_name,
            account,
            created=lower(account.created),
            key1_created=lower(account.key1_created),
            key2_created=lower(account.key2_created),
        )
    for key, blob in all_rows(txn, BLOBS):
        lowered = _lower_blob(blob, command, lower)
        if lowered != blob:
            txn.put(BLOBS, key, lowered)
            changed += 1
    for (container_id, blob_name, moment), snapshot in all_rows(txn, SNAPSHOTS):
        lowered, new_moment = _lower_blob(snapshot, command, lower), lower(moment)
        if lowered != snapshot or new_moment != moment:
            txn.delete(SNAPSHOTS, (container_id, blob_name, moment))
            txn.put(SNAPSHOTS, (container_id, blob_name, new_moment), lowered)
            changed += 1
    for message_key, message in all_rows(txn, MESSAGES):
        changed += _reset_message(txn, message_key, message, command, lower)
    changed += file_clock_reset.reset(txn, command.wall, lower)
    return TimesReset(stamps.last, changed)


def _future_stamps(txn: WriteTxn, wall: int) -> array[int]:
    found = array("q")

    def see(*stamps: int) -> None:
        found.extend(stamp for stamp in stamps if stamp > wall)

    found.extend(stamp for stamp in file_clock_reset.stamps(txn) if stamp > wall)

    for _, container in all_rows(txn, CONTAINERS):
        see(container.stamp)
    for _, staging in all_rows(txn, STAGINGS):
        see(staging.stamp)
    for _, entity in all_rows(txn, ENTITIES):
        see(entity.stamp)
    for _, account in all_rows(txn, ACCOUNTS):
        see(*_stamps_of_account(account))
    for _, blob in all_rows(txn, BLOBS):
        see(*_stamps_of_blob(blob))
    for (_, _, moment), snapshot in all_rows(txn, SNAPSHOTS):
        see(moment, *_stamps_of_blob(snapshot))
    for _, message in all_rows(txn, MESSAGES):
        see(message.receipt)
    return found


def _stamps_of_account(account: Account) -> tuple[int, ...]:
    return account.created, account.key1_created, account.key2_created


def _stamps_of_blob(blob: Blob) -> tuple[int, ...]:
    snapshot = blob.copied.snapshot if blob.copied is not None else 0
    return blob.created, blob.stamp, blob.tier_changed, snapshot


def _lower_blob(blob: Blob, command: ResetClock, lower: Callable[[int], int]) -> Blob:
    copied: Copied | None = blob.copied
    if copied is not None:
        ended = min(copied.ended, command.wall)
        copied = msgspec.structs.replace(copied, ended=ended, snapshot=lower(copied.snapshot))
    return msgspec.structs.replace(
        blob,
        created=lower(blob.created),
        stamp=lower(blob.stamp),
        tier_changed=lower(blob.tier_changed),
        copied=copied,
        # A date of the future would keep reads from being recorded until then.
        read_at=min(blob.read_at, command.wall),
    )


def _reset_index(index: PropertyIndex, wall: int) -> PropertyIndex:
    """Resets the times of an index, which would otherwise neither be dropped nor replaced."""
    return msgspec.structs.replace(
        index, created_at=min(index.created_at, wall), used_at=min(index.used_at, wall)
    )


def _reset_message(
    txn: WriteTxn,
    key: tuple[bytes, bytes],
    message: Message,
    command: ResetClock,
    lower: Callable[[int], int],
) -> int:
    """Resets the times of a message. Its stamp and its insertion time tell which of them were
    computed from a wrong `now`."""
    inserted, expires, visible = message.inserted, message.expires, message.visible
    if inserted > command.wall:
        inserted = max(0, inserted - command.ahead)
        expires = None if expires is None else max(0, expires - command.ahead)
    if message.receipt > command.wall:
        visible = max(0, visible - command.ahead)
    changed = msgspec.structs.replace(
        message,
        inserted=inserted,
        expires=expires,
        visible=visible,
        receipt=lower(message.receipt),
    )
    if changed == message:
        return 0
    contents, message_id = key
    txn.put(MESSAGES, key, changed)
    txn.delete(VISIBLE, (contents, message.visible, message_id))
    txn.put(VISIBLE, (contents, visible, message_id), MessageIndexRow(expires))
    if message.expires is not None:
        txn.delete(EXPIRING, (message.expires, contents, message_id))
    if expires is not None:
        txn.put(EXPIRING, (expires, contents, message_id), MessageIndexRow())
    return 1


def _put(txn: WriteTxn, collection: Collection[K, R], key: K, record: R, **lowered: int) -> int:
    changed = msgspec.structs.replace(record, **lowered)
    if changed == record:
        return 0
    txn.put(collection, key, changed)
    return 1
