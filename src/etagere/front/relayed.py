"""Receiving the requests that nodes of other cells relay to this one."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Final

from etagere.front.forwarding import (
    FORWARDED_MAX,
    Acceptor,
    Address,
    ConnectionAdopter,
    Forwarder,
    client_of,
)
from etagere.protocol.connections.introductions import (
    HandshakeLimit,
    Introduction,
    NotIntroduced,
    receive_introduction,
    set_options,
)

_FILE: Final = "file"
_FILE_CONNECTIONS_MAX: Final = FORWARDED_MAX // 2
"""The most connections for File that a process forwards. More would keep out those for the other
services, which it serves itself."""


class RelayedConnections:
    """Receives the connections of nodes of other cells, in a front end for Blob, Queue and Table.
    Those for File are forwarded to the process that serves files, on whichever node it runs."""

    def __init__(self, listening: socket.socket, secret: bytes, forwarder: Forwarder) -> None:
        """`secret` is that of the account map."""
        self._acceptor = Acceptor(listening, self._handle)
        self._secret = secret
        self._forwarder = forwarder
        self._servers: Mapping[str, ConnectionAdopter] = {}
        self._handshakes = HandshakeLimit()
        self._file_connections = 0

    def start(self, servers: Mapping[str, ConnectionAdopter]) -> None:
        """Serves requests by these servers, by the names of the services."""
        self._servers = servers
        self._forwarder.start()
        self._acceptor.start()

    async def _handle(self, connected: socket.socket, node: Address) -> None:
        set_options(connected)
        with self._handshakes.admit(node[0]):
            introduction = await receive_introduction(connected, self._secret, self._check)
        client = client_of(introduction, node)._replace(is_relayed=True)
        server = self._servers.get(introduction.service)
        if server is not None:
            server.adopt(connected, client)
        else:
            self._file_connections += 1
            try:
                with connected:
                    await self._forwarder.forward(connected, _FILE, client)
            finally:
                self._file_connections -= 1

    def _check(self, introduction: Introduction) -> None:
        server = self._servers.get(introduction.service)
        if server is None and introduction.service != _FILE:
            raise NotIntroduced("this node does not serve the requested service")
        has_place = (
            self._file_connections < _FILE_CONNECTIONS_MAX if server is None else server.has_place()
        )
        if not has_place:
            raise NotIntroduced("this node has too many connections")

    async def stop(self) -> None:
        """Stops accepting. The connections that were given to servers are theirs."""
        await self._acceptor.stop()
        await self._forwarder.stop()
