"""Requests that are relayed to a node of another cell, and its responses."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator

import pytest

from etagere.protocol.connections.memory import MemoryBudget
from etagere.protocol.http.limits import Limits
from etagere.protocol.http.messages import Request, Response
from etagere.protocol.relay.connections import Sender
from etagere.protocol.relay.node_connection import _READ_BYTES_MAX, RESPONSE_BYTES_MAX
from tests.loops import until
from tests.protocol.http.harness import get, hello, on_loops, put, put_chunks
from tests.protocol.http.harness import head as request_lines
from tests.protocol.relay.harness import CELL, two_cells

MIB = 1 << 20


@on_loops
async def test_a_request_arrives_as_it_was_sent() -> None:
    async with two_cells() as cells:
        client = await cells.front.connect()
        sent = put(
            b"body",
            "X-ms-Date: now",
            "x-ms-meta-A: 1 ",
            "x-ms-meta-a: 2",
            "Connection: keep-alive",
            "Keep-Alive: 5",
            target="/a%2fb//c?x=%20&sig=1",
        )
        answer = await client.ask(sent)
        assert (answer.status, answer.body) == (200, b"body")
        (request,) = cells.node.server.stub.requests
        assert request.method == "PUT"
        assert request.target == b"/a%2fb//c?x=%20&sig=1"
        assert request.headers == [
            (b"Host", b"localhost"),
            (b"Content-Length", b"4"),
            (b"X-ms-Date", b"now"),
            (b"x-ms-meta-A", b"1"),
            (b"x-ms-meta-a", b"2"),
        ]
        assert request.is_relayed
        assert not cells.front.stub.requests[0].is_relayed
        assert request.client == "127.0.0.1"


@on_loops
async def test_a_response_arrives_as_it_was_sent() -> None:
    async def answering(request: Request) -> Response:
        headers = ((b"ETag", b'"1"'), (b"x-ms-request-id", b"id"), (b"x-ms-meta-B", b"b"))
        return Response(206, headers, b"0123", reason="Some of it")

    async with two_cells(answering) as cells:
        relayed = await cells.front.connect()
        direct = await cells.node.server.connect()
        for asked, method in (
            (get("/a"), "GET"),
            (request_lines("HEAD /a HTTP/1.1"), "HEAD"),
            (get("/a", "Connection: close"), "GET"),
        ):
            await relayed.send(asked)
            await direct.send(asked)
            assert _undated(await relayed.answer(method)) == _undated(await direct.answer(method))
        await relayed.closed()
        await direct.closed()


def _undated(answer: tuple[int, list[tuple[str, str]], bytes]) -> object:
    status, headers, body = answer
    assert [name for name, _ in headers][:2] == ["Server", "Date"]
    return status, [field for field in headers if field[0] != "Date"], body


@pytest.mark.parametrize("status", [200, 204, 304, 404, 503])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
@on_loops
async def test_the_length_of_responses(status: int, method: str) -> None:
    async def answering(request: Request) -> Response:
        body = b"" if status in (204, 304) else b"12345"
        return Response(status, (), body, length=len(body))

    async with two_cells(answering) as cells:
        relayed = await cells.front.connect()
        direct = await cells.node.server.connect()
        for _ in range(2):
            for client in (relayed, direct):
                await client.send(request_lines(f"{method} / HTTP/1.1"))
            expected = _undated(await direct.answer(method))
            assert _undated(await relayed.answer(method)) == expected


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@on_loops
async def test_streamed_responses(version: str) -> None:
    chunks = [bytes([number]) * 100_000 for number in range(40)]

    async def streaming(request: Request) -> Response:
        async def stream() -> AsyncIterator[bytes]:
            for chunk in chunks:
                yield chunk

        length = len(b"".join(chunks)) if b"known" in request.target else None
        return Response(200, (), stream(), length=length)

    async with two_cells(streaming) as cells:
        for target in ("/known", "/unknown"):
            client = await cells.front.connect()
            await client.send(f"GET {target} HTTP/{version}\r\nHost: a\r\n\r\n".encode())
            answer = await client.answer()
            assert answer.body == b"".join(chunks)


@on_loops
async def test_request_without_a_host() -> None:
    async with two_cells(hello) as cells:
        client = await cells.front.connect()
        assert (await client.ask(b"GET /a HTTP/1.0\r\n\r\n")).body == b"hello"
        client = await cells.front.connect()
        assert (
            await client.ask(b"GET http://other.example/a HTTP/1.1\r\nHost: b\r\n\r\n")
        ).body == b"hello"
        first, second = cells.node.server.stub.requests
        assert first.fields[b"host"] == b""
        assert second.fields[b"host"] == b"other.example"
        assert second.target == b"/a"


@on_loops
async def test_chunked_requests() -> None:
    async with two_cells() as cells:
        client = await cells.front.connect()
        for _ in range(2):
            answer = await client.ask(put_chunks(b"a" * 10, b"b", b"c" * 100_000))
            assert answer.body == b"a" * 10 + b"b" + b"c" * 100_000
        assert cells.node.server.stub.requests[0].body.length is None


@on_loops
async def test_a_connection_is_used_again() -> None:
    async with two_cells() as cells:
        for _ in range(3):
            client = await cells.front.connect()
            for _ in range(3):
                assert (await client.ask(put(b"x"))).status == 200
        assert cells.node.server.connections == 1


@on_loops
async def test_the_client_is_asked_to_continue_when_the_node_wants_the_body() -> None:
    may_read = asyncio.Event()

    async def waiting(request: Request) -> Response:
        if b"refused" in request.target:
            return Response(403, (), b"no")
        await may_read.wait()
        return Response(200, (), await request.body.read(100))

    async with two_cells(waiting) as cells:
        client = await cells.front.connect()
        head = request_lines("PUT /a HTTP/1.1", "Content-Length: 3", "Expect: 100-continue")
        await client.send(head)
        await until(lambda: bool(cells.node.server.stub.requests))
        with pytest.raises(TimeoutError):
            await client.answer(seconds=0.1)
        may_read.set()
        assert (await client.answer()).status == 100
        assert (await client.ask(b"abc")).body == b"abc"
        # One that is refused is not sent.
        answer = await client.ask(
            request_lines("PUT /refused HTTP/1.1", "Content-Length: 3", "Expect: 100-continue")
        )
        assert (answer.status, answer.body) == (403, b"no")
        await client.closed()


@on_loops
async def test_a_response_before_the_end_of_the_body() -> None:
    async def refusing(request: Request) -> Response:
        return Response(412, (), b"no")

    async with two_cells(refusing) as cells:
        client = await cells.front.connect()
        await client.send(request_lines("PUT /a HTTP/1.1", f"Content-Length: {64 * MIB}"))
        await client.send(bytes(100_000))
        assert (await client.answer()).body == b"no"
        await client.send(bytes(64 * MIB - 100_000))
        # The rest is discarded, and the connection goes on.
        assert (await client.ask(get())).status == 412


@on_loops
async def test_large_bodies_take_little_memory() -> None:
    seen = hashlib.sha256()

    async def hashing(request: Request) -> Response:
        async for chunk in request.body:
            seen.update(chunk)

        async def stream() -> AsyncIterator[bytes]:
            for _ in range(64):
                yield bytes(MIB)

        return Response(200, (), stream(), length=64 * MIB)

    memory = MemoryBudget(8 * MIB)
    async with two_cells(hashing, memory=memory) as cells:
        client = await cells.front.connect()
        await client.send(request_lines("PUT /a HTTP/1.1", f"Content-Length: {64 * MIB}"))
        for _ in range(64):
            await client.send(bytes(MIB))
        answer = await client.answer(seconds=20)
        assert len(answer.body) == 64 * MIB
        assert seen.digest() == hashlib.sha256(bytes(64 * MIB)).digest()
        assert memory.peak_bytes < 4 * MIB
        await until(lambda: memory.used_bytes == 0)


@on_loops
async def test_slow_clients_hold_the_node_back() -> None:
    sent = 0

    async def streaming(request: Request) -> Response:
        async def stream() -> AsyncIterator[bytes]:
            nonlocal sent
            for _ in range(96):
                sent += MIB
                yield bytes(MIB)

        return Response(200, (), stream(), length=96 * MIB)

    async with two_cells(streaming) as cells:
        client = await cells.front.connect(receive_bytes=64 << 10)
        await client.send(get())
        await client.reader.readexactly(100_000)
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.2)
        assert sent < 32 * MIB
        client.reset()
        # The node learns that the client is gone.
        await until(lambda: cells.node.server.connections == 0)


@on_loops
async def test_what_is_held_of_a_response_is_bounded() -> None:
    """Half of what is counted for it, apart from the threshold, is for the client's connection."""

    async def answering(request: Request) -> Response:
        return Response(200, (), bytes(16 * MIB))

    async with two_cells(answering) as cells:
        sender = Sender("blob", "10.0.0.1", is_secure=False)
        fetched = await cells.relay.fetch(CELL, sender, get())
        assert fetched._used is not None
        connection = fetched._used.connection
        received = 0
        async for chunk in fetched.chunks():
            received += len(chunk)
            await asyncio.sleep(0.001)  # slower than the node
            assert connection._buffered_bytes <= RESPONSE_BYTES_MAX - _READ_BYTES_MAX
            assert len(chunk) <= _READ_BYTES_MAX
        assert received == 16 * MIB
        fetched.close()


