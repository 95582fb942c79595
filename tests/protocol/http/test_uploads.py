"""Request bodies: framing, 100-continue, backpressure, and unread bodies."""

from __future__ import annotations

import asyncio

import pytest

from etagere.protocol.http.limits import Limits
from etagere.protocol.http.messages import BodyTooLarge, Request, Response
from tests.loops import until
from tests.protocol.http.harness import (
    Client,
    ServerFixture,
    echo,
    get,
    head,
    hello,
    on_loops,
    put,
    put_chunks,
    serving,
)

MIB = 1 << 20


@on_loops
async def test_bodies_arrive_completely() -> None:
    body = bytes(range(256)) * 8192
    async with serving(echo) as server:
        client = await server.connect()
        for request in (put(body), put_chunks(body[:1], body[1:70_000], body[70_000:])):
            writing = asyncio.create_task(client.send(request))
            assert (await client.answer()).body == body
            await writing
        assert (await client.ask(put(b""))).body == b""
        assert (await client.ask(put_chunks())).body == b""
        assert [request.body.length for request in server.stub.requests] == [
            len(body),
            None,
            0,
            None,
        ]


@on_loops
async def test_chunk_extensions_and_trailers_are_ignored() -> None:
    chunked = head("PUT / HTTP/1.1", "Transfer-Encoding: Chunked", "Trailer: X-Sum")
    body = (
        b'5;name=value;quoted="a;b"\r\nhello\r\n00006;x\r\n world\r\n'
        b"0;last\r\nX-Sum: 1\r\nHost: other\r\nExpect: 100-continue\r\n\r\n"
    )
    async with serving(echo) as server:
        client = await server.connect()
        assert (await client.ask(chunked + body)).body == b"hello world"
        assert (await client.ask(get())).status == 200
        names = [name for name, _ in server.stub.requests[0].headers]
        assert names == [b"Host", b"Transfer-Encoding", b"Trailer"]
        assert server.stub.requests[0].fields[b"host"] == b"localhost"
        assert b"x-sum" not in server.stub.requests[1].fields


def expecting(length: int, version: str = "1.1") -> bytes:
    return head(f"PUT / HTTP/{version}", f"Content-Length: {length}", "Expect: 100-Continue")


@on_loops
async def test_continue_is_sent_when_the_body_is_read() -> None:
    gate = asyncio.Event()

    async def later(request: Request) -> Response:
        await gate.wait()
        return await echo(request)

    async with serving(later) as server:
        client = await server.connect()
        await client.send(expecting(4))
        await until(lambda: len(server.stub.requests) == 1)
        await (await server.connect()).send(b"")
        assert not client.reader._buffer  # type: ignore[attr-defined]
        gate.set()
        assert (await client.answer()).status == 100
        assert (await client.ask(b"body")).body == b"body"
        # The connection continues, and sends it again.
        assert (await client.ask(expecting(3))).status == 100
        assert (await client.ask(b"two")).body == b"two"


@on_loops
async def test_refusing_an_expected_body_closes_the_connection() -> None:
    async with serving() as server:
        client = await server.connect()
        answer = await client.ask(expecting(4))
        assert (answer.status, answer.header("Connection")) == (200, "close")
        await client.send_all(b"GET ")
        await client.closed()


@on_loops
async def test_no_continue_for_a_client_that_does_not_wait() -> None:
    async with serving(echo) as server:
        client = await server.connect()
        assert (await client.ask(expecting(4) + b"body")).body == b"body"
        # Nor for one that would not understand it, or has no body.
        assert (await client.ask(expecting(0))).status == 200
        await client.send(expecting(4) + b"bo")
        await until(lambda: len(server.stub.requests) == 3)
        await until(lambda: server.stub.requests[2].body._waiter is not None)
        assert (await client.ask(b"dy")).body == b"body"
        older = await server.connect()
        await older.send(expecting(4, "1.0"))
        await until(lambda: len(server.stub.requests) == 4)
        assert (await older.ask(b"body")).body == b"body"


