"""Connections to a cell some of whose nodes do not respond, or refuse them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator

import pytest

from etagere.model.cells import CellNode, NamedCellNode
from etagere.protocol.connections import introductions
from etagere.protocol.connections.introductions import (
    HANDSHAKES_PER_ADDRESS_MAX,
    HandshakeLimit,
    Introduction,
    NotIntroduced,
    receive_introduction,
)
from etagere.protocol.relay import connections, suspects
from etagere.protocol.relay.connections import CellConnections, Sender, handshakes_max
from etagere.protocol.relay.node_connection import NodeGone
from etagere.protocol.relay.suspects import AVOID_SECONDS_MAX, AVOID_SECONDS_MIN, Suspects, Target
from tests.loops import in_event_loop
from tests.protocol.relay.harness import CELL, SECRET

SHARE_SECONDS = 1.0
AVOID_SECONDS = 1.0
TARGET = Target(("10.0.0.1", 7_000), is_for_files=False)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_NODE_SECONDS_MAX", SHARE_SECONDS)
    monkeypatch.setattr(introductions, "HANDSHAKE_SECONDS_MAX", SHARE_SECONDS)


class ListeningNode:
    """A node that does no more than handshakes."""

    def __init__(self, name: str) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=1_024)
        self.listening.setblocking(False)
        self.entry = NamedCellNode(name, CellNode(*self.listening.getsockname()))
        self.refusals = 0
        """How many handshakes it refuses."""
        self.handshakes = 0
        self.answers_after_seconds = 0.0
        self._limit = HandshakeLimit()
        self._tasks: list[asyncio.Task[None]] = []

    def count_waiting(self) -> int:
        """Returns how many connections have arrived since the last call, and closes them."""
        count = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                self.listening.accept()[0].close()
                count += 1
        return count

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            connected, _ = await loop.sock_accept(self.listening)
            connected.setblocking(False)
            self._tasks.append(asyncio.create_task(self._answer(connected)))

    async def _answer(self, connected: socket.socket) -> None:
        with connected, contextlib.suppress(NotIntroduced, OSError):
            with self._limit.admit("127.0.0.1"):
                await asyncio.sleep(self.answers_after_seconds)
                await receive_introduction(connected, SECRET, self._check)
            await asyncio.Event().wait()

    def _check(self, _: Introduction) -> None:
        self.handshakes += 1
        if self.handshakes <= self.refusals:
            raise NotIntroduced("no")

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@contextlib.contextmanager
def hung_nodes(count: int) -> Iterator[list[ListeningNode]]:
    """Nodes whose kernels accept connections, and that do nothing else."""
    nodes = [ListeningNode(f"hung{number}") for number in range(count)]
    try:
        yield nodes
    finally:
        for node in nodes:
            node.listening.close()


@contextlib.asynccontextmanager
async def serving_node() -> AsyncIterator[ListeningNode]:
    node = ListeningNode("serving")
    serving = asyncio.create_task(node.serve())
    try:
        yield node
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await node.stop()
        node.listening.close()


class Client:
    """Connects to a cell."""

    def __init__(self, *nodes: ListeningNode, front_ends: int = 1) -> None:
        self.nodes = [node.entry for node in nodes]
        self.connections = CellConnections(SECRET, front_ends)

    async def connect(self, count: int) -> list[str]:
        """Returns the nodes with which this many requests are connected at the same time; "" for
        each request that gets no connection."""
        return await asyncio.gather(*(self._connect(number) for number in range(count)))

    async def _connect(self, number: int) -> str:
        sender = Sender("blob", f"10.0.{number >> 8}.{number & 255}", is_secure=False)
        try:
            used = await self.connections.connect(CELL, sender, self.nodes)
        except NodeGone:
            return ""
        used.connection.abort()
        return used.node


@pytest.mark.parametrize("hung", [1, 4])
@in_event_loop
async def test_all_requests_reach_the_node_that_serves(hung: int) -> None:
    """Many wait for their turn with nodes that do not respond."""
    with hung_nodes(hung) as nodes:
        async with serving_node() as serving:
            client = Client(*nodes, serving)
            assert await client.connect(300) == ["serving"] * 300


@in_event_loop
async def test_few_requests_wait_for_a_node_that_may_still_be_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(suspects, "AVOID_SECONDS_MIN", AVOID_SECONDS)
    with hung_nodes(1) as (hung,):
        async with serving_node() as serving:
            client = Client(hung, serving)
            await client.connect(100)
            assert hung.count_waiting() > 1
            assert await client.connect(30) == ["serving"] * 30
            assert hung.count_waiting() == 0
            await asyncio.sleep(AVOID_SECONDS)
            assert await client.connect(30) == ["serving"] * 30
            assert hung.count_waiting() == 1
            # It is avoided for longer now.
            await asyncio.sleep(AVOID_SECONDS)
            assert await client.connect(30) == ["serving"] * 30
            assert hung.count_waiting() == 0


@in_event_loop
async def test_a_node_is_used_again_when_it_responds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspects, "AVOID_SECONDS_MIN", AVOID_SECONDS)
    with hung_nodes(1) as (hung,):
        async with serving_node() as serving:
            client = Client(hung, serving)
            await client.connect(100)
            hung.count_waiting()
            recovered = asyncio.create_task(hung.serve())
            assert await client.connect(30) == ["serving"] * 30
            await asyncio.sleep(AVOID_SECONDS)
            await client.connect(30)  # one of them finds out
            assert set(await client.connect(30)) == {"hung0", "serving"}
            recovered.cancel()
            await asyncio.gather(recovered, return_exceptions=True)
            await hung.stop()


@in_event_loop
async def test_the_only_node_is_tried_at_any_time() -> None:
    with hung_nodes(1) as (hung,):
        client = Client(hung)
        for handshakes_max in (8, 1):
            assert await client.connect(30) == [""] * 30
            # Those that waited for their turn do not try again what has just failed.
            assert hung.count_waiting() == handshakes_max
        recovered = asyncio.create_task(hung.serve())
        assert await client.connect(30) == ["hung0"] * 30
        recovered.cancel()
        await asyncio.gather(recovered, return_exceptions=True)
        await hung.stop()


@in_event_loop
async def test_a_node_that_refuses_some_requests() -> None:
    """It is there, so the others are worth a try."""
    async with serving_node() as serving:
        serving.refusals = 3
        client = Client(serving)
        assert sorted(await client.connect(30)) == [""] * 3 + ["serving"] * 27


@pytest.mark.parametrize(
    ("front_ends", "expected"), [(1, 8), (5, 8), (8, 8), (9, 7), (17, 3), (64, 1), (257, 1)]
)
def test_the_front_ends_of_a_node_share_its_handshakes(front_ends: int, expected: int) -> None:
    assert handshakes_max(front_ends) == expected
    assert front_ends * expected <= max(HANDSHAKES_PER_ADDRESS_MAX, front_ends)


@in_event_loop
async def test_a_node_completes_the_handshakes_of_many_front_ends() -> None:
    """It gives up the oldest ones with an address that has too many."""
    front_ends = 33
    async with serving_node() as serving:
        serving.answers_after_seconds = 0.1
        clients = [Client(serving, front_ends=front_ends) for _ in range(front_ends)]
        connected = await asyncio.gather(*(client.connect(8) for client in clients))
        assert connected == [["serving"] * 8] * front_ends


def test_files_fail_on_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    known = Suspects()
    known.note_failure(TARGET._replace(is_for_files=True))
    assert not known.is_avoided(TARGET)


@pytest.mark.parametrize("gone", ["blob", "file"])
@in_event_loop
async def test_connections_that_are_gone_together(gone: str) -> None:
    """Those for File go on to another node, whose failure does not concern the others."""
    async with serving_node() as serving:
        client = Client(serving)
        kept = {}
        for service in ("blob", "queue", "table", "file"):
            sender = Sender(service, "10.0.0.1", is_secure=False)
            kept[service] = await client.connections.connect(CELL, sender, client.nodes)
        sender = Sender(gone, "10.0.0.2", is_secure=False)
        used = await client.connections.connect(CELL, sender, client.nodes)
        for each in kept.values():
            client.connections.keep(each)
        client.connections.discard(used)
        idle = {
            service
            for service, each in kept.items()
            if client.connections.take_idle(CELL, each.sender) is not None
        }
        assert idle == ({"file"} if gone == "blob" else {"blob", "queue", "table"})
        for each in kept.values():
            each.connection.abort()


class Clock:
    """The time of suspects."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        monkeypatch.setattr(suspects, "_now", lambda: self.now)


