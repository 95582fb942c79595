"""Checks whether a ledger is that of the cell in the settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from etagere.data_directory import CannotUse
from etagere.engine.interface import C, ReadTxn, T
from etagere.model.cells import CellMembership
from etagere.operations.account_map import get_cell_membership
from etagere.settings.addresses import DatabaseAddress


class _Ledger(Protocol):
    def read(self, operation: Callable[[ReadTxn, C], T], command: C) -> T: ...


def require_cell(
    ledger: _Ledger, address: DatabaseAddress, cell: str | None
) -> CellMembership | None:
    """Returns the cell of the ledger at an address; None if it is not a cell yet. Raises
    `CannotUse` if it is another cell than `cell`, which is None if the settings name no cell."""
    membership = ledger.read(get_cell_membership, None)
    if membership is None or membership.cell == cell:
        return membership
    text = f"the ledger in {address} is that of cell {membership.cell}"
    if cell is None:
        raise CannotUse(f"{text}: set --account-map and --cell")
    raise CannotUse(f"{text}, not of {cell}; correct --cell or --engine")
