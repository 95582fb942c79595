"""The account map: which cell an account is in, and the nodes of each cell.

The map is stored in the ledger of one cell. It only tells where to look: the ledger of a cell
decides whether the cell serves an account (`account_moves.py`), so an outdated copy of the map does
no harm.
"""

from __future__ import annotations

from typing import Any, Final

from etagere.engine.interface import EXCLUSIVE, ReadTxn, Refused, WriteTxn, operation
from etagere.engine.records import TEXT, UINT, Collection
from etagere.errors import Refusal
from etagere.model.cells import (
    CELL_NODES_MAX,
    CELLS_MAX,
    AccountCell,
    Cell,
    CellMembership,
    CellNode,
    ClaimAccounts,
    ForgetCell,
    ListMappedAccounts,
    MapIdentity,
    MappedAccount,
    NamedCell,
    NamedCellNode,
    RecordMove,
    RegisterCellNode,
    SetAccountCell,
    UnregisterCellNode,
)

MAP_IDENTITIES: Final[Collection[tuple[int], MapIdentity]] = Collection(
    "map_identities", MapIdentity, (UINT,)
)
CELLS: Final[Collection[tuple[str], Cell]] = Collection("cells", Cell, (TEXT,))
CELL_NODES: Final[Collection[tuple[str, str], CellNode]] = Collection(
    "cell_nodes", CellNode, (TEXT, TEXT)
)
ACCOUNT_CELLS: Final[Collection[tuple[str], AccountCell]] = Collection(
    "account_cells", AccountCell, (TEXT,)
)
MAP_COLLECTIONS: Final[tuple[Collection[Any, Any], ...]] = (
    MAP_IDENTITIES,
    CELLS,
    CELL_NODES,
    ACCOUNT_CELLS,
)
CELL_MEMBERSHIPS: Final[Collection[tuple[int], CellMembership]] = Collection(
    "cell_memberships", CellMembership, (UINT,)
)
"""In the ledger of each cell, not only in the one with the map."""
_ALL_NODES_MAX: Final = 100_000
SINGLE_KEY: Final = (0,)
"""The key of the record of a collection that has only one."""


@operation
def register_cell_node(txn: WriteTxn, command: RegisterCellNode) -> MapIdentity:
    """Returns the identity of the map. Refused if the cell has another ledger, or the ledger is
    that of another cell."""
    cell = txn.get(CELLS, (command.cell,), EXCLUSIVE)
    if cell is None:
        _require_new_ledger(txn, command)
        txn.put(CELLS, (command.cell,), Cell(command.store_id))
    elif cell.store_id != command.store_id:
        raise Refused(Refusal("ResourceAlreadyExists", {"Cell": command.cell}))
    key = (command.cell, command.name)
    if txn.get(CELL_NODES, key, EXCLUSIVE) != command.node:
        _remove_nodes_at(txn, command.node)
        txn.put(CELL_NODES, key, command.node)
    identity = txn.get(MAP_IDENTITIES, SINGLE_KEY, EXCLUSIVE)
    if identity is None:
        identity = txn.put(MAP_IDENTITIES, SINGLE_KEY, MapIdentity(command.secret))
    return identity


def _require_new_ledger(txn: WriteTxn, command: RegisterCellNode) -> None:
    cells = txn.scan(CELLS, CELLS.all(), CELLS_MAX)
    for (name,), cell in cells:
        if cell.store_id == command.store_id:
            raise Refused(Refusal("ResourceAlreadyExists", {"Cell": name}))
    if len(cells) == CELLS_MAX:
        raise Refused(Refusal("OutOfRangeInput", {"Cells": str(CELLS_MAX)}))


def _remove_nodes_at(txn: WriteTxn, node: CellNode) -> None:
    """Removes what was registered with the address of a node: another node that was killed, or this
    one when it was in another cell."""
    for key, other in txn.scan(CELL_NODES, CELL_NODES.all(), _ALL_NODES_MAX):
        if other == node:
            txn.delete(CELL_NODES, key)


@operation
def unregister_cell_node(txn: WriteTxn, command: UnregisterCellNode) -> bool:
    """Returns whether the node was in the map."""
    key = (command.cell, command.name)
    stored = txn.get(CELL_NODES, key, EXCLUSIVE)
    if stored is None or command.node not in (None, stored):
        return False
    txn.delete(CELL_NODES, key)
    return True


