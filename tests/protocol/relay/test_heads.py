"""Heads of relayed requests and responses, and nodes that do not send responses."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from etagere.engine.interface import Fault
from etagere.model.cells import CellNode, NamedCellNode
from etagere.protocol.connections.introductions import receive_introduction
from etagere.protocol.connections.memory import MemoryBudget
from etagere.protocol.relay.connections import Sender
from etagere.protocol.relay.heads import MalformedResponse, ResponseParser
from etagere.protocol.relay.relaying import Relay
from tests.loops import in_event_loop
from tests.protocol.http.harness import get, on_loops
from tests.protocol.relay.harness import CELL, SECRET, FixedNodes

OK = b"HTTP/1.1 200 OK\r\n"
SENDER = Sender("blob", "10.0.0.1", is_secure=False)


@pytest.mark.parametrize(
    ("written", "length", "is_chunked", "keep_alive"),
    [
        (OK + b"Content-Length: 5\r\n\r\n", 5, False, True),
        (OK + b"Transfer-Encoding: Chunked\r\n\r\n", None, True, True),
        (OK + b"Content-Length: 0\r\nConnection: close\r\n\r\n", 0, False, False),
        (OK + b"\r\n", None, False, False),
        (b"HTTP/1.1 304 Unchanged, really\r\nETag: a\r\n\r\n", None, False, True),
    ],
)
def test_framing_of_responses(
    written: bytes, length: int | None, is_chunked: bool, keep_alive: bool
) -> None:
    head = ResponseParser().parse_head(written)
    assert (head.length, head.is_chunked, head.keep_alive) == (length, is_chunked, keep_alive)


def test_headers_of_responses() -> None:
    lines = (
        b"Server: a",
        b"x-ms-meta-A: 1  ",
        b"X-MS-Meta-a:",
        b"Content-Length: 1",
        b"Connection: keep-alive",
        b"Keep-Alive: timeout=1",
        b"Content-Type: b",
    )
    head = ResponseParser().parse_head(OK + b"\r\n".join([*lines, b"", b""]))
    assert head.headers == [
        (b"Server", b"a"),
        (b"x-ms-meta-A", b"1"),
        (b"X-MS-Meta-a", b""),
        (b"Content-Type", b"b"),
    ]


MALFORMED = {
    "not HTTP": b"hello\r\n\r\n",
    "another version": b"HTTP/3.7 200 OK\r\n\r\n",
    "no status": b"HTTP/1.1 OK\r\n\r\n",
    "an unknown status": b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n",
    "two lengths": OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "a negative length": OK + b"Content-Length: -1\r\n\r\n",
    "a long length": OK + b"Content-Length: %d\r\n\r\n" % 10**19,
    "length and chunks": OK + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    "another encoding": OK + b"Transfer-Encoding: gzip\r\n\r\n",
    "no length": OK + b"\r\nabc",
    "an upgrade": b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: a\r\n\r\n",
    "too many headers": OK + b"a: b\r\n" * 300 + b"\r\n",
    "long headers": OK + b"a: " + b"b" * 200_000,
    "more than announced": OK + b"Content-Length: 1\r\n\r\nab",
    "a malformed chunk": OK + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
    "something after the chunks": OK
    + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    "half a head": OK + b"Content-",
}


@pytest.mark.parametrize("sent", MALFORMED.values(), ids=MALFORMED)
@on_loops
async def test_malformed_responses(sent: bytes) -> None:
    """They are never passed on as responses, and their connections are not used again."""
    async with node_sending(sent) as (relay, requests):
        for _ in range(2):
            with contextlib.suppress(Fault, OSError):
                fetched = await relay.fetch(CELL, SENDER, get())
                body = b"".join([chunk async for chunk in fetched.chunks()])
                raise AssertionError(body)
        assert len(requests) == len(set(requests)), "a connection was used again"


@contextlib.asynccontextmanager
async def node_sending(sent: bytes) -> AsyncIterator[tuple[Relay, list[int]]]:
    """Runs a node that answers every request with these bytes, and closes the connection a moment
    later. Also yields the number of the connection of each request."""
    requests: list[int] = []
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    loop = asyncio.get_running_loop()

    async def serve(connected: socket.socket, number: int) -> None:
        with connected, contextlib.suppress(OSError):
            connected.setblocking(False)
            await receive_introduction(connected, SECRET, lambda _: None)
            while await loop.sock_recv(connected, 10_000):
                requests.append(number)
                await loop.sock_sendall(connected, sent)
                await asyncio.sleep(0.05)
                connected.shutdown(socket.SHUT_WR)

    async def accept() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(100):
                connected, _ = await loop.sock_accept(listening)
                group.create_task(serve(connected, number))

    accepting = asyncio.create_task(accept())
    node = NamedCellNode("node", CellNode(*listening.getsockname()))
    relay = Relay(FixedNodes([node]), SECRET, MemoryBudget())
    try:
        yield relay, requests
    finally:
        await relay.close()
        accepting.cancel()
        await asyncio.gather(accepting, return_exceptions=True)
        listening.close()


@in_event_loop
async def test_interim_responses_are_not_passed_on() -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"
    async with node_sending(interim + OK + b"Content-Length: 2\r\n\r\nab") as (relay, _):
        fetched = await relay.fetch(CELL, SENDER, get())
        assert (fetched.head.status, fetched.head.headers) == (200, [])
        assert [chunk async for chunk in fetched.chunks()] == [b"ab"]
        fetched.close()


def test_a_malformed_chunk_is_reported() -> None:
    parser = ResponseParser()
    parser.parse_head(OK + b"Transfer-Encoding: chunked\r\n\r\n")
    assert parser.parse_chunked(b"2\r\nab\r\n1\r\nc") == [b"ab", b"c"]
    with pytest.raises(MalformedResponse):
        parser.parse_chunked(b"\r\nnothing\r\n")