def test_a_node_is_avoided_longer_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, known = Clock(monkeypatch), Suspects()

    def seconds_avoided() -> float:
        began = clock.now
        clock.now += 3.0
        for _ in range(8):  # handshakes that began at the same time
            known.note_unreachable(TARGET, began)
        failed_at = clock.now
        while known.is_avoided(TARGET):
            clock.now += 1.0
        return clock.now - failed_at

    assert [seconds_avoided() for _ in range(6)] == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0]
    known.clear(TARGET)
    assert not known.is_avoided(TARGET)
    assert seconds_avoided() == AVOID_SECONDS_MIN


def test_a_failure_does_not_shorten_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, known = Clock(monkeypatch), Suspects()
    for _ in range(5):
        known.note_unreachable(TARGET, clock.now)
        clock.now += 1.0
    known.note_failure(TARGET)
    clock.now += AVOID_SECONDS_MAX - 2.0
    assert known.is_avoided(TARGET)
    clock.now += 1.0
    assert not known.is_avoided(TARGET)


def test_nodes_that_nobody_tries_again_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, known = Clock(monkeypatch), Suspects()
    known.note_failure(TARGET)
    clock.now += AVOID_SECONDS_MAX
    known.forget_old()
    assert known.get(TARGET) is not None
    clock.now += AVOID_SECONDS_MAX
    known.forget_old()
    assert known.get(TARGET) is None
