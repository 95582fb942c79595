"""Request bodies that the application reads directly from lent sockets."""

from __future__ import annotations

import asyncio
import errno
import gc
import hashlib
import os
import ssl
import weakref

import pytest

from etagere.descriptors import OpenFile
from etagere.protocol.http.limits import Limits
from etagere.protocol.http.messages import Request, Response
from etagere.protocol.http.request_bodies import LentSocket
from tests.loops import until
from tests.protocol.http.harness import Handler, get, head, on_loops, put, put_chunks, serving

MIB = 1 << 20
_TURN_BYTES = 1 * MIB


def read_from(lent: LentSocket) -> bytes:
    """Returns the bytes that are available."""
    chunks, rest = [], min(lent.length, _TURN_BYTES)
    while rest:
        try:
            chunk = os.read(lent.file.descriptor, rest)
        except (BlockingIOError, ConnectionResetError):
            break  # the connection reports a disconnect
        if not chunk:
            break
        chunks.append(chunk)
        rest -= len(chunk)
    return b"".join(chunks)


class SocketReadingApplication:
    """Reads bodies from lent sockets where possible, and responds with their checksums."""

    def __init__(self) -> None:
        self.read_directly = 0
        self.chunks = 0

    async def __call__(self, request: Request) -> Response:
        digest, length = hashlib.sha256(), 0
        while True:
            lent = request.body.lend_socket()
            if lent is None:
                data = await anext(request.body, b"")
                self.chunks += len(data)
                if not data:
                    break
            else:
                with lent:
                    data = await asyncio.to_thread(read_from, lent)
                    lent.taken = len(data)
                self.read_directly += len(data)
            digest.update(data)
            length += len(data)
        return Response(200, (), b"%d %b" % (length, digest.hexdigest().encode()))


def summed(body: bytes) -> bytes:
    return b"%d %b" % (len(body), hashlib.sha256(body).hexdigest().encode())


@on_loops
async def test_bodies_read_from_lent_sockets_are_complete_and_so_is_the_next_request() -> None:
    handler = SocketReadingApplication()
    async with serving(handler) as server:
        client = await server.connect()
        bodies = [os.urandom(length) for length in (0, 1, 300_000, MIB, 9 * MIB + 3, 700_001)]
        ahead = b"".join(put(body) for body in bodies) + get()
        sending = asyncio.create_task(client.send(ahead))
        for body in bodies:
            assert (await client.answer()).body == summed(body)
        assert (await client.answer()).body == summed(b"")
        await sending
    assert handler.read_directly > 8 * MIB


@on_loops
async def test_without_a_spare_descriptor_the_connection_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def exhausted(_descriptor: int) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(os, "dup", exhausted)
    handler, body = SocketReadingApplication(), os.urandom(3 * MIB)
    async with serving(handler) as server:
        client = await server.connect()
        sending = asyncio.create_task(client.send(put(body) + get()))
        assert (await client.answer()).body == summed(body)
        assert (await client.answer()).body == summed(b"")
        await sending
    assert not handler.read_directly


@on_loops
async def test_a_closed_connection_with_a_lent_socket_is_freed() -> None:
    """Without reference cycles, because the cycle collector runs rarely."""
    handler, body = SocketReadingApplication(), os.urandom(3 * MIB)
    async with serving(handler) as server:
        client = await server.connect()
        sending = asyncio.create_task(client.send(put(body)))
        connection = weakref.ref(await server.connection())
        assert (await client.answer()).body == summed(body)
        await sending
        server.stub.requests.clear()
        server.stub.logged.clear()
        gc.disable()
        try:
            await client.close()
            await until(lambda: connection() is None)
        finally:
            gc.enable()
    assert handler.read_directly


@on_loops
async def test_a_slow_client() -> None:
    handler, body = SocketReadingApplication(), os.urandom(2 * MIB)
    limits = Limits(behind_seconds_max=2.5)
    async with serving(handler, limits=limits) as server:
        client = await server.connect()
        await client.send(head("PUT / HTTP/1.1", f"Content-Length: {len(body)}"))
        for at in range(0, len(body), 200_000):
            await client.send(body[at : at + 200_000])
            await asyncio.sleep(0.3)
        assert (await client.answer()).body == summed(body)
        assert (await client.ask(get())).body == summed(b"")
    assert handler.read_directly and handler.chunks


@on_loops
async def test_a_client_that_stalls_is_disconnected() -> None:
    async with serving(SocketReadingApplication(), limits=Limits(behind_seconds_max=0.2)) as server:
        client = await server.connect()
        await client.send(head("PUT / HTTP/1.1", f"Content-Length: {4 * MIB}") + bytes(MIB))
        await client.closed()
        await until(lambda: server.connections == 0)
        assert not server.stub.failures


@on_loops
@pytest.mark.parametrize("cut", [True, False])
async def test_a_client_that_disconnects(cut: bool) -> None:
    async with serving(SocketReadingApplication()) as server:
        client = await server.connect()
        await client.send(head("PUT / HTTP/1.1", f"Content-Length: {4 * MIB}") + bytes(MIB))
        await until(lambda: len(server.stub.requests) == 1)
        if cut:
            client.reset()
        else:
            await client.close()
        await until(lambda: server.connections == 0)
        assert not server.stub.failures


