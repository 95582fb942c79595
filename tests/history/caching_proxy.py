"""A node with a bug, for the test of the checker: a proxy that answers reads from a cache."""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import urlsplit

CACHE_SECONDS: Final = 1.0
_NOT_COPIED: Final = frozenset({"connection", "transfer-encoding"})

Answer = tuple[int, list[tuple[str, str]], bytes]


class CachingProxy:
    """Has the endpoints of a server, and shows for some time what was read there last."""

    def __init__(self, server: ThreadingHTTPServer, service: str) -> None:
        self.endpoints = {service: f"http://127.0.0.1:{server.server_port}"}


@contextlib.contextmanager
def caching_proxy(endpoint: str, service: str) -> Iterator[CachingProxy]:
    """Runs a proxy before one service of a server."""
    place = urlsplit(endpoint).netloc
    cache: dict[str, tuple[float, Answer]] = {}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments: object) -> None:
            """Writes nothing."""

        def answer_request(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            until, answer = cache.get(self.path, (0.0, None))
            if self.command != "GET" or answer is None or time.monotonic() > until:
                answer = self._forward(body)
            if self.command == "GET" and time.monotonic() > until:
                cache[self.path] = (time.monotonic() + CACHE_SECONDS, answer)
            status, headers, content = answer
            self.send_response_only(status)
            for name, value in headers:
                self.send_header(name, value)
            if not any(name.lower() == "content-length" for name, _ in headers):
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer_request

        def _forward(self, body: bytes) -> Answer:
            connection = http.client.HTTPConnection(place, timeout=10)
            headers = {name: value for name, value in self.headers.items() if name != "Connection"}
            connection.request(self.command, self.path, body, headers)
            response = connection.getresponse()
            content = response.read()
            connection.close()
            copied = [each for each in response.getheaders() if each[0].lower() not in _NOT_COPIED]
            return response.status, copied, content

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield CachingProxy(server, service)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
