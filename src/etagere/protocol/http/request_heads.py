"""Request heads: from a parsed head to a request, or a refusal."""

from __future__ import annotations

import httptools

from etagere.protocol.connections.memory import MemoryBudget
from etagere.protocol.http.limits import Limits
from etagere.protocol.http.messages import Request, RequestBody
from etagere.protocol.http.request_bodies import Flow
from etagere.protocol.http.targets import origin_form

_SLASH = ord("/")


class MalformedRequest(Exception):
    """The client sent something that is not a valid request, or one that exceeds a limit."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


def new_request(
    parser: httptools.HttpRequestParser,
    target: bytes,
    headers: list[tuple[bytes, bytes]],
    flow: Flow,
    limits: Limits,
    memory: MemoryBudget,
) -> Request:
    """Returns the request whose head the parser has just finished."""
    fields = _fields(headers, limits.head_bytes_max)
    version = parser.get_http_version()
    if version not in ("1.0", "1.1"):
        raise MalformedRequest(400, "The version of HTTP is not supported.")
    if b"host" not in fields and version == "1.1":
        raise MalformedRequest(400, "There is no Host header.")
    encoding = fields.get(b"transfer-encoding")
    if encoding is not None and (encoding.lower() != b"chunked" or version == "1.0"):
        raise MalformedRequest(400, "The transfer encoding is not supported.")
    length = None if encoding is not None else int(fields.get(b"content-length", b"0"))
    method = parser.get_method().decode()
    if method == "CONNECT":
        raise MalformedRequest(400, "Tunnels are not offered.")
    expects_continue = (
        length != 0 and version == "1.1" and fields.get(b"expect", b"").lower() == b"100-continue"
    )
    body = RequestBody(flow, length, expects_continue=expects_continue, memory=memory)
    if target[0] != _SLASH and target != b"*":
        # The host in an absolute target replaces the Host header (RFC 9112, section 3.2.2).
        absolute = origin_form(target)
        if absolute is None:
            raise MalformedRequest(400, "The target is no address of HTTP.")
        target, fields[b"host"] = absolute
    request = Request(method, target, headers, fields, body)
    request.keep_alive = parser.should_keep_alive()
    request.minor_version = 1 if version == "1.1" else 0
    return request


def _fields(headers: list[tuple[bytes, bytes]], bytes_max: int) -> dict[bytes, bytes]:
    """Returns the headers by their names in lower case; repeated values are joined by commas."""
    fields: dict[bytes, bytes] = {}
    size = 0
    for name, value in headers:
        size += len(name) + len(value) + 4
        lower = name.lower()
        if lower not in fields:
            fields[lower] = value
        elif lower == b"host":
            raise MalformedRequest(400, "There is more than one Host header.")
        else:
            fields[lower] += b"," + value
    if size > bytes_max:
        raise MalformedRequest(431, "The headers are too large.")
    return fields


def head_with_same_framing(body: RequestBody) -> bytes:
    """Returns a head that makes a new parser expect the rest of this body."""
    if body.length is None:
        return b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    return b"PUT / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % body.length
