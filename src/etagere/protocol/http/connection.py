"""HTTP/1.1 on one connection.

The parser is llhttp in its strict mode, which refuses what smuggling is made of: conflicting
lengths, bare line feeds, folded headers. Requests of a connection are served one at a time, in
order; what a client sends ahead waits.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol, cast

import httptools

from etagere.protocol.http import sockets
from etagere.protocol.http.heads import head
from etagere.protocol.http.memory import SMALL_BYTES_MAX, MemoryBudget
from etagere.protocol.http.messages import (
    ClientGone,
    Request,
    RequestBody,
    Response,
    Tap,
)
from etagere.protocol.http.output import Output, read_files
from etagere.protocol.http.pace import Pace
from etagere.protocol.http.pool import Place

logger = logging.getLogger(__name__)

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_NO_BODY = frozenset({204, 304})
# Of these, nothing has been done that an error would deny, unless their answer says so.
_SAFE = frozenset({"GET", "HEAD"})
# A client with so many requests ahead is read no further. One buffer of the transport may still
# hold thousands of them: those are too many.
_AHEAD = 16
_AHEAD_MAX = 512
_NEVER = float("inf")
# Files up to this length go out in one piece with their head, which costs half of what it takes
# to hand them to the kernel.
_READ_BYTES_MAX = 64 * 1024
_UNPARSED_BYTES_MIN = 256 * 1024
# With fewer bytes waiting in a socket, it is not worth while to have them read elsewhere.
_TAPPED_BYTES_MIN = 32 * 1024
# A buffer of the transport may hold thousands of heads, or 40,000 chunks of a byte each, and
# others would wait for all of them. So much is parsed in one turn of the loop.
_PARSED_BYTES_MAX = 16 * 1024
# A body up to this length is copied behind its head: cheaper than a second system call.
_JOINED_BYTES_MAX = 64 * 1024


@dataclass(frozen=True)
class Limits:
    """What a connection may take of us."""

    target_bytes_max: int = 32 * 1024
    head_bytes_max: int = 64 * 1024
    headers_max: int = 256
    idle_seconds: float = 120.0
    head_seconds: float = 30.0
    body_bytes_per_second_min: float = 1024.0
    """That a client sends of a body, or takes of one, while it is waited for."""
    behind_seconds_max: float = 60.0
    """How far a client may be behind that rate; also how long it may send or take nothing."""
    held_memory_seconds_max: float = 60.0
    """While others need memory, a client must be fast enough to send or take in this time what it
    holds in memory"""
    wanted_memory_seconds_max: float = 3.0
    """and may be so far behind that."""
    discard_seconds_max: float = 60.0
    """For the rest of a body whose request has been answered."""
    linger_seconds: float = 5.0
    """For a client that still sends to read the answer that its connection ends with."""
    discard_bytes_max: int = 256 << 20
    """Of a body that nobody wants, before the connection is closed on it."""


class Application(Protocol):
    """What answers requests."""

    async def handle(self, request: Request) -> Response: ...

    def malformed(self, status: int, detail: str) -> Response:
        """The answer to what is no request. Its body is bytes."""
        ...

    def failed(self, request: Request, error: Exception) -> Response:
        """The answer to a request whose handling failed unexpectedly."""
        ...

    def busy(self, request: Request) -> Response:
        """The answer to a request that was carried out, but whose own answer there is no memory
        for. Its body is short."""
        ...

    def sent(self, request: Request, response: Response, seconds: float) -> None:
        """An answer is out; for the access log."""
        ...


class _Refused(Exception):
    """The head of a request breaks a limit or a rule."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


def _head_again(body: RequestBody) -> bytes:
    """All that a parser needs to know of a request to parse its body."""
    if body.length is None:
        return b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    return b"PUT / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % body.length


