"""Response bodies: backpressure, files, and truncated bodies."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Iterator

import pytest

from etagere.protocol.http.messages import FilePart, Request, Response
from tests.loops import until
from tests.protocol.http.harness import Client, Handler, get, hello, on_loops, serving

MIB = 1 << 20
SHORTER = "a file is shorter than the part to be sent"
CUT = ("could not send all of a response; closing the connection",)


@pytest.fixture(scope="module")
def descriptor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A file of 24 MiB without repetition."""
    path = tmp_path_factory.mktemp("files") / "file"
    path.write_bytes(content(0, 24 * MIB))
    opened = os.open(path, os.O_RDONLY)
    yield opened
    os.close(opened)


def content(offset: int, length: int) -> bytes:
    first, last = offset // 8, (offset + length) // 8 + 1
    numbers = b"".join([b"%08x" % number for number in range(first, last)])
    return numbers[offset % 8 : offset % 8 + length]


def files(descriptor: int, *parts: tuple[int, int], length: int | None = None) -> Handler:
    async def handle(request: Request) -> Response:
        found = [FilePart(descriptor, offset, size, None) for offset, size in parts]
        return Response(200, ((b"X-Before", b"x" * 1000),), found, length=length)

    return handle


@on_loops
async def test_parts_of_files_follow_the_response_head(descriptor: int) -> None:
    parts = ((5, 1), (3, 0), (1000, 12 * MIB + 7), (0, 3))
    expected = b"".join(content(*part) for part in parts)
    async with serving(files(descriptor, *parts)) as server:
        client = await server.connect()
        # Pipelined, so that the next head has to wait for the file before it.
        await client.send(get() * 3)
        for _ in range(3):
            answer = await client.answer(seconds=10)
            assert answer.header("Content-Length") == str(len(expected))
            assert answer.header("X-Before") == "x" * 1000
            assert answer.body == expected
        assert (await client.ask(b"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n", "HEAD")).body == b""


