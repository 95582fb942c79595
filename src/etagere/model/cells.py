"""Records and commands of cells, the accounts in them, and accounts that move between them.

A cell is a ledger with its bodies and its nodes. An account is in one cell. The account map says in
which one; it is stored in the ledger of one of the cells.
"""

from __future__ import annotations

import enum
from typing import Final

from etagere.model.base import Command, Part, Record

CELLS_MAX: Final = 1_000
"""The most cells of a map."""
CELL_NODES_MAX: Final = 1_000
"""The most nodes of a cell that are listed."""
KEEP_SECONDS: Final = 60
"""How long a cell keeps the data of an account that has moved, for requests that began before."""


class MoveState(enum.StrEnum):
    """The state of a move, as one of the two cells stores it."""

    DRAINING = "draining"
    """In the source: the account is served, except over SMB, whose sessions are being ended."""
    FROZEN = "frozen"
    """In the source: the account can be read, but not written."""
    MOVED = "moved"
    """In the source: the account is in the other cell."""
    INCOMING = "incoming"
    """In the target: the data is complete, but the account is still served by the source."""


class AccountMove(Record, frozen=True):
    """The move of an account to or from this cell, under the name of the account. Without such a
    record, an account of this cell is served by it."""

    state: MoveState
    cell: str
    """The other cell."""
    move_id: bytes
    """Identifies the move in both cells."""
    is_purged: bool = False
    """In the source, once it has moved: nothing of the account is left, so that it may return."""


class UnfinishedMove(Record, frozen=True):
    """A move for which this cell has something left to do, under the name of the account: in the
    source until the account map names the target, in the target until it serves the account."""


class BeginMove(Command, frozen=True):
    """Begin to move an account to another cell."""

    account: str
    cell: str
    move_id: bytes


class FreezeAccount(Command, frozen=True):
    """Freeze an account that has no SMB sessions any more."""

    account: str
    move_id: bytes


class EndMove(Command, frozen=True):
    """Take the last step of a move: in the source, from frozen to moved; in the target, from
    incoming to served."""

    account: str
    move_id: bytes


class CancelMove(Command, frozen=True):
    """Cancel the move of an account that is draining or frozen."""

    account: str
    move_id: bytes


class FinishMove(Command, frozen=True):
    """Note in the source that the account map names the target of a move, so that the source may
    remove its data."""

    account: str
    move_id: bytes
    keep_seconds: int = KEEP_SECONDS
    """How long the source keeps the data of the account."""


class ExpectAccount(Command, frozen=True):
    """Prepare a cell for the data of an account of another cell."""

    account: str


class AccountToPurge(Record, frozen=True):
    """An account that has moved, and that is to be removed from this cell, under its name."""

    move_id: bytes
    not_before: int
    """The steady time until which requests that began before the move may need its data."""


class PurgeAccount(Command, frozen=True):
    """Remove what a cell has of an account that has moved, or whose move to it was cancelled."""

    account: str
    move_id: bytes
    rows_max: int = 100


class PurgeMovedAccounts(Command, frozen=True):
    """Remove what a cell has of accounts that moved a while ago."""

    rows_max: int = 100


# The account map


class MapIdentity(Record, frozen=True):
    """The secret with which the nodes of all cells authenticate each other."""

    secret: bytes

    def __repr__(self) -> str:
        return "MapIdentity(…)"


class Cell(Record, frozen=True):
    """A cell, under its name."""

    store_id: bytes
    """The id of its `StoreIdentity`: no two ledgers may be the same cell."""


class CellNode(Record, frozen=True):
    """A node, under the names of its cell and its own."""

    host: str
    """Where it listens for nodes of other cells."""
    port: int


class AccountCell(Record, frozen=True):
    """The cell of an account, under the name of the account."""

    cell: str
    move_id: bytes = b""
    """The move with which the account came to the cell, if it has moved."""


class CellMembership(Record, frozen=True):
    """Which cell a ledger is, in that ledger. With it, nodes can start while the map is
    unavailable."""

    cell: str
    secret: bytes
    """The secret of the map."""

    def __repr__(self) -> str:
        return f"CellMembership({self.cell!r})"


class NamedCell(Part, frozen=True):
    """An entry of a list of cells."""

    name: str
    cell: Cell


class NamedCellNode(Part, frozen=True):
    """An entry of a list of nodes."""

    name: str
    node: CellNode


class MappedAccount(Part, frozen=True):
    """An entry of a list of accounts."""

    name: str
    cell: str


class RegisterCellNode(Command, frozen=True):
    """Add a node, and its cell unless it is known. `secret` is that of the map if it has none."""

    cell: str
    store_id: bytes
    name: str
    node: CellNode
    secret: bytes

    def __repr__(self) -> str:
        return f"RegisterCellNode({self.cell!r}, {self.name!r}, {self.node!r})"


class UnregisterCellNode(Command, frozen=True):
    """Remove a node, unless another one has taken its name."""

    cell: str
    name: str
    node: CellNode | None = None
    """None: whatever its address."""


class ForgetCell(Command, frozen=True):
    """Remove a cell without nodes. The caller checks that it has no accounts."""

    cell: str


class SetAccountCell(Command, frozen=True):
    """Record the cell of an account. Refused if the account is in another cell than `expected`;
    "" means none."""

    account: str
    cell: str
    expected: str = ""


class RecordMove(Command, frozen=True):
    """Record that an account has moved, unless the map has changed since `known` was read."""

    account: str
    moved: AccountCell
    known: AccountCell | None


class ClaimAccounts(Command, frozen=True):
    """Record the cell of accounts that are in no cell."""

    accounts: tuple[str, ...]
    cell: str


class ListMappedAccounts(Command, frozen=True):
    """List accounts with their cells."""

    limit: int
    after: str = ""
    """The name that the list begins after."""
