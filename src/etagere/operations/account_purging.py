"""Removal of the data of accounts that have moved to another cell."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from etagere.engine.account_moves import ACCOUNT_MOVES, forget_move
from etagere.engine.interface import EXCLUSIVE, ReadTxn, WriteTxn, operation
from etagere.engine.records import Collection
from etagere.model.base import Record
from etagere.model.cells import AccountMove, MoveState, PurgeAccount, PurgeMovedAccounts
from etagere.model.containers import DeletedContainer
from etagere.model.queues import DiscardedContents
from etagere.model.shares import ShareToPurge
from etagere.model.tables import DeletedTable
from etagere.operations.account_data import BY_ACCOUNT, INDEXES_BY_TIME, RESOURCES
from etagere.operations.account_moves import ACCOUNTS_TO_PURGE
from etagere.operations.account_records import ACCOUNTS
from etagere.operations.blob.collections import DELETED_CONTAINERS
from etagere.operations.file.collections import SHARES_TO_PURGE
from etagere.operations.queue.collections import DISCARDED
from etagere.operations.removal import RemovalStep
from etagere.operations.table.collections import DELETED_TABLES

_ACCOUNTS_MAX: Final = 100
_PURGED_STATES: Final = (MoveState.MOVED, MoveState.INCOMING)
_DELETION_RECORDS: Final[dict[Collection[Any, Any], Record]] = {
    DELETED_CONTAINERS: DeletedContainer(),
    DISCARDED: DiscardedContents(),
    DELETED_TABLES: DeletedTable(),
    SHARES_TO_PURGE: ShareToPurge(),
}


def may_purge(txn: ReadTxn, _: None) -> bool:
    """Returns whether there may be something to remove, so that nothing is written if there is
    not."""
    return bool(txn.scan(ACCOUNTS_TO_PURGE, ACCOUNTS_TO_PURGE.all(), 1))


@operation(reclaims=True)
def purge_moved_accounts(txn: WriteTxn, command: PurgeMovedAccounts) -> int:
    """Removes rows of an account that moved a while ago, in one bounded step; returns how many (0:
    nothing is left to remove now)."""
    for (name,), waiting in txn.scan(ACCOUNTS_TO_PURGE, ACCOUNTS_TO_PURGE.all(), _ACCOUNTS_MAX):
        if waiting.not_before <= txn.steady_now:
            return _purge(txn, PurgeAccount(name, waiting.move_id, command.rows_max))
    return 0


@operation(reclaims=True)
def purge_account(txn: WriteTxn, command: PurgeAccount) -> int:
    """Removes rows of one account without waiting; returns how many."""
    return _purge(txn, command)


def _purge(txn: WriteTxn, command: PurgeAccount) -> int:
    """Removes rows. Containers, queues, tables and shares are deleted as clients delete them: what
    is in them is removed later."""
    key = (command.account,)
    move = txn.get(ACCOUNT_MOVES, key, EXCLUSIVE)
    if move is None or move.move_id != command.move_id or move.state not in _PURGED_STATES:
        txn.delete(ACCOUNTS_TO_PURGE, key)
        return 0
    if move.is_purged:
        return 0
    step = RemovalStep(command.rows_max)
    removed = 0
    for resources in RESOURCES:
        for row, record in _rows(txn, step, resources.collection, command.account):
            resource_id = resources.id_of(record)
            txn.put(resources.deleted, (resource_id,), _DELETION_RECORDS[resources.deleted])
            _remove(txn, resources.collection, row, record)
            removed += 1
    for collection in BY_ACCOUNT:
        if collection is not ACCOUNTS:
            for row, record in _rows(txn, step, collection, command.account):
                _remove(txn, collection, row, record)
                removed += 1
    if not step.is_over:
        _end(txn, key, move)
    return removed + 1


def _rows(
    txn: WriteTxn, step: RemovalStep, collection: Collection[Any, Any], account: str
) -> list[tuple[Any, Any]]:
    return list(step.rows(txn, collection, collection.under((account,))))


def _remove(
    txn: WriteTxn, collection: Collection[Any, Any], key: tuple[Any, ...], record: Record
) -> None:
    txn.delete(collection, key)
    index = INDEXES_BY_TIME.get(collection)
    row = None if index is None else index.key_of(key, record)
    if index is not None and row is not None:
        txn.delete(index.rows, row)


def _end(txn: WriteTxn, key: tuple[str], move: AccountMove) -> None:
    txn.delete(ACCOUNTS_TO_PURGE, key)
    if move.state is MoveState.MOVED:
        txn.put(ACCOUNT_MOVES, key, replace(move, is_purged=True))
    else:
        txn.delete(ACCOUNTS, key)
        forget_move(txn, *key)