@on_loops
async def test_a_socket_is_lent_only_for_a_long_body_of_known_length() -> None:
    handler, body = SocketReadingApplication(), os.urandom(2 * MIB)
    async with serving(handler) as server:
        client = await server.connect()
        for request, sum_ in (
            (put_chunks(body[:MIB], body[MIB:]), summed(body)),
            (put(body[:200_000]), summed(body[:200_000])),
        ):
            sending = asyncio.create_task(client.send(request))
            assert (await client.answer()).body == sum_
            await sending
    assert not handler.read_directly


@on_loops
async def test_a_socket_with_tls_is_not_lent(tls: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    handler, body = SocketReadingApplication(), os.urandom(2 * MIB)
    async with serving(handler, tls=tls[0]) as server:
        client = await server.connect(tls=tls[1])
        sending = asyncio.create_task(client.send(put(body)))
        assert (await client.answer()).body == summed(body)
        await sending
    assert not handler.read_directly


@on_loops
async def test_continue_is_sent_before_the_socket_is_lent() -> None:
    handler, body = SocketReadingApplication(), os.urandom(2 * MIB)
    async with serving(handler) as server:
        client = await server.connect()
        expecting = ("Expect: 100-continue", f"Content-Length: {len(body)}")
        assert (await client.ask(head("PUT / HTTP/1.1", *expecting))).status == 100
        sending = asyncio.create_task(client.send(body))
        assert (await client.answer()).body == summed(body)
        await sending


@on_loops
async def test_a_client_that_sends_without_continue_keeps_its_connection() -> None:
    expecting = ("Expect: 100-continue", f"Content-Length: {2 * MIB}")
    async with serving(borrowing(reported=1_000)) as server:
        client = await server.connect()
        request = head("PUT / HTTP/1.1", *expecting) + bytes(2 * MIB)
        sending = asyncio.create_task(client.send(request + get()))
        answer = await client.answer()
        assert (answer.status, answer.header("Connection")) == (507, None)
        assert (await client.answer()).status == 200
        await sending


def borrowing(
    *, reported: int | None, raising: bool = False, files: list[OpenFile] | None = None
) -> Handler:
    """Reads 1,000 bytes from a lent socket and reports a given count."""

    async def handle(request: Request) -> Response:
        while (lent := request.body.lend_socket()) is None:
            if request.body.complete or not await anext(request.body, b""):
                return Response(200, (), b"nothing lent")
        with lent:
            if files is not None:
                files.append(lent.file)
            os.read(lent.file.descriptor, 1_000)
            lent.taken = reported
            if raising:
                raise OSError("no room")
        return Response(507, (), b"enough")

    return handle


@on_loops
@pytest.mark.parametrize("raising", [True, False])
async def test_the_unread_rest_of_a_body_is_discarded(raising: bool) -> None:
    async with serving(borrowing(reported=1_000, raising=raising)) as server:
        client = await server.connect()
        sending = asyncio.create_task(client.send(put(bytes(5 * MIB)) + get()))
        assert (await client.answer()).status == (500 if raising else 507)
        assert (await client.answer()).body == b"nothing lent"
        await sending


@on_loops
async def test_an_unknown_read_position_closes_the_connection() -> None:
    """The connection closes at once, even if the socket is still lent."""
    files: list[OpenFile] = []
    async with serving(borrowing(reported=None, files=files)) as server:
        client = await server.connect()
        await client.send_all(put(bytes(5 * MIB)) + get())
        await client.closed()
        await until(lambda: server.connections == 0)
        assert len(server.stub.requests) == 1
        assert files
        files.clear()


@on_loops
async def test_a_lent_socket_outlives_its_connection() -> None:
    """A reader that still has it sees its end, and no other connection's bytes."""
    files: list[OpenFile] = []
    gate = asyncio.Event()

    async def keep(request: Request) -> Response:
        while (lent := request.body.lend_socket()) is None:
            await anext(request.body)
        files.append(lent.file)
        with lent:
            await gate.wait()
        return Response(200, (), b"")

    async with serving(keep) as server:
        client = await server.connect()
        await client.send(head("PUT / HTTP/1.1", f"Content-Length: {8 * MIB}") + bytes(MIB))
        await until(lambda: bool(files))
        connection = await server.connection()
        connection.abort()
        await until(lambda: server.connections == 0)
        client.reset()
        others = [await server.connect() for _ in range(8)]
        for other in others:
            await other.send(get("/other")[:10])
        received = 0
        while chunk := await asyncio.to_thread(_read_to_the_end, files[0]):
            assert not chunk.strip(b"\0")
            received += len(chunk)
        assert received <= MIB
        gate.set()
        files.clear()


def _read_to_the_end(file: OpenFile) -> bytes:
    try:
        return os.read(file.descriptor, MIB)
    except OSError:
        return b""
