"""The client side of HTTP/1.1, on one connection to a node of another cell.

A connection sends one request at a time. Neither the request nor the response is held in memory as
a whole: backpressure from the node slows down the client, and backpressure from the client slows
down the node.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Final, cast

from etagere.protocol.http.messages import RequestBody
from etagere.protocol.relay.heads import MalformedResponse, ResponseHead, ResponseParser

_RECEIVED_BYTES_MAX: Final = 64 << 10
"""How much of a response is buffered before reading from the node pauses."""
_READ_BYTES_MAX: Final = 256 << 10
"""How much the event loop reads from a socket at once."""
RESPONSE_BYTES_MAX: Final = _RECEIVED_BYTES_MAX + 2 * _READ_BYTES_MAX
"""The most memory that a response takes while its client reads slowly: what is buffered, what was
read last, and what has been written to the connection of the client."""
_WRITE_BUFFER_BYTES: Final = 256 << 10
_HEAD_BYTES_MAX: Final = 128 << 10
_INACTIVE_SECONDS_MAX: Final = 60.0
"""How long a node may read nothing of a request, or send nothing of a response it has begun."""
_EMPTY_LINE: Final = b"\r\n\r\n"


class NodeGone(Exception):
    """A node closed the connection before its response was complete, or does not respond."""


class NodeConnection(asyncio.Protocol):
    """A connection to a node of another cell."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._error: NodeGone | None = None
        """Why the connection cannot be used any more."""
        self._writable: asyncio.Future[None] | None = None
        """Set while the write buffer is full; done when more can be written."""
        self._method = ""
        self.body_bytes_sent = 0
        """How much of the body of the current request has been sent."""
        self.has_sent_all = False
        """Whether the node may have received all of the current request."""
        # The response, while it arrives.
        self._unparsed_head = b""
        self._head: ResponseHead | None = None
        self._head_received = self._loop.create_future()
        self._continue_received = self._loop.create_future()
        self._parser: ResponseParser | None = None
        """Parses the body, if it is chunked."""
        self._remaining_bytes = 0
        """How much of the body is to come, if it is not chunked."""
        self._chunks: deque[bytes] = deque()
        self._buffered_bytes = 0
        self._is_paused = False
        self._more: asyncio.Future[None] | None = None
        """Set while a reader waits for more of the body."""
        self._keep_alive = True
        self.has_ended = True
        """Whether the response is complete."""

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(_WRITE_BUFFER_BYTES)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(f"the connection was lost: {error}" if error else "it closed the connection")

    def pause_writing(self) -> None:
        if self._error is None:
            self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        writable, self._writable = self._writable, None
        _set(writable)

    def data_received(self, data: bytes) -> None:
        try:
            if self._head is not None:
                self._receive_body(data)
            else:
                self._receive_head(data)
        except MalformedResponse as error:
            self._fail(f"it sent a malformed response: {error}")
            self._transport.abort()

    def _receive_head(self, data: bytes) -> None:
        if self.has_ended:
            raise MalformedResponse("there was no request")
        self._unparsed_head += data
        while (end := self._unparsed_head.find(_EMPTY_LINE)) >= 0:
            end += len(_EMPTY_LINE)
            written, self._unparsed_head = self._unparsed_head[:end], self._unparsed_head[end:]
            parser = ResponseParser()
            head = parser.parse_head(written)
            if not head.is_interim:
                self._begin_body(head, parser)
                return
            _set(self._continue_received)
        if len(self._unparsed_head) > _HEAD_BYTES_MAX:
            raise MalformedResponse("its headers are too large")

    def _begin_body(self, head: ResponseHead, parser: ResponseParser) -> None:
        self._head = head
        self._keep_alive = head.keep_alive
        self._remaining_bytes = 0
        if not head.has_body(self._method):
            self.has_ended = True
        elif head.is_chunked:
            self._parser = parser
        elif head.length is not None:
            self._remaining_bytes = head.length
        else:
            raise MalformedResponse("its length is unknown")
        rest, self._unparsed_head = self._unparsed_head, b""
        if rest:
            self._receive_body(rest)
        _set(self._head_received)
        _set(self._continue_received)

    def _receive_body(self, data: bytes) -> None:
        if self._parser is not None:
            chunks = self._parser.parse_chunked(data)
            self.has_ended = self._parser.has_ended
        elif len(data) <= self._remaining_bytes:
            chunks = [data]
            self._remaining_bytes -= len(data)
            self.has_ended = not self._remaining_bytes
        else:
            raise MalformedResponse("data follows it")
        self._chunks.extend(chunks)
        self._buffered_bytes += sum(map(len, chunks))
        if self._buffered_bytes >= _RECEIVED_BYTES_MAX and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        _set(self._more)

    def _fail(self, detail: str) -> None:
        """Wakes all tasks that wait for the node. They raise `NodeGone`."""
        if self._error is None:
            self._error = NodeGone(detail)
        self.resume_writing()
        for waiting in (self._head_received, self._continue_received, self._more):
            _set(waiting)

    # Called by the relay

    @property
    def is_usable(self) -> bool:
        """Whether another request can be sent."""
        return self._error is None and self.has_ended and self._keep_alive

    def end_request(self) -> None:
        """Drops what was not read of the response, or closes the connection if more is to come."""
        if self.is_usable:
            self.take_received()
        else:
            self.abort()

    async def request(
        self, method: str, head: bytes, body: RequestBody | None, response_seconds_max: float
    ) -> ResponseHead:
        """Sends a request; returns the head of the response, which may arrive before all of the
        body has been sent. Raises `NodeGone`, also if the node takes longer than
        `response_seconds_max` to respond."""
        has_body = body is not None and body.length != 0
        self._begin(method, has_body=has_body)
        try:
            self._write(head)
            if body is not None and body.expects_continue:
                await self._wait(self._continue_received, response_seconds_max)
            if body is not None and has_body and self._head is None:
                await self._send_unless_answered(body)
            if self._head is None:
                await self._wait(self._head_received, response_seconds_max)
        except BaseException:
            self.abort()
            raise
        if not self.has_sent_all:
            # The node would take the next request for the rest of this one.
            self._keep_alive = False
        assert self._head is not None
        return self._head

    def _begin(self, method: str, *, has_body: bool) -> None:
        self._method = method
        self.body_bytes_sent = 0
        self.has_sent_all = not has_body
        self.has_ended = False
        self._head = self._parser = None
        self._head_received = self._loop.create_future()
        self._continue_received = self._loop.create_future()

    async def _send_unless_answered(self, body: RequestBody) -> None:
        """Sends the body, until the node responds."""
        sending = self._loop.create_task(self._send(body))
        try:
            await asyncio.wait({sending, self._head_received}, return_when=asyncio.FIRST_COMPLETED)
            if self._head is None:
                if self._error is not None:
                    raise self._error
                await sending
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def _send(self, body: RequestBody) -> None:
        is_chunked = body.length is None
        async for chunk in body:
            self.body_bytes_sent += len(chunk)
            self.has_sent_all = self.body_bytes_sent == body.length
            self._write(b"%x\r\n%b\r\n" % (len(chunk), chunk) if is_chunked else chunk)
            if self._writable is not None:
                await self._wait(self._writable, _INACTIVE_SECONDS_MAX)
        if is_chunked:
            self.has_sent_all = True
            self._write(b"0\r\n\r\n")

    def _write(self, data: bytes) -> None:
        if self._error is not None:
            raise self._error
        self._transport.write(data)

    async def _wait(self, waiting: asyncio.Future[None], seconds_max: float) -> None:
        """Waits for an event of the node. Raises `NodeGone`, unless the node has responded."""
        await asyncio.wait({waiting}, timeout=seconds_max)
        if not waiting.done():
            self._fail(f"it was inactive for {seconds_max:g} s")
        if self._error is not None and self._head is None:
            raise self._error

    def take_received(self) -> bytes:
        """Returns the part of the body that was received but not read yet."""
        received = b"".join(self._chunks)
        self._chunks.clear()
        self._count_read(len(received))
        return received

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yields the body of the response. Raises `NodeGone`."""
        while True:
            while self._chunks:
                chunk = self._chunks.popleft()
                self._count_read(len(chunk))
                yield chunk
            if self.has_ended:
                return
            if self._error is not None:
                raise self._error
            self._more = self._loop.create_future()
            await self._wait(self._more, _INACTIVE_SECONDS_MAX)

    def _count_read(self, read_bytes: int) -> None:
        self._buffered_bytes -= read_bytes
        if self._is_paused and self._buffered_bytes < _RECEIVED_BYTES_MAX // 2:
            self._is_paused = False
            if self._error is None:
                self._transport.resume_reading()

    def abort(self) -> None:
        """Closes the connection without completing the current request."""
        self._fail("the connection was closed")
        self._transport.abort()


def _set(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
