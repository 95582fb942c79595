"""Inbound framing without a socket: bytes in, requests and bodies out."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etagere.protocol.connections.memory import MemoryBudget
from etagere.protocol.http.framing import RequestFraming
from etagere.protocol.http.limits import Limits
from etagere.protocol.http.messages import Request, RequestBody
from etagere.protocol.http.request_bodies import LentSocket
from etagere.protocol.http.request_heads import MalformedRequest

LONG = 300 * 1024


class Recorder:
    """Observes a framing, and serves as the flow of its bodies."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.holds = 0

    def head_begun(self) -> None:
        self.events.append("head")

    def request_received(self, request: Request) -> None:
        self.events.append(f"{request.method} {request.target.decode()}")

    def discarded_body_received(self) -> None:
        self.events.append("discarded")

    def wanted(self, body: RequestBody) -> None: ...

    def pause(self) -> None:
        self.holds += 1

    def resume(self) -> None:
        self.holds -= 1

    def lend_socket(self, body: RequestBody) -> LentSocket | None: ...

    def return_socket(self, taken: int | None) -> None: ...


class FramingFixture:
    """A framing with its observer and its output."""

    def __init__(self, limits: Limits | None = None, *, secure: bool = False) -> None:
        self.recorder = Recorder()
        self.memory = MemoryBudget()
        self.framing = RequestFraming(
            self.recorder, self.recorder, limits or Limits(), self.memory, client="c", secure=secure
        )

    def feed(self, *portions: bytes) -> None:
        for portion in portions:
            self.framing.feed(portion)

    def bodies(self) -> list[bytes]:
        async def read() -> list[bytes]:
            return [await request.body.read(1 << 20) for request in self.framing.requests]

        return asyncio.run(read())

    def arriving(self) -> RequestBody:
        assert self.framing.body is not None
        return self.framing.body


def get(target: str = "/a") -> bytes:
    return f"GET {target} HTTP/1.1\r\nHost: h\r\n\r\n".encode()


def put(body: bytes, *headers: bytes) -> bytes:
    lines = [b"PUT /b HTTP/1.1", b"Host: h", b"Content-Length: %d" % len(body), *headers, b"", body]
    return b"\r\n".join(lines)


def chunked(*chunks: bytes, headers: bytes = b"") -> bytes:
    head = b"POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n" + headers + b"\r\n"
    return head + b"".join([b"%x\r\n%b\r\n" % (len(c), c) for c in (*chunks, b"")])


UPGRADE = b"Connection: upgrade\r\nUpgrade: h2c"
MIXED = b"".join(
    [
        get(),
        put(b"hello", UPGRADE),
        chunked(b"x", b"yz", headers=UPGRADE + b"\r\n"),
        put(b""),
        chunked(b"GET / HTTP/1.1\r\n\r\n"),
        put(bytes(LONG)),
        get("/end"),
    ]
)
MIXED_BODIES = [b"", b"hello", b"xyz", b"", b"GET / HTTP/1.1\r\n\r\n", bytes(LONG), b""]


@given(st.lists(st.integers(min_value=1, max_value=len(MIXED)), max_size=6))
def test_requests_do_not_depend_on_packet_boundaries(cuts: list[int]) -> None:
    framed = FramingFixture()
    edges = [0, *sorted(cuts), len(MIXED)]
    framed.feed(*[MIXED[start:stop] for start, stop in pairwise(edges)])
    requests = ["GET /a", "PUT /b", "POST /c", "PUT /b", "POST /c", "PUT /b", "GET /end"]
    assert framed.recorder.events[1::2] == requests
    assert framed.recorder.events[::2] == ["head"] * len(requests)
    assert framed.bodies() == MIXED_BODIES
    assert not framed.framing.in_message


def test_single_bytes_are_enough() -> None:
    framed = FramingFixture()
    requests = get() + chunked(b"ab", b"c") + put(b"d", UPGRADE) + get()
    framed.feed(*[requests[at : at + 1] for at in range(len(requests))])
    assert framed.bodies() == [b"", b"abc", b"d", b""]


def test_requests_have_the_client_address() -> None:
    framed = FramingFixture(secure=True)
    framed.feed(get())
    (request,) = framed.framing.requests
    assert (request.client, request.secure, request.keep_alive) == ("c", True, True)


@pytest.mark.parametrize("secure", [False, True])
def test_a_long_body_bypasses_the_parser(secure: bool) -> None:
    framed = FramingFixture(secure=secure)
    request = put(bytes(LONG))
    framed.feed(request[:1000])
    rest = framed.framing.announced_rest()
    assert rest == framed.framing.unparsed_bytes == len(request) - 1000
    # Over TLS the socket cannot be lent, so there is no reason to wait for a reader.
    assert framed.recorder.holds == (0 if secure else 1)
    framed.feed(request[1000:2000])
    framed.framing.count_direct_bytes(rest - 1000)
    assert framed.framing.unparsed_bytes == 0
    assert not framed.framing.in_message
    framed.feed(get())
    assert framed.recorder.events[-1] == "GET /a"


@pytest.mark.parametrize("length", [None, 10, LONG])
def test_a_failed_body(length: int | None) -> None:
    framed = FramingFixture()
    framed.feed((chunked(b"12345") if length is None else put(bytes(length)))[:-5])
    body = framed.arriving()
    framed.framing.fail_body()
    assert not body.complete
    framed.framing.end()
    assert framed.memory.used_bytes == 0


@pytest.mark.parametrize(
    ("limits", "data", "status"),
    [
        (Limits(), b"nonsense\r\n\r\n", 400),
        (Limits(), b"GET / HTTP/1.1\r\n\r\n", 400),
        (Limits(), get() * 600, 400),
        (Limits(target_bytes_max=10), get("/" + "a" * 10), 414),
        (Limits(headers_max=1), put(b""), 431),
        (Limits(head_bytes_max=5), get(), 431),
        (Limits(target_bytes_max=10, head_bytes_max=90), get()[:-4] + b"X: " + b"y" * 90, 431),
    ],
)
def test_malformed_input_is_refused(limits: Limits, data: bytes, status: int) -> None:
    framed = FramingFixture(limits)
    with pytest.raises(MalformedRequest) as refused:
        framed.feed(data)
    assert refused.value.status == status


def test_only_the_end_of_a_discarded_body_is_reported() -> None:
    framed = FramingFixture(Limits(discard_bytes_max=10))
    request = put(bytes(20))
    framed.feed(request[:-15])
    framed.arriving().discard()
    framed.feed(request[-15:-5])
    assert framed.recorder.events[-1] == "PUT /b"
    framed.feed(request[-5:-5])
    with pytest.raises(MalformedRequest) as refused:
        framed.feed(request[-5:])
    assert refused.value.status == 413

    framed = FramingFixture()
    framed.feed(request[:-15])
    framed.arriving().discard()
    framed.feed(request[-15:])
    assert framed.recorder.events == ["head", "PUT /b", "discarded"]
