"""Listening: connections taken, watched and, in the end, drained."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl

from etagere.protocol.http.connection import Application, Connection, Limits

logger = logging.getLogger(__name__)

_SWEEP_SECONDS = 1.0
_BACKLOG = 1024
# For requests that were given up to end.
_ABORT_SECONDS = 1.0


class HttpServer:
    """Serves one application on sockets that are already bound, in one event loop."""

    def __init__(
        self,
        application: Application,
        sockets: list[socket.socket],
        *,
        limits: Limits | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._application = application
        self._sockets = sockets
        self._limits = limits or Limits()
        self._tls = tls
        self._connections: set[Connection] = set()
        self._servers: list[asyncio.Server] = []
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        secure = self._tls is not None
        for listener in self._sockets:
            server = await loop.create_server(
                self._connect,
                sock=listener,
                backlog=_BACKLOG,
                ssl=self._tls,
                ssl_handshake_timeout=self._limits.head_seconds if secure else None,
                ssl_shutdown_timeout=self._limits.linger_seconds if secure else None,
            )
            self._servers.append(server)
        self._sweeper = asyncio.create_task(self._sweep())

    def _connect(self) -> Connection:
        return Connection(self._application, self._limits, self._connections)

    async def _sweep(self) -> None:
        """One timer for all connections, so that a request costs none."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self._expire()

    def _expire(self) -> None:
        now = asyncio.get_running_loop().time()
        for connection in list(self._connections):
            try:
                connection.expire(now)
            except Exception:
                # The others still have to be looked at, now and the next time.
                logger.exception("a connection could not be expired; cutting it off")
                connection.abort()

    async def drain(self, grace_seconds: float) -> None:
        """Takes no more connections, lets requests at hand finish, and closes."""
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.drain()
        await self._closed(grace_seconds)
        if self._connections:
            logger.warning("%d connections were cut off", len(self._connections))
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
