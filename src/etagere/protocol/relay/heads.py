"""The heads of relayed requests and responses.

Both are passed on as they were received, in order, except for the headers that only concern one
connection.
"""

from __future__ import annotations

import http
from typing import Final, NamedTuple

import httptools

from etagere.protocol.http.messages import Request

_CONNECTION_HEADERS: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_REQUEST_HEADERS_DROPPED: Final = _CONNECTION_HEADERS | {b"expect"}
_RESPONSE_HEADERS_DROPPED: Final = _CONNECTION_HEADERS | {b"content-length"}
_HEADERS_MAX: Final = 256
_LENGTH_DIGITS_MAX: Final = 18
_NO_BODY: Final = frozenset({204, 304})
_STATUS_MIN, _STATUS_MAX = 100, 599
_PHRASES: Final = {status.value: status.phrase for status in http.HTTPStatus}


class MalformedResponse(Exception):
    """A node has sent something other than a valid HTTP response."""


def request_head(request: Request) -> bytes:
    """Returns the head with which a request is passed on."""
    lines = [b"%b %b HTTP/1.1\r\n" % (request.method.encode(), request.target)]
    # The host of an absolute target replaces the header (RFC 9112, section 3.2.2).
    host = request.fields.get(b"host", b"")
    if b"host" not in {name.lower() for name, _ in request.headers}:
        lines.append(b"Host: %b\r\n" % host)
    for name, value in request.headers:
        lower = name.lower()
        if lower == b"host":
            lines.append(b"%b: %b\r\n" % (name, host))
        elif lower not in _REQUEST_HEADERS_DROPPED:
            lines.append(b"%b: %b\r\n" % (name, value))
    body = request.body
    if body.length is None:
        lines.append(b"Transfer-Encoding: chunked\r\n")
    if body.expects_continue:
        lines.append(b"Expect: 100-continue\r\n")
    lines.append(b"\r\n")
    return b"".join(lines)


class ResponseHead(NamedTuple):
    """The head of a response."""

    status: int
    reason: str
    headers: list[tuple[bytes, bytes]]
    """Without those that concern the connection or the length of the body."""
    length: int | None
    """The length of the body, or of the body that a response to HEAD omits; None if it is
    unknown."""
    is_chunked: bool
    keep_alive: bool

    @property
    def is_interim(self) -> bool:
        return self.status < http.HTTPStatus.OK

    def has_body(self, method: str) -> bool:
        """Returns whether a body follows the head, if it answers a request of this method."""
        return method != "HEAD" and self.status not in _NO_BODY and self.length != 0


class ResponseParser:
    """Parses the head of a response, and its body if it is chunked."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._reason = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._chunks: list[bytes] = []
        self._is_in_body = False
        self.has_ended = False
        """Whether the last chunk has been parsed."""

    def parse_head(self, head: bytes) -> ResponseHead:
        """Parses a head, with the empty line after it. Raises `MalformedResponse`."""
        self._feed(head)
        fields = {name.lower(): value for name, value in self._headers}
        encoding = fields.get(b"transfer-encoding")
        is_chunked = encoding is not None and encoding.lower() == b"chunked"
        written = fields.get(b"content-length")
        if (encoding is not None and not is_chunked) or len(self._headers) > _HEADERS_MAX:
            raise MalformedResponse("its headers are invalid")
        if written is not None and (not written.isdigit() or len(written) > _LENGTH_DIGITS_MAX):
            raise MalformedResponse("its length is invalid")
        status = self._parser.get_status_code()
        reason = self._reason.decode("latin-1") or _PHRASES.get(status, "")
        if not _STATUS_MIN <= status <= _STATUS_MAX or not reason:
            raise MalformedResponse(f"its status is {status}")
        self._is_in_body = True
        return ResponseHead(
            status,
            reason,
            [field for field in self._headers if field[0].lower() not in _RESPONSE_HEADERS_DROPPED],
            None if written is None or is_chunked else int(written),
            is_chunked,
            self._parser.should_keep_alive(),
        )

    def parse_chunked(self, data: bytes) -> list[bytes]:
        """Returns the content of a part of a chunked body. Raises `MalformedResponse`."""
        self._feed(data)
        chunks, self._chunks = self._chunks, []
        return chunks

    def _feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise MalformedResponse(str(error)) from None

    # Called by the parser

    def on_message_begin(self) -> None:
        if self.has_ended:
            raise MalformedResponse("data follows the response")

    def on_status(self, reason: bytes) -> None:
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_in_body:
            self._headers.append((name, value.rstrip(b" \t")))

    def on_body(self, data: bytes) -> None:
        self._chunks.append(data)

    def on_message_complete(self) -> None:
        self.has_ended = self._is_in_body
