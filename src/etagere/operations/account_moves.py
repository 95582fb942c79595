"""The steps of the move of an account to another cell.

    source              target
    draining                       no new SMB sessions; existing ones are ended
    frozen
                        incoming   with all data of the account, in one transaction
    moved                          from here on, the account belongs to the target
                        (served)

At any moment at most one of the two cells serves the account. A move that was interrupted is either
cancelled, while the source is draining or frozen, or continued. At last, the account map names the
target, and the move is finished in the source, too.

An SMB client's write is acknowledged before it is in the ledger. So the process that serves files
first ends the sessions of the account and stores their writes, and then freezes the account.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec.structs import replace

from etagere.clock import TICKS_PER_SECOND
from etagere.engine.account_moves import ACCOUNT_MOVES, UNFINISHED_MOVES, forget_move
from etagere.engine.interface import EXCLUSIVE, ReadTxn, Refused, WriteTxn, abort_if, operation
from etagere.engine.records import TEXT, Collection
from etagere.errors import Refusal
from etagere.model.accounts import Account, ListAccounts
from etagere.model.cells import (
    AccountMove,
    AccountToPurge,
    BeginMove,
    CancelMove,
    EndMove,
    ExpectAccount,
    FinishMove,
    FreezeAccount,
    MoveState,
    UnfinishedMove,
)
from etagere.operations.account_records import ACCOUNTS
from etagere.operations.accounts import get_account
from etagere.rules.accounts import check_account_name, check_changeable

ACCOUNTS_TO_PURGE: Final[Collection[tuple[str], AccountToPurge]] = Collection(
    "accounts_to_purge", AccountToPurge, (TEXT,)
)
_UNFINISHED_MAX: Final = 1_000
_CANCELLABLE: Final = (MoveState.DRAINING, MoveState.FROZEN)


class LocatedAccount(NamedTuple):
    """An account as this cell knows it."""

    account: Account | None
    move: AccountMove | None


def locate_account(txn: ReadTxn, name: str) -> LocatedAccount:
    """Returns the account of a name, which may be any text, and its move."""
    account = get_account(txn, name)
    if check_account_name(name) is not None:
        return LocatedAccount(None, None)
    return LocatedAccount(account, txn.get(ACCOUNT_MOVES, (name,)))


@operation
def begin_move(txn: WriteTxn, command: BeginMove) -> AccountMove:
    """Begins to drain an account, unless a move to the same cell has begun. Returns the move."""
    name = command.account
    abort_if(check_account_name(name) or check_changeable(name))
    if txn.get(ACCOUNTS, (name,), EXCLUSIVE) is None:
        raise Refused(Refusal("ResourceNotFound", {"Account": name}))
    move = txn.get(ACCOUNT_MOVES, (name,), EXCLUSIVE)
    if move is None:
        txn.put(UNFINISHED_MOVES, (name,), UnfinishedMove())
        draining = AccountMove(MoveState.DRAINING, command.cell, command.move_id)
        return txn.put(ACCOUNT_MOVES, (name,), draining)
    if move.cell != command.cell or move.state is MoveState.INCOMING:
        raise Refused(Refusal("ServerBusy", {"Account": name}))
    return move


def get_move(txn: ReadTxn, name: str) -> AccountMove | None:
    """Returns the move of an account, if there is one."""
    return txn.get(ACCOUNT_MOVES, (name,))


def list_unfinished(txn: ReadTxn, _command: None) -> dict[str, AccountMove]:
    """Returns the moves for which this cell has something left to do, by account."""
    rows = txn.scan(UNFINISHED_MOVES, UNFINISHED_MOVES.all(), _UNFINISHED_MAX)
    moves = txn.get_all(ACCOUNT_MOVES, [key for key, _ in rows])
    found = zip(rows, moves, strict=True)
    return {name: move for ((name,), _), move in found if move is not None}


def list_draining(txn: ReadTxn, _command: None) -> list[FreezeAccount]:
    """Returns the accounts that are to be frozen as soon as they have no SMB sessions."""
    return [
        FreezeAccount(name, move.move_id)
        for name, move in list_unfinished(txn, None).items()
        if move.state is MoveState.DRAINING
    ]


def list_cancellable(txn: ReadTxn, names: tuple[str, ...]) -> list[str]:
    """Returns those of these accounts that are draining or frozen."""
    moves = zip(names, txn.get_all(ACCOUNT_MOVES, [(name,) for name in names]), strict=True)
    return [name for name, move in moves if move is not None and move.state in _CANCELLABLE]


@operation
def freeze_account(txn: WriteTxn, command: FreezeAccount) -> None:
    """Freezes an account. Does nothing if its move was cancelled."""
    key = (command.account,)
    move = txn.get(ACCOUNT_MOVES, key, EXCLUSIVE)
    if move is None or move.move_id != command.move_id or move.state is not MoveState.DRAINING:
        return
    txn.put(ACCOUNT_MOVES, key, replace(move, state=MoveState.FROZEN))


@operation
def expect_account(txn: WriteTxn, command: ExpectAccount) -> int:
    """Returns a new stamp. Refused if this cell has the account, or data of it."""
    key = (command.account,)
    if txn.get(ACCOUNTS, key, EXCLUSIVE) is not None:
        raise Refused(Refusal("AccountAlreadyExists", {"Account": command.account}))
    move = txn.get(ACCOUNT_MOVES, key, EXCLUSIVE)
    if move is not None:
        if not move.is_purged:
            raise Refused(Refusal("ServerBusy", {"Account": command.account}))
        forget_move(txn, command.account)
    return txn.stamp


@operation
def end_move(txn: WriteTxn, command: EndMove) -> AccountMove | None:
    """Takes the last step of a move in this cell, unless it has been taken or the move was
    cancelled. Returns the move that the account has then."""
    key = (command.account,)
    move = txn.get(ACCOUNT_MOVES, key, EXCLUSIVE)
    if move is None or move.move_id != command.move_id:
        return move
    if move.state is MoveState.FROZEN:
        move = txn.put(ACCOUNT_MOVES, key, replace(move, state=MoveState.MOVED))
        txn.delete(ACCOUNTS, key)
    elif move.state is MoveState.INCOMING:
        forget_move(txn, command.account)
        move = None
    return move


@operation
def finish_move(txn: WriteTxn, command: FinishMove) -> None:
    """Notes in the source that a move is complete, unless there is another one, and that the data
    of the account may be removed. Until then, the source could be asked for it again."""
    key = (command.account,)
    move = txn.get(ACCOUNT_MOVES, key, EXCLUSIVE)
    if move is None or move.move_id != command.move_id or move.state is not MoveState.MOVED:
        return
    if txn.get(UNFINISHED_MOVES, key, EXCLUSIVE) is not None:
        txn.delete(UNFINISHED_MOVES, key)
        not_before = txn.steady_now + command.keep_seconds * TICKS_PER_SECOND
        txn.put(ACCOUNTS_TO_PURGE, key, AccountToPurge(move.move_id, not_before))


@operation
def cancel_move(txn: WriteTxn, command: CancelMove) -> bool:
    """Cancels a move. Returns False if it can no longer be cancelled."""
    key = (command.account,)
    move = txn.get(ACCOUNT_MOVES, key, EXCLUSIVE)
    if move is None:
        return True
    if move.move_id != command.move_id or move.state not in _CANCELLABLE:
        return False
    forget_move(txn, command.account)
    return True


def list_account_moves(txn: ReadTxn, command: ListAccounts) -> dict[str, AccountMove]:
    """Returns a page of the moves of accounts, by name."""
    behind = ACCOUNT_MOVES.after(ACCOUNT_MOVES.all(), (command.after,))
    return {name: move for (name,), move in txn.scan(ACCOUNT_MOVES, behind, command.limit)}
