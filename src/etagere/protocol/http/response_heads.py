"""Response heads."""

from __future__ import annotations

import http
import re
import time
from email.utils import formatdate

from etagere.protocol.http.messages import Response

_NOT_IN_REASONS = re.compile("[^ -~]")
_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode()
    for status in http.HTTPStatus
}


class _DateLine:
    """The Date and Server headers, formatted once a second."""

    def __init__(self) -> None:
        self._second = 0
        self._line = b""

    def line(self) -> bytes:
        now = int(time.time())
        if now != self._second:
            self._second = now
            date = formatdate(now, usegmt=True).encode()
            self._line = b"Server: Etagere/1.0\r\nDate: " + date + b"\r\n"
        return self._line


_DATE = _DateLine()


def head(response: Response, framing: bytes) -> bytes:
    """Returns the head of a response. `framing` are the lines about its body and the connection."""
    headers = response.headers
    lines = b"".join([b"%b: %b\r\n" % header for header in headers])
    if not lines.count(b"\r") == lines.count(b"\n") == len(headers):
        lines = b"".join([b"%b: %b\r\n" % _one_line(*header) for header in headers])
    first = status_line(response.status, response.reason)
    date = b"" if response.is_relayed else _DATE.line()
    return b"%b%b%b%b\r\n" % (first, date, lines, framing)


def status_line(status: int, reason: str = "") -> bytes:
    if not reason:
        return _STATUS_LINES[status]
    # A reason may repeat what a client sent.
    shown = _NOT_IN_REASONS.sub("?", reason)
    return f"HTTP/1.1 {status} {shown}\r\n".encode()


def _one_line(name: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Returns a header without line ends, which would start another header, or the body."""
    return name.translate(None, b"\r\n"), value.translate(None, b"\r\n")
