"""HTTP/1.1 on one connection.

Requests are served one at a time, in order; pipelined ones wait. `lifecycle` has the states of a
connection; `input`, with `framing`, and `output` are its halves; `timing` measures how slow its
client is.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import cast

from etagere.protocol.connections.memory import SMALL_BYTES_MAX, MemoryBudget
from etagere.protocol.connections.pool import ConnectionPlace
from etagere.protocol.http import sockets
from etagere.protocol.http.application import Application
from etagere.protocol.http.input import Input
from etagere.protocol.http.lifecycle import (
    CLOSE,
    CLOSED,
    CONNECTING,
    DRAINING,
    END_OF_INPUT,
    ESTABLISHED,
    INPUT_ENDED,
    INPUT_OPEN,
    LAST_RESPONSE,
    LOST,
    OPEN,
    SHUT_DOWN,
    Lifecycle,
)
from etagere.protocol.http.limits import Limits
from etagere.protocol.http.messages import ClientGone, Request, RequestBody, Response
from etagere.protocol.http.output import Output
from etagere.protocol.http.request_heads import MalformedRequest
from etagere.protocol.http.response_heads import head
from etagere.protocol.http.responses import read_short_files, send_response
from etagere.protocol.http.timing import NEVER, ClientTimer

logger = logging.getLogger(__name__)

# An error in place of the response to one of these denies nothing that has been done, unless the
# response says so.
_SAFE_METHODS = frozenset({"GET", "HEAD"})


class Connection(asyncio.Protocol):
    """Runs the application on the requests of one client, and sends its responses."""

    def __init__(
        self,
        application: Application,
        limits: Limits,
        connections: set[Connection],
        place: ConnectionPlace,
        memory: MemoryBudget,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._application = application
        self._limits = limits
        self._connections = connections
        self._place = place
        self._memory = memory
        self._lifecycle = Lifecycle()
        self._accepted_at = self._loop.time()
        self._task: asyncio.Task[None] | None = None
        """Serves a request, if there is one."""
        self._served: RequestBody | None = None
        """The body of that request."""
        self.closed: asyncio.Future[None] = self._loop.create_future()

    @property
    def is_established(self) -> bool:
        return self._lifecycle.connection is not CONNECTING

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast("asyncio.Transport", transport)
        self._secure = transport.get_extra_info("sslcontext") is not None
        forwarded = self._place.client
        peer = forwarded or transport.get_extra_info("peername")
        self._input = Input(
            self,
            transport,
            self._lifecycle,
            self._limits,
            self._memory,
            client=peer[0] if isinstance(peer, tuple) else "",
            secure=self._secure,
        )
        if forwarded is not None and forwarded.is_relayed:
            self._input.framing.set_relayed(is_secure=forwarded.is_secure)
        self._output = Output(transport, secure=self._secure)
        self._framing = self._input.framing
        self._timer = ClientTimer(self._limits, self._memory, self._input, self._output)
        self._timer.deadline = self._accepted_at + self._limits.head_seconds
        self._lifecycle.apply(ESTABLISHED)
        self._place.evict = self._evict
        self._connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._lifecycle.apply(LOST)
        self._input.lose()
        self._output.lose()
        if self._task is None:
            self._leave()

    def _leave(self) -> None:
        """Leaves the pool: the transport is gone, and the last request has ended too."""
        self._connections.discard(self)
        self._place.leave()
        if not self.closed.done():
            self.closed.set_result(None)

    def data_received(self, data: bytes) -> None:
        self._input.receive(data)

    def eof_received(self) -> bool:
        self._framing.fail_body()
        self._lifecycle.apply(END_OF_INPUT)
        # A client that has closed its side still reads its responses, except over TLS.
        return self._task is not None and not self._secure

    def pause_writing(self) -> None:
        self._output.pause()

    def resume_writing(self) -> None:
        self._output.resume()

    # Called by the input

    def head_begun(self) -> None:
        if self._task is None:
            self._timer.expect_within(self._limits.head_seconds)

    def request_received(self, request: Request) -> None:
        self._timer.deadline = NEVER
        self._place.set_busy()
        if self._task is None:
            self._serve_next()
        else:
            self._input.hold_pipelined(request)

    def discarded_body_received(self) -> None:
        self._timer.deadline = NEVER
        if self._task is None:
            self._serve_next()

    def input_refused(self) -> None:
        """Answers malformed input in its turn, after the requests that came before it."""
        if self._task is not None:
            return
        if self._framing.body is not None:
            self._close()  # the request that this body belongs to has been answered
        else:
            self._serve_next()

    def input_caught_up(self) -> None:
        if self._task is None and self._framing.body is None:
            # There was no deadline while the input was held.
            self._expect_next()

    # Serving

    def _serve_next(self) -> None:
        if self._framing.requests:
            request = self._framing.requests.popleft()
            self._served = request.body
            self._task = self._loop.create_task(self._serve(request))
            if self._input.is_crowded:
                self._input.release_pipelined()
        elif self._input.refusal is not None:
            self._answer_malformed(self._input.refusal)
        elif self._lifecycle.input is not INPUT_OPEN:
            self._close()
        else:
            self._place.set_idle()
            self._expect_next()

    def _expect_next(self) -> None:
        """Sets the deadline for the rest of a head, or the beginning of the next one."""
        limits = self._limits
        self._timer.expect_within(
            limits.head_seconds if self._framing.in_message else limits.idle_seconds
        )

    async def _serve(self, request: Request) -> None:
        try:
            await self._respond(request)
        except ClientGone:
            self._transport.abort()
        except Exception as error:
            # The head may have been sent: closing is the only way to say that the rest is missing.
            self._application.cut_off(request, error)
            self._transport.abort()
        finally:
            request.body.release()
            self._task = self._served = None
            if self._lifecycle.connection is CLOSED:
                self._leave()
        if not self._transport.is_closing():
            self._go_on_after(request)

    async def _respond(self, request: Request) -> None:
        began = time.monotonic()
        try:
            response = await self._application.handle(request)
        except ClientGone:
            # The client is still there if it sent something that is not a body.
            refusal = self._input.refusal
            if refusal is None or self._lifecycle.connection is CLOSED:
                raise
            response = self._application.malformed(refusal.status, refusal.detail, request.method)
        except Exception as error:
            response = self._application.failed(request, error)
        body_ended = request.body.completed_at
        request.server_seconds = time.monotonic() - (body_ended if body_ended > began else began)
        if not isinstance(response.body, bytes):
            response = self._with_short_files(request, response)
            if response.buffer_bytes:
                response = self._within_memory(request, response, response.buffer_bytes)
        elif len(response.body) > SMALL_BYTES_MAX:
            response = self._within_memory(request, response, len(response.body))
        try:
            is_last = self._is_last_response(request)
            if await send_response(self._output, request, response, is_last=is_last):
                self._lifecycle.apply(LAST_RESPONSE)
        finally:
            if response.finished is not None:
                response.finished()
            self._application.sent(request, response, time.monotonic() - began)

    def _with_short_files(self, request: Request, response: Response) -> Response:
        """Returns a response, with its body in memory if it consists of short files; a refusal if
        they cannot be read."""
        if request.method == "HEAD":
            return response
        try:
            read_short_files(response)
        except OSError as error:
            logger.error("a response could not be read: %s", error)
            if response.finished is not None:
                response.finished()
            return self._application.busy(request)
        return response

    def _within_memory(self, request: Request, response: Response, size: int) -> Response:
        """Returns a response that uses memory until it is sent, or a refusal if there is too little
        memory left for it."""
        may_refuse = request.method in _SAFE_METHODS and not response.has_effect
        if may_refuse and not self._memory.has_room():
            if response.finished is not None:
                response.finished()
            return self._application.busy(request)
        request.body.keep(size)
        return response

    def _is_last_response(self, request: Request) -> bool:
        """Returns whether the connection ends with the response to this request."""
        if self._lifecycle.connection is not OPEN or not request.keep_alive:
            return True
        if self._place.is_draining():
            return True
        if not request.body.complete and self._gives_up(request.body):
            return True
        if self._lifecycle.input is INPUT_OPEN:
            return False
        return not self._framing.requests and self._input.refusal is None

    def _gives_up(self, body: RequestBody) -> bool:
        """Returns whether a new connection costs less than the rest of an unread body."""
        if body.expects_continue or self._lifecycle.input is not INPUT_OPEN:
            return True  # whether that rest comes at all is the client's choice
        return (body.length or 0) - body.received > self._limits.discard_bytes_max

    def _go_on_after(self, request: Request) -> None:
        """Serves the next request, if the connection can still be used."""
        body = request.body
        if not body.complete or body.is_held:
            body.discard()
        if self._lifecycle.connection is not OPEN:
            self._close()
        elif body.complete:
            self._serve_next()
        elif self._lifecycle.input is not INPUT_OPEN:
            self._close()
        else:
            self._place.set_idle()
            self._timer.deadline = self._loop.time() + self._limits.discard_seconds_max

    def _answer_malformed(self, refusal: MalformedRequest) -> None:
        method = self._framing.method
        response = self._application.malformed(refusal.status, refusal.detail, method)
        framing = b"Connection: close\r\n"
        if method == "HEAD":
            self._output.write(head(response, framing))
        else:
            body = cast("bytes", response.body)
            framing += b"Content-Length: %d\r\n" % len(body)
            self._output.write(head(response, framing) + body)
        self._close()

    # Closing

    def _close(self) -> None:
        """Closes after the last response; lingers if the client may still be sending."""
        framing, state = self._framing, self._lifecycle.input
        may_send = framing.in_message or framing.requests or state is not INPUT_OPEN
        lingers = may_send and state is not INPUT_ENDED and self._transport.can_write_eof()
        self._lifecycle.apply(SHUT_DOWN if lingers else CLOSE)
        self._place.set_idle()
        self._input.read_to_end()
        self._timer.deadline = self._loop.time() + self._limits.linger_seconds
        if not lingers:
            self._transport.close()
            return
        try:
            self._transport.write_eof()
        except OSError:  # reset, which has not been reported yet
            self._transport.abort()

    def _evict(self) -> None:
        """Closes in favour of a new connection. There is no request, but the client may not have
        read the end of a response yet."""
        if self._output.pending():
            self._lifecycle.apply(CLOSE)
            self._transport.close()
        else:
            self._transport.abort()

    # Called by the server

    def expire(self, now: float, elapsed_seconds: float) -> None:
        """Ends the connection if its client is too slow; called about once a second."""
        if self._lifecycle.connection is CLOSED:
            return
        is_late = self._timer.is_late(now)
        is_too_slow = self._timer.is_too_slow(elapsed_seconds)
        if self._timer.holds_wanted_memory(elapsed_seconds, self._served):
            if self._output.pending():
                is_too_slow = True
            elif self._served is not None:
                self._served.give_up()
        if is_too_slow:
            sockets.reset_on_close(self._transport.get_extra_info("socket"))
        if is_late or is_too_slow:
            self._framing.fail_body()
            self._transport.abort()

    def drain(self) -> None:
        """Finishes the current request and closes."""
        self._lifecycle.apply(LAST_RESPONSE)
        if self._task is None and self._lifecycle.connection is DRAINING:
            self._close()

    def abort(self) -> None:
        """Ends the connection and the current request."""
        self._transport.abort()
        if self._task is not None:
            self._task.cancel()
