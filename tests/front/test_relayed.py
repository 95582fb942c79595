"""Connections that nodes of other cells introduce: to whom they are given, and who may introduce
them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from etagere.engine.memory import MemoryEngine
from etagere.engine.tasks import take_task
from etagere.front import relayed
from etagere.front.forwarding import ForwardedConnections, Forwarder, HolderFinder, NodeListener
from etagere.front.relayed import RelayedConnections
from etagere.model.cluster import FILE_TASK, TakeTask, TaskHolder
from etagere.protocol.connections.introductions import (
    Introduction,
    NotIntroduced,
    connect_to_node,
)
from etagere.protocol.connections.pool import ForwardedClient
from tests.loops import in_event_loop, until

MAP_SECRET, CLUSTER_SECRET = bytes(range(32)), bytes(range(1, 33))
EPOCH = 5


class Adopter:
    """A server that closes the connections that it is given."""

    def __init__(self) -> None:
        self.clients: list[ForwardedClient] = []
        self.is_full = False

    def has_place(self) -> bool:
        return not self.is_full

    def adopt(self, connected: socket.socket, client: ForwardedClient) -> None:
        self.clients.append(client)
        connected.close()


class CellNode:
    """A node that serves files, too."""

    def __init__(self, directory: Path) -> None:
        self.engine = MemoryEngine()
        self.blob, self.file = Adopter(), Adopter()
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.relayed = RelayedConnections(
            self.listening, MAP_SECRET, Forwarder({}, HolderFinder(self.engine), CLUSTER_SECRET)
        )
        self.files = NodeListener(socket.create_server(("127.0.0.1", 0)), "127.0.0.1")
        self.forwarded = ForwardedConnections(self.files, CLUSTER_SECRET, EPOCH, directory)

    async def connect(self, introduction: Introduction, secret: bytes = MAP_SECRET) -> None:
        """Connects, and waits until the connection is closed."""
        connected = await connect_to_node(self.listening.getsockname(), secret, introduction)
        with connected:
            await asyncio.get_running_loop().sock_recv(connected, 1)


@contextlib.asynccontextmanager
async def cell_node(directory: Path) -> AsyncIterator[CellNode]:
    node = CellNode(directory)
    holder = TaskHolder(EPOCH, "one", *node.files.address)
    await node.engine.write(take_task, TakeTask(FILE_TASK, holder))
    node.relayed.start({"blob": node.blob})
    node.forwarded.start({"file": node.file})
    try:
        yield node
    finally:
        await node.relayed.stop()
        await node.forwarded.stop()
        node.listening.close()
        node.files.listening.close()


@pytest.mark.parametrize("service", ["blob", "file"])
@pytest.mark.parametrize("is_secure", [False, True])
@pytest.mark.parametrize("is_relayed", [False, True])
@in_event_loop
async def test_the_client_is_known_and_its_requests_are_relayed(
    tmp_path: Path, service: str, is_secure: bool, is_relayed: bool
) -> None:
    """They count as relayed even if the introduction does not say so."""
    async with cell_node(tmp_path) as node:
        await node.connect(
            Introduction(service, "10.0.0.1", 7, 0, is_relayed=is_relayed, is_secure=is_secure)
        )
        server = node.blob if service == "blob" else node.file
        expected = ForwardedClient("10.0.0.1", 7, is_relayed=True, is_secure=is_secure)
        assert server.clients == [expected]


@in_event_loop
async def test_a_client_on_the_machine_of_the_other_node(tmp_path: Path) -> None:
    async with cell_node(tmp_path) as node:
        await node.connect(Introduction("blob", "127.0.0.9", 7, 0))
        assert [client.host for client in node.blob.clients] == ["127.0.0.1"]


@pytest.mark.parametrize("secret", [CLUSTER_SECRET, bytes(32), b""])
@in_event_loop
async def test_the_secret_of_the_map_is_required(tmp_path: Path, secret: bytes) -> None:
    async with cell_node(tmp_path) as node:
        with pytest.raises((NotIntroduced, OSError)):
            await node.connect(Introduction("blob", "10.0.0.1", 7, 0), secret)
        assert node.blob.clients == []


@pytest.mark.parametrize("service", ["", "smb", "opens", "admin", "queue"])
@in_event_loop
async def test_services_that_are_not_offered_to_other_cells(tmp_path: Path, service: str) -> None:
    async with cell_node(tmp_path) as node:
        with pytest.raises(NotIntroduced):
            await node.connect(Introduction(service, "10.0.0.1", 7, EPOCH))
        assert node.blob.clients == node.file.clients == []


@in_event_loop
async def test_a_node_with_too_many_connections(tmp_path: Path) -> None:
    """The other node learns it before it sends a request."""
    async with cell_node(tmp_path) as node:
        node.blob.is_full = True
        with pytest.raises(NotIntroduced):
            await node.connect(Introduction("blob", "10.0.0.1", 7, 0))
        assert node.blob.clients == []


@in_event_loop
async def test_connections_for_files_do_not_keep_out_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relayed, "_FILE_CONNECTIONS_MAX", 1)
    for_files = Introduction("file", "10.0.0.1", 7, 0)
    async with cell_node(tmp_path) as node:
        adopted: list[socket.socket] = []
        monkeypatch.setattr(node.file, "adopt", lambda connected, _: adopted.append(connected))
        held = await connect_to_node(node.listening.getsockname(), MAP_SECRET, for_files)
        with held:
            await until(lambda: bool(adopted))
            with pytest.raises(NotIntroduced):
                await node.connect(for_files)
            await node.connect(Introduction("blob", "10.0.0.1", 7, 0))
            assert len(node.blob.clients) == 1
            adopted.pop().close()
        await until(lambda: node.relayed._file_connections == 0)
        (await connect_to_node(node.listening.getsockname(), MAP_SECRET, for_files)).close()
        await until(lambda: bool(adopted))
        adopted.pop().close()
