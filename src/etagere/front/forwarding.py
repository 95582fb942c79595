"""Forwarding connections to the node that serves files.

One node of a cluster serves files at a time. Every other node accepts the connections of its File
and SMB ports all the same, and forwards their bytes, with the address of the client.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from etagere.engine.interface import Conflict, Engine, Fault, Refused, Unknown
from etagere.engine.tasks import get_task_holder
from etagere.engine.writer import unix_address
from etagere.errors import Refusal
from etagere.model.cluster import FILE_TASK, TaskHolder
from etagere.opens.remote import SOCKET_NAME as OPENS_SOCKET_NAME
from etagere.opens.remote import RemoteOpens, Streams
from etagere.protocol.connections.introductions import (
    HandshakeLimit,
    Introduction,
    NotIntroduced,
    connect_to_node,
    receive_introduction,
    set_options,
)
from etagere.protocol.connections.pool import ForwardedClient
from etagere.rules.accounts import is_loopback

logger = logging.getLogger(__name__)

OPENS_SERVICE: Final = "opens"
"""What the front ends of other nodes ask the process that serves files (`opens/remote.py`)."""
FORWARDED_MAX: Final = 4_096
"""The most connections that a process forwards, or receives from other nodes, at the same time."""
_HOLDER_SECONDS_MAX: Final = 15.0
"""How long a client waits for a node that serves files: longer than it takes to replace one."""
_HOLDER_PAUSE_SECONDS: Final = 0.25
_WATCH_SECONDS: Final = 2.0
"""The interval of the check for connections to a former holder."""
_BUFFER_BYTES: Final = 64 << 10
"""The buffer of a connection, for each direction."""
_ACCEPT_RETRY_SECONDS: Final = 0.1

Address = tuple[str, int]


class ConnectionAdopter(Protocol):
    """A server that serves connections that another process has accepted."""

    def has_place(self) -> bool:
        """Returns whether it can serve another connection now."""
        ...

    def adopt(self, connected: socket.socket, client: ForwardedClient) -> None: ...


class NodeListener(NamedTuple):
    """A socket on which this node listens for other nodes."""

    listening: socket.socket
    host: str

    @property
    def address(self) -> Address:
        return self.host, self.listening.getsockname()[1]


class HolderConnection(NamedTuple):
    """A connection to the node that serves files in an epoch."""

    connected: socket.socket
    epoch: int


class HolderFinder:
    """Finds the node that serves files."""

    def __init__(self, engine: Engine, own: Address | None = None) -> None:
        """`own`: the address of this node, which does not serve files while it asks."""
        self._engine = engine
        self._own = own

    async def find(self) -> TaskHolder | None:
        """Returns the node, None if there is none now."""
        try:
            holder = await self._engine.read(get_task_holder, FILE_TASK)
        except (Fault, Unknown, Conflict):
            return None
        if holder is None or not holder.host or (holder.host, holder.port) == self._own:
            return None
        return holder

    async def connect(
        self,
        secret: bytes,
        service: str,
        client: ForwardedClient,
        seconds_max: float = _HOLDER_SECONDS_MAX,
    ) -> HolderConnection | None:
        """Returns a connection to the node for a client; None if it cannot be reached in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds_max
        while True:
            holder = await self.find()
            if holder is not None:
                introduction = Introduction(
                    service,
                    client.host,
                    client.port,
                    holder.epoch,
                    is_relayed=client.is_relayed,
                    is_secure=client.is_secure,
                )
                try:
                    connected = await connect_to_node(
                        (holder.host, holder.port), secret, introduction
                    )
                    return HolderConnection(connected, holder.epoch)
                except (OSError, TimeoutError, NotIntroduced) as error:
                    logger.info("cannot forward to node %s: %s", holder.node, error)
            if loop.time() >= deadline:
                return None
            await asyncio.sleep(_HOLDER_PAUSE_SECONDS)


class NodeOpens(RemoteOpens):
    """The opens of the process that serves files, on whichever node it runs."""

    def __init__(self, directory: Path, engine: Engine, secret: bytes) -> None:
        super().__init__(directory)
        self._engine = engine
        self._secret = secret

    async def _connect(self) -> Streams | None:
        holder = await self._engine.read(get_task_holder, FILE_TASK)
        if holder is None or not holder.host:
            return None
        introduction = Introduction(OPENS_SERVICE, "", 0, holder.epoch)
        try:
            address = holder.host, holder.port
            connected = await connect_to_node(address, self._secret, introduction)
            return await asyncio.open_connection(sock=connected)
        except (OSError, TimeoutError, NotIntroduced) as error:
            logger.info("node %s, which serves files, does not answer: %s", holder.node, error)
            raise Refused(Refusal("ServerBusy")) from None


