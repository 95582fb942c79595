"""How connections end: by failures, by clients that leave, by a server that stops."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from etagere.protocol.http.lifecycle import INPUT_ENDED, OPEN
from etagere.protocol.http.limits import Limits
from etagere.protocol.http.messages import ClientGone, Request, Response
from tests.protocol.http.harness import echo, get, head, on_loops, put, put_chunks, serving, until

CUT_OFF = "aborted 1 connections"


@on_loops
async def test_an_application_that_raises_is_answered_for() -> None:
    async def fail(request: Request) -> Response:
        if request.target == b"/fail":
            raise ValueError("unexpected")
        return await echo(request)

    async with serving(fail) as stage:
        client = await stage.connect()
        answer = await client.ask(get("/fail"))
        assert (answer.status, answer.header("X-Failed")) == (500, "yes")
        assert (await client.ask(put(b"body", target="/fail"))).status == 500
        assert (await client.ask(put(b"next"))).body == b"next"
        assert [str(failure) for failure in stage.stub.failures] == ["unexpected"] * 2


@on_loops
async def test_answers_that_cannot_be_written_end_the_connection() -> None:
    def broken() -> None:
        raise ValueError("finished badly")

    async def handle(request: Request) -> Response:
        return Response(299) if request.target == b"/status" else Response(200, finished=broken)

    async with serving(
        handle, logs=("could not send all of a response; closing the connection",) * 2
    ) as stage:
        for target in ("/status", "/finished"):
            client = await stage.connect()
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
    "whole": put(b"12345678"),
    "and half another": put(b"12345678") + get()[:9],
    "and others": put(b"12345678") + get() * 20,
    "malformed": b"\x00\x00",
}


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("stage_name", STAGES)
@on_loops
async def test_clients_may_leave_at_any_stage(stage_name: str, reset: bool) -> None:
    """Nothing is logged and nothing left: `serving` sees to that."""
    gate = asyncio.Event()

    async def slow_echo(request: Request) -> Response:
        body = await request.body.read(100)
        await gate.wait()
        return Response(200, (), body * 50_000)

    async with serving(slow_echo) as stage:
        client = await stage.connect(receive_bytes=4096)
        await client.send(STAGES[stage_name])
        connection = await stage.connection()
        # The server has seen it all.
        served = bool(STAGES[stage_name].count(b"\r\n\r\n")) or stage_name == "malformed"
        await until(
            lambda: (
                bool(stage.stub.requests)
                or connection._lifecycle.connection is not OPEN
                or not served
            )
        )
        if reset:
            client.cut()
        else:
            await client.close()
        gate.set()
        await until(lambda: stage.connections == 0)
        assert stage.stub.failures == []


@on_loops
async def test_the_application_learns_that_its_client_is_gone() -> None:
    seen: list[str] = []

    async def handle(request: Request) -> Response:
        try:
            await request.body.read(100)
        except ClientGone:
            seen.append("gone")
            raise
        return Response(200)

    async with serving(handle) as stage:
        client = await stage.connect()
        await client.send(put(b"12345678")[:-1])
        await until(lambda: len(stage.stub.requests) == 1)
        client.cut()
        await until(lambda: seen == ["gone"])
        await until(lambda: stage.connections == 0)
        assert stage.stub.logged == []


@on_loops
async def test_a_client_that_stops_sending_while_it_is_answered() -> None:
    gate = asyncio.Event()

    async def stream() -> AsyncIterator[bytes]:
        yield b"first"
        await gate.wait()
        yield b"last"

    async def handle(request: Request) -> Response:
        return Response(200, (), stream())

    async with serving(handle) as stage:
        client = await stage.connect()
        await client.send(put(b"12345678")[:-3])
        await until(lambda: len(stage.stub.requests) == 1)
        await client.reader.readuntil(b"first")
        client.writer.write_eof()
        connection = await stage.connection()
        await until(lambda: connection._lifecycle.input is INPUT_ENDED)
        gate.set()
        assert (await client.rest()).endswith(b"last\r\n0\r\n\r\n")


class Gated:
    """An application that answers when it may."""

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
async def test_a_drain_lets_the_request_at_hand_finish() -> None:
    gated = Gated()
    async with serving(gated.handle) as stage:
        busy, idle, fresh = [await stage.connect() for _ in range(3)]
        assert (await idle.ask(get("/at-once"))).status == 200
        await busy.send(put(b"body")[:-2])
        await until(lambda: len(stage.stub.requests) == 2 and stage.connections == 3)
        draining = asyncio.create_task(stage.server.drain(5.0))
        await idle.closed()
        await fresh.closed()
        with pytest.raises(ConnectionError):
            await stage.connect()
        assert not draining.done()
        gated.gate.set()
        await busy.send(b"dy" + get("/marker"))
        answer = await busy.answer()
        assert (answer.body, answer.header("Connection")) == (b"latebody", "close")
        await busy.closed()
        await busy.close()
        await draining
        assert b"/marker" not in stage.stub.targets


@on_loops
async def test_a_drain_cuts_off_what_takes_too_long() -> None:
    gated = Gated()
    async with serving(gated.handle, logs=(CUT_OFF,)) as stage:
        client = await stage.connect()
        await client.send(get())
        await until(lambda: len(stage.stub.requests) == 1)
        began = time.monotonic()
        await stage.server.drain(0.2)
        assert 0.1 < time.monotonic() - began < 1.0
        assert stage.connections == 0
        await client.closed()
        assert gated.cancelled == 1


@on_loops
async def test_a_drain_cuts_off_clients_that_take_too_long() -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(65536)

    async def handle(request: Request) -> Response:
        return Response(200, (), endless())

    async with serving(handle, logs=(CUT_OFF,)) as stage:
        client = await stage.connect(receive_bytes=4096)
        await client.send(get())
        connection = await stage.connection()
        await until(lambda: connection._output._writable is not None)
        await stage.server.drain(0.1)
        assert stage.connections == 0


@on_loops
async def test_a_drain_waits_for_requests_whose_clients_are_gone() -> None:
    gated = Gated()
    async with serving(gated.handle) as stage:
        client = await stage.connect()
        await client.send(get())
        await until(lambda: len(stage.stub.requests) == 1)
        client.cut()
        draining = asyncio.create_task(stage.server.drain(5.0))
        connection = await stage.connection()
        await until(lambda: connection._output.lost)
        assert not draining.done()
        gated.gate.set()
        await draining
        assert (gated.cancelled, len(stage.stub.logged)) == (0, 1)


@on_loops
async def test_a_drain_of_a_connection_whose_body_is_being_discarded() -> None:
    async def refuse(request: Request) -> Response:
        return Response(403)

    async with serving(refuse, limits=Limits(linger_seconds=0.2)) as stage:
        client = await stage.connect()
        assert (await client.ask(put(b"12345678")[:-3])).status == 403
        await stage.server.drain(2.0)
        await client.closed()