@on_loops
async def test_an_expectation_of_a_pipelined_request() -> None:
    async with serving(echo) as server:
        client = await server.connect()
        first = await client.ask(get() + expecting(4))
        assert first.header("Connection") is None
        assert (await client.answer()).status == 100
        assert (await client.ask(b"body")).body == b"body"


async def fill(client: Client, data: bytes, pieces: int) -> int:
    """Sends until the server stops reading; returns the number of pieces sent."""
    for piece in range(pieces):
        client.writer.write(data)
        try:
            await asyncio.wait_for(client.writer.drain(), 0.3)
        except TimeoutError:
            return piece
    return pieces


async def buffered(server: ServerFixture) -> int:
    connection = await server.connection()
    assert connection._framing.body is not None
    return connection._framing.body.buffered


@pytest.mark.parametrize("chunked", [False, True])
@on_loops
async def test_a_slow_reader_applies_backpressure(chunked: bool) -> None:
    gate = asyncio.Event()
    total = 64 * MIB
    received = 0

    async def slow(request: Request) -> Response:
        nonlocal received
        async for chunk in request.body:
            received += len(chunk)
            assert request.body.buffered < 1.5 * MIB
            await gate.wait()
        return Response(200, (), b"%d" % received)

    framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {total}"
    data = b"100000\r\n" + bytes(MIB) + b"\r\n" if chunked else bytes(MIB)
    async with serving(slow) as server:
        client = await server.connect()
        await client.send(head("PUT / HTTP/1.1", framing))
        out = await fill(client, data, 64)
        assert out < 32
        assert received < MIB
        assert 0.5 * MIB < await buffered(server) < 1.5 * MIB
        gate.set()
        rest = data * (63 - out) + (b"0\r\n\r\n" if chunked else b"")
        await client.send(rest)
        assert (await client.answer(seconds=10)).body == b"%d" % total
        assert (await client.ask(get())).status == 200


@on_loops
async def test_backpressure_counts_the_overhead_of_tiny_chunks() -> None:
    gate = asyncio.Event()

    async def wait(request: Request) -> Response:
        await gate.wait()
        return await echo(request)

    async with serving(wait) as server:
        client = await server.connect()
        await client.send(head("PUT / HTTP/1.1", "Transfer-Encoding: chunked"))
        sending = asyncio.create_task(client.send(b"1\r\nx\r\n" * 400_000 + b"0\r\n\r\n"))
        connection = await server.connection()
        await until(lambda: connection._input.holds > 0)
        body = server.stub.requests[0].body
        # One buffer of the transport, at most 256 KiB, is parsed to its end.
        assert len(body._chunks) < 60_000
        gate.set()
        assert len((await client.answer(seconds=10)).body) == 400_000
        await sending


@on_loops
async def test_a_slow_application_does_not_time_out_its_client() -> None:
    """The client's time limits do not run while the server is the one that waits."""
    limits = Limits(behind_seconds_max=0.75, head_seconds=0.75, idle_seconds=20.0)

    async def slow(request: Request) -> Response:
        read = 0
        async for chunk in request.body:
            read += len(chunk)
            if read < 2 * len(chunk):
                await asyncio.sleep(1.0)  # paused, with the rest received or in flight
        await asyncio.sleep(1.0)
        return Response(200, (), b"%d" % read)

    async with serving(slow, limits=limits) as server:
        for request in (put(bytes(700_000)), put_chunks(*[bytes(100_000)] * 10)):
            client = await server.connect()
            sending = asyncio.create_task(client.send(request + get("/next")[:10]))
            assert (await client.answer()).status == 200
            await sending


async def refuse(request: Request) -> Response:
    return Response(403, (), b"no")


@on_loops
async def test_a_response_before_the_body_keeps_the_connection_usable() -> None:
    async with serving(refuse) as server:
        client = await server.connect()
        for request in (put(b"small"), put_chunks(b"small"), put(bytes(5 * MIB))):
            sending = asyncio.create_task(client.send(request + get()))
            answers = [await client.answer() for _ in range(2)]
            assert [answer.status for answer in answers] == [403, 403]
            assert [answer.header("Connection") for answer in answers] == [None, None]
            await sending
        assert len(server.stub.requests) == 6


