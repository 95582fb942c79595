"""Nodes of another cell that fail, and the connections to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from etagere.engine.interface import Fault, Unknown
from etagere.protocol.connections.introductions import HANDSHAKES_PER_ADDRESS_MAX
from etagere.protocol.http.messages import Request, Response
from etagere.protocol.relay import connections, relaying
from tests.loops import until
from tests.protocol.http.harness import get, hello, on_loops, put
from tests.protocol.http.harness import head as request_lines
from tests.protocol.relay.harness import Cells, RelayNode, two_cells

MIB = 1 << 20


class Gone:
    """A handler of nodes that are killed while they have a request."""

    def __init__(self) -> None:
        self.requests = 0

    async def __call__(self, request: Request) -> Response:
        self.requests += 1
        if b"whole" in request.target:
            await request.body.read(MIB)
        await asyncio.Event().wait()
        raise AssertionError


@pytest.mark.parametrize(
    ("method", "target", "service", "length", "sent", "outcome"),
    [
        ("GET", "/a", "blob", 0, 0, "another node"),
        ("GET", "/a/q/messages", "queue", 0, 0, Unknown),
        ("DELETE", "/a", "blob", 0, 0, Unknown),
        ("PUT", "/whole", "blob", 10, 10, Unknown),
        ("PUT", "/a?comp=block", "blob", 10, 5, Fault),
        ("PUT", "/a?comp=block", "blob", 10, 0, "another node"),
        # Operations that may have ignored the body.
        ("DELETE", "/a", "blob", 10, 0, Unknown),
        ("DELETE", "/a", "blob", 10, 5, Unknown),
        ("PUT", "/a?comp=lease", "blob", 10, 0, Unknown),
    ],
)
@on_loops
async def test_a_node_that_is_killed(
    method: str, target: str, service: str, length: int, sent: int, outcome: object
) -> None:
    gone = Gone()
    async with two_cells(gone, nodes=2, service=service) as cells:
        client = await cells.front.connect()
        await client.send(request_lines(f"{method} {target} HTTP/1.1", f"Content-Length: {length}"))
        await client.send(bytes(sent))
        await until(lambda: gone.requests == 1)
        await asyncio.sleep(0.05)
        (first,) = [node for node in cells.nodes if node.server.stub.requests]
        first.abort_all()
        if outcome == "another node":
            await until(lambda: gone.requests == 2)
            return
        answer = await client.answer()
        assert [type(failure) for failure in cells.failures] == [outcome]
        assert answer.status == (500 if outcome is Unknown else 503)


@on_loops
async def test_a_node_that_is_killed_during_a_response() -> None:
    async def streaming(request: Request) -> Response:
        async def stream() -> AsyncIterator[bytes]:
            yield bytes(100_000)
            await asyncio.Event().wait()

        return Response(200, (), stream(), length=200_000)

    async with two_cells(streaming) as cells:
        client = await cells.front.connect()
        await client.send(get())
        await client.reader.readuntil(b"\r\n\r\n")
        await client.reader.readexactly(100_000)
        cells.node.abort_all()
        await client.closed()


@on_loops
async def test_a_node_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_cells(hello, nodes=2) as cells:
        await cells.nodes[0].stop()
        for _ in range(6):
            client = await cells.front.connect()
            assert (await client.ask(get("/", "Connection: close"))).body == b"hello"
        await cells.nodes[1].stop()
        cells.nodes[1].abort_all()
        client = await cells.front.connect()
        assert (await client.ask(put(b"x"))).status == 503


@on_loops
async def test_a_node_that_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relaying, "_RESPONSE_SECONDS_MAX", 0.1)
    async with two_cells(Gone(), nodes=2) as cells:
        client = await cells.front.connect()
        assert (await client.ask(get())).status == 503
        assert (await client.ask(put(b"x", target="/whole"))).status == 500


@on_loops
async def test_connections_that_were_closed_meanwhile_are_not_used() -> None:
    async with two_cells(nodes=2) as cells:
        client = await cells.front.connect()
        for _ in range(5):
            assert (await client.ask(put(b"x"))).status == 200
            for node in cells.nodes:
                node.abort_all()
            await asyncio.sleep(0.02)
        assert cells.failures == []


@on_loops
async def test_a_node_that_hangs_gets_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other connections to it are closed, and other nodes are tried first."""
    monkeypatch.setattr(relaying, "_RESPONSE_SECONDS_MAX", 1.0)
    hanging: list[Request] = []

    async def answering(request: Request) -> Response:
        if hanging and request.target != b"/hang":
            assert _node_of(cells, request) is not _node_of(cells, hanging[0])
        if request.target == b"/hang" and not hanging:
            hanging.append(request)
            await asyncio.Event().wait()
        await asyncio.sleep(0.05)
        return Response(200, (), b"hello")

    async with two_cells(answering, nodes=2) as cells:
        clients = [await cells.front.connect() for _ in range(8)]
        await asyncio.gather(*(client.ask(get()) for client in clients))
        assert all(node.server.connections for node in cells.nodes)
        assert (await clients[0].ask(get("/hang"))).body == b"hello"
        for client in clients:
            assert (await client.ask(get())).body == b"hello"


def _node_of(cells: Cells, request: Request) -> RelayNode:
    (node,) = [node for node in cells.nodes if request in node.server.stub.requests]
    return node


@on_loops
async def test_idle_connections_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_IDLE_SECONDS_MAX", 0.05)
    monkeypatch.setattr(connections, "_EXPIRE_SECONDS", 0.02)
    async with two_cells() as cells:
        client = await cells.front.connect()
        assert (await client.ask(put(b"x"))).status == 200
        assert cells.node.server.connections == 1
        await until(lambda: cells.node.server.connections == 0)


@on_loops
async def test_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_IDLE_MAX", 20)

    async with two_cells(nodes=2) as cells:

        async def use(number: int) -> None:
            client = await cells.front.connect()
            for turn in range(3):
                body = b"%d-%d" % (number, turn) * 1_000
                await client.send(put(body))
                assert (await client.answer(seconds=20)).body == body

        await asyncio.gather(*(use(number) for number in range(200)))
        await until(lambda: sum(node.server.connections for node in cells.nodes) <= 20)
        assert all(node.server.stub.requests for node in cells.nodes)


@on_loops
async def test_many_requests_at_once() -> None:
    """A node gives up handshakes with an address that has too many of them."""
    async with two_cells() as cells:
        clients = [await cells.front.connect() for _ in range(2 * HANDSHAKES_PER_ADDRESS_MAX)]
        for client in clients:
            await client.send(get())
        answers = [await client.answer(seconds=20) for client in clients]
        assert {answer.status for answer in answers} == {200}
        assert not cells.failures