@on_loops
async def test_what_is_not_read_of_a_response_is_not_part_of_the_next() -> None:
    async def answering(request: Request) -> Response:
        return Response(200, (), request.target * 1_000)

    async with two_cells(answering) as cells:
        sender = Sender("blob", "10.0.0.1", is_secure=False)
        for number in range(3):
            fetched = await cells.relay.fetch(CELL, sender, get("/unread"))
            fetched.close()
            fetched = await cells.relay.fetch(CELL, sender, get(f"/{number}"))
            received = b"".join([chunk async for chunk in fetched.chunks()])
            assert received == f"/{number}".encode() * 1_000
            fetched.close()
        assert cells.node.server.connections == 1


@pytest.mark.parametrize("is_relayed", [False, True])
@on_loops
async def test_the_relaying_node_decides_whether_a_client_is_too_slow(is_relayed: bool) -> None:
    async def streaming(request: Request) -> Response:
        async def stream() -> AsyncIterator[bytes]:
            for _ in range(64):
                yield bytes(MIB)

        return Response(200, (), stream(), length=64 * MIB)

    strict = Limits(behind_seconds_max=0.2, body_bytes_per_second_min=1e9)
    async with two_cells(streaming, node_limits=strict) as cells:
        server = cells.front if is_relayed else cells.node.server
        client = await server.connect(receive_bytes=64 << 10)
        await client.send(get("/", "Connection: close"))
        await asyncio.sleep(1)
        received = len(await client.rest(seconds=20))
        assert (received > 64 * MIB) is is_relayed


