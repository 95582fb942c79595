"""Fetching keys over HTTP: nothing but a document of limited size at the URL itself is accepted."""

from __future__ import annotations

import asyncio
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from etagere.auth.key_set import KEY_SET_BYTES_MAX
from etagere.protocol.rest.key_fetching import fetcher
from etagere.protocol.rest.key_sources import KeysUnavailable
from tests.tokens import ec_key, key_set

KEYS = key_set(ec_key("one"))


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """Runs a server that sends the same bytes to everybody; yields a URL."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65_536)
            self.request.sendall(answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/keys?code=secret"
        server.shutdown()


def response(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def test_keys_are_fetched() -> None:
    with answering(response(KEYS)) as url:
        assert asyncio.run(fetcher(url)()) == KEYS


def test_a_large_document_is_not_read_completely() -> None:
    with answering(response(b"x" * (4 * KEY_SET_BYTES_MAX))) as url:
        read = len(asyncio.run(fetcher(url)()))
    assert KEY_SET_BYTES_MAX < read < 2 * KEY_SET_BYTES_MAX


def test_a_document_is_not_decompressed() -> None:
    with answering(response(b"compressed", "200 OK", "Content-Encoding: gzip")) as url:
        assert asyncio.run(fetcher(url)()) == b"compressed"


@pytest.mark.parametrize(
    "answer",
    [
        response(KEYS, "302 Found", "Location: http://127.0.0.1:1/"),
        response(KEYS, "404 Not Found"),
        response(KEYS, "503 Service Unavailable"),
        response(KEYS, "204 No Content"),
        response(KEYS)[:-1],
        b"this is not HTTP\r\n\r\n",
        b"",
    ],
    ids=lambda answer: answer[:20].decode(),
)
def test_anything_else_is_a_failure(answer: bytes) -> None:
    with answering(answer) as url, pytest.raises(KeysUnavailable) as caught:
        asyncio.run(fetcher(url)())
    assert "secret" not in str(caught.value)


def test_an_issuer_that_is_not_there() -> None:
    with socket.socket() as reserved:  # nothing listens on its port
        reserved.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{reserved.getsockname()[1]}/keys"
        with pytest.raises(KeysUnavailable, match=r"127\.0\.0\.1 cannot be read"):
            asyncio.run(fetcher(url)())