class Acceptor:
    """Accepts connections and handles each in a task of its own."""

    def __init__(
        self, listening: socket.socket, handle: Callable[[socket.socket, Address], Awaitable[None]]
    ) -> None:
        """`handle` closes the socket, or gives it to somebody else."""
        self._listening = listening
        self._handle = handle
        self._tasks: set[asyncio.Task[None]] = set()
        self._accepting: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._listening.setblocking(False)
        self._accepting = asyncio.create_task(self._accept())

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if len(self._tasks) >= FORWARDED_MAX:
                await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            try:
                connected, address = await loop.sock_accept(self._listening)
            except OSError as error:
                logger.error("cannot accept connections: %s", error)
                await asyncio.sleep(_ACCEPT_RETRY_SECONDS)
                continue
            connected.setblocking(False)
            task = asyncio.create_task(self._run(connected, address[:2]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, connected: socket.socket, address: Address) -> None:
        try:
            await self._handle(connected, address)
        except (OSError, TimeoutError, NotIntroduced) as error:
            logger.info("a connection from %s was closed: %s", address[0], error)
            connected.close()
        except asyncio.CancelledError:
            connected.close()
            raise
        except Exception:
            logger.exception("could not handle a connection from %s", address[0])
            connected.close()

    async def stop(self) -> None:
        """Stops accepting, and closes the connections that are being handled."""
        tasks = [*self._tasks, *([] if self._accepting is None else [self._accepting])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


class Forwarder:
    """Forwards connections to the node that serves files: those of this node's File and SMB ports,
    if it has any, and those that were relayed to this node. When another node has taken over, it
    closes those to the former one, which may hang: clients connect again."""

    def __init__(
        self, sockets: Mapping[str, socket.socket], finder: HolderFinder, secret: bytes
    ) -> None:
        self._finder = finder
        self._secret = secret
        self._acceptors = [
            Acceptor(listening, self._handler(service)) for service, listening in sockets.items()
        ]
        self._forwarded: dict[asyncio.Task[None], int] = {}
        """The tasks that forward, with the epochs of the nodes that they forward to."""
        self._watching: asyncio.Task[None] | None = None

    def _handler(self, service: str) -> Callable[[socket.socket, Address], Awaitable[None]]:
        async def handle(client: socket.socket, address: Address) -> None:
            with client:
                set_options(client)
                await self.forward(client, service, ForwardedClient(*address))

        return handle

    async def forward(
        self, connected: socket.socket, service: str, client: ForwardedClient
    ) -> None:
        """Forwards a connection until it ends, or no node serves files for too long."""
        node = await self._finder.connect(self._secret, service, client)
        if node is not None:
            with node.connected:
                await self._forward_bytes(connected, node)

    async def _forward_bytes(self, client: socket.socket, node: HolderConnection) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._forwarded[task] = node.epoch
        try:
            await copy_both_ways(client, node.connected)
        finally:
            del self._forwarded[task]

    def start(self) -> None:
        for acceptor in self._acceptors:
            acceptor.start()
        self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            holder = await self._finder.find() if self._forwarded else None
            if holder is not None:
                for task, epoch in list(self._forwarded.items()):
                    if epoch < holder.epoch:
                        task.cancel()

    async def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        await asyncio.gather(*(acceptor.stop() for acceptor in self._acceptors))


class ForwardedConnections:
    """Receives what other nodes forward to this one, which serves files."""

    def __init__(self, listener: NodeListener, secret: bytes, epoch: int, directory: Path) -> None:
        self._acceptor = Acceptor(listener.listening, self._handle)
        self._secret = secret
        self._epoch = epoch
        self._directory = directory
        self._servers: Mapping[str, ConnectionAdopter] = {}
        self._handshakes = HandshakeLimit()

    def start(self, servers: Mapping[str, ConnectionAdopter]) -> None:
        """Serves them by these servers, by the names of the services."""
        self._servers = servers
        self._acceptor.start()

    async def _handle(self, connected: socket.socket, node: Address) -> None:
        set_options(connected)
        with self._handshakes.admit(node[0]):
            introduction = await receive_introduction(connected, self._secret, self._check)
        if introduction.service == OPENS_SERVICE:
            with connected:
                await self._forward_to_opens(connected)
        else:
            self._servers[introduction.service].adopt(connected, client_of(introduction, node))

    def _check(self, introduction: Introduction) -> None:
        if introduction.epoch != self._epoch:
            raise NotIntroduced("the connection is for another epoch")
        if introduction.service != OPENS_SERVICE and introduction.service not in self._servers:
            raise NotIntroduced("this node does not serve the requested service")

    async def _forward_to_opens(self, connected: socket.socket) -> None:
        opens = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        with opens, unix_address(self._directory / OPENS_SOCKET_NAME) as address:
            await asyncio.get_running_loop().sock_connect(opens, address)
            await copy_both_ways(connected, opens)

    async def stop(self) -> None:
        """Stops accepting. The connections that were given to servers are theirs."""
        await self._acceptor.stop()


def client_of(introduction: Introduction, node: Address) -> ForwardedClient:
    """Returns the client of a connection. A client on the machine of another node is not on this
    machine: it counts as that node."""
    host = introduction.host
    if is_loopback(host):
        host = node[0]
    return ForwardedClient(host, introduction.port, introduction.is_relayed, introduction.is_secure)


async def copy_both_ways(one: socket.socket, other: socket.socket) -> None:
    """Copies bytes in both directions until both sides have ended, or one has failed."""
    copies = [asyncio.create_task(_copy(one, other)), asyncio.create_task(_copy(other, one))]
    try:
        await asyncio.wait(copies, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for copy in copies:
            copy.cancel()
        await asyncio.gather(*copies, return_exceptions=True)


async def _copy(source: socket.socket, target: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(source, _BUFFER_BYTES):
        await loop.sock_sendall(target, data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