@on_loops
async def test_slow_nodes_hold_the_client_back() -> None:
    may_read = asyncio.Event()

    async def waiting(request: Request) -> Response:
        await may_read.wait()
        count = 0
        async for chunk in request.body:
            count += len(chunk)
        return Response(200, (), b"%d" % count)

    memory = MemoryBudget(64 * MIB)
    async with two_cells(waiting, memory=memory) as cells:
        client = await cells.front.connect()
        await client.send(request_lines("PUT /a HTTP/1.1", f"Content-Length: {96 * MIB}"))
        sending = asyncio.create_task(client.send(bytes(96 * MIB)))
        await asyncio.sleep(0.5)
        assert not sending.done()
        assert memory.peak_bytes < 4 * MIB
        may_read.set()
        await sending
        assert (await client.answer(seconds=20)).body == b"%d" % (96 * MIB)


@on_loops
async def test_a_client_that_leaves_during_an_upload() -> None:
    async with two_cells() as cells:
        client = await cells.front.connect()
        await client.send(request_lines("PUT /a HTTP/1.1", "Content-Length: 1000"))
        await client.send(bytes(10))
        await until(lambda: bool(cells.node.server.stub.requests))
        client.reset()
        await until(lambda: cells.node.server.connections == 0)
        assert cells.failures == []
