"""Requests and responses as the services see them.

A request keeps its target and headers exactly as they arrived, because signatures cover them
and metadata names keep their case.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence

import msgspec

from etagere.descriptors import FilePart
from etagere.protocol.http.request_bodies import BodyTooLarge, ClientGone, RequestBody

__all__ = ["BodyTooLarge", "ClientGone", "FilePart", "Request", "RequestBody", "Response"]


class Request:
    """A request. Header names in `headers` are as sent. In `fields` they are in lower case, and the
    values of repeated headers are joined by commas."""

    __slots__ = (
        "body",
        "client",
        "fields",
        "headers",
        "is_relayed",
        "keep_alive",
        "method",
        "minor_version",
        "secure",
        "server_seconds",
        "target",
    )

    def __init__(
        self,
        method: str,
        target: bytes,
        headers: list[tuple[bytes, bytes]],
        fields: dict[bytes, bytes],
        body: RequestBody,
    ) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.fields = fields
        self.body = body
        self.client = ""
        self.secure = False
        """Whether the client sent it over TLS."""
        self.is_relayed = False
        """Whether a node of another cell relays it."""
        self.keep_alive = True
        self.minor_version = 1
        self.server_seconds = 0.0
        """The time from the end of its body until there was a response."""


class Response(msgspec.Struct):
    """A response. The server adds Date, Server and the headers about the connection."""

    status: int
    headers: Sequence[tuple[bytes, bytes]] = ()
    body: bytes | AsyncIterator[bytes] | Iterable[FilePart] = b""
    """Parts of files are requested one at a time, each after the previous one was sent."""
    length: int | None = None
    """The length of a streamed body, if known, or of the body that a response to HEAD omits.
    Required for parts of files, unless they are a list."""
    finished: Callable[[], None] | None = None
    """Called once the body has been sent or given up."""
    reason: str = ""
    """The reason phrase of the status line, if not the standard one."""
    has_effect: bool = False
    """Whether a GET or HEAD request has changed something nevertheless: then no error may be sent
    in place of this response."""
    is_relayed: bool = False
    """Whether it is the response of another node, which has added Date and Server."""
    buffer_bytes: int = 0
    """The memory that a streamed body uses until it is sent; 0 if it is negligible."""
    notes: object = None
    """What the application knows about the request, for `Application.sent`."""
