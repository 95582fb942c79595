"""The account map as commands use it, on ledgers in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest

from etagere.cli import CommandError
from etagere.cli.account_map import CommandAccountMap
from etagere.engine.interface import ReadTxn, WriteTxn
from etagere.engine.memory import MemoryEngine
from etagere.model.accounts import AddAccount
from etagere.model.cells import BeginMove, EndMove, FreezeAccount, SetAccountCell
from etagere.operations.account_map import set_account_cell
from etagere.operations.account_moves import begin_move, end_move, freeze_account
from etagere.operations.accounts import add_account

C = TypeVar("C")
T = TypeVar("T")

NAME, OWN, OTHER, MOVE_ID = "account", "east", "west", b"id"
KEY = bytes(64)


class StoreInMemory:
    """A ledger of a command."""

    def __init__(self) -> None:
        self._engine = MemoryEngine()

    def read(self, operation: Callable[[ReadTxn, C], T], command: C) -> T:
        return asyncio.run(self._engine.read(operation, command))

    def write(self, operation: Callable[[WriteTxn, C], T], command: C) -> T:
        return asyncio.run(self._engine.write(operation, command))


def moved_store() -> StoreInMemory:
    """Returns the ledger of a cell from which the account has moved."""
    store = StoreInMemory()
    store.write(add_account, AddAccount(NAME, KEY, KEY))
    store.write(begin_move, BeginMove(NAME, OTHER, MOVE_ID))
    store.write(freeze_account, FreezeAccount(NAME, MOVE_ID))
    store.write(end_move, EndMove(NAME, MOVE_ID))
    return store


def test_an_account_whose_move_is_not_complete_cannot_be_added_again() -> None:
    account_map = CommandAccountMap(StoreInMemory(), OWN)
    account_map.ledger.write(set_account_cell, SetAccountCell(NAME, OWN))
    with pytest.raises(CommandError, match="the move of account account to cell west is not comp"):
        account_map.claim(NAME, moved_store())


@pytest.mark.parametrize("has_moved", [False, True])
def test_names_that_no_cell_has_can_be_claimed(has_moved: bool) -> None:
    """Also if an account of this name moved away, and was removed in the other cell."""
    account_map = CommandAccountMap(StoreInMemory(), OWN)
    account_map.claim(NAME, moved_store() if has_moved else StoreInMemory())
    assert account_map.cell_of(NAME) == OWN


def test_accounts_of_other_cells_cannot_be_claimed() -> None:
    account_map = CommandAccountMap(StoreInMemory(), OWN)
    account_map.ledger.write(set_account_cell, SetAccountCell(NAME, OTHER))
    with pytest.raises(CommandError, match="account account is in cell west"):
        account_map.claim(NAME, StoreInMemory())
