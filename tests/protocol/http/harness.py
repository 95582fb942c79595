"""A server on a real socket, clients that send raw bytes, and checks for leaks."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import logging
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, NamedTuple

import pytest
import uvloop

from etagere.protocol.connections.memory import MemoryBudget
from etagere.protocol.connections.pool import ConnectionPool
from etagere.protocol.http import server as server_module
from etagere.protocol.http.connection import Connection
from etagere.protocol.http.limits import Limits
from etagere.protocol.http.messages import Request, Response
from etagere.protocol.http.server import HttpServer
from tests.loops import until

Handler = Callable[[Request], Awaitable[Response]]

TEST_SECONDS = 90.0
ANSWER_SECONDS = 20.0
_LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def run(loop: str, scenario: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=_LOOPS[loop]) as runner:
        runner.run(asyncio.wait_for(scenario, TEST_SECONDS))


def on_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs a test on plain asyncio and on uvloop."""

    @functools.wraps(test)
    def runs(loop: str, **arguments: Any) -> None:
        run(loop, test(**arguments))

    signature = inspect.signature(test)
    loop = inspect.Parameter("loop", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    # pytest reads the parameters from this.
    runs.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[loop, *signature.parameters.values()]
    )
    marked: Callable[..., None] = pytest.mark.parametrize("loop", sorted(_LOOPS))(runs)
    return marked


async def hello(request: Request) -> Response:
    return Response(200, (), b"hello")


async def echo(request: Request) -> Response:
    """Returns the body and a description of the request."""
    body = await request.body.read(64 << 20)
    return Response(200, ((b"X-Method", request.method.encode()),), body)


class Stub:
    """An application that runs a test's handler and records the requests."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.requests: list[Request] = []
        self.failures: list[Exception] = []
        self.logged: list[tuple[Request, Response]] = []

    async def handle(self, request: Request) -> Response:
        self.requests.append(request)
        return await self.handler(request)

    def malformed(self, status: int, detail: str, _method: str) -> Response:
        return Response(status, ((b"X-Malformed", b"yes"),), detail.encode())

    def busy(self, request: Request) -> Response:
        return Response(503, ((b"X-Busy", b"yes"),), b"busy")

    def failed(self, request: Request, error: Exception) -> Response:
        self.failures.append(error)
        return Response(500, ((b"X-Failed", b"yes"),), b"failed")

    def cut_off(self, request: Request, error: Exception) -> None:
        logging.getLogger(__name__).error(
            "could not send all of a response; closing the connection"
        )

    def sent(self, request: Request, response: Response, seconds: float) -> None:
        assert seconds >= 0
        self.logged.append((request, response))

    @property
    def targets(self) -> list[bytes]:
        return [request.target for request in self.requests]


class Answer(NamedTuple):
    """A response as a client reads it."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        values = [value for key, value in self.headers if key.lower() == name.lower()]
        assert len(values) <= 1, f"{name} is there twice"
        return values[0] if values else None


