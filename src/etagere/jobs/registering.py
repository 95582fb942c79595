"""Keeps the account map complete: the node, unless it is drained, and the accounts of its cell.

Accounts are missing in the map if they were added before the cluster became a cell, if a command
that added one was interrupted, or after the map was restored from a backup.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from etagere.cells.account_map import AccountMap
from etagere.coordination.interface import Coordinator
from etagere.engine.account_moves import ACCOUNT_MOVES
from etagere.engine.interface import Engine, ReadTxn, Refused
from etagere.jobs.supervision import RoundFailed
from etagere.model.accounts import ListAccounts
from etagere.model.cells import (
    ClaimAccounts,
    MappedAccount,
    NamedCellNode,
    RegisterCellNode,
    UnregisterCellNode,
)
from etagere.operations.account_map import (
    claim_accounts,
    register_cell_node,
    unregister_cell_node,
)
from etagere.operations.account_records import ACCOUNTS

NODE_SECONDS: Final = 3.0
"""The interval of the check that the map has the node."""
ACCOUNTS_SECONDS: Final = 600.0
"""The interval of the check that the map has all accounts of the cell."""
_PAGE: Final = 500
_LISTED_MAX: Final = 5
"""The most accounts that an error names."""

Write = Callable[..., Awaitable[Any]]
"""Runs an operation with a command on the ledger with the map, as `Engine.write`."""


class AccountPage(NamedTuple):
    """Accounts in the order of their names."""

    names: list[str]
    last: str
    """The name that the next page begins after; "" if this is the last page."""


def list_served_accounts(txn: ReadTxn, command: ListAccounts) -> AccountPage:
    """Returns a page of accounts that are in this cell and are not being moved."""
    rows = txn.scan(ACCOUNTS, ACCOUNTS.after(ACCOUNTS.all(), (command.after,)), command.limit)
    names = [name for (name,), _ in rows if txn.get(ACCOUNT_MOVES, (name,)) is None]
    return AccountPage(names, rows[-1][0][0] if len(rows) == command.limit else "")


class Registration:
    """Registers a node and the accounts of its cell in the account map."""

    def __init__(
        self,
        engine: Engine,
        coordinator: Coordinator,
        account_map: AccountMap,
        write: Write,
        command: RegisterCellNode,
    ) -> None:
        """`engine` is that of the cell's ledger; `command` adds the node."""
        self._engine = engine
        self._coordinator = coordinator
        self._map = account_map
        self._write = write
        self._command = command

    async def register_node(self) -> None:
        """Adds the node to the map if it is missing, or removes it if it is drained."""
        command, is_draining = self._command, self._coordinator.is_draining
        nodes = await self._map.stored_nodes_of(command.cell)
        if (NamedCellNode(command.name, command.node) in nodes) is not is_draining:
            return
        if is_draining:
            removal = UnregisterCellNode(command.cell, command.name, command.node)
            await self._write(unregister_cell_node, removal)
            return
        try:
            await self._write(register_cell_node, command)
        except Refused as refused:
            text = f"the account map does not accept the node: {refused.refusal.message}"
            raise RoundFailed(text) from None

    async def register_accounts(self) -> None:
        """Adds the accounts of the cell that the map does not have."""
        after, elsewhere = "", list[MappedAccount]()
        while True:
            page = await self._engine.read(list_served_accounts, ListAccounts(_PAGE, after))
            cells = await self._map.stored_cells_of(page.names)
            missing = [name for name in page.names if cells[name] != self._command.cell]
            if missing:
                claim = ClaimAccounts(tuple(missing), self._command.cell)
                elsewhere += await self._write(claim_accounts, claim)
            after = page.last
            if not after:
                break
        if elsewhere:
            listed = ", ".join(f"{each.name} in {each.cell}" for each in elsewhere[:_LISTED_MAX])
            raise RoundFailed(
                "the account map has other cells for accounts of this cell "
                f"({len(elsewhere)} in all): {listed}"
            )
