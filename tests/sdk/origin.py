"""Another server that sources are copied from."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

BODY = bytes(range(256)) * 4_000


class Origin(ThreadingHTTPServer):
    """Another server; slow responses continue when the test says so."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.go_on = threading.Event()

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{name}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Origin

    def do_GET(self) -> None:
        name = self.path[1:].partition("?")[0]
        if name == "missing":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/origin")
        self.send_header("Content-Length", str(len(BODY)))
        self.send_header("x-ms-meta-from", "elsewhere")
        if name in ("right", "wrong"):
            result = BODY if name == "right" else b"other"
            md5 = hashlib.md5(result, usedforsecurity=False).digest()
            self.send_header("Content-MD5", base64.b64encode(md5).decode())
        self.end_headers()
        half = len(BODY) // 2
        with contextlib.suppress(ConnectionError):
            self.wfile.write(BODY[:half])
            self.wfile.flush()
            if name == "short":
                self.close_connection = True
                return
            if name == "slow":
                self.server.go_on.wait(30)
            self.wfile.write(BODY[half:])

    def log_message(self, format: str, *args: Any) -> None:
        pass
