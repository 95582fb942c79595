"""Access of commands to the account map."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from etagere.cli import CommandError
from etagere.cli.stores import Store, raising_command_error
from etagere.model.accounts import BUILT_IN
from etagere.model.cells import MoveState, SetAccountCell, UnregisterCellNode
from etagere.node.cell_membership import require_cell
from etagere.node.opening import cluster_ledger
from etagere.operations.account_map import (
    get_account_cell,
    set_account_cell,
    unregister_cell_node,
)
from etagere.operations.account_moves import locate_account
from etagere.settings import Settings


class CommandAccountMap:
    """The account map, for a command on one of the cells."""

    def __init__(self, ledger: Store, cell: str) -> None:
        self.ledger = ledger
        """The ledger with the map."""
        self.cell = cell
        """The cell of the command."""

    def cell_of(self, account: str) -> str:
        """Returns the name of the cell of an account; "" if it is in none."""
        return self.ledger.read(get_account_cell, account)

    def claim(self, account: str, store: Store) -> None:
        """Records that an account is in the cell. `store` is that of the cell. Raises
        `CommandError` if the account is in another cell, or if its move to one is not complete."""
        self.require_not_elsewhere(account)
        move = store.read(locate_account, account).move
        if move is not None and move.state is MoveState.MOVED and self.cell_of(account):
            # The only copy of its data may be that in the other cell, which does not serve it yet.
            raise CommandError(
                f"the move of account {account} to cell {move.cell} is not complete: run "
                "`etagere account move` again"
            )
        self.ledger.write(set_account_cell, SetAccountCell(account, self.cell))

    def claim_from_others(self, account: str, store: Store) -> None:
        """Records that an account is in the cell, even if the map names another. `store` is that of
        the cell. Raises `CommandError` if the account is not there, or is being moved."""
        found, move = store.read(locate_account, account)
        if found is None or account in BUILT_IN:
            raise CommandError(f"account {account} is not in cell {self.cell}")
        if move is not None:
            raise CommandError(
                f"account {account} is being moved; complete the move with `etagere account move`, "
                "or cancel it"
            )
        current = self.cell_of(account)
        self.ledger.write(set_account_cell, SetAccountCell(account, self.cell, current))

    def release(self, account: str) -> None:
        """Removes an account of the cell from the map."""
        self.ledger.write(set_account_cell, SetAccountCell(account, "", self.cell))

    def require_not_elsewhere(self, account: str) -> None:
        """Raises `CommandError` if an account is in another cell."""
        cell = self.cell_of(account)
        if cell not in ("", self.cell):
            raise CommandError(
                f"account {account} is in cell {cell}: use the settings of that cell"
            )


@contextmanager
def open_map(settings: Settings, store: Store) -> Iterator[CommandAccountMap | None]:
    """Opens the account map; None if there is only one cell. `store` is that of the settings.
    Raises `CommandError` or `CannotUse` if it is another cell than the settings say."""
    if settings.engine is None:
        yield None
        return
    membership = require_cell(store, settings.engine, settings.cell)
    if settings.cell is None:
        yield None
        return
    if membership is None:
        raise CommandError(
            f"the ledger in {settings.engine} is not a cell yet: start a node with --cell first"
        )
    with open_map_ledger(settings) as ledger:
        yield CommandAccountMap(ledger, settings.cell)


@contextmanager
def open_map_ledger(settings: Settings) -> Iterator[Store]:
    """Opens the ledger with the account map. Raises `CommandError`."""
    address = settings.account_map
    if address is None:
        raise CommandError("set --account-map to the database with the account map")
    with (
        raising_command_error(f"the account map in {address}", settings.data),
        cluster_ledger(address) as ledger,
    ):
        yield ledger


def require_not_elsewhere(name: str, settings: Settings) -> None:
    """Raises `CommandError` if an account is in another cell than that of the settings."""
    assert settings.cell is not None
    with open_map_ledger(settings) as ledger:
        CommandAccountMap(ledger, settings.cell).require_not_elsewhere(name)


def unregister_node(settings: Settings, name: str) -> bool:
    """Removes a node of the cell from the map; returns whether it was there."""
    assert settings.cell is not None
    with open_map_ledger(settings) as ledger:
        return ledger.write(unregister_cell_node, UnregisterCellNode(settings.cell, name))
