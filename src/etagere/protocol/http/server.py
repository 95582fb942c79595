"""The HTTP server: accepts connections, checks their clients' pace, and drains them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from dataclasses import replace
from functools import partial

from etagere.protocol.connections.listening import Listener
from etagere.protocol.connections.memory import MemoryBudget
from etagere.protocol.connections.pool import ConnectionPlace, ConnectionPool, ForwardedClient
from etagere.protocol.connections.sharing import FrontEndShare, single_front_end
from etagere.protocol.http.application import Application
from etagere.protocol.http.connection import Connection
from etagere.protocol.http.limits import Limits

logger = logging.getLogger(__name__)

_SWEEP_SECONDS = 1.0
# The most connections checked in one iteration of the event loop: thousands may be late together.
_CHECKED_TOGETHER_MAX = 64
# The relaying node measures how fast its client is. What it holds of a response in memory makes a
# slow client appear to read nothing for a while, and then much.
_RELAYED_BEHIND_SECONDS_MAX = 600.0
# How long cancelled requests may take to end.
_ABORT_SECONDS = 1.0


class HttpServer:
    """Serves one application on sockets that are already bound, in one event loop."""

    def __init__(
        self,
        application: Application,
        listening: socket.socket,
        *,
        limits: Limits | None = None,
        tls: ssl.SSLContext | None = None,
        pool: ConnectionPool | None = None,
        share: FrontEndShare | None = None,
        listener_number: int = 0,
        memory: MemoryBudget | None = None,
    ) -> None:
        """`pool`, `share` and `memory` are those of the process. `listener_number` is the column of
        this listener in the table that front ends share."""
        self._application = application
        self._limits = limits or Limits()
        self._relayed_limits = replace(self._limits, behind_seconds_max=_RELAYED_BEHIND_SECONDS_MAX)
        self._tls = tls
        self._memory = memory or MemoryBudget()
        self._connections: set[Connection] = set()
        self._accepted: set[asyncio.Task[None]] = set()
        self._listener = Listener(
            listening,
            listener_number,
            self._accept,
            pool or ConnectionPool(),
            share or single_front_end(),
        )
        self._sweeper: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._listener.start()
        self._sweeper = asyncio.create_task(self._sweep())

    def use_tls(self, context: ssl.SSLContext) -> None:
        """Replaces the TLS context for connections that are accepted from now on."""
        self._tls = context

    def has_place(self) -> bool:
        """Returns whether another connection can be adopted."""
        return self._listener.has_place()

    def adopt(self, connected: socket.socket, client: ForwardedClient) -> None:
        """Serves a connection of this client that another node has accepted."""
        self._listener.adopt(connected, client)

    def _accept(self, connected: socket.socket, place: ConnectionPlace) -> None:
        task = asyncio.create_task(self._connect(connected, place))
        self._accepted.add(task)
        task.add_done_callback(partial(self._end_accepting, connected, place))

    def _end_accepting(
        self, connected: socket.socket, place: ConnectionPlace, task: asyncio.Task[None]
    ) -> None:
        self._accepted.discard(task)
        if task.cancelled():  # before it started
            connected.close()
            place.leave()

    async def _connect(self, connected: socket.socket, place: ConnectionPlace) -> None:
        """Creates the connection of an accepted socket; with TLS, after the handshake."""
        is_relayed = place.client is not None and place.client.is_relayed
        tls = None if is_relayed else self._tls
        limits = self._relayed_limits if is_relayed else self._limits
        secure = tls is not None
        place.evict = partial(_shut_down, connected)
        connection: Connection | None = None

        def new_connection() -> Connection:
            nonlocal connection
            connection = Connection(
                self._application, limits, self._connections, place, self._memory
            )
            return connection

        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                new_connection,
                connected,
                ssl=tls,
                ssl_handshake_timeout=self._limits.head_seconds if secure else None,
                ssl_shutdown_timeout=self._limits.linger_seconds if secure else None,
            )
        except (OSError, asyncio.CancelledError):
            # The client is gone, or the handshake failed.
            if connection is None or not connection.is_established:
                connected.close()
                place.leave()

    async def _sweep(self) -> None:
        """Checks all connections once a second, so that requests need no timers of their own."""
        loop = asyncio.get_running_loop()
        last = loop.time()
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            now = loop.time()
            # If it took much longer, this process was stopped, which is not the clients' fault.
            elapsed_seconds = min(now - last, 2 * _SWEEP_SECONDS)
            await self._expire(now, elapsed_seconds)
            self._memory.grant()
            last = now

    async def _expire(self, now: float, elapsed_seconds: float) -> None:
        for checked, connection in enumerate(list(self._connections), 1):
            if not checked % _CHECKED_TOGETHER_MAX:
                await asyncio.sleep(0)
            try:
                connection.expire(now, elapsed_seconds)
            except Exception:
                # The other connections still have to be checked.
                logger.exception("could not check a connection; aborting it")
                connection.abort()

    async def drain(self, grace_seconds: float) -> None:
        """Stops accepting, lets the requests under way finish, and closes all connections."""
        self._listener.stop()
        for task in list(self._accepted):
            task.cancel()
        for connection in list(self._connections):
            connection.drain()
        await self._closed(grace_seconds)
        if self._connections:
            logger.warning("aborted %d connections", len(self._connections))
        for connection in list(self._connections):
            connection.abort()
        await self._closed(_ABORT_SECONDS)
        if self._sweeper is not None:
            self._sweeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._sweeper

    async def _closed(self, seconds: float) -> None:
        if self._connections:
            closed = [connection.closed for connection in self._connections]
            await asyncio.wait(closed, timeout=seconds)


def _shut_down(connected: socket.socket) -> None:
    """Makes the attempt to establish a connection on it fail."""
    with contextlib.suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)