class Connection(asyncio.Protocol):
    """Parses requests, runs the application on them, writes its answers."""

    def __init__(
        self,
        application: Application,
        limits: Limits,
        connections: set[Connection],
        place: Place,
        memory: MemoryBudget,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._application = application
        self._limits = limits
        self._connections = connections
        self._place = place
        self._memory = memory
        self.made = False
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[Request] = deque()
        self._task: asyncio.Task[None] | None = None
        # What arrives: a message, in its body if there is one, and bytes of neither body nor
        # finished head.
        self._in_message = False
        self._incoming: RequestBody | None = None
        # What has arrived, to be parsed in the next turns of the loop.
        self._postponed: memoryview | None = None
        # So much of the body comes to us without being parsed.
        self._unparsed_bytes = 0
        self._widened = False
        # A parser is told about a head that another one has parsed.
        self._upgrading = False
        self._unframed_bytes = 0
        self._unframed_bytes_max = limits.target_bytes_max + limits.head_bytes_max
        # Reasons not to read on, of which the number of waiting requests may be one.
        self._holds = 0
        self._crowded = False
        # Nothing that still arrives is looked at, for the reason given if there is one.
        self._deaf = False
        self._heard_all = False
        self._refusal: _Refused | None = None
        self._ignored_bytes = 0
        # The answer at hand is the last; the last answer is out.
        self._closing = False
        self._ending = False
        # How fast the body comes that this was measured of.
        self._input_pace = Pace()
        self._paced: RequestBody | None = None
        # How fast the client lets go of the memory that its request at hand holds, and the request
        # that this was measured of.
        self._memory_pace = Pace()
        self._memory_paced: RequestBody | None = None
        self._served: RequestBody | None = None
        # When the client must have sent the next thing that it owes us, other than a body.
        self._deadline = self._loop.time() + limits.head_seconds
        self.closed: asyncio.Future[None] = self._loop.create_future()

    # The transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self._client = peer[0] if isinstance(peer, tuple) else ""
        self._secure = transport.get_extra_info("sslcontext") is not None
        self._output = Output(self._transport, secure=self._secure)
        self.made = True
        self._place.evict = self._give_way
        self._connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._deaf = True
        self._forget_waiting()
        if self._incoming is not None:
            self._incoming.fail()
        self._output.lose()
        del self._parser  # which refers to us
        self._let_go()

    def _let_go(self) -> None:
        """Connections count until their requests have ended too."""
        if self._output.lost and self._task is None:
            self._connections.discard(self)
            self._place.leave()
            if not self.closed.done():
                self.closed.set_result(None)

    def _forget_waiting(self) -> None:
        for request in self._waiting:
            request.body.release()
        self._waiting.clear()

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            self._ignore(len(data))
        elif len(data) <= _PARSED_BYTES_MAX or len(data) <= self._announced_rest():
            self._receive(data)
        else:
            self._receive_in_turns(memoryview(data))

    def _announced_rest(self) -> int:
        """How much is still to come of a body whose length is known: however much it is, it is
        one thing to parse."""
        body = self._incoming
        return 0 if body is None or body.length is None else body.length - body.received

    def _receive_in_turns(self, data: memoryview) -> None:
        parsed = False
        while data and not self._deaf:
            count = self._announced_rest()
            if not count:
                if parsed:
                    self._postponed = data
                    self.pause()
                    self._loop.call_soon(self._receive_postponed)
                    return
                parsed = True
                count = _PARSED_BYTES_MAX
            self._receive(data[:count])
            data = data[count:]
        self._ignored_bytes += len(data)

    def _receive_postponed(self) -> None:
        data, self._postponed = self._postponed, None
        if data is None or self._output.lost:
            return
        self.resume()
        if self._deaf:
            self._ignore(len(data))
            return
        self._receive_in_turns(data)
        if self._task is None and self._incoming is None and not self._deaf:
            # While it was postponed, no deadline was set.
            self._expect_next()

    def _receive(self, data: bytes | memoryview) -> None:
        self._unframed_bytes += len(data)
        try:
            self._parse(self._take(data) if self._unparsed_bytes else data)
        except _Refused as refused:
            self._refuse(refused)
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            if not isinstance(cause, _Refused):
                logger.error("cannot read a request", exc_info=cause)
                cause = _Refused(400, "The request is malformed.")
            self._refuse(cause)
        except httptools.HttpParserError as error:
            self._refuse(_Refused(400, f"{error}."))
        else:
            if self._unframed_bytes > self._unframed_bytes_max:
                self._refuse(_Refused(431, "The headers are too large."))

    def _parse(self, data: bytes | memoryview) -> None:
        """Upgrades are not offered, so a request that asks for one is a request like any other.
        The parser takes what follows its head for another protocol: another one goes on."""
        while data:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
                self._parser = httptools.HttpRequestParser(self)
                if self._incoming is not None:
                    self._parser.feed_data(_head_again(self._incoming))
                    self._upgrading = False
            else:
                break
        if self._incoming is not None and not self._unparsed_bytes:
            self._spare_the_parser(self._incoming)

    def _spare_the_parser(self, body: RequestBody) -> None:
        """Of a long body whose end is known the parser would only make copies."""
        rest = (body.length or 0) - body.received
        if rest > _UNPARSED_BYTES_MIN:
            self._unparsed_bytes = rest
            self._widened = False
            if not self._secure:
                body.hold()
            self._parser = httptools.HttpRequestParser(self)

    def _take(self, data: bytes | memoryview) -> bytes | memoryview:
        """Takes what belongs to the body at hand; returns what follows it."""
        count = min(len(data), self._unparsed_bytes)
        self._unparsed_bytes -= count
        self.on_body(bytes(data if count == len(data) else data[:count]))
        if not self._unparsed_bytes:
            self.on_message_complete()
        return data[count:]

    def _ignore(self, count: int) -> None:
        self._ignored_bytes += count
        if self._ignored_bytes > self._limits.discard_bytes_max:
            self._transport.abort()

    def eof_received(self) -> bool:
        if self._incoming is not None:
            self._incoming.fail()
        self._deaf = self._heard_all = True
        # Half-closed clients still read their answers; TLS knows no such thing.
        return self._task is not None and not self._secure

    def pause_writing(self) -> None:
        self._output.pause()

    def resume_writing(self) -> None:
        self._output.resume()

    # The parser's side

    def on_message_begin(self) -> None:
        if self._upgrading:
            return
        self._in_message = True
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        if self._task is None:
            self._expect_within(self._limits.head_seconds)

    def on_url(self, url: bytes) -> None:
        if self._upgrading:
            return
        self._target += url
        if len(self._target) > self._limits.target_bytes_max:
            raise _Refused(414, "The address is too long.")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._incoming is not None:
            return  # a trailer: nothing here has a use for one
        self._headers.append((name, value.rstrip(b" \t")))
        if len(self._headers) > self._limits.headers_max:
            raise _Refused(431, "There are too many headers.")

    def on_headers_complete(self) -> None:
        if self._upgrading:
            return
        self._unframed_bytes = 0
        self._deadline = _NEVER
        if len(self._waiting) >= _AHEAD_MAX:
            raise _Refused(400, "Too many requests were sent ahead.")
        request = self._request()
        self._upgrading = self._parser.should_upgrade() and request.body.length != 0
        self._incoming = request.body
        self._waiting.append(request)
        self._place.set_busy()
        if self._task is None:
            self._serve_next()
            return
        if request.body.length != 0:
            # Whoever sends it ahead may be refused, and until then it would take memory.
            request.body.hold()
        if len(self._waiting) >= _AHEAD and not self._crowded:
            self._crowded = True
            self.pause()

    def _by_name(self) -> dict[bytes, bytes]:
        """The headers by their names in lower case."""
        lookup: dict[bytes, bytes] = {}
        size = 0
        for name, value in self._headers:
            size += len(name) + len(value) + 4
            lower = name.lower()
            if lower not in lookup:
                lookup[lower] = value
            elif lower == b"host":
                raise _Refused(400, "There is more than one Host header.")
            else:
                lookup[lower] += b"," + value
        if size > self._limits.head_bytes_max:
            raise _Refused(431, "The headers are too large.")
        return lookup

    def _request(self) -> Request:
        lookup = self._by_name()
        version = self._parser.get_http_version()
        if version not in ("1.0", "1.1"):
            raise _Refused(400, "The version of HTTP is not supported.")
        if b"host" not in lookup and version == "1.1":
            raise _Refused(400, "There is no Host header.")
        encoding = lookup.get(b"transfer-encoding")
        if encoding is not None and (encoding.lower() != b"chunked" or version == "1.0"):
            raise _Refused(400, "The transfer encoding is not supported.")
        length = None if encoding is not None else int(lookup.get(b"content-length", b"0"))
        method = self._parser.get_method().decode()
        if method == "CONNECT":
            raise _Refused(400, "Tunnels are not offered.")
        expects_continue = (
            length != 0
            and version == "1.1"
            and lookup.get(b"expect", b"").lower() == b"100-continue"
        )
        body = RequestBody(self, length, expects_continue=expects_continue, memory=self._memory)
        request = Request(method, self._target, self._headers, lookup, body)
        request.client = self._client
        request.secure = self._secure
        request.keep_alive = self._parser.should_keep_alive()
        request.minor_version = 1 if version == "1.1" else 0
        return request

    def on_body(self, data: bytes) -> None:
        body = self._incoming
        assert body is not None
        self._unframed_bytes = 0
        body.expects_continue = False
        body.feed(data)
        if body.discarded > self._limits.discard_bytes_max:
            raise _Refused(413, "Too much of the body was left unread.")

    def on_message_complete(self) -> None:
        if self._upgrading:
            return  # its body is still to come
        assert self._incoming is not None
        self._incoming.feed_end()
        self._incoming = self._paced = None
        self._in_message = False
        self._unframed_bytes = 0
        self._deadline = _NEVER
        if self._task is None:
            self._serve_next()

    def _expect_next(self) -> None:
        limits = self._limits
        self._expect_within(limits.head_seconds if self._in_message else limits.idle_seconds)

    def _expect_within(self, seconds: float) -> None:
        # While we do not read, it is we who are slow.
        self._deadline = _NEVER if self._holds else self._loop.time() + seconds

    # A body's side

    def wanted(self, body: RequestBody) -> None:
        if body.expects_continue:
            body.expects_continue = False
            self._transport.write(_CONTINUE)

    def pause(self) -> None:
        self._holds += 1
        if not self._output.lost:
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._ending:
            return
        self._holds -= 1
        if self._holds == 0 and not self._output.lost:
            self._transport.resume_reading()

    def tap(self, body: RequestBody) -> Tap | None:
        if body is not self._incoming or not self._unparsed_bytes or self._secure or self._deaf:
            return None
        if self._transport.is_closing():
            return None  # its descriptor may be another's by now
        socket = self._transport.get_extra_info("socket")
        if not self._widened:
            self._widened = True
            sockets.widen(socket, self._unparsed_bytes)
        if sockets.waiting_bytes(socket) < min(_TAPPED_BYTES_MIN, self._unparsed_bytes):
            return None
        file = sockets.duplicate(socket)
        if file is None:
            return None
        self.pause()
        return Tap(self, file, self._unparsed_bytes)

    def untap(self, taken: int | None) -> None:
        if self._incoming is None or self._output.lost:
            return
        if taken is None:
            # Some thread still reads, and nobody will ever say how far.
            self._incoming.fail()
            self._transport.abort()
            return
        self._unparsed_bytes -= taken
        self._incoming.feed_elsewhere(taken)
        if not self._unparsed_bytes:
            self.on_message_complete()
        self.resume()

    # Serving

    def _serve_next(self) -> None:
        if self._waiting:
            request = self._waiting.popleft()
            self._served = request.body
            self._task = self._loop.create_task(self._serve(request))
            if self._crowded and len(self._waiting) < _AHEAD // 2:
                self._crowded = False
                self.resume()
        elif self._refusal is not None:
            self._answer_malformed(self._refusal)
        elif self._deaf:
            self._close()
        else:
            self._place.set_idle()
            self._expect_next()

    async def _serve(self, request: Request) -> None:
        try:
            await self._respond(request)
        except ClientGone:
            self._transport.abort()
        except Exception:
            # The head may be out: all that can be said now is that the answer is not whole.
            logger.exception("a response was aborted")
            self._transport.abort()
        finally:
            request.body.release()
            self._task = self._served = self._memory_paced = None
            self._let_go()
        if not self._transport.is_closing():
            self._settle(request)

    async def _respond(self, request: Request) -> None:
        began = time.monotonic()
        try:
            response = await self._application.handle(request)
        except ClientGone:
            # Not gone at all, if it sent what is no body.
            if self._refusal is None or self._output.lost:
                raise
            response = self._application.malformed(self._refusal.status, self._refusal.detail)
        except Exception as error:
            response = self._application.failed(request, error)
        response = self._afforded(request, response)
        try:
            await self._answer(request, response)
        finally:
            if response.finished is not None:
                response.finished()
            self._application.sent(request, response, time.monotonic() - began)

    def _afforded(self, request: Request, response: Response) -> Response:
        """The answer, or the refusal to give one that is too large for the memory that is left."""
        body = response.body
        if not isinstance(body, bytes) or len(body) <= SMALL_BYTES_MAX:
            return response
        may_refuse = request.method in _SAFE and not response.has_effect
        if may_refuse and self._memory.is_scarce:
            if response.finished is not None:
                response.finished()
            return self._application.busy(request)
        request.body.keep(len(body))
        return response

    def _settle(self, request: Request) -> None:
        """After an answer: on to the next request, if the connection is still good for one."""
        body = request.body
        if not body.complete or body.is_held:
            body.discard()
        if self._closing or not request.keep_alive or (self._deaf and not body.complete):
            self._close()
        elif body.complete:
            self._serve_next()
        else:
            self._place.set_idle()
            self._deadline = self._loop.time() + self._limits.discard_seconds_max

    async def _answer(self, request: Request, response: Response) -> None:
        body = response.body
        if isinstance(body, bytes):
            length: int | None = len(body)
        elif isinstance(body, list):
            length = sum([part.length for part in body])
        else:
            length = response.length
        if request.method == "HEAD" or response.status in _NO_BODY:
            if request.method == "HEAD" and response.length is not None:
                length = response.length
            if response.status in _NO_BODY:
                length = None
            self._output.write(head(response, self._framing(request, length, chunked=False)))
            return await self._output.drained()
        chunked = length is None and request.minor_version > 0
        if length is None and not chunked:
            self._closing = True  # which is how the client knows where the body ends
        start = head(response, self._framing(request, length, chunked=chunked))
        if not isinstance(body, bytes | AsyncIterator) and cast("int", length) <= _READ_BYTES_MAX:
            body = read_files(body)
        if isinstance(body, bytes):
            if len(body) <= _JOINED_BYTES_MAX:
                self._output.write(start + body)
            else:
                self._output.write(start)
                self._output.write(body)
            return await self._output.drained()
        self._output.write(start)
        if not isinstance(body, AsyncIterator):
            return await self._output.send_files(body)
        if chunked:
            return await self._output.send_chunked(body)
        return await self._output.send_stream(body, length)

    def _framing(self, request: Request, length: int | None, *, chunked: bool) -> bytes:
        """The lines of a head that say where the body ends, and whether the connection does."""
        lines = b""
        if chunked:
            lines = b"Transfer-Encoding: chunked\r\n"
        elif length is not None:
            lines = b"Content-Length: %d\r\n" % length
        if not request.body.complete and self._gives_up(request.body):
            self._closing = True
        last = self._deaf and not self._waiting and self._refusal is None
        if self._closing or last or not request.keep_alive:
            return lines + b"Connection: close\r\n"
        if request.minor_version == 0:
            return lines + b"Connection: keep-alive\r\n"
        return lines

    def _gives_up(self, body: RequestBody) -> bool:
        """Whether a new connection is better than the rest of a body that was not read."""
        if body.expects_continue or self._deaf:
            return True  # whether it comes after all is the client's choice
        return (body.length or 0) - body.received > self._limits.discard_bytes_max

    def _refuse(self, refused: _Refused) -> None:
        """What came is no request: it is answered in its turn, and nothing after it is read."""
        self._deaf = True
        self._refusal = refused
        if self._incoming is not None:
            self._incoming.fail()
        if self._task is None and self._incoming is not None:
            self._close()  # its request has been answered
        elif self._task is None:
            self._serve_next()

    def _answer_malformed(self, refused: _Refused) -> None:
        response = self._application.malformed(refused.status, refused.detail)
        body = cast("bytes", response.body)
        framing = b"Content-Length: %d\r\nConnection: close\r\n" % len(body)
        self._output.write(head(response, framing) + body)
        self._close()

    def _close(self) -> None:
        """Closes. A client that still sends is heard out for a while: otherwise its side would
        be reset, and it would never read what it was told."""
        unheard = self._in_message or bool(self._waiting) or self._deaf
        self._deaf = self._ending = True
        self._place.set_idle()
        self._forget_waiting()
        if self._holds and not self._transport.is_closing():
            self._transport.resume_reading()
        self._deadline = self._loop.time() + self._limits.linger_seconds
        if unheard and not self._heard_all and self._transport.can_write_eof():
            try:
                self._transport.write_eof()
            except OSError:  # reset, and we have not heard of it yet
                self._transport.abort()
        else:
            self._transport.close()

    # The server's side

    def _give_way(self) -> None:
        """Closes for the sake of a new connection. There is no request, but maybe the end of an
        answer that the client has not taken yet."""
        if self._output.pending():
            self._transport.close()
        else:
            self._transport.abort()

    def expire(self, now: float, elapsed_seconds: float) -> None:
        """Ends the connection if its client is too slow; called every second or so."""
        output = self._output
        if output.lost:
            return
        late = now >= self._deadline and not output.pending()
        output.measure(elapsed_seconds, self._limits.body_bytes_per_second_min)
        behind = max(output.pace.behind_seconds, self._input_behind_seconds(elapsed_seconds))
        too_slow = behind >= self._limits.behind_seconds_max
        if too_slow:
            sockets.reset_on_close(self._transport.get_extra_info("socket"))
        self._measure_held_memory(elapsed_seconds)
        if late or too_slow:
            if self._incoming is not None:
                self._incoming.fail()
            self._transport.abort()

    def _input_behind_seconds(self, elapsed_seconds: float) -> float:
        body = self._incoming
        if body is None:
            return 0.0
        if body is not self._paced:
            self._paced = body
            self._input_pace = Pace()
        # While nobody waits for its bytes, or nobody reads them, it is not the client who is slow.
        waited_seconds = elapsed_seconds if body.awaited and not self._holds else 0.0
        rate = self._limits.body_bytes_per_second_min
        self._input_pace.measure(waited_seconds, body.received, rate)
        return self._input_pace.behind_seconds

    def _measure_held_memory(self, elapsed_seconds: float) -> None:
        """Gives up a request that holds much memory for a slow client, if others need it."""
        body = self._served
        if body is None:
            return
        held_bytes = body.held_bytes + sum([ahead.body.held_bytes for ahead in self._waiting])
        if held_bytes <= SMALL_BYTES_MAX:
            return
        if body is not self._memory_paced:
            self._memory_paced = body
            self._memory_pace = Pace()
        answering = self._output.pending()
        waited = answering or (body.awaited and not self._holds)
        self._memory_pace.measure(
            elapsed_seconds if waited else 0.0,
            body.received + self._output.taken(),
            held_bytes / self._limits.held_memory_seconds_max,
        )
        behind = self._memory_pace.behind_seconds
        if behind < self._limits.wanted_memory_seconds_max or not self._memory.is_wanted:
            return
        if answering:
            sockets.reset_on_close(self._transport.get_extra_info("socket"))
            self._transport.abort()
        else:
            body.give_up()

    def drain(self) -> None:
        """Finishes the request at hand and closes."""
        self._closing = True
        if self._task is None and not self._output.lost and not self._ending:
            self._close()

    def abort(self) -> None:
        """Ends the connection and what is done for it."""
        self._transport.abort()
        if self._task is not None:
            self._task.cancel()