class Client:
    """One connection that sends and receives raw bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def send_all(self, data: bytes) -> None:
        """Sends as much as the server accepts, which may be less than all."""
        with contextlib.suppress(ConnectionError):
            await self.send(data)

    async def answer(self, method: str = "GET", seconds: float = ANSWER_SECONDS) -> Answer:
        async with asyncio.timeout(seconds):
            return await self._answer(method)

    async def _answer(self, method: str) -> Answer:
        head = await self.reader.readuntil(b"\r\n\r\n")
        first, *lines = head[:-4].decode("latin-1").split("\r\n")
        version, status, _ = first.split(" ", 2)
        assert version == "HTTP/1.1"
        headers = [(name, value) for name, _, value in (line.partition(": ") for line in lines)]
        answer = Answer(int(status), headers, b"")
        return answer._replace(body=await self._body(answer, method))

    async def _body(self, answer: Answer, method: str) -> bytes:
        if method == "HEAD" or answer.status in (100, 204, 304):
            return b""
        if answer.header("Transfer-Encoding") == "chunked":
            return await self._chunks()
        length = answer.header("Content-Length")
        return await (self.reader.readexactly(int(length)) if length else self.reader.read())

    async def _chunks(self) -> bytes:
        chunks = []
        while size := int((await self.reader.readuntil(b"\r\n"))[:-2], 16):
            chunks.append(await self.reader.readexactly(size))
            assert await self.reader.readexactly(2) == b"\r\n"
        assert await self.reader.readexactly(2) == b"\r\n"
        return b"".join(chunks)

    async def ask(self, data: bytes, method: str = "GET") -> Answer:
        await self.send(data)
        return await self.answer(method)

    async def rest(self, seconds: float = ANSWER_SECONDS) -> bytes:
        """Returns everything until the server closes the connection."""
        async with asyncio.timeout(seconds):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    async def closed(self, seconds: float = ANSWER_SECONDS) -> None:
        assert await self.rest(seconds) == b""

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await self.writer.wait_closed()

    def reset(self) -> None:
        """Resets the connection; a client that just closes looks as if it might still read."""
        if not self.writer.transport.is_closing():
            connection = self.writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # asyncio's TLS transport has nothing left to abort after a connection loss.
        with contextlib.suppress(AttributeError):
            self.writer.transport.abort()


class ServerFixture:
    """A running server and the clients of a test."""

    def __init__(self, http_server: HttpServer, port: int, stub: Stub) -> None:
        self.http_server = http_server
        self.port = port
        self.stub = stub
        self.clients: list[Client] = []

    @property
    def connections(self) -> int:
        return len(self.http_server._connections)

    async def connection(self) -> Connection:
        """Returns the server's side of the only client."""
        await until(lambda: self.connections == 1)
        (connection,) = self.http_server._connections
        return connection

    async def connect(
        self, *, tls: ssl.SSLContext | None = None, receive_bytes: int | None = None
    ) -> Client:
        """Connects; `receive_bytes` limits the kernel's receive buffer and the client's
        read-ahead."""
        connection = socket.socket()
        if receive_bytes is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", self.port))
        except OSError:
            connection.close()
            raise
        name = "localhost" if tls is not None else None
        reader, writer = await asyncio.open_connection(
            sock=connection, ssl=tls, server_hostname=name, limit=receive_bytes or 2**16
        )
        client = Client(reader, writer)
        self.clients.append(client)
        return client

    async def connect_and_ask(self, data: bytes, method: str = "GET") -> Answer:
        return await (await self.connect()).ask(data, method)


class _Records(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@contextlib.contextmanager
def watched_log() -> Any:
    """Collects warnings and errors logged by the server or by asyncio."""
    records = _Records()
    logging.getLogger().addHandler(records)
    try:
        yield records.messages
    finally:
        logging.getLogger().removeHandler(records)


@contextlib.asynccontextmanager
async def serving(
    handler: Handler = hello,
    *,
    limits: Limits | None = None,
    tls: ssl.SSLContext | None = None,
    logs: tuple[str, ...] = (),
    pool: ConnectionPool | None = None,
    memory: MemoryBudget | None = None,
) -> AsyncIterator[ServerFixture]:
    """Runs a server; checks at the end that no connection is left and nothing unexpected was
    logged."""
    listener = socket.create_server(("127.0.0.1", 0))
    stub = Stub(handler)
    # A client that waits for the end of its connection does not take this time for it.
    limits = limits or Limits(linger_seconds=2 * ANSWER_SECONDS)
    http_server = HttpServer(stub, listener, limits=limits, tls=tls, pool=pool, memory=memory)
    before = asyncio.all_tasks()
    with watched_log() as messages, quick_sweeps():
        http_server.start()
        server = ServerFixture(http_server, listener.getsockname()[1], stub)
        try:
            yield server
            for client in server.clients:
                await client.close()
            await until(lambda: server.connections == 0)
        finally:
            for client in server.clients:
                client.reset()
            await http_server.drain(0.0)
        await until(lambda: asyncio.all_tasks() <= before)
        assert tuple(messages) == logs


@contextlib.contextmanager
def quick_sweeps() -> Any:
    """Makes the sweeper run more often, for time limits of fractions of a second."""
    usual = server_module._SWEEP_SECONDS
    server_module._SWEEP_SECONDS = 0.02
    try:
        yield
    finally:
        server_module._SWEEP_SECONDS = usual


def get(target: str = "/", *headers: str) -> bytes:
    return head(f"GET {target} HTTP/1.1", *headers)


def put(body: bytes = b"", *headers: str, target: str = "/") -> bytes:
    return head(f"PUT {target} HTTP/1.1", f"Content-Length: {len(body)}", *headers) + body


def put_chunks(*chunks: bytes, target: str = "/") -> bytes:
    body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return head(f"PUT {target} HTTP/1.1", "Transfer-Encoding: chunked") + body + b"0\r\n\r\n"


def head(line: str, *headers: str) -> bytes:
    return "\r\n".join([line, "Host: localhost", *headers, "", ""]).encode("latin-1")
