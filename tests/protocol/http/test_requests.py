"""Requests, responses and the lifetime of connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from etagere.protocol.connections.pool import ConnectionPool
from etagere.protocol.http.messages import Request, Response
from tests.loops import until
from tests.protocol.http.harness import echo, get, hello, on_loops, put, put_chunks, serving


@on_loops
async def test_target_and_headers_are_kept_as_sent() -> None:
    headers = [
        "X-Ms-Meta-CamelCase: Value",
        "x-ms-meta-lower:no space",
        "X-MS-META-CAMELCASE: again  \t",
        "Empty:",
        "Latin: caf\xe9",
    ]
    async with serving() as server:
        client = await server.connect()
        await client.ask(get("/a%2Fb/%C3%A9//../x?b=2&a=1+%20&&", *headers))
        (request,) = server.stub.requests
        assert request.target == b"/a%2Fb/%C3%A9//../x?b=2&a=1+%20&&"
        assert request.headers == [
            (b"Host", b"localhost"),
            (b"X-Ms-Meta-CamelCase", b"Value"),
            (b"x-ms-meta-lower", b"no space"),
            (b"X-MS-META-CAMELCASE", b"again"),
            (b"Empty", b""),
            (b"Latin", b"caf\xe9"),
        ]
        assert request.fields[b"x-ms-meta-camelcase"] == b"Value,again"
        assert b"missing" not in request.fields
        assert (request.client, request.secure, request.minor_version) == ("127.0.0.1", False, 1)


@pytest.mark.parametrize(
    ("target", "expected", "host"),
    [
        ("http://a.b:81/x?y=1&z", b"/x?y=1&z", b"a.b:81"),
        ("HTTPS://a.b", b"/", b"a.b"),
        ("http://a.b?y", b"/?y", b"a.b"),
        ("http://[::1]:9/http://c/d", b"/http://c/d", b"[::1]:9"),
        ("/http://a.b/x", b"/http://a.b/x", b"localhost"),
    ],
)
@on_loops
async def test_targets_in_absolute_form(target: str, expected: bytes, host: bytes) -> None:
    async with serving() as server:
        await server.connect_and_ask(get(target))
        (request,) = server.stub.requests
        assert (request.target, request.fields[b"host"]) == (expected, host)


@on_loops
async def test_errors_to_head_have_no_length() -> None:
    async def missing(request: Request) -> Response:
        return Response(404, (), b"not here")

    async with serving(missing) as server:
        client = await server.connect()
        for version, encoding in ((b"1.1", "chunked"), (b"1.0", None)):
            await client.send(b"HEAD / HTTP/%b\r\nHost: h\r\n\r\n" % version)
            answer = await client.answer("HEAD")
            assert answer.status == 404
            assert answer.header("Content-Length") is None
            assert answer.header("Transfer-Encoding") == encoding


@on_loops
async def test_a_request_sent_byte_by_byte() -> None:
    async with serving(echo) as server:
        client = await server.connect()
        for byte in put_chunks(b"one", b"two", target="/slow?query"):
            await client.send(bytes([byte]))
            await asyncio.sleep(0)
        assert (await client.answer()).body == b"onetwo"
        assert server.stub.targets == [b"/slow?query"]


@on_loops
async def test_responses_have_date_server_and_length() -> None:
    async with serving() as server:
        answer = await server.connect_and_ask(get())
        assert answer.status == 200
        assert answer.body == b"hello"
        assert answer.header("Content-Length") == "5"
        assert answer.header("Server") == "Etagere/1.0"
        assert (answer.header("Date") or "").endswith(" GMT")
        assert answer.header("Connection") is None


@on_loops
async def test_header_values_and_names_cannot_inject() -> None:
    async def inject(request: Request) -> Response:
        headers = (
            (b"X-First", b"a\r\nSet-Cookie: stolen=1\r\n\r\n<body>"),
            (b"X-Bad\r\nSet-Cookie", b"x"),
            (b"X-Bare", b"1\nSet-Cookie: y"),
            (b"X-Return", b"1\rSet-Cookie: z"),
        )
        return Response(200, headers, b"whole")

    async with serving(inject) as server:
        answer = await server.connect_and_ask(get())
        assert answer.body == b"whole"
        assert "Set-Cookie" not in [name for name, _ in answer.headers]
        assert answer.header("X-First") == "aSet-Cookie: stolen=1<body>"
        assert answer.header("X-Bare") == "1Set-Cookie: y"


@on_loops
async def test_keep_alive_and_close() -> None:
    async with serving() as server:
        client = await server.connect()
        for _ in range(3):
            assert (await client.ask(get())).header("Connection") is None
        answer = await client.ask(get("/", "Connection: close"))
        assert answer.header("Connection") == "close"
        await client.closed()


@on_loops
async def test_connections_end_with_their_next_response_while_a_node_is_drained() -> None:
    is_draining = False
    async with serving(pool=ConnectionPool(is_draining=lambda: is_draining)) as server:
        clients = [await server.connect() for _ in range(3)]
        for client in clients:
            assert (await client.ask(get())).header("Connection") is None
        is_draining = True
        for client in clients[:2]:
            assert (await client.ask(get())).header("Connection") == "close"
            await client.closed()
        # New clients are served too: a load balancer may not know yet.
        assert (await (await server.connect()).ask(get())).status == 200
        is_draining = False
        assert (await clients[2].ask(get())).header("Connection") is None


@on_loops
async def test_http_1_0_closes_without_keep_alive() -> None:
    async with serving() as server:
        client = await server.connect()
        staying = b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
        for _ in range(2):
            assert (await client.ask(staying)).header("Connection") == "keep-alive"
        answer = await client.ask(b"GET / HTTP/1.0\r\n\r\n")
        assert (answer.status, answer.header("Connection")) == (200, "close")
        await client.closed()


async def numbers() -> AsyncIterator[bytes]:
    for number in (b"one", b"", b"two"):
        yield number


@on_loops
async def test_streams_are_chunked_in_1_1_and_end_with_the_connection_in_1_0() -> None:
    async def stream(request: Request) -> Response:
        return Response(200, (), numbers())

    async with serving(stream) as server:
        client = await server.connect()
        for _ in range(2):
            answer = await client.ask(get())
            assert answer.header("Transfer-Encoding") == "chunked"
            assert answer.header("Content-Length") is None
            assert answer.body == b"onetwo"
        older = await server.connect()
        answer = await older.ask(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert answer.header("Transfer-Encoding") is None
        assert (answer.header("Connection"), answer.body) == ("close", b"onetwo")


@on_loops
async def test_streams_of_known_length_have_a_content_length() -> None:
    async def stream(request: Request) -> Response:
        return Response(200, (), numbers(), length=6)

    async with serving(stream) as server:
        client = await server.connect()
        answer = await client.ask(get())
        assert (answer.header("Content-Length"), answer.body) == ("6", b"onetwo")
        assert (await client.ask(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")).body


@on_loops
async def test_head_has_the_content_length_of_get() -> None:
    bodies = {
        b"/bytes": lambda: Response(200, (), b"hello"),
        b"/announced": lambda: Response(200, (), b"", length=7 << 40),
        b"/stream": lambda: Response(200, (), numbers(), length=6),
        b"/unknown": lambda: Response(200, (), numbers()),
        b"/none": lambda: Response(200),
    }

    async def by_target(request: Request) -> Response:
        return bodies[request.target]()

    async with serving(by_target) as server:
        client = await server.connect()
        lengths = []
        for target in bodies:
            await client.send(b"HEAD %b HTTP/1.1\r\nHost: h\r\n\r\n" % target)
            answer = await client.answer("HEAD")
            assert answer.header("Transfer-Encoding") is None
            lengths.append(answer.header("Content-Length"))
        assert lengths == ["5", str(7 << 40), "6", None, "0"]


@on_loops
async def test_statuses_without_a_body_send_none() -> None:
    async def empty(request: Request) -> Response:
        return Response(int(request.target[1:]), ((b"ETag", b'"x"'),), b"never seen")

    async with serving(empty) as server:
        client = await server.connect()
        for status in (204, 304):
            answer = await client.ask(get(f"/{status}"))
            assert answer.status == status
            assert answer.header("Content-Length") is None
            assert answer.header("ETag") == '"x"'
        # A body would be read as this response.
        assert (await client.ask(get("/200"))).status == 200


@on_loops
async def test_pipelined_requests_are_answered_in_order() -> None:
    async def slower_first(request: Request) -> Response:
        if request.target == b"/0":
            await asyncio.sleep(0.05)
        return Response(200, (), request.target + await request.body.read(100))

    async with serving(slower_first) as server:
        client = await server.connect()
        requests = [
            put(b"body", target=f"/{number}") if number % 2 else get(f"/{number}")
            for number in range(10)
        ]
        await client.send(b"".join(requests))
        bodies = [(await client.answer()).body for _ in range(10)]
        assert bodies == [b"/%d%b" % (n, b"body" if n % 2 else b"") for n in range(10)]


@on_loops
async def test_pipelining_is_limited_by_backpressure() -> None:
    gate = asyncio.Event()

    async def wait(request: Request) -> Response:
        if request.target != b"/other":
            await gate.wait()
        return Response(200, (), request.target)

    async with serving(wait) as server:
        client = await server.connect()
        await client.send(b"".join(get(f"/{number}") for number in range(100)))
        connection = await server.connection()
        await until(lambda: connection._input.is_crowded)
        waiting = len(connection._framing.requests)
        await client.send(b"".join(get(f"/{number}") for number in range(100, 400)))
        # A request on another connection gives the event loop time to read from this one.
        assert (await server.connect_and_ask(get("/other"))).status == 200
        assert len(connection._framing.requests) == waiting < 100
        gate.set()
        for number in range(400):
            assert (await client.answer()).body == b"/%d" % number


@on_loops
async def test_too_many_pipelined_requests() -> None:
    gate = asyncio.Event()

    async def wait(request: Request) -> Response:
        await gate.wait()
        return await hello(request)

    async with serving(wait) as server:
        client = await server.connect()
        await client.send_all(get() + b"GET / HTTP/1.1\r\nHost:\r\n\r\n" * 5000)
        connection = await server.connection()
        await until(lambda: connection._input.refusal is not None)
        assert len(connection._framing.requests) <= 512
        gate.set()
        answers = (await client.rest()).split(b"HTTP/1.1 ")[1:]
        assert {answer[:3] for answer in answers[:-1]} == {b"200"}
        assert answers[-1].startswith(b"400")
        assert len(answers) <= 514


@on_loops
async def test_a_half_closed_client_gets_every_response() -> None:
    async def slowly(request: Request) -> Response:
        await asyncio.sleep(0.02)
        return Response(200, (), request.target)

    async with serving(slowly) as server:
        client = await server.connect()
        await client.send(get("/1") + get("/2") + get("/3"))
        client.writer.write_eof()
        answers = [await client.answer() for _ in range(3)]
        assert [answer.body for answer in answers] == [b"/1", b"/2", b"/3"]
        await client.closed()


@pytest.mark.parametrize("upgrade", ["h2c", "websocket"])
@on_loops
async def test_upgrades_are_ignored(upgrade: str) -> None:
    async with serving() as server:
        client = await server.connect()
        for _ in range(3):
            answer = await client.ask(get("/", f"Upgrade: {upgrade}", "Connection: Upgrade"))
            assert (answer.status, answer.header("Connection")) == (200, None)
        await client.close()
