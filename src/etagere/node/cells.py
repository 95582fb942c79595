"""A node of one of several cells: how it joins its cell and registers in the account map.

A node registers when it starts. If the map is unavailable, the node uses what the ledger of its own
cell has stored, so that a cell does not depend on the one with the map.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from etagere.cells.account_map import AccountMap
from etagere.config import Config
from etagere.coordination.interface import Coordinator
from etagere.data_directory import CannotUse
from etagere.engine.interface import (
    C,
    Conflict,
    Fault,
    FaultReason,
    Refused,
    T,
    Unknown,
    WriteTxn,
)
from etagere.engine.postgres.connecting import Database
from etagere.engine.postgres.engine import FEW_CONNECTIONS, PostgresEngine
from etagere.front.forwarding import NodeListener
from etagere.jobs import purging_accounts
from etagere.jobs.moves import MOVES_SECONDS, MoveRecovery
from etagere.jobs.registering import ACCOUNTS_SECONDS, NODE_SECONDS, Registration
from etagere.jobs.supervision import Job
from etagere.model.cells import CellMembership, CellNode, RegisterCellNode, UnregisterCellNode
from etagere.model.cluster import SECRET_BYTES, StoreIdentity
from etagere.node.cell_membership import require_cell
from etagere.node.children import ChildFailed, in_child
from etagere.node.cluster_ledger import NO_DIRECTORY, ClusterLedger, LedgerUnavailable
from etagere.node.listening import WILDCARD_ADDRESSES, bind
from etagere.operations import account_moves, account_purging
from etagere.operations.account_map import (
    join_cell,
    register_cell_node,
    unregister_cell_node,
)
from etagere.settings import Settings
from etagere.settings.addresses import DatabaseAddress, NodeAddress

if TYPE_CHECKING:
    from etagere.front.storage import MeasuredEngine

logger = logging.getLogger(__name__)

OPERATIONS_FROM: Final = (account_moves, account_purging)
"""Modules with operations that the writer runs for other processes. It is forked from this one."""

_LEAVE_SECONDS_MAX: Final = 3.0
"""How long a node that stops waits for its removal from the map."""
_FLAG: Final = "--cell-address"


@dataclass(frozen=True)
class JoinedCell:
    """The cell that a node has joined."""

    name: str
    store_id: bytes
    node: str
    secret: bytes = field(repr=False)
    """The secret of the map."""
    map_address: DatabaseAddress
    has_map: bool
    """Whether the map is in the ledger of this cell."""
    listener: NodeListener
    """Where the node listens for nodes of other cells."""

    @property
    def cell_node(self) -> CellNode:
        return CellNode(*self.listener.address)

    def account_map(self, engine: MeasuredEngine, config: Config) -> AccountMap:
        """Returns the map for one process. `engine` is that of the cell's ledger."""
        if self.has_map:
            return AccountMap(engine, self.name, self.secret)
        other = PostgresEngine(
            NO_DIRECTORY,
            Database(self.map_address.conninfo),
            config,
            connections=FEW_CONNECTIONS,
        )
        return AccountMap(other, self.name, self.secret, closes_engine=True)

    def jobs(
        self, engine: MeasuredEngine, coordinator: Coordinator, account_map: AccountMap
    ) -> Sequence[Job]:
        """Returns the jobs of the cell, which one process of a node runs. `engine` is that of the
        cell's ledger."""
        command = RegisterCellNode(self.name, self.store_id, self.node, self.cell_node, self.secret)
        write = engine.write if self.has_map else self._write_in_thread
        registration = Registration(engine, coordinator, account_map, write, command)
        recovery = MoveRecovery(engine, coordinator, account_map, write)
        return (
            Job(
                purging_accounts.TASK,
                lambda: purging_accounts.purge_accounts(engine, coordinator),
                purging_accounts.PAUSE_SECONDS,
            ),
            Job("registering the node", registration.register_node, NODE_SECONDS),
            Job("registering accounts", registration.register_accounts, ACCOUNTS_SECONDS),
            Job("recovering moves", recovery.run, MOVES_SECONDS),
        )

    async def _write_in_thread(self, operation: Callable[[WriteTxn, C], T], command: C) -> T:
        try:
            return await asyncio.to_thread(self._write, operation, command)
        except CannotUse as error:
            raise Fault(FaultReason.UNAVAILABLE, str(error)) from None

    def _write(self, operation: Callable[[WriteTxn, C], T], command: C) -> T:
        with ClusterLedger(self.map_address) as ledger:
            return ledger.write(operation, command)

    def leave(self) -> None:
        """Removes the node from the map, so that nodes of other cells do not try to reach it."""
        command = UnregisterCellNode(self.name, self.node, self.cell_node)

        def unregister() -> bytes:
            self._write(unregister_cell_node, command)
            return b""

        try:
            in_child(unregister, _LEAVE_SECONDS_MAX)
        except ChildFailed as error:
            logger.warning("the node is still in the account map: %s", error)


def join(
    ledger: ClusterLedger, settings: Settings, identity: StoreIdentity, node: str
) -> JoinedCell:
    """Registers a node as one of its cell. `ledger` is that of the cell. Raises `CannotUse`."""
    address, name = settings.account_map, settings.cell
    assert address is not None and name is not None
    membership = require_cell(ledger, ledger.address, name)
    given = settings.cell_address or NodeAddress(ledger.local_address)
    if given.host in WILDCARD_ADDRESSES:
        raise CannotUse(f"{_FLAG}: {given.host} is not an address that other nodes reach")
    listener = NodeListener(bind(given.host, given.port, _FLAG, _FLAG), given.host)
    secret = b"" if membership is None else membership.secret
    new = RegisterCellNode(
        name, identity.id, node, CellNode(*listener.address), secret or os.urandom(SECRET_BYTES)
    )
    try:
        secret = _register(ledger, address, new)
    except LedgerUnavailable as error:
        if membership is None:
            raise CannotUse(f"the account map in {error}") from None
        logger.warning("the node is not in the account map yet: %s", error)
    if membership is None or membership.secret != secret:
        ledger.write(join_cell, CellMembership(name, secret))
    has_map = address == ledger.address
    return JoinedCell(name, identity.id, node, secret, address, has_map, listener)


def _register(ledger: ClusterLedger, address: DatabaseAddress, new: RegisterCellNode) -> bytes:
    """Adds a node to the map; returns the secret of the map. Raises `LedgerUnavailable`, or
    `CannotUse` if the map has another ledger for the cell."""
    try:
        with _map_ledger(ledger, address) as opened:
            return opened.write(register_cell_node, new).secret
    except (Fault, Unknown, Conflict) as error:
        raise LedgerUnavailable(f"{address} cannot be used: {error}") from None
    except Refused as refused:
        other = str(refused.refusal.facts.get("Cell", ""))
        raise CannotUse(_refused_text(ledger, new.cell, other)) from None


def _refused_text(ledger: ClusterLedger, name: str, other: str) -> str:
    if not other:
        return "the account map has no room for another cell"
    if other == name:
        return f"cell {name} has another ledger than {ledger.address}; correct --cell or --engine"
    return f"the ledger in {ledger.address} is that of cell {other}; correct --cell or --engine"


@contextmanager
def _map_ledger(ledger: ClusterLedger, address: DatabaseAddress) -> Iterator[ClusterLedger]:
    """Opens the ledger with the map, which may be that of the cell."""
    if address == ledger.address:
        yield ledger
        return
    with ClusterLedger(address) as opened:
        yield opened