@pytest.mark.parametrize("secure", [False, True])
@on_loops
async def test_small_parts_of_files(
    secure: bool, descriptor: int, tls: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    parts = ((5, 1), (3, 0), (MIB, 60_000), (0, 3))
    expected = b"".join(content(*part) for part in parts)
    for handler, body in ((files(descriptor, *parts), expected), (files(descriptor), b"")):
        async with serving(handler, tls=tls[0] if secure else None) as server:
            client = await server.connect(tls=tls[1] if secure else None)
            await client.send(get() * 3)
            for _ in range(3):
                answer = await client.answer()
                assert answer.header("Content-Length") == str(len(body))
                assert answer.body == body


@on_loops
async def test_a_file_does_not_overtake_a_buffered_response(descriptor: int) -> None:
    """The transport still buffers megabytes of one response when the next comes from a file."""

    async def bytes_then_file(request: Request) -> Response:
        if request.target == b"/bytes":
            return Response(200, (), b"b" * 200_000)
        return await files(descriptor, (0, 3 * MIB))(request)

    async with serving(bytes_then_file) as server:
        client = await server.connect(receive_bytes=4096)
        await client.send((get("/bytes") * 12 + get("/file")) * 2)
        for _ in range(2):
            for _ in range(12):
                assert (await client.answer(seconds=10)).body == b"b" * 200_000
            assert (await client.answer(seconds=10)).body == content(0, 3 * MIB)


@on_loops
async def test_a_slow_client_gets_the_whole_file_without_delaying_others(descriptor: int) -> None:
    async def big_or_small(request: Request) -> Response:
        if request.target == b"/small":
            return await hello(request)
        return await files(descriptor, (0, 16 * MIB))(request)

    async with serving(big_or_small) as server:
        slow = await server.connect(receive_bytes=16_384)
        await slow.send(get())
        await until(lambda: len(server.stub.requests) == 1)
        for _ in range(20):
            assert (await server.connect_and_ask(get("/small"))).body == b"hello"
        assert server.stub.logged[-1][0].target == b"/small"
        assert (await slow.answer(seconds=20)).body == content(0, 16 * MIB)


@on_loops
async def test_a_slow_client_applies_backpressure_to_a_stream() -> None:
    produced = 0

    async def numbers() -> AsyncIterator[bytes]:
        nonlocal produced
        for number in range(1024):
            produced += 1
            yield b"%08d" % number * 8192

    async def stream(request: Request) -> Response:
        return Response(200, (), numbers(), length=64 * MIB)

    async with serving(stream) as server:
        client = await server.connect(receive_bytes=16_384)
        await client.send(get())
        connection = await server.connection()
        await until(lambda: connection._output._writable is not None)
        assert connection._transport.get_write_buffer_size() < MIB
        # The kernel buffers a few MiB, the server a fraction of one.
        assert produced < 256
        body = (await client.answer(seconds=20)).body
        assert len(body) == 64 * MIB
        assert body[:8] == b"00000000"
        assert body[-8:] == b"00001023"


@on_loops
async def test_a_truncated_file_of_a_short_response_is_refused(descriptor: int) -> None:
    handler = files(descriptor, (24 * MIB - 100, 200))
    logs = (f"a response could not be read: segment None at {24 * MIB - 100}: {SHORTER}",)
    async with serving(handler, logs=logs) as server:
        client = await server.connect()
        assert (await client.ask(get())).status == 503
        assert server.stub.targets == [b"/"]


@pytest.mark.parametrize("missing", [100_000, 1_000_000])
@pytest.mark.parametrize("secure", [False, True])
@on_loops
async def test_a_truncated_file_aborts_the_connection(
    secure: bool, missing: int, descriptor: int, tls: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    handler = files(descriptor, (24 * MIB - missing, 2 * missing))
    async with serving(handler, logs=CUT, tls=tls[0] if secure else None) as server:
        client = await server.connect(tls=tls[1] if secure else None)
        await client.send(get() + get("/marker"))
        received = await client.rest()
        assert b"Content-Length: %d\r\n" % (2 * missing) in received
        assert len(received.partition(b"\r\n\r\n")[2]) <= missing
        assert server.stub.targets == [b"/"]


def lengths_of(*chunks: bytes, length: int) -> Handler:
    async def body() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    async def handle(request: Request) -> Response:
        return Response(200, (), body(), length=length)

    return handle


@pytest.mark.parametrize("length", [5, 7])
@on_loops
async def test_a_stream_of_another_length_aborts_the_connection(length: int) -> None:
    async with serving(lengths_of(b"one", b"two", length=length), logs=CUT) as server:
        client = await server.connect()
        await client.send(get() + get("/marker"))
        assert len((await client.rest()).partition(b"\r\n\r\n")[2]) < length
        assert server.stub.targets == [b"/"]


@on_loops
async def test_a_failing_stream_aborts_the_connection() -> None:
    ended = []

    async def failing() -> AsyncIterator[bytes]:
        try:
            yield b"some"
            raise ValueError("in the middle")
        finally:
            ended.append(1)

    async def handle(request: Request) -> Response:
        return Response(200, (), failing(), finished=lambda: ended.append(2))

    async with serving(handle, logs=CUT) as server:
        client = await server.connect()
        await client.send(get())
        assert (await client.rest()).endswith(b"4\r\nsome\r\n")
        await until(lambda: ended == [1, 2])


async def leave(client: Client, *, reset: bool) -> None:
    if reset:
        client.reset()
    else:
        await client.close()


@pytest.mark.parametrize("reset", [False, True])
@on_loops
async def test_a_client_disconnects_during_a_file(reset: bool, descriptor: int) -> None:
    ended: list[bool] = []

    async def handle(request: Request) -> Response:
        response = await files(descriptor, (0, 24 * MIB))(request)
        response.finished = lambda: ended.append(True)
        return response

    async with serving(handle) as server:
        client = await server.connect(receive_bytes=16_384)
        await client.send(get())
        await client.reader.readexactly(5000)
        await leave(client, reset=reset)
        await until(lambda: ended == [True])
        await until(lambda: server.connections == 0)


@pytest.mark.parametrize("reset", [False, True])
@on_loops
async def test_a_client_disconnects_during_a_stream(reset: bool) -> None:
    ended: list[str] = []

    async def endless() -> AsyncIterator[bytes]:
        try:
            while True:
                yield bytes(65536)
        finally:
            ended.append("generator")

    async def handle(request: Request) -> Response:
        return Response(200, (), endless(), finished=lambda: ended.append("finished"))

    async with serving(handle) as server:
        client = await server.connect()
        await client.send(get())
        await client.reader.readexactly(5000)
        await leave(client, reset=reset)
        await until(lambda: ended == ["generator", "finished"])
        assert len(server.stub.logged) == 1


@on_loops
async def test_tls(descriptor: int, tls: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    async with serving(files(descriptor, (7, 9 * MIB)), tls=tls[0]) as server:
        client = await server.connect(tls=tls[1])
        for _ in range(2):
            assert (await client.ask(get())).body == content(7, 9 * MIB)
        assert server.stub.requests[0].secure
        assert (await client.ask(get("/", "Connection: close"))).header("Connection") == "close"
        await client.closed()


@on_loops
async def test_tls_malformed_and_plain(tls: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    async with serving(tls=tls[0]) as server:
        client = await server.connect(tls=tls[1])
        assert (await client.ask(b"NO HTTP\r\n\r\n")).status == 400
        await client.closed()
        plain = await server.connect()
        await plain.send(get())
        await plain.rest()
        assert server.stub.requests == []


@on_loops
async def test_a_tls_client_disconnects(
    descriptor: int, tls: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    async with serving(files(descriptor, (0, 24 * MIB)), tls=tls[0]) as server:
        for reset in (False, True):
            client = await server.connect(tls=tls[1])
            await client.send(get())
            await client.reader.readexactly(5000)
            if reset:
                client.reset()
            else:
                await asyncio.wait_for(client.close(), 5)
        await until(lambda: server.connections == 0)
