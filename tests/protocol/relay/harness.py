"""A server that relays every request, and the nodes of another cell that it relays to."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator, Sequence

from etagere.engine.interface import Fault, Unknown
from etagere.engine.memory import MemoryEngine
from etagere.front.forwarding import Forwarder, HolderFinder
from etagere.front.relayed import RelayedConnections
from etagere.model.cells import CellNode, NamedCellNode
from etagere.protocol.connections.memory import MemoryBudget, MemoryExhausted
from etagere.protocol.http.limits import Limits
from etagere.protocol.http.messages import Request, Response
from etagere.protocol.http.server import HttpServer
from etagere.protocol.relay.relaying import Relay
from tests.protocol.http.harness import (
    Handler,
    ServerFixture,
    Stub,
    echo,
    quick_sweeps,
)

SECRET = bytes(range(32))
CELL = "two"


class FixedNodes:
    """A map with the nodes of one cell."""

    def __init__(self, nodes: Sequence[NamedCellNode]) -> None:
        self.nodes = list(nodes)

    async def nodes_of(self, cell: str) -> Sequence[NamedCellNode]:
        assert cell == CELL
        return self.nodes


class RelayNode:
    """A node of the other cell."""

    def __init__(self, name: str, server: ServerFixture) -> None:
        self.name = name
        self.server = server
        self.listening = socket.create_server(("127.0.0.1", 0))
        self._relayed = RelayedConnections(
            self.listening, SECRET, Forwarder({}, HolderFinder(MemoryEngine()), SECRET)
        )

    @property
    def entry(self) -> NamedCellNode:
        return NamedCellNode(self.name, CellNode(*self.listening.getsockname()))

    def start(self) -> None:
        self._relayed.start({"blob": self.server.http_server, "queue": self.server.http_server})

    async def stop(self) -> None:
        await self._relayed.stop()
        self.listening.close()

    def abort_all(self) -> None:
        """Ends all connections, as if the node were killed."""
        for connection in list(self.server.http_server._connections):
            connection.abort()


class Cells:
    """The relaying server, and the nodes of the other cell."""

    def __init__(self, front: ServerFixture, nodes: list[RelayNode], relay: Relay) -> None:
        self.front = front
        self.nodes = nodes
        self.relay = relay
        self.failures: list[Exception] = []

    @property
    def node(self) -> RelayNode:
        return self.nodes[0]


@contextlib.asynccontextmanager
async def two_cells(
    handler: Handler = echo,
    *,
    nodes: int = 1,
    service: str = "blob",
    memory: MemoryBudget | None = None,
    node_limits: Limits | None = None,
) -> AsyncIterator[Cells]:
    """Runs a server that relays all requests to nodes with this handler."""
    budget = memory or MemoryBudget()
    async with contextlib.AsyncExitStack() as held:
        running: list[RelayNode] = []
        for number in range(nodes):
            server = await held.enter_async_context(_quiet_serving(handler, limits=node_limits))
            node = RelayNode(f"node{number}", server)
            node.start()
            held.push_async_callback(node.stop)
            running.append(node)
        relay = Relay(FixedNodes([node.entry for node in running]), SECRET, budget)
        held.push_async_callback(relay.close)

        async def relayed(request: Request) -> Response:
            try:
                return await relay.relay(CELL, service, request)
            except (Fault, MemoryExhausted) as fault:
                cells.failures.append(fault)
                return Response(503, (), b"busy")
            except Unknown as unknown:
                cells.failures.append(unknown)
                return Response(500, (), b"unknown")

        front = await held.enter_async_context(_quiet_serving(relayed, memory=budget))
        cells = Cells(front, running, relay)
        yield cells


@contextlib.asynccontextmanager
async def _quiet_serving(
    handler: Handler, *, memory: MemoryBudget | None = None, limits: Limits | None = None
) -> AsyncIterator[ServerFixture]:
    """Runs a server whose log and tasks are those of several servers, and so are not checked."""
    listener = socket.create_server(("127.0.0.1", 0))
    stub = Stub(handler)
    http_server = HttpServer(stub, listener, memory=memory, limits=limits)
    server = ServerFixture(http_server, listener.getsockname()[1], stub)
    with quick_sweeps():
        http_server.start()
        try:
            yield server
        finally:
            for client in server.clients:
                client.reset()
            await http_server.drain(0.0)
            for client in server.clients:
                await client.close()