@on_loops
async def test_a_complete_unread_body_does_not_block_the_next_request() -> None:
    """It was large enough for backpressure, and was never read."""
    gate = asyncio.Event()

    async def later(request: Request) -> Response:
        await gate.wait()
        return await refuse(request)

    async with serving(later) as server:
        client = await server.connect()
        size = 550_000
        sending = asyncio.create_task(client.send(put_chunks(bytes(size))))
        await until(lambda: len(server.stub.requests) == 1)
        await until(lambda: server.stub.requests[0].body.received == size)
        gate.set()
        assert (await client.answer()).status == 403
        await sending
        assert (await client.ask(get())).status == 403


@on_loops
async def test_a_long_unread_body_closes_the_connection() -> None:
    limits = Limits(discard_bytes_max=MIB)
    async with serving(refuse, limits=limits) as server:
        announced = await server.connect()
        await announced.send(head("PUT / HTTP/1.1", f"Content-Length: {8 * MIB}") + bytes(1000))
        answer = await announced.answer()
        assert (answer.status, answer.header("Connection")) == (403, "close")
        await announced.closed()

        endless = await server.connect()
        await endless.send(head("PUT / HTTP/1.1", "Transfer-Encoding: chunked"))
        assert (await endless.answer()).status == 403
        await endless.send_all((b"10000\r\n" + bytes(1 << 16) + b"\r\n") * 24)
        await endless.closed()
        await endless.send_all(b"0\r\n\r\n" + get("/marker"))
        assert server.stub.targets == [b"/", b"/"]


@on_loops
async def test_a_client_that_is_sending_a_large_body_receives_the_refusal() -> None:
    """If closed at once, the connection would be reset before the response is read."""
    limits = Limits(discard_bytes_max=4 * MIB)
    async with serving(refuse, limits=limits) as server:
        for _ in range(5):
            client = await server.connect()
            start = head("PUT / HTTP/1.1", f"Content-Length: {100 * MIB}")
            await client.send_all(start + bytes(3 * MIB))
            assert (await client.answer()).status == 403
            await client.closed()
            # It may continue for a while before it notices.
            connection = await server.connection()
            ignored = connection._input._ignored_bytes
            await client.send(bytes(1000))
            await until(lambda: connection._input._ignored_bytes > ignored)  # noqa: B023
            await client.close()


@on_loops
async def test_a_body_beyond_the_limit_of_its_reader() -> None:
    async def small(request: Request) -> Response:
        try:
            return Response(200, (), await request.body.read(10))
        except BodyTooLarge:
            return Response(413)

    async with serving(small) as server:
        client = await server.connect()
        assert (await client.ask(put(b"0123456789"))).status == 200
        for request in (put(b"0123456789!"), put_chunks(b"01234", b"56789", b"!")):
            assert (await client.ask(request)).status == 413
        assert (await client.ask(put_chunks(b"01234", b"56789"))).status == 200


@on_loops
async def test_a_truncated_body_is_refused() -> None:
    async with serving(echo) as server:
        for request in (put(b"12345678")[:-3], put_chunks(b"1234")[:-5], put_chunks(b"1234")[:-2]):
            client = await server.connect()
            await client.send(request)
            client.writer.write_eof()
            await client.closed()
        assert server.stub.logged == []
        assert server.stub.failures == []


@on_loops
async def test_a_malformed_body_gets_one_response() -> None:
    broken = head("PUT / HTTP/1.1", "Transfer-Encoding: chunked") + b"4\r\nbody\r\nzz\r\n"
    async with serving(echo) as server:
        client = await server.connect()
        answer = await client.ask(broken + get("/marker"))
        assert (answer.status, answer.header("Connection")) == (400, "close")
        await client.closed()
    # Nor a second one, if the application responds without reading.
    async with serving(hello) as server:
        client = await server.connect()
        await client.send(broken + get("/marker"))
        assert (await client.answer()).status in (200, 400)
        await client.closed()
        assert server.stub.targets == [b"/"]
