"""Ends of connections: errors, clients that disconnect, and a draining server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from etagere.protocol.http.lifecycle import INPUT_ENDED, OPEN
from etagere.protocol.http.limits import Limits
from etagere.protocol.http.messages import ClientGone, Request, Response
from tests.loops import until
from tests.protocol.http.harness import echo, get, head, on_loops, put, put_chunks, serving

CUT_OFF = "aborted 1 connections"


@on_loops
async def test_an_exception_in_the_application_gets_a_response() -> None:
    async def fail(request: Request) -> Response:
        if request.target == b"/fail":
            raise ValueError("unexpected")
        return await echo(request)

    async with serving(fail) as server:
        client = await server.connect()
        answer = await client.ask(get("/fail"))
        assert (answer.status, answer.header("X-Failed")) == (500, "yes")
        assert (await client.ask(put(b"body", target="/fail"))).status == 500
        assert (await client.ask(put(b"next"))).body == b"next"
        assert [str(failure) for failure in server.stub.failures] == ["unexpected"] * 2


@on_loops
async def test_invalid_responses_close_the_connection() -> None:
    def broken() -> None:
        raise ValueError("finished badly")

    async def handle(request: Request) -> Response:
        return Response(299) if request.target == b"/status" else Response(200, finished=broken)

    async with serving(
        handle, logs=("could not send all of a response; closing the connection",) * 2
    ) as server:
        for target in ("/status", "/finished"):
            client = await server.connect()
            await client.send(get(target))
            await client.rest()


STAGES = {
    "nothing": b"",
    "line": b"GET / HT",
    "head": get()[:-2],
    "no body": put(b"12345678")[:-8],
    "half a body": put(b"12345678")[:-4],
    "half a chunk": put_chunks(b"12345678")[:-10],
    "before the last chunk": put_chunks(b"12345678")[:-5],
    "expecting": head("PUT / HTTP/1.1", "Content-Length: 8", "Expect: 100-continue"),
    "complete": put(b"12345678"),
    "and half another": put(b"12345678") + get()[:9],
    "and others": put(b"12345678") + get() * 20,
    "malformed": b"\x00\x00",
}


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("stage_name", STAGES)
@on_loops
async def test_clients_may_disconnect_at_any_time(stage_name: str, reset: bool) -> None:
    """Nothing is logged and nothing is left; `serving` checks that."""
    gate = asyncio.Event()

    async def slow_echo(request: Request) -> Response:
        body = await request.body.read(100)
        await gate.wait()
        return Response(200, (), body * 50_000)

    async with serving(slow_echo) as server:
        client = await server.connect(receive_bytes=4096)
        await client.send(STAGES[stage_name])
        connection = await server.connection()
        # The server has received everything.
        served = bool(STAGES[stage_name].count(b"\r\n\r\n")) or stage_name == "malformed"
        await until(
            lambda: (
                bool(server.stub.requests)
                or connection._lifecycle.connection is not OPEN
                or not served
            )
        )
        if reset:
            client.reset()
        else:
            await client.close()
        gate.set()
        await until(lambda: server.connections == 0)
        assert server.stub.failures == []


@on_loops
async def test_the_application_is_notified_of_a_disconnect() -> None:
    events: list[str] = []

    async def handle(request: Request) -> Response:
        try:
            await request.body.read(100)
        except ClientGone:
            events.append("disconnected")
            raise
        return Response(200)

    async with serving(handle) as server:
        client = await server.connect()
        await client.send(put(b"12345678")[:-1])
        await until(lambda: len(server.stub.requests) == 1)
        client.reset()
        await until(lambda: events == ["disconnected"])
        await until(lambda: server.connections == 0)
        assert server.stub.logged == []


@on_loops
async def test_a_client_half_closes_during_the_response() -> None:
    gate = asyncio.Event()

    async def stream() -> AsyncIterator[bytes]:
        yield b"first"
        await gate.wait()
        yield b"last"

    async def handle(request: Request) -> Response:
        return Response(200, (), stream())

    async with serving(handle) as server:
        client = await server.connect()
        await client.send(put(b"12345678")[:-3])
        await until(lambda: len(server.stub.requests) == 1)
        await client.reader.readuntil(b"first")
        client.writer.write_eof()
        connection = await server.connection()
        await until(lambda: connection._lifecycle.input is INPUT_ENDED)
        gate.set()
        assert (await client.rest()).endswith(b"last\r\n0\r\n\r\n")


class BlockingApplication:
    """An application that responds when the test allows it."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.cancelled = 0

    async def handle(self, request: Request) -> Response:
        if request.target == b"/at-once":
            return Response(200)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return Response(200, (), b"late" + await request.body.read(100))


@on_loops
async def test_a_drain_lets_running_requests_finish() -> None:
    gated = BlockingApplication()
    async with serving(gated.handle) as server:
        busy, idle, fresh = [await server.connect() for _ in range(3)]
        assert (await idle.ask(get("/at-once"))).status == 200
        await busy.send(put(b"body")[:-2])
        await until(lambda: len(server.stub.requests) == 2 and server.connections == 3)
        draining = asyncio.create_task(server.http_server.drain(5.0))
        await idle.closed()
        await fresh.closed()
        with pytest.raises(ConnectionError):
            await server.connect()
        assert not draining.done()
        gated.gate.set()
        await busy.send(b"dy" + get("/marker"))
        answer = await busy.answer()
        assert (answer.body, answer.header("Connection")) == (b"latebody", "close")
        await busy.closed()
        await busy.close()
        await draining
        assert b"/marker" not in server.stub.targets


@on_loops
async def test_a_drain_ends_requests_that_take_too_long() -> None:
    gated = BlockingApplication()
    async with serving(gated.handle, logs=(CUT_OFF,)) as server:
        client = await server.connect()
        await client.send(get())
        await until(lambda: len(server.stub.requests) == 1)
        began = time.monotonic()
        await server.http_server.drain(0.2)
        assert 0.1 < time.monotonic() - began < 10.0
        assert server.connections == 0
        await client.closed()
        assert gated.cancelled == 1


@on_loops
async def test_a_drain_disconnects_slow_clients() -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(65536)

    async def handle(request: Request) -> Response:
        return Response(200, (), endless())

    async with serving(handle, logs=(CUT_OFF,)) as server:
        client = await server.connect(receive_bytes=4096)
        await client.send(get())
        connection = await server.connection()
        await until(lambda: connection._output._writable is not None)
        await server.http_server.drain(0.1)
        assert server.connections == 0


@on_loops
async def test_a_drain_waits_for_requests_of_disconnected_clients() -> None:
    gated = BlockingApplication()
    async with serving(gated.handle) as server:
        client = await server.connect()
        await client.send(get())
        await until(lambda: len(server.stub.requests) == 1)
        client.reset()
        draining = asyncio.create_task(server.http_server.drain(5.0))
        connection = await server.connection()
        await until(lambda: connection._output.lost)
        assert not draining.done()
        gated.gate.set()
        await draining
        assert (gated.cancelled, len(server.stub.logged)) == (0, 1)


@on_loops
async def test_a_drain_while_a_body_is_discarded() -> None:
    async def refuse(request: Request) -> Response:
        return Response(403)

    async with serving(refuse, limits=Limits(linger_seconds=0.2)) as server:
        client = await server.connect()
        assert (await client.ask(put(b"12345678")[:-3])).status == 403
        await server.http_server.drain(2.0)
        await client.closed()
