"""The storage of a node of a cluster: the ledger in PostgreSQL, and bodies that all nodes share."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import etagere
from etagere import directories
from etagere.clock import SystemClock
from etagere.config import Config
from etagere.coordination.interface import CoordinatorUnavailable
from etagere.coordination.postgres import NodeRegistry, PostgresCoordinator
from etagere.coordination.postgres.nodes import NodeInUse
from etagere.data_directory import NODE_ID_NAME, CannotUse, raising_cannot_use
from etagere.engine.interface import Conflict, Fault, Unknown
from etagere.engine.ledger import database_path
from etagere.engine.postgres.connecting import Database
from etagere.engine.postgres.engine import FEW_CONNECTIONS, PostgresEngine
from etagere.engine.postgres.writer import writer_main
from etagere.engine.writer import listen
from etagere.front.cluster_file import ClusterFileFrontEnd, Membership
from etagere.front.forwarding import Forwarder, HolderFinder, NodeListener, NodeOpens
from etagere.front.relayed import RelayedConnections
from etagere.front.storage import ProcessStorage
from etagere.jobs.health import WRITER_NAME, open_health_socket
from etagere.model.cluster import SECRET_BYTES, IdentifyStore, MarkBodies, StoreIdentity
from etagere.model.ids import ID_BYTES
from etagere.node.cell_membership import require_cell
from etagere.node.cluster_ledger import ClusterLedger
from etagere.node.listening import WILDCARD_ADDRESSES, bind
from etagere.node.probing import ClusterProbe
from etagere.node.shared_bodies import SharedBodies, shared_bodies
from etagere.operations.identity import identify_store, mark_bodies
from etagere.processes import ChildMain
from etagere.protocol.connections.memory import MemoryBudget
from etagere.settings import Settings
from etagere.settings.addresses import DatabaseAddress, NodeAddress, format_host_and_port

if TYPE_CHECKING:
    from etagere.front.process import FrontEnd
    from etagere.node.cells import JoinedCell

logger = logging.getLogger(__name__)

_JOIN_ATTEMPTS_MAX: Final = 60
_JOIN_PAUSE_SECONDS: Final = 0.5


@dataclass(frozen=True)
class ClusterStorage:
    """The ledger and the bodies of a cluster, as the processes of one node open them."""

    directory: Path
    """The data directory of this node."""
    config: Config
    database: Database
    bodies: SharedBodies
    identity: StoreIdentity
    node: str
    listener: socket.socket = field(repr=False)
    """The socket that the writer accepts connections on."""
    node_listener: NodeListener
    epoch: int = 0
    cell: JoinedCell | None = None
    """None: there is one cell only."""

    def writer_main(self) -> ChildMain:
        health_socket = partial(open_health_socket, self.directory, WRITER_NAME)
        return writer_main(self.database, self.listener, self.config, SystemClock(), health_socket)

    def file_main(self, front_end: FrontEnd, name: str, number: int) -> ChildMain:
        return ClusterFileFrontEnd(
            front_end, self, self.node, self.node_listener, name, number
        ).main()

    def for_epoch(self, epoch: int) -> ClusterStorage:
        return replace(self, epoch=epoch)

    async def open(self, config: Config, name: str, memory: MemoryBudget) -> ProcessStorage:
        # First, so that its heartbeats have a connection before reads need any.
        coordinator = await self._coordinator(name)
        engine = PostgresEngine(
            self.directory,
            self.database,
            config,
            epoch=self.epoch,
            accounts_may_move=self.cell is not None,
            may_connect=coordinator.is_connected,
        )
        store, new_collector = await self.bodies.open(engine, config, coordinator, memory)
        opens = NodeOpens(self.directory, engine, self.identity.secret)
        storage = ProcessStorage(engine, coordinator, store, new_collector, opens)
        if self.cell is None:
            return storage
        account_map = self.cell.account_map(engine, config)
        return replace(
            storage,
            account_map=account_map,
            relayed=RelayedConnections(
                self.cell.listener.listening,
                self.cell.secret,
                Forwarder({}, HolderFinder(engine), self.identity.secret),
            ),
            cell_jobs=self.cell.jobs(engine, coordinator, account_map),
        )

    def leave(self) -> None:
        if self.cell is not None:
            self.cell.leave()

    def probe(self) -> ClusterProbe:
        return ClusterProbe(self.database, self.node, self.bodies, self.identity.id)

    async def open_engine(self, config: Config) -> PostgresEngine:
        return PostgresEngine(self.directory, self.database, config, connections=FEW_CONNECTIONS)

    async def join(self, name: str) -> Membership:
        loop, ending = asyncio.get_running_loop(), asyncio.Event()

        def on_draining(is_draining: bool) -> None:
            if is_draining:
                loop.call_soon_threadsafe(ending.set)

        # Not the name under which the process joins when it serves files.
        coordinator = await self._coordinator(f"{name}, waiting", on_draining)
        engine = PostgresEngine(
            self.directory,
            self.database,
            self.config,
            connections=FEW_CONNECTIONS,
            accounts_may_move=self.cell is not None,
            may_connect=coordinator.is_connected,
        )
        return Membership(engine, coordinator, self.identity.secret, ending)

    async def _coordinator(
        self, name: str, on_draining: Callable[[bool], None] = lambda _: None
    ) -> PostgresCoordinator:
        """Joins the cluster; waits while the database is unavailable. The supervisor starts a
        process only when its predecessor of the same name has ended."""
        join = partial(
            PostgresCoordinator,
            self.database.connection_string,
            node=self.node,
            name=name,
            schema=self.database.schema,
            on_draining=on_draining,
            replaces_predecessor=True,
        )
        for _ in range(_JOIN_ATTEMPTS_MAX - 1):
            try:
                return await asyncio.to_thread(join)
            except CoordinatorUnavailable as error:
                logger.warning("%s cannot join the cluster yet: %s", name, error)
            await asyncio.sleep(_JOIN_PAUSE_SECONDS)
        return await asyncio.to_thread(join)


def prepare(
    directory: Path, settings: Settings, config: Config, ports: Mapping[str, int]
) -> ClusterStorage:
    """Prepares the ledger, and makes this server a node. `ports` are those of its services."""
    address = settings.engine
    assert address is not None
    if database_path(directory).exists():
        raise CannotUse(
            f"{directory} has a ledger of its own, which a node of a cluster does not use; choose "
            "another directory with --data"
        )
    try:
        return _prepare_node(directory, settings, config, ports, address)
    except (Fault, Unknown, Conflict) as error:
        raise CannotUse(f"{address} cannot be used: {error}") from error


def _prepare_node(
    directory: Path,
    settings: Settings,
    config: Config,
    ports: Mapping[str, int],
    address: DatabaseAddress,
) -> ClusterStorage:
    bodies = shared_bodies(directory, settings.bodies)
    with raising_cannot_use(directory), ClusterLedger(address, create=True) as ledger:
        identity = _identity(ledger, bodies)
        given = settings.node_address or NodeAddress(ledger.local_address)
        node_listener = NodeListener(
            bind(given.host, given.port, "--node-address", "--node-address"), given.host
        )
        node = settings.node_name or socket.gethostname()
        _register(
            ledger,
            node,
            _node_id(directory),
            _addresses(settings, ports, given.host),
            is_in_cell=settings.account_map is not None,
        )
        return ClusterStorage(
            directory,
            config,
            ledger.database,
            bodies,
            identity,
            node,
            listen(directory),
            node_listener,
            cell=_join_cell(ledger, settings, identity, node),
        )


def _join_cell(
    ledger: ClusterLedger, settings: Settings, identity: StoreIdentity, node: str
) -> JoinedCell | None:
    """Makes the node one of its cell, if the cluster is one of several cells. A node of a cell must
    know that it is: it would write to accounts that are moving to another one."""
    if settings.account_map is None:
        require_cell(ledger, ledger.address, None)
        return None
    from etagere.node import cells  # noqa: PLC0415

    return cells.join(ledger, settings, identity, node)


def _identity(ledger: ClusterLedger, bodies: SharedBodies) -> StoreIdentity:
    """Returns the identity of the store. Raises `CannotUse` if the bodies are not its own."""
    new = StoreIdentity(os.urandom(ID_BYTES), os.urandom(SECRET_BYTES))
    identity = ledger.write(identify_store, IdentifyStore(new))
    marker = bodies.marker()
    if marker is None and not identity.is_marked:
        bodies.mark(identity.id)
        marker = bodies.marker()
    if marker is None:
        raise CannotUse(
            f"the bodies of the ledger in {ledger.address} are not in {bodies}; all nodes must "
            "have the same --bodies"
        )
    if marker != identity.id:
        raise CannotUse(f"the bodies in {bodies} belong to another ledger than {ledger.address}")
    if not identity.is_marked:
        ledger.write(mark_bodies, MarkBodies(identity.id))
    return identity


def _register(
    ledger: ClusterLedger,
    node: str,
    node_id: bytes,
    addresses: Mapping[str, str],
    *,
    is_in_cell: bool,
) -> None:
    database = ledger.database
    registry = NodeRegistry(database.connection_string, schema=database.schema)
    try:
        registry.register(node, node_id, addresses, etagere.__version__, is_in_cell=is_in_cell)
    except NodeInUse as error:
        raise CannotUse(f"{error}; choose another with --node-name") from error
    except CoordinatorUnavailable as error:
        raise CannotUse(f"{ledger.address} cannot be used: {error}") from error


def _node_id(directory: Path) -> bytes:
    """Returns the id of the node with this data directory."""
    path = directory / NODE_ID_NAME
    with contextlib.suppress(FileNotFoundError):
        stored = path.read_bytes()
        if len(stored) == ID_BYTES:
            return stored
    node_id = os.urandom(ID_BYTES)
    descriptor = directories.open_private(path)
    try:
        os.pwrite(descriptor, node_id, 0)
    finally:
        os.close(descriptor)
    return node_id


def _addresses(settings: Settings, ports: Mapping[str, int], local_address: str) -> dict[str, str]:
    """Returns where clients reach the services of this node."""
    host = local_address if settings.host in WILDCARD_ADDRESSES else settings.host
    return {service: format_host_and_port(host, port) for service, port in ports.items()}
