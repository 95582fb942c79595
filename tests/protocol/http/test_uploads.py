"""Bodies of requests: framed, waited for, held back, left unread."""

from __future__ import annotations

import asyncio

import pytest

from etagere.protocol.http.limits import Limits
from etagere.protocol.http.messages import BodyTooLarge, Request, Response
from tests.protocol.http.harness import (
    Client,
    Stage,
    echo,
    get,
    head,
    hello,
    on_loops,
    put,
    put_chunks,
    serving,
    until,
)

MIB = 1 << 20


@on_loops
async def test_bodies_arrive_whole() -> None:
    body = bytes(range(256)) * 8192
    async with serving(echo) as stage:
        client = await stage.connect()
        for request in (put(body), put_chunks(body[:1], body[1:70_000], body[70_000:])):
            writing = asyncio.create_task(client.send(request))
            assert (await client.answer()).body == body
            await writing
        assert (await client.ask(put(b""))).body == b""
        assert (await client.ask(put_chunks())).body == b""
        assert [request.body.length for request in stage.stub.requests] == [
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
    async with serving(echo) as stage:
        client = await stage.connect()
        assert (await client.ask(chunked + body)).body == b"hello world"
        assert (await client.ask(get())).status == 200
        names = [name for name, _ in stage.stub.requests[0].headers]
        assert names == [b"Host", b"Transfer-Encoding", b"Trailer"]
        assert stage.stub.requests[0].fields[b"host"] == b"localhost"
        assert b"x-sum" not in stage.stub.requests[1].fields


def expecting(length: int, version: str = "1.1") -> bytes:
    return head(f"PUT / HTTP/{version}", f"Content-Length: {length}", "Expect: 100-Continue")


@on_loops
async def test_continue_is_said_when_the_body_is_read() -> None:
    gate = asyncio.Event()

    async def later(request: Request) -> Response:
        await gate.wait()
        return await echo(request)

    async with serving(later) as stage:
        client = await stage.connect()
        await client.send(expecting(4))
        await until(lambda: len(stage.stub.requests) == 1)
        await (await stage.connect()).send(b"")
        assert not client.reader._buffer  # type: ignore[attr-defined]
        gate.set()
        assert (await client.answer()).status == 100
        assert (await client.ask(b"body")).body == b"body"
        # The connection goes on, and says it again.
        assert (await client.ask(expecting(3))).status == 100
        assert (await client.ask(b"two")).body == b"two"


@on_loops
async def test_a_body_refused_before_it_was_sent_ends_the_connection() -> None:
    async with serving() as stage:
        client = await stage.connect()
        answer = await client.ask(expecting(4))
        assert (answer.status, answer.header("Connection")) == (200, "close")
        await client.send_all(b"GET ")
        await client.closed()


@on_loops
async def test_a_client_that_does_not_wait_to_be_told_is_not_told() -> None:
    async with serving(echo) as stage:
        client = await stage.connect()
        assert (await client.ask(expecting(4) + b"body")).body == b"body"
        # Nor is one that would not understand it, or has nothing to send.
        assert (await client.ask(expecting(0))).status == 200
        await client.send(expecting(4) + b"bo")
        await until(lambda: len(stage.stub.requests) == 3)
        await until(lambda: stage.stub.requests[2].body._waiter is not None)
        assert (await client.ask(b"dy")).body == b"body"
        older = await stage.connect()
        await older.send(expecting(4, "1.0"))
        await until(lambda: len(stage.stub.requests) == 4)
        assert (await older.ask(b"body")).body == b"body"


@on_loops
async def test_an_expectation_behind_another_request_is_its_own() -> None:
    async with serving(echo) as stage:
        client = await stage.connect()
        first = await client.ask(get() + expecting(4))
        assert first.header("Connection") is None
        assert (await client.answer()).status == 100
        assert (await client.ask(b"body")).body == b"body"


async def fill(client: Client, data: bytes, pieces: int) -> int:
    """Sends until it is held back; returns how many pieces went out."""
    for piece in range(pieces):
        client.writer.write(data)
        try:
            await asyncio.wait_for(client.writer.drain(), 0.3)
        except TimeoutError:
            return piece
    return pieces


async def buffered(stage: Stage) -> int:
    connection = await stage.connection()
    assert connection._framing.body is not None
    return connection._framing.body.buffered


@pytest.mark.parametrize("chunked", [False, True])
@on_loops
async def test_a_slow_reader_holds_the_client_back(chunked: bool) -> None:
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
    async with serving(slow) as stage:
        client = await stage.connect()
        await client.send(head("PUT / HTTP/1.1", framing))
        out = await fill(client, data, 64)
        assert out < 32
        assert received < MIB
        assert 0.5 * MIB < await buffered(stage) < 1.5 * MIB
        gate.set()
        rest = data * (63 - out) + (b"0\r\n\r\n" if chunked else b"")
        await client.send(rest)
        assert (await client.answer(seconds=10)).body == b"%d" % total
        assert (await client.ask(get())).status == 200


@on_loops
async def test_tiny_chunks_are_held_back_by_what_they_cost() -> None:
    gate = asyncio.Event()

    async def wait(request: Request) -> Response:
        await gate.wait()
        return await echo(request)

    async with serving(wait) as stage:
        client = await stage.connect()
        await client.send(head("PUT / HTTP/1.1", "Transfer-Encoding: chunked"))
        sending = asyncio.create_task(client.send(b"1\r\nx\r\n" * 400_000 + b"0\r\n\r\n"))
        connection = await stage.connection()
        await until(lambda: connection._input.holds > 0)
        body = stage.stub.requests[0].body
        # One buffer of the transport, 256 KiB or less, is parsed to its end.
        assert len(body._chunks) < 60_000
        gate.set()
        assert len((await client.answer(seconds=10)).body) == 400_000
        await sending


@on_loops
async def test_a_slow_application_is_not_the_fault_of_its_client() -> None:
    """Deadlines of the client do not run while we are the ones who wait."""
    limits = Limits(behind_seconds_max=0.15, head_seconds=0.15, idle_seconds=5.0)

    async def slow(request: Request) -> Response:
        read = 0
        async for chunk in request.body:
            read += len(chunk)
            if read < 2 * len(chunk):
                await asyncio.sleep(0.4)  # held back, with the rest here or under way
        await asyncio.sleep(0.4)
        return Response(200, (), b"%d" % read)

    async with serving(slow, limits=limits) as stage:
        for request in (put(bytes(700_000)), put_chunks(*[bytes(100_000)] * 10)):
            client = await stage.connect()
            sending = asyncio.create_task(client.send(request + get("/next")[:10]))
            assert (await client.answer()).status == 200
            await sending


async def refuse(request: Request) -> Response:
    return Response(403, (), b"no")


@on_loops
async def test_an_answer_before_the_body_leaves_the_connection_usable() -> None:
    async with serving(refuse) as stage:
        client = await stage.connect()
        for request in (put(b"small"), put_chunks(b"small"), put(bytes(5 * MIB))):
            sending = asyncio.create_task(client.send(request + get()))
            answers = [await client.answer() for _ in range(2)]
            assert [answer.status for answer in answers] == [403, 403]
            assert [answer.header("Connection") for answer in answers] == [None, None]
            await sending
        assert len(stage.stub.requests) == 6


@on_loops
async def test_a_body_that_was_whole_but_not_read_does_not_hold_the_next_back() -> None:
    """It was large enough to be held back, and nobody ever took it."""
    gate = asyncio.Event()

    async def later(request: Request) -> Response:
        await gate.wait()
        return await refuse(request)

    async with serving(later) as stage:
        client = await stage.connect()
        size = 550_000
        sending = asyncio.create_task(client.send(put_chunks(bytes(size))))
        await until(lambda: len(stage.stub.requests) == 1)
        await until(lambda: stage.stub.requests[0].body.received == size)
        gate.set()
        assert (await client.answer()).status == 403
        await sending
        assert (await client.ask(get())).status == 403


@on_loops
async def test_more_than_is_worth_discarding_ends_the_connection() -> None:
    limits = Limits(discard_bytes_max=MIB)
    async with serving(refuse, limits=limits) as stage:
        announced = await stage.connect()
        await announced.send(head("PUT / HTTP/1.1", f"Content-Length: {8 * MIB}") + bytes(1000))
        answer = await announced.answer()
        assert (answer.status, answer.header("Connection")) == (403, "close")
        await announced.closed()

        endless = await stage.connect()
        await endless.send(head("PUT / HTTP/1.1", "Transfer-Encoding: chunked"))
        assert (await endless.answer()).status == 403
        await endless.send_all((b"10000\r\n" + bytes(1 << 16) + b"\r\n") * 24)
        await endless.closed()
        await endless.send_all(b"0\r\n\r\n" + get("/marker"))
        assert stage.stub.targets == [b"/", b"/"]


@on_loops
async def test_a_client_in_the_middle_of_a_large_body_still_reads_the_refusal() -> None:
    """Closed at once, the connection would be reset under the answer."""
    limits = Limits(discard_bytes_max=4 * MIB)
    async with serving(refuse, limits=limits) as stage:
        for _ in range(5):
            client = await stage.connect()
            start = head("PUT / HTTP/1.1", f"Content-Length: {100 * MIB}")
            await client.send_all(start + bytes(3 * MIB))
            assert (await client.answer()).status == 403
            await client.closed()
            # It may go on for a while before it notices.
            connection = await stage.connection()
            ignored = connection._input._ignored_bytes
            await client.send(bytes(1000))
            await until(lambda: connection._input._ignored_bytes > ignored)  # noqa: B023
            await client.close()


@on_loops
async def test_a_body_that_is_too_large_for_its_reader() -> None:
    async def small(request: Request) -> Response:
        try:
            return Response(200, (), await request.body.read(10))
        except BodyTooLarge:
            return Response(413)

    async with serving(small) as stage:
        client = await stage.connect()
        assert (await client.ask(put(b"0123456789"))).status == 200
        for request in (put(b"0123456789!"), put_chunks(b"01234", b"56789", b"!")):
            assert (await client.ask(request)).status == 413
        assert (await client.ask(put_chunks(b"01234", b"56789"))).status == 200


@on_loops
async def test_a_body_cut_short_is_not_a_body() -> None:
    async with serving(echo) as stage:
        for request in (put(b"12345678")[:-3], put_chunks(b"1234")[:-5], put_chunks(b"1234")[:-2]):
            client = await stage.connect()
            await client.send(request)
            client.writer.write_eof()
            await client.closed()
        assert stage.stub.logged == []
        assert stage.stub.failures == []


@on_loops
async def test_what_is_no_body_is_answered_once() -> None:
    broken = head("PUT / HTTP/1.1", "Transfer-Encoding: chunked") + b"4\r\nbody\r\nzz\r\n"
    async with serving(echo) as stage:
        client = await stage.connect()
        answer = await client.ask(broken + get("/marker"))
        assert (answer.status, answer.header("Connection")) == (400, "close")
        await client.closed()
    # Nor twice, if the application has its answer without reading.
    async with serving(hello) as stage:
        client = await stage.connect()
        await client.send(broken + get("/marker"))
        assert (await client.answer()).status in (200, 400)
        await client.closed()
        assert stage.stub.targets == [b"/"]