@operation
def forget_cell(txn: WriteTxn, command: ForgetCell) -> bool:
    """Removes a cell from the map. Returns False if it has nodes."""
    key = (command.cell,)
    if txn.get(CELLS, key, EXCLUSIVE) is None:
        raise Refused(Refusal("ResourceNotFound", {"Cell": command.cell}))
    if txn.scan(CELL_NODES, CELL_NODES.under(key), 1):
        return False
    txn.delete(CELLS, key)
    return True


@operation
def set_account_cell(txn: WriteTxn, command: SetAccountCell) -> None:
    key = (command.account,)
    stored = txn.get(ACCOUNT_CELLS, key, EXCLUSIVE)
    cell = "" if stored is None else stored.cell
    if cell not in (command.expected, command.cell):
        raise Refused(Refusal("AccountAlreadyExists", {"Account": command.account, "Cell": cell}))
    if cell == command.cell:
        return
    if command.cell:
        txn.put(ACCOUNT_CELLS, key, AccountCell(command.cell))
    else:
        txn.delete(ACCOUNT_CELLS, key)


@operation
def record_move(txn: WriteTxn, command: RecordMove) -> bool:
    """Returns False if the map has changed."""
    key = (command.account,)
    stored = txn.get(ACCOUNT_CELLS, key, EXCLUSIVE)
    if stored == command.moved:
        return True
    if stored != command.known:
        return False
    txn.put(ACCOUNT_CELLS, key, command.moved)
    return True


@operation
def claim_accounts(txn: WriteTxn, command: ClaimAccounts) -> list[MappedAccount]:
    """Returns the accounts that are in another cell."""
    elsewhere: list[MappedAccount] = []
    for account in sorted(command.accounts):
        stored = txn.get(ACCOUNT_CELLS, (account,), EXCLUSIVE)
        if stored is None:
            txn.put(ACCOUNT_CELLS, (account,), AccountCell(command.cell))
        elif stored.cell != command.cell:
            elsewhere.append(MappedAccount(account, stored.cell))
    return elsewhere


def get_account_entry(txn: ReadTxn, account: str) -> AccountCell | None:
    """Returns what the map has for an account."""
    return txn.get(ACCOUNT_CELLS, (account,))


def get_account_cell(txn: ReadTxn, account: str) -> str:
    """Returns the name of the cell of an account; "" if it is in none."""
    stored = get_account_entry(txn, account)
    return "" if stored is None else stored.cell


def get_account_cells(txn: ReadTxn, accounts: tuple[str, ...]) -> list[str]:
    """Returns the name of the cell of each account; "" if it is in none."""
    return [get_account_cell(txn, account) for account in accounts]


def list_mapped_accounts(txn: ReadTxn, command: ListMappedAccounts) -> list[MappedAccount]:
    """Returns accounts of all cells, in the order of their names."""
    behind = ACCOUNT_CELLS.after(ACCOUNT_CELLS.all(), (command.after,))
    rows = txn.scan(ACCOUNT_CELLS, behind, command.limit)
    return [MappedAccount(name, stored.cell) for (name,), stored in rows]


def list_cells(txn: ReadTxn, _nothing: None) -> list[NamedCell]:
    """Returns the cells, in the order of their names."""
    rows = txn.scan(CELLS, CELLS.all(), CELLS_MAX)
    return [NamedCell(name, cell) for (name,), cell in rows]


def list_cell_nodes(txn: ReadTxn, cell: str) -> list[NamedCellNode]:
    """Returns the nodes of a cell, in the order of their names."""
    rows = txn.scan(CELL_NODES, CELL_NODES.under((cell,)), CELL_NODES_MAX)
    return [NamedCellNode(name, node) for (_, name), node in rows]


@operation
def join_cell(txn: WriteTxn, membership: CellMembership) -> None:
    """Stores which cell this ledger is. Refused if it is another one."""
    stored = txn.get(CELL_MEMBERSHIPS, SINGLE_KEY, EXCLUSIVE)
    if stored is not None and stored.cell != membership.cell:
        raise Refused(Refusal("ResourceAlreadyExists", {"Cell": stored.cell}))
    if stored != membership:
        txn.put(CELL_MEMBERSHIPS, SINGLE_KEY, membership)


def get_cell_membership(txn: ReadTxn, _nothing: None) -> CellMembership | None:
    """Returns which cell this ledger is; None if it is none."""
    return txn.get(CELL_MEMBERSHIPS, SINGLE_KEY)
