"""Inbound framing: bytes in, requests and their bodies out. No socket, and nothing about serving.

The parser is llhttp in strict mode, which refuses the means of request smuggling: conflicting
lengths, bare line feeds, folded headers.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Protocol, cast

import httptools

from etagere.protocol.connections.memory import MemoryBudget
from etagere.protocol.http.limits import Limits
from etagere.protocol.http.messages import Request, RequestBody
from etagere.protocol.http.request_bodies import Flow
from etagere.protocol.http.request_heads import (
    MalformedRequest,
    head_with_same_framing,
    new_request,
)
from etagere.protocol.http.targets import RequestLineScanner

logger = logging.getLogger(__name__)

_EMPTY_LINE = b"\r\n\r\n"
# One buffer of the transport may contain thousands of pipelined requests: those are too many.
_PIPELINED_MAX = 512
# A longer rest of a body whose length is known bypasses the parser, which would only copy it.
_UNPARSED_BYTES_MIN = 256 * 1024


class FramingObserver(Protocol):
    """Receives events while the parser runs."""

    def head_begun(self) -> None: ...

    def request_received(self, request: Request) -> None:
        """The head of a request is complete. The request is in `RequestFraming.requests`."""
        ...

    def discarded_body_received(self) -> None:
        """The last byte of a discarded body has arrived."""
        ...


class RequestFraming:
    """Parses the requests of one connection."""

    def __init__(
        self,
        observer: FramingObserver,
        flow: Flow,
        limits: Limits,
        memory: MemoryBudget,
        *,
        client: str = "",
        secure: bool = False,
    ) -> None:
        self._observer = observer
        self._flow = flow
        self._limits = limits
        self._memory = memory
        self._client = client
        self._secure = secure
        self._client_is_secure = secure
        self._is_relayed = False
        self._parser = httptools.HttpRequestParser(self)
        self._request_lines = RequestLineScanner()
        self.requests: deque[Request] = deque()
        """Requests whose heads have arrived, and which are not being served yet."""
        self.in_message = False
        """Whether some bytes of a request have arrived, and more are to come."""
        self.body: RequestBody | None = None
        """The body that is arriving."""
        self.unparsed_bytes = 0
        """How much of the body will come without being parsed."""
        # Since the last complete head or the last bytes of a body.
        self._unframed_bytes = 0
        self._unframed_bytes_max = limits.target_bytes_max + limits.head_bytes_max
        # Set from the end of a head that asks for an upgrade until another parser continues.
        self._changing_parsers = False

    def set_relayed(self, *, is_secure: bool) -> None:
        """Marks all requests as relayed by a node of another cell, to which clients sent them over
        TLS or not."""
        self._is_relayed = True
        self._client_is_secure = is_secure

    def feed(self, data: bytes | memoryview) -> None:
        """Parses what has arrived. After MalformedRequest, nothing more may be fed."""
        length = len(data)
        self._unframed_bytes += length
        start = 0
        try:
            if not self.in_message and isinstance(data, bytes):
                # Nearly always a whole head, which takes fewer steps than below.
                line_end = data.find(b"\r\n")
                if line_end > 0 and data.find(b"  ", 0, line_end) < 0:
                    head_end = data.find(_EMPTY_LINE, line_end)
                    if head_end > 0:
                        stop = head_end + len(_EMPTY_LINE)
                        start = self._parse(data if stop == length else data[:stop])
            while start < length:
                if self.unparsed_bytes:
                    start += self._take_unparsed(data[start:] if start else data)
                    continue
                body = self.body
                if body is not None and body.length is not None:
                    stop = min(start + body.length - body.received, length)
                else:
                    if isinstance(data, memoryview):
                        data = bytes(data)
                    stop = self._end_of_portion(data, start)
                portion = data if stop - start == length else data[start:stop]
                if body is None and self._request_lines.has_two_spaces(
                    cast("bytes", portion), begins_message=not self.in_message
                ):
                    raise MalformedRequest(400, "The request line has two spaces in a row.")
                start += self._parse(portion)
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            if isinstance(cause, MalformedRequest):
                raise cause from None
            logger.error("could not process a request", exc_info=cause)
            raise MalformedRequest(400, "The request is malformed.") from None
        except httptools.HttpParserError as error:
            raise MalformedRequest(400, f"{error}.") from None
        if self._unframed_bytes > self._unframed_bytes_max:
            raise MalformedRequest(431, "The headers are too large.")

    @property
    def method(self) -> str:
        """The method of the current request; empty until its target has begun."""
        if not self.in_message or not self._target:
            return ""
        return self._parser.get_method().decode("ascii")

    def count_direct_bytes(self, count: int) -> None:
        """Counts bytes of the body that its reader has taken from the socket itself."""
        assert self.body is not None
        self.unparsed_bytes -= count
        self.body.count_direct_bytes(count)
        if not self.unparsed_bytes:
            self.on_message_complete()

    def announced_rest(self) -> int:
        """Returns how much is to come of a body whose length is known; 0 if there is none."""
        body = self.body
        return 0 if body is None or body.length is None else body.length - body.received

    def fail_body(self) -> None:
        """Makes the reader of the current body fail, because the rest will not arrive."""
        if self.body is not None:
            self.body.fail()

    def drop_requests(self) -> None:
        for request in self.requests:
            request.body.release()
        self.requests.clear()

    def end(self) -> None:
        """Ends the incomplete request; nothing more may be fed."""
        self.drop_requests()
        self.fail_body()
        # Each of these refers to this object, which should be freed without the garbage collector.
        del self._parser, self._observer, self._flow

    # Parsers

    def _parse(self, portion: bytes | memoryview) -> int:
        """Parses a portion; returns how much of it, which is less only after an upgrade."""
        parsed = len(portion)
        try:
            self._parser.feed_data(portion)
        except httptools.HttpParserUpgrade as upgrade:
            self._change_parsers()
            parsed = upgrade.args[0]
        body = self.body
        if body is not None and not self.unparsed_bytes:
            self._bypass_parser(body)
        return parsed

    def _change_parsers(self) -> None:
        """Continues with a new parser after a head that asks for an upgrade.

        Upgrades are not offered, so such a request is a request like any other. The parser takes
        what follows its head for another protocol, and stops.
        """
        self._parser = httptools.HttpRequestParser(self)
        if self.body is not None:
            self._parser.feed_data(head_with_same_framing(self.body))
            self._changing_parsers = False

    def _bypass_parser(self, body: RequestBody) -> None:
        rest = (body.length or 0) - body.received
        if rest > _UNPARSED_BYTES_MIN:
            self.unparsed_bytes = rest
            if not self._secure:
                # Its reader may read it directly from the socket.
                body.hold()
            self._parser = httptools.HttpRequestParser(self)

    def _end_of_portion(self, data: bytes, start: int) -> int:
        """Returns where the next head or chunked body may end: both end with an empty line. So each
        portion is known to begin a message or not, and with it a request line."""
        if start < len(_EMPTY_LINE) - 1 and self.in_message and data[start] in b"\r\n":
            return start + 1  # some of the line ends may have been in the previous portion
        end = data.find(_EMPTY_LINE, start)
        return len(data) if end < 0 else end + len(_EMPTY_LINE)

    def _take_unparsed(self, data: bytes | memoryview) -> int:
        """Takes what belongs to the body; returns how much that is."""
        count = min(len(data), self.unparsed_bytes)
        self.unparsed_bytes -= count
        self.on_body(bytes(data if count == len(data) else data[:count]))
        if not self.unparsed_bytes:
            self.on_message_complete()
        return count

    # Called by the parser

    def on_message_begin(self) -> None:
        if self._changing_parsers:
            return
        self.in_message = True
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._observer.head_begun()

    def on_url(self, url: bytes) -> None:
        if self._changing_parsers:
            return
        self._target += url
        if len(self._target) > self._limits.target_bytes_max:
            raise MalformedRequest(414, "The address is too long.")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.body is not None:
            return  # a trailer, which nothing here has a use for
        self._headers.append((name, value.rstrip(b" \t")))
        if len(self._headers) > self._limits.headers_max:
            raise MalformedRequest(431, "There are too many headers.")

    def on_headers_complete(self) -> None:
        if self._changing_parsers:
            return
        self._unframed_bytes = 0
        if len(self.requests) >= _PIPELINED_MAX:
            raise MalformedRequest(400, "Too many requests were sent ahead.")
        request = new_request(
            self._parser, self._target, self._headers, self._flow, self._limits, self._memory
        )
        request.client = self._client
        request.secure = self._client_is_secure
        request.is_relayed = self._is_relayed
        self._changing_parsers = self._parser.should_upgrade() and request.body.length != 0
        self.body = request.body
        self.requests.append(request)
        self._observer.request_received(request)

    def on_body(self, data: bytes) -> None:
        body = self.body
        assert body is not None
        self._unframed_bytes = 0
        body.expects_continue = False
        body.feed(data)
        if body.discarded > self._limits.discard_bytes_max:
            raise MalformedRequest(413, "Too much of the body was left unread.")

    def on_message_complete(self) -> None:
        if self._changing_parsers:
            return  # the body is still to come
        body = self.body
        assert body is not None
        body.feed_end()
        self.body = None
        self.in_message = False
        self._unframed_bytes = 0
        if body.is_discarded:
            self._observer.discarded_body_received()
