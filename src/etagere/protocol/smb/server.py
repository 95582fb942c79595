"""The SMB server: sockets, limits and the end of connections."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Sequence
from typing import Final, cast

from etagere.engine.interface import Fault
from etagere.metrics.snapshots import Snapshot
from etagere.protocol.connections.listening import Listener
from etagere.protocol.connections.memory import MemoryBudget
from etagere.protocol.connections.pool import ConnectionPlace, ConnectionPool, ForwardedClient
from etagere.protocol.connections.sharing import FrontEndShare, single_front_end
from etagere.protocol.smb.buffers import Buffer
from etagere.protocol.smb.connection import Connection
from etagere.protocol.smb.framing import FrameReader, frame_prefix
from etagere.protocol.smb.large_frames import LargeFrameQueue
from etagere.protocol.smb.limits import (
    ACKNOWLEDGEMENT_SECONDS_MAX,
    FRAME_BYTES_MAX,
    FRAME_SECONDS_MAX,
    IDLE_SECONDS_MAX,
    PREAUTH_BYTES_MAX,
    PREAUTH_FRAME_BYTES_MAX,
    PREAUTH_SECONDS_MAX,
    SCARCE_SECONDS_MAX,
    SILENT_SECONDS_MAX,
    UNSENT_BYTES_MAX,
)
from etagere.protocol.smb.logons import LogonDelays, Passwords
from etagere.protocol.smb.services import SmbServices
from etagere.protocol.smb.sessions import end_session
from etagere.protocol.smb.status import Disconnect

logger = logging.getLogger(__name__)

_SWEEP_SECONDS: Final = 1.0
_TURN_FRAMES_MAX: Final = 16
"""The most frames of a client that are taken in one iteration of the event loop."""
_CHECKED_TOGETHER_MAX: Final = 64
_WRITTEN_TOGETHER_MAX: Final = 16 * 1024
"""The length of responses that are written to a socket together."""
_ABORT_SECONDS: Final = 1.0
# Dead clients must not keep files open: their handles exclude others.
_KEEPALIVE_IDLE_SECONDS: Final = 60
_KEEPALIVE_INTERVAL_SECONDS: Final = 10
_KEEPALIVE_PROBES: Final = 3


class SmbServer:
    """Serves SMB on a socket that is already bound, in one event loop."""

    def __init__(
        self,
        services: SmbServices,
        listening: socket.socket,
        *,
        pool: ConnectionPool | None = None,
        share: FrontEndShare | None = None,
        listener_number: int = 0,
        memory: MemoryBudget | None = None,
    ) -> None:
        """`pool`, `share` and `memory` are those of the process. `listener_number` is the column of
        this listener in the table that front ends share."""
        self.services = services
        self.memory = memory or MemoryBudget()
        self.session_table = services.session_table
        self.passwords = Passwords(services.engine, services.settings, services.cells)
        self.logon_delays = LogonDelays()
        self.large_frames = LargeFrameQueue()
        self.connections: set[ClientProtocol] = set()
        self.preauth_bytes = 0
        """Long frames of clients that are not authenticated, which are arriving."""
        self._tasks: set[asyncio.Task[None]] = set()
        """Connections that are being established, or closed."""
        self._listener = Listener(
            listening,
            listener_number,
            self._accept,
            pool or ConnectionPool(),
            share or single_front_end(),
        )
        self._sweeper: asyncio.Task[None] | None = None
        self._stopped_seconds = 0.0
        """How long the process was stopped, or its machine suspended."""

    def start(self) -> None:
        self._listener.start()
        self._sweeper = asyncio.create_task(self._sweep())

    def has_place(self) -> bool:
        """Returns whether another connection can be adopted."""
        return self._listener.has_place()

    def adopt(self, connected: socket.socket, client: ForwardedClient) -> None:
        """Serves a connection of this client that another node has accepted."""
        self._listener.adopt(connected, client)

    def _accept(self, connected: socket.socket, place: ConnectionPlace) -> None:
        self.keep(asyncio.create_task(self._connect(connected, place)))

    async def _connect(self, connected: socket.socket, place: ConnectionPlace) -> None:
        protocol = ClientProtocol(self, place)
        try:
            _set_options(connected)
            await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, connected)
        except OSError:
            connected.close()
            place.leave()

    def keep(self, task: asyncio.Task[None]) -> None:
        """Keeps a task until it has ended."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _sweep(self) -> None:
        """Closes connections whose clients are too slow."""
        last = self.time()
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            # If it took much longer, this process was stopped, which is not the clients' fault.
            self._stopped_seconds += max(self.time() - last - 2 * _SWEEP_SECONDS, 0)
            last = self.time()
            await self._expire(last)
            try:
                await self._end_revoked_sessions()
            except Fault as fault:
                logger.warning("could not check the keys of SMB clients: %s", fault)
            except Exception:
                # Connections must be closed in time nevertheless.
                logger.exception("could not check the keys of SMB clients")

    def report(self, snapshot: Snapshot) -> None:
        """Adds what it has counted."""
        self.services.counters.report(snapshot)
        snapshot.add("smb_sessions", len(self.session_table))

    def time(self) -> float:
        """Returns the time by which clients are late, in seconds."""
        return asyncio.get_running_loop().time() - self._stopped_seconds

    async def _expire(self, now: float) -> None:
        for checked, protocol in enumerate(list(self.connections), 1):
            if not checked % _CHECKED_TOGETHER_MAX:
                await asyncio.sleep(0)
            try:
                protocol.expire(now)
            except Exception:
                # The other connections still have to be checked.
                logger.exception("could not check a connection of an SMB client; aborting it")
                protocol.abort()

    async def _end_revoked_sessions(self) -> None:
        """Ends the sessions of accounts that were removed, or whose key was replaced since: SMB
        clients prove only once that they know it, REST clients with each request."""
        passwords: dict[str, tuple[str, ...]] = {}
        for session, connection in self.session_table.authenticated():
            if session.account not in passwords:
                passwords[session.account] = await self.passwords.current(session.account)
            if session.password not in passwords[session.account] and not session.is_ended:
                logger.info(
                    "ended a session of SMB client %s: its key is no longer valid",
                    connection.client,
                )
                self.keep(asyncio.create_task(end_session(connection, session)))

    async def drain(self, grace_seconds: float) -> None:
        """Stops accepting, finishes the requests in progress, closes everything that clients have
        open, ends their connections, and stores what they have written."""
        self._listener.stop()
        # Slow clients must not take the time that this needs.
        storing = asyncio.create_task(self.services.contents.store_all(grace_seconds))
        for protocol in list(self.connections):
            self.keep(asyncio.create_task(protocol.finish()))
        await self._wait(grace_seconds)
        if self.connections:
            logger.warning("aborted %d connections of SMB clients", len(self.connections))
        for protocol in list(self.connections):
            protocol.abort()
        await self._wait(_ABORT_SECONDS)
        await storing
        if self._sweeper is not None:
            self._sweeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._sweeper

    async def _wait(self, seconds: float) -> None:
        """Waits until all connections are closed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._tasks or self.connections:
                    if self._tasks:
                        await asyncio.wait(self._tasks)
                    await asyncio.sleep(0)


class ClientProtocol(asyncio.BufferedProtocol):
    """The socket of one client."""

    def __init__(self, server: SmbServer, place: ConnectionPlace) -> None:
        self._server = server
        self._place = place
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._connection: Connection | None = None
        self._reader = FrameReader(PREAUTH_FRAME_BYTES_MAX)
        self._began = self._last_input = self._server.time()
        self._blocked_at: float | None = None
        """Since when the client has left too many responses unread."""
        self._unwritten: list[Buffer] = []
        """Short responses that are written to the socket together, which takes as long as to
        execute a request: at the latest in the next iteration of the event loop."""
        self._unwritten_bytes = 0
        self._unsent_bytes = 0
        """Responses that the client has not read, as they are counted."""
        self._read_at = self._began
        """When the client last read a response, or had read them all."""
        self._frame_began = self._began
        """When the frame that is arriving began."""
        self._frame_bytes = 0
        """The buffer of a large frame that is arriving, as it is counted."""
        self._is_authenticated = False
        self._is_paused = False
        self._is_scheduled = False

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
        server = self._server
        self._connection = Connection(
            server.services,
            server.session_table,
            self,
            _address(self._place.client or transport.get_extra_info("peername")),
            passwords=server.passwords,
            logon_delays=server.logon_delays,
            memory=server.memory,
            large_frames=server.large_frames,
        )
        server.connections.add(self)
        self._place.evict = self.abort

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, count: int) -> None:
        self._last_input = self._server.time()
        if not self._reader.is_within_frame:
            self._frame_began = self._last_input
        self._reader.advance(count)
        if not self._is_paused:
            self._take_frames()
        self._count_frame()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, _error: Exception | None) -> None:
        self._transport = None
        self._place.leave()
        self._count_frame()
        self._server.memory.add(-self._unsent_bytes)
        self._unsent_bytes = 0
        connection, self._connection = self._connection, None
        if connection is not None:
            # Before it leaves the set, so that `drain` always sees either of both.
            self._server.keep(self._loop.create_task(connection.close()))
        self._server.connections.discard(self)

    def pause_writing(self) -> None:
        self._blocked_at = self._server.time()

    def resume_writing(self) -> None:
        self._blocked_at = None
        self._count_unsent()
        self.resume()

    # Memory

    def _count_frame(self) -> None:
        """Counts the buffer of a large frame that is arriving."""
        held = self._reader.large_frame_bytes if self._transport is not None else 0
        if held == self._frame_bytes:
            return
        server = self._server
        server.memory.add(held - self._frame_bytes)
        if not self._is_authenticated:
            server.preauth_bytes += held - self._frame_bytes
        self._frame_bytes = held
        if server.preauth_bytes > PREAUTH_BYTES_MAX and held and not self._is_authenticated:
            # They must not take the memory of those who are.
            logger.info("closed a connection: too many long frames before the logon")
            self.abort()

    def _count_unsent(self) -> None:
        """Counts the responses that the client has not read."""
        if self._transport is None:
            return
        unsent = self._transport.get_write_buffer_size()
        if unsent < self._unsent_bytes or not unsent:
            self._read_at = self._server.time()
        if unsent != self._unsent_bytes:
            self._server.memory.add(unsent - self._unsent_bytes)
            self._unsent_bytes = unsent

    def _must_wait(self, connection: Connection) -> bool:
        """Whether no frame is taken now: the client has to read responses first, or requests have
        to end."""
        if self._blocked_at is not None or not connection.accepts_frame():
            return True
        return self._unsent_bytes > 0 and self._server.memory.is_scarce

    # Frames

    def _take_frames(self) -> None:
        """Gives the frames that have arrived to the connection, as far as it takes them."""
        self._is_scheduled = False
        connection = self._connection
        if connection is None:
            return
        try:
            for _ in range(_TURN_FRAMES_MAX):
                if self._transport is None or self._transport.is_closing():
                    return
                if self._must_wait(connection):
                    self._pause()
                    return
                frame = self._reader.next()
                if frame is None:
                    self._unpause()
                    return
                self._frame_began = self._server.time()
                connection.receive(frame)
        except Disconnect as reason:
            logger.info("closed the connection of SMB client %s: %s", connection.client, reason)
            self.abort()
            return
        # The others are taken after those of other clients.
        self._pause()
        self.resume()

    def _pause(self) -> None:
        if not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def _unpause(self) -> None:
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()

    # Link

    def send(self, buffers: Sequence[Buffer]) -> None:
        if self._transport is not None and not self._transport.is_closing():
            length = sum(map(len, buffers))
            self._unwritten += (frame_prefix(length), *buffers)
            self._unwritten_bytes += length
            connection = self._connection
            if (
                connection is None
                or not connection.is_executing
                or self._unwritten_bytes > _WRITTEN_TOGETHER_MAX
            ):
                self._write()
            elif len(self._unwritten) == len(buffers) + 1:
                self._loop.call_soon(self._write)

    def _write(self) -> None:
        """Writes the responses that were collected to the socket."""
        unwritten, self._unwritten = self._unwritten, []
        count, self._unwritten_bytes = self._unwritten_bytes, 0
        if not unwritten or self._transport is None or self._transport.is_closing():
            return
        if count <= _WRITTEN_TOGETHER_MAX:
            self._transport.write(b"".join(unwritten))
        else:
            self._transport.writelines(unwritten)
        self._count_unsent()

    def resume(self) -> None:
        if self._is_paused and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._take_frames)

    def abort(self) -> None:
        if self._transport is not None:
            self._write()
            self._transport.abort()

    def on_authenticated(self) -> None:
        if not self._is_authenticated:
            self._server.preauth_bytes -= self._frame_bytes
        self._is_authenticated = True
        self._reader.grow(FRAME_BYTES_MAX)
        # From now on it is not closed in favour of another connection.
        self._place.set_busy()

    # Limits of time

    def expire(self, now: float) -> None:
        """Closes the connection if the client is too slow."""
        self._count_frame()
        self._count_unsent()
        if self._is_paused:
            # Memory may not be scarce any more.
            self.resume()
        reason = self._lateness(now)
        if reason:
            client = "" if self._connection is None else self._connection.client
            logger.info("closed the connection of SMB client %s: %s", client, reason)
            self.abort()

    def _lateness(self, now: float) -> str:
        connection = self._connection
        if connection is None:
            return ""
        silent_seconds = now - self._last_input
        unread_seconds = now - self._read_at if self._unsent_bytes else 0.0
        late_seconds = max(unread_seconds, silent_seconds if self._frame_bytes else 0.0)
        if late_seconds > SCARCE_SECONDS_MAX and self._server.memory.is_wanted:
            return "it is slow and memory is scarce"
        blocked_seconds = 0.0 if self._blocked_at is None else now - self._blocked_at
        if max(unread_seconds, blocked_seconds) > SILENT_SECONDS_MAX:
            return "it does not read responses"
        if self._is_paused:
            return ""
        if self._reader.is_within_frame and silent_seconds > SILENT_SECONDS_MAX:
            return "it has stopped within a frame"
        if self._reader.is_within_frame and now - self._frame_began > FRAME_SECONDS_MAX:
            return "a frame takes too long"
        if not connection.has_authenticated_session:
            since = silent_seconds if self._is_authenticated else now - self._began
            return "it is not authenticated" if since > PREAUTH_SECONDS_MAX else ""
        if silent_seconds > IDLE_SECONDS_MAX and connection.is_idle:
            return "it is idle"
        return ""

    async def finish(self) -> None:
        """Finishes the requests in progress, and closes the connection."""
        if self._connection is not None:
            await self._connection.finish()
        if self._transport is not None:
            self._write()
            self._transport.close()


def _set_options(connected: socket.socket) -> None:
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE_SECONDS)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_INTERVAL_SECONDS)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEPALIVE_PROBES)
    # While something that was sent is not acknowledged, no probes are sent.
    milliseconds_max = int(1_000 * ACKNOWLEDGEMENT_SECONDS_MAX)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds_max)


def _address(peer: tuple[object, ...] | None) -> str:
    """Returns the address of a client and its port."""
    if not peer or len(peer) < 2:
        return ""
    host, port = peer[:2]
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
