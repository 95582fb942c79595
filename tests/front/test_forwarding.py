"""Connections that one node forwards to another: bytes, addresses, and who may forward."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from etagere.engine.memory import MemoryEngine
from etagere.engine.tasks import leave_task, take_task
from etagere.front.forwarding import (
    ForwardedConnections,
    Forwarder,
    HolderFinder,
    NodeListener,
    client_of,
)
from etagere.model.cluster import FILE_TASK, LeaveTask, TakeTask, TaskHolder
from etagere.protocol.connections.introductions import (
    HANDSHAKES_MAX,
    Introduction,
    NotIntroduced,
    connect_to_node,
)
from etagere.protocol.connections.pool import ForwardedClient
from tests.loops import in_event_loop

SECRET = bytes(range(32))
EPOCH = 3
LONG = bytes(range(256)) * 8_000
"""More than the buffers of sockets hold."""


class Echo:
    """A server that sends back what it receives, with the address of the client before it."""

    def __init__(self) -> None:
        self.clients: list[ForwardedClient] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def has_place(self) -> bool:
        return True

    def adopt(self, connected: socket.socket, client: ForwardedClient) -> None:
        self.clients.append(client)
        self._tasks.add(asyncio.create_task(self._serve(connected)))

    async def _serve(self, connected: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with connected:
            while data := await loop.sock_recv(connected, 100_000):
                await loop.sock_sendall(connected, data)


class Cluster:
    """A node that serves files, and one that forwards to it."""

    def __init__(self, directory: Path) -> None:
        self.engine = MemoryEngine()
        self.server = Echo()
        self.listener = NodeListener(socket.create_server(("127.0.0.1", 0)), "127.0.0.1")
        self.forwarded = ForwardedConnections(self.listener, SECRET, EPOCH, directory)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.forwarder = Forwarder({"file": self.listening}, HolderFinder(self.engine), SECRET)

    async def serve(self) -> None:
        holder = TaskHolder(EPOCH, "one", *self.listener.address)
        await self.engine.write(take_task, TakeTask(FILE_TASK, holder))
        self.forwarded.start({"file": self.server})

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self.listening.getsockname())


@contextlib.asynccontextmanager
async def cluster(directory: Path) -> AsyncIterator[Cluster]:
    made = Cluster(directory)
    made.forwarder.start()
    try:
        yield made
    finally:
        await made.forwarder.stop()
        await made.forwarded.stop()
        made.listening.close()
        made.listener.listening.close()


@in_event_loop
async def test_bytes_pass_in_both_directions_until_both_sides_end(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        await nodes.serve()
        reader, writer = await nodes.connect()
        port = writer.get_extra_info("sockname")[1]
        sending = asyncio.create_task(_send(writer, LONG))
        assert await reader.readexactly(len(LONG)) == LONG
        await sending
        writer.write_eof()
        assert await reader.read() == b""
        # A client on the machine of the other node is not on this machine.
        assert nodes.server.clients == [ForwardedClient("127.0.0.1", port)]
        writer.close()


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


@in_event_loop
async def test_a_client_waits_for_a_node_that_serves_files(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        reader, writer = await nodes.connect()
        writer.write(b"early")
        await nodes.serve()
        assert await reader.readexactly(5) == b"early"
        writer.close()


@in_event_loop
async def test_a_node_that_does_not_serve_files_any_more(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        finder = HolderFinder(nodes.engine)
        assert await finder.connect(SECRET, "file", ForwardedClient("10.0.0.1", 1), 0.0) is None
        await nodes.serve()
        assert await finder.find() is not None
        assert await HolderFinder(nodes.engine, nodes.listener.address).find() is None
        await nodes.engine.write(leave_task, LeaveTask(FILE_TASK, EPOCH))
        assert await finder.find() is None


@in_event_loop
async def test_connections_to_a_node_that_was_replaced_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be a machine without power, from which nothing is heard any more."""
    monkeypatch.setattr("etagere.front.forwarding._WATCH_SECONDS", 0.05, raising=False)
    async with cluster(tmp_path) as nodes:
        await nodes.serve()
        reader, writer = await nodes.connect()
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        await asyncio.sleep(0.2)
        assert not reader.at_eof()
        successor = TaskHolder(EPOCH + 1, "two", "127.0.0.1", 1)
        await nodes.engine.write(take_task, TakeTask(FILE_TASK, successor))
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()


@pytest.mark.parametrize(
    ("secret", "introduction"),
    [
        (bytes(32), Introduction("file", "10.0.0.1", 1, EPOCH)),
        (SECRET, Introduction("file", "10.0.0.1", 1, EPOCH - 1)),
        (SECRET, Introduction("blob", "10.0.0.1", 1, EPOCH)),
    ],
    ids=["secret", "epoch", "service"],
)
@in_event_loop
async def test_connections_that_are_not_accepted(
    tmp_path: Path, secret: bytes, introduction: Introduction
) -> None:
    async with cluster(tmp_path) as nodes:
        await nodes.serve()
        with pytest.raises(NotIntroduced):
            await connect_to_node(nodes.listener.address, secret, introduction)
        assert nodes.server.clients == []


@in_event_loop
async def test_strangers_do_not_keep_nodes_out(tmp_path: Path) -> None:
    """They connect from many addresses, and send nothing."""
    async with cluster(tmp_path) as nodes:
        await nodes.serve()
        with contextlib.ExitStack() as opened:
            for number in range(HANDSHAKES_MAX + 100):
                stranger = opened.enter_context(socket.socket())
                stranger.setblocking(False)
                stranger.bind((f"127.0.1.{number % 200 + 1}", 0))
                await asyncio.get_running_loop().sock_connect(stranger, nodes.listener.address)
            reader, writer = await nodes.connect()
            writer.write(b"x")
            assert await asyncio.wait_for(reader.readexactly(1), 4) == b"x"
            writer.close()


@in_event_loop
async def test_the_address_of_a_client_passes(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        await nodes.serve()
        for host, seen in (("10.0.0.9", "10.0.0.9"), ("::1", "127.0.0.1"), ("fe80::1", "fe80::1")):
            introduction = Introduction("file", host, 5, EPOCH)
            with await connect_to_node(nodes.listener.address, SECRET, introduction) as connected:
                await asyncio.get_running_loop().sock_sendall(connected, b"x")
                await asyncio.get_running_loop().sock_recv(connected, 1)
            assert nodes.server.clients[-1] == ForwardedClient(seen, 5)


@in_event_loop
async def test_stopping_closes_forwarded_connections(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        await nodes.serve()
        reader, writer = await nodes.connect()
        writer.write(b"x")
        await reader.readexactly(1)
        await nodes.forwarder.stop()
        assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "0:0::1", "::ffff:7f00:1"])
def test_a_client_on_the_machine_of_another_node_is_not_on_this_one(host: str) -> None:
    introduction = Introduction("blob", host, 7, 0)
    assert client_of(introduction, ("10.0.0.1", 9)) == ForwardedClient("10.0.0.1", 7)


def test_clients_with_similar_addresses_are_not_on_a_node() -> None:
    introduction = Introduction("blob", "::1:2", 7, 0)
    assert client_of(introduction, ("10.0.0.1", 9)) == ForwardedClient("::1:2", 7)
