"""Accounts that move to another cell, and the check that refuses writes to them.

Every write of a client carries the name of its account. The writer looks it up in the transaction
of the write, but does not lock it: the command that moves an account freezes it, and then waits
until all transactions that were running have ended. Later ones see that the account is frozen.
"""

from __future__ import annotations

from typing import Final

from etagere.engine.interface import Refused, WriteTxn
from etagere.engine.records import TEXT, Collection
from etagere.errors import Refusal
from etagere.model.cells import AccountMove, MoveState, UnfinishedMove

ACCOUNT_MOVES: Final[Collection[tuple[str], AccountMove]] = Collection(
    "account_moves", AccountMove, (TEXT,)
)
UNFINISHED_MOVES: Final[Collection[tuple[str], UnfinishedMove]] = Collection(
    "unfinished_moves", UnfinishedMove, (TEXT,)
)
"""The moves for which this cell has something left to do. `ACCOUNT_MOVES` also has those of all
accounts that have left the cell."""


def forget_move(txn: WriteTxn, account: str) -> None:
    """Removes the records of a move."""
    txn.delete(ACCOUNT_MOVES, (account,))
    txn.delete(UNFINISHED_MOVES, (account,))


def require_writable(txn: WriteTxn, account: str) -> None:
    """Refuses a write to an account that is frozen, or has moved; clients try again later."""
    move = txn.get(ACCOUNT_MOVES, (account,))
    if move is not None and move.state is not MoveState.DRAINING:
        raise Refused(Refusal("ServerBusy"))
