"""The reading half of a connection."""

from __future__ import annotations

import asyncio
from typing import Protocol

from etagere.protocol.connections.memory import MemoryBudget
from etagere.protocol.http import sockets
from etagere.protocol.http.framing import FramingObserver, RequestFraming
from etagere.protocol.http.lifecycle import (
    CLOSED,
    CLOSING,
    INPUT_OPEN,
    LINGERING,
    MALFORMED,
    Lifecycle,
)
from etagere.protocol.http.limits import Limits
from etagere.protocol.http.messages import Request, RequestBody
from etagere.protocol.http.request_bodies import LentSocket
from etagere.protocol.http.request_heads import MalformedRequest

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# While this many pipelined requests wait, the socket is not read.
_PIPELINED_PAUSE = 16
# With fewer bytes waiting in a socket, it does not pay to have another thread read them.
_LENT_BYTES_MIN = 32 * 1024
# The most that is parsed in one iteration of the event loop. A buffer of the transport may contain
# thousands of heads, or 40,000 chunks of one byte, and other connections would wait for all of it.
_PARSED_BYTES_MAX = 16 * 1024


class InputObserver(FramingObserver, Protocol):
    """Receives the events of the input."""

    def input_refused(self) -> None:
        """The input is malformed; see `Input.refusal`. Nothing after it is parsed."""
        ...

    def input_caught_up(self) -> None:
        """Everything that has arrived is parsed, after some of it had to wait for its turn."""
        ...


class Input:
    """Reads requests from a transport, and holds the client back while their readers are slow."""

    def __init__(
        self,
        observer: InputObserver,
        transport: asyncio.Transport,
        lifecycle: Lifecycle,
        limits: Limits,
        memory: MemoryBudget,
        *,
        client: str,
        secure: bool,
    ) -> None:
        """`client` is the address of the client."""
        self._loop = asyncio.get_running_loop()
        self._observer = observer
        self._transport = transport
        self._lifecycle = lifecycle
        self._limits = limits
        self._secure = secure
        self.framing = RequestFraming(observer, self, limits, memory, client=client, secure=secure)
        self.refusal: MalformedRequest | None = None
        """Why the input is no longer parsed, if it is malformed."""
        self.holds = 0
        """How many reasons there are not to read on: bodies with full buffers, pipelined requests,
        bytes that wait to be parsed, a socket that is lent."""
        self.is_crowded = False
        """Whether the number of pipelined requests is one of them."""
        self._postponed: memoryview | None = None
        """Bytes that have arrived, to be parsed in the next iterations of the event loop."""
        self._ignored_bytes = 0
        self._widened_for: RequestBody | None = None

    def receive(self, data: bytes) -> None:
        if self._lifecycle.input is not INPUT_OPEN:
            self._ignore(len(data))
        elif len(data) <= _PARSED_BYTES_MAX or len(data) <= self.framing.announced_rest():
            try:
                self.framing.feed(data)
            except MalformedRequest as malformed:
                self._refuse(malformed)
        else:
            self._receive_in_turns(memoryview(data))

    def _receive_in_turns(self, data: memoryview) -> None:
        """Parses a part of what has arrived, and postpones the rest. What is left of a body whose
        length is known is one thing to parse, however long it is."""
        parsed = False
        while data and self._lifecycle.input is INPUT_OPEN:
            count = self.framing.announced_rest()
            if not count:
                if parsed:
                    self._postponed = data
                    self.pause()
                    self._loop.call_soon(self._receive_postponed)
                    return
                parsed = True
                count = _PARSED_BYTES_MAX
            try:
                self.framing.feed(data[:count])
            except MalformedRequest as malformed:
                self._refuse(malformed)
            data = data[count:]
        self._ignored_bytes += len(data)

    def _receive_postponed(self) -> None:
        data, self._postponed = self._postponed, None
        if data is None or self._lifecycle.connection is CLOSED:
            return
        self.resume()
        if self._lifecycle.input is not INPUT_OPEN:
            self._ignore(len(data))
            return
        self._receive_in_turns(data)
        if self._lifecycle.input is INPUT_OPEN:
            self._observer.input_caught_up()

    def _ignore(self, count: int) -> None:
        self._ignored_bytes += count
        if self._ignored_bytes > self._limits.discard_bytes_max:
            self._transport.abort()

    def _refuse(self, malformed: MalformedRequest) -> None:
        self._lifecycle.apply(MALFORMED)
        self.refusal = malformed
        self.framing.fail_body()
        self._observer.input_refused()

    def hold_pipelined(self, request: Request) -> None:
        """Holds the client back that sends requests ahead of their turn."""
        if request.body.length != 0:
            # The request may be refused, and until then its body would take memory.
            request.body.hold()
        if len(self.framing.requests) >= _PIPELINED_PAUSE and not self.is_crowded:
            self.is_crowded = True
            self.pause()

    def release_pipelined(self) -> None:
        """Reads on once enough of the pipelined requests have been served."""
        if len(self.framing.requests) < _PIPELINED_PAUSE // 2:
            self.is_crowded = False
            self.resume()

    def read_to_end(self) -> None:
        """Reads on despite the holds; all input is ignored."""
        self.framing.drop_requests()
        if self.holds and not self._transport.is_closing():
            self._transport.resume_reading()

    def lose(self) -> None:
        """Ends the incomplete request: the transport is gone."""
        self.framing.end()
        self._widened_for = None
        del self._observer  # which refers to this object

    # Called by request bodies and their readers: see `request_bodies.Flow`

    def wanted(self, body: RequestBody) -> None:
        if body.expects_continue:
            body.expects_continue = False
            self._transport.write(_CONTINUE)

    def pause(self) -> None:
        self.holds += 1
        if self._lifecycle.connection is not CLOSED:
            self._transport.pause_reading()

    def resume(self) -> None:
        state = self._lifecycle.connection
        if state is LINGERING or state is CLOSING:
            return
        self.holds -= 1
        if self.holds == 0 and state is not CLOSED:
            self._transport.resume_reading()

    def lend_socket(self, body: RequestBody) -> LentSocket | None:
        unparsed_bytes = self.framing.unparsed_bytes
        if body is not self.framing.body or not unparsed_bytes or self._secure:
            return None
        if self._lifecycle.input is not INPUT_OPEN or self._transport.is_closing():
            return None  # if the transport is closed, another file may have its descriptor by now
        socket = self._transport.get_extra_info("socket")
        if body is not self._widened_for:
            self._widened_for = body
            sockets.enlarge_receive_window(socket, unparsed_bytes)
        if sockets.waiting_bytes(socket) < min(_LENT_BYTES_MIN, unparsed_bytes):
            return None
        file = sockets.duplicate(socket)
        if file is None:
            return None
        self.pause()
        return LentSocket(self, file, unparsed_bytes)

    def return_socket(self, taken: int | None) -> None:
        if self.framing.body is None or self._lifecycle.connection is CLOSED:
            return
        if taken is None:
            # A thread is still reading, and it will never be known how far it got.
            self.framing.fail_body()
            self._transport.abort()
            return
        self.framing.count_direct_bytes(taken)
        self.resume()
