"""A connection of an SMB client: takes frames, and gives the buffers of others to send.

Nothing here knows a socket. Each frame becomes a task, which executes the messages in it in turn.
Frames are executed concurrently.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from etagere.metrics.counters import UNKNOWN
from etagere.nt_status import NtStatus
from etagere.protocol.connections.memory import MemoryBudget
from etagere.protocol.smb import dispatch
from etagere.protocol.smb.buffers import Buffer
from etagere.protocol.smb.compounds import (
    error_reply,
    pack_message,
    split,
)
from etagere.protocol.smb.credits import CREDIT_BYTES, SequenceWindow
from etagere.protocol.smb.dialects import DIALECT_2_WILDCARD
from etagere.protocol.smb.encryption import (
    TRANSFORM_PROTOCOL_ID,
    DecryptionFailed,
    parse_transform_header,
)
from etagere.protocol.smb.exchanges import (
    Frame,
    ServerRequest,
    session_to_encrypt_for,
    signer_of,
)
from etagere.protocol.smb.header import COMMAND_NAMES, NO_MESSAGE_ID, Command, Flags, Header
from etagere.protocol.smb.keys import INITIAL_PREAUTH_HASH, extend_preauth_hash
from etagere.protocol.smb.large_frames import LARGE_FRAME_BYTES_MIN, LargeFrameQueue
from etagere.protocol.smb.limits import (
    FRAME_COST_MAX,
    IO_BYTES_MAX,
    OUTSTANDING_BYTES_MAX,
    OUTSTANDING_REQUESTS_MAX,
    PENDING_BYTES_MAX,
    PENDING_REQUESTS_MAX,
    PREAUTH_OUTSTANDING_BYTES_MAX,
)
from etagere.protocol.smb.logons import LogonDelays, Passwords
from etagere.protocol.smb.negotiation import (
    SALT_BYTES,
    SMB1_PROTOCOL_ID,
    Capability,
    negotiate,
    negotiate_response,
    offers_smb2,
    parse_negotiate,
    security_mode,
)
from etagere.protocol.smb.ntlm import LogonFailed
from etagere.protocol.smb.requests import Reply
from etagere.protocol.smb.services import SmbServices
from etagere.protocol.smb.session_table import SessionTable
from etagere.protocol.smb.sessions import end_session
from etagere.protocol.smb.spnego import OFFER
from etagere.protocol.smb.state import Negotiated, Session
from etagere.protocol.smb.status import Disconnect, SmbError
from etagere.rules.accounts import is_loopback

logger = logging.getLogger(__name__)

_RETURNING_DATA: Final = frozenset(
    {Command.READ, Command.QUERY_DIRECTORY, Command.QUERY_INFO, Command.IOCTL}
)
"""The commands whose responses may have as many bytes as their credits pay for."""
_END_SECONDS_MAX: Final = 60.0
"""How long requests may take to end, when their connection, session or tree does."""
_CANCELLED_AT_ONCE_MAX: Final = 32
"""The most requests that are cancelled without a pause; each takes about 0.1 ms."""


class Link(Protocol):
    """The way to the client."""

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Sends a frame. Does nothing after the connection was lost."""
        ...

    def resume(self) -> None:
        """Called when the connection takes frames again."""
        ...

    def abort(self) -> None:
        """Closes the connection at once."""
        ...

    def on_authenticated(self) -> None: ...


class Connection:
    """The state of a connection ([MS-SMB2] 3.3.1.7)."""

    def __init__(
        self,
        server: SmbServices,
        session_table: SessionTable,
        link: Link,
        client: str,
        *,
        passwords: Passwords,
        logon_delays: LogonDelays,
        memory: MemoryBudget,
        large_frames: LargeFrameQueue,
    ) -> None:
        """`client` is the address of the client, and its port."""
        self.id = os.urandom(4).hex()
        """Identifies the connection in request IDs."""
        self.server = server
        self.session_table = session_table
        self.client = client
        self.sessions: dict[int, Session] = {}
        self.failed_logons = 0
        self._link = link
        self._passwords = passwords
        self._logon_delays = logon_delays
        self._memory = memory
        self._large_frames = large_frames
        self.client_host = client.rpartition(":")[0].strip("[]")
        self._is_local = is_loopback(self.client_host)
        self._window = SequenceWindow()
        self._negotiated: Negotiated | None = None
        self._preauth_hash = INITIAL_PREAUTH_HASH
        self._frames: set[Frame] = set()
        self._requests: dict[int, ServerRequest] = {}
        """Those in progress, by message ID."""
        self._pending: dict[int, ServerRequest] = {}
        """Those that the client knows to be pending, by async ID."""
        self._pending_bytes = 0
        """The frames of those."""
        self._outstanding_bytes = 0
        self._outstanding_bytes_max = PREAUTH_OUTSTANDING_BYTES_MAX
        self._next_async_id = 1
        self._last_tree_id = 0
        self._is_full = False
        self._is_closing = False

    # What commands use

    @property
    def negotiated(self) -> Negotiated:
        if self._negotiated is None:
            raise Disconnect("a request before the negotiation")
        return self._negotiated

    @property
    def requires_encryption(self) -> bool:
        mode = self.server.settings.smb_encryption
        return mode == "required" or (mode == "auto" and not self._is_local)

    @property
    def has_authenticated_session(self) -> bool:
        return any(session.is_authenticated for session in self.sessions.values())

    @property
    def is_idle(self) -> bool:
        """Whether nothing is open and no request is in progress."""
        return not self._frames and not any(one.opens for one in self.sessions.values())

    @property
    def is_executing(self) -> bool:
        """Whether requests are in progress, besides those that the client knows to be pending."""
        return len(self._requests) > len(self._pending)

    async def passwords_of(self, user: str) -> tuple[str, ...]:
        """Returns the passwords of a user, when it is the turn of this logon."""
        now = asyncio.get_running_loop().time()
        seconds = self._logon_delays.wait_seconds(self.client_host, user, now)
        if seconds is None:
            raise LogonFailed("too many logons of this user have failed")
        if seconds:
            await asyncio.sleep(seconds)
        return await self._passwords.of(user, self.client_host)

    def count_failed_logon(self, user: str) -> float:
        """Returns the delay of the response in seconds."""
        now = asyncio.get_running_loop().time()
        return self._logon_delays.count_failure(self.client_host, now, user)

    def forget_failed_logons(self, user: str) -> None:
        self._logon_delays.forget_failures(self.client_host, user)

    def on_authenticated(self) -> None:
        self._outstanding_bytes_max = OUTSTANDING_BYTES_MAX
        self._link.on_authenticated()

    def count_trees(self) -> int:
        return sum(len(session.trees) for session in self.sessions.values())

    def next_tree_id(self) -> int:
        self._last_tree_id += 1
        return self._last_tree_id

    def add_session(self) -> Session:
        session = self.session_table.add(self, self.client_host)
        session.preauth_hash = self._preauth_hash
        session.notify = partial(self._send_break, session)
        self.sessions[session.id] = session
        return session

    def forget_session(self, session: Session) -> None:
        self.sessions.pop(session.id, None)
        self.session_table.remove(session)

    async def end_requests(self, which: Callable[[ServerRequest], bool]) -> None:
        """Cancels the requests that wait, and lets the others end: they may be about to open
        something. The request that calls this is left alone."""
        own = asyncio.current_task()
        tasks = []
        for frame in list(self._frames):
            request, task = frame.current, frame.task
            if request is not None and task is not None and task is not own and which(request):
                if request.header.command == Command.CHANGE_NOTIFY:
                    request.cancel_status = NtStatus.NOTIFY_CLEANUP
                self._cancel(request)
                tasks.append(task)
                if not len(tasks) % _CANCELLED_AT_ONCE_MAX:
                    await asyncio.sleep(0)
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=_END_SECONDS_MAX)
            if left:
                logger.warning("requests of SMB client %s do not end", self.client)

    # Frames

    def accepts_frame(self) -> bool:
        """Returns whether another frame may be given. If not, `Link.resume` is called later."""
        if self._is_closing:
            return False
        active = len(self._requests) - len(self._pending)
        # If memory is scarce, each connection has one frame at a time.
        limit = 1 if self._memory.is_scarce else self._outstanding_bytes_max
        self._is_full = self._outstanding_bytes >= limit or active >= OUTSTANDING_REQUESTS_MAX
        return not self._is_full

    def receive(self, data: memoryview) -> None:
        """Takes a frame, without the length before it. The memory belongs to the connection from
        now on."""
        try:
            self._receive(data)
        except Disconnect as reason:
            self._disconnect(reason)

    def _receive(self, data: memoryview) -> None:
        protocol = bytes(data[:4])
        if protocol == SMB1_PROTOCOL_ID:
            self._receive_smb1(data)
            return
        session: Session | None = None
        if protocol == TRANSFORM_PROTOCOL_ID:
            data, session = self._decrypt(data)
        frame = Frame(session)
        messages = split(data)
        last = messages[-1]
        for one in messages:
            header = one.header
            request = ServerRequest(self, frame, one, one is last)
            if header.command == Command.CANCEL:
                self._receive_cancel(request)
                continue
            charge = header.credit_charge or 1
            if not self._window.take(header.message_id, charge):
                raise Disconnect("a message ID is not in the sequence window")
            if header.command in _RETURNING_DATA:
                frame.cost += min(charge * CREDIT_BYTES, IO_BYTES_MAX)
            frame.requests.append(request)
        frame.length = len(data)
        frame.cost += frame.length
        if frame.cost > FRAME_COST_MAX:
            raise Disconnect("a compound asks for too much")
        if frame.requests:
            self._start(frame)

    def _receive_smb1(self, data: memoryview) -> None:
        """Answers a client that also speaks SMB1: it negotiates again, with SMB2."""
        if self._negotiated is not None or not offers_smb2(data) or not self._window.take(0, 1):
            raise Disconnect("an SMB1 message")
        mode = security_mode(requires_signing=not self._is_local)
        wildcard = Negotiated(DIALECT_2_WILDCARD, bytes(16), 0, 0, (), mode, Capability.LARGE_MTU)
        body = self._negotiate_response(wildcard, ())
        header = Header(Command.NEGOTIATE, credits=self._window.grant(1, 1), flags=Flags.RESPONSE)
        self._link.send(pack_message(header, Reply(body)))

    def _decrypt(self, data: memoryview) -> tuple[memoryview, Session]:
        header = parse_transform_header(data)
        session = None if header is None else self.sessions.get(header.session_id)
        if session is None or session.sealer is None:
            raise Disconnect("an encrypted message of no session")
        try:
            message = session.sealer.open(data)
        except DecryptionFailed:
            raise Disconnect("an encrypted message that cannot be decrypted") from None
        session.is_encrypted = True
        return memoryview(message), session

    def _start(self, frame: Frame) -> None:
        for request in frame.requests:
            self._requests[request.header.message_id] = request
        self._count(frame)
        self._frames.add(frame)
        if frame.cost < LARGE_FRAME_BYTES_MIN:
            self._run(frame)
        else:
            self._large_frames.add(partial(self._run, frame))

    def _run(self, frame: Frame) -> None:
        if self._is_closing:
            self._forget_frame(frame)
            self._release(frame)
            return
        frame.task = asyncio.get_running_loop().create_task(self._execute(frame))
        frame.task.add_done_callback(partial(self._end_frame, frame))

    def _forget_frame(self, frame: Frame) -> None:
        self._frames.discard(frame)
        for request in frame.requests:
            self._forget_request(request)
        # They refer to each other, and to a megabyte: not a case for the garbage collector, which
        # runs rarely.
        frame.requests = []
        frame.current = frame.task = None

    def _end_frame(self, frame: Frame, task: asyncio.Task[None]) -> None:
        self._forget_frame(frame)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("an SMB request ended its connection", exc_info=error)
            self._disconnect(None)
        self._release(frame)

    def _release(self, frame: Frame) -> None:
        """Counts a frame no longer."""
        if frame.is_counted:
            frame.is_counted = False
            self._outstanding_bytes -= frame.cost
            self._memory.add(-frame.cost)
        if frame.is_pending:
            frame.is_pending = False
            self._pending_bytes -= frame.length
            self._memory.add(-frame.length)
        if self._is_full and self.accepts_frame():
            self._link.resume()

    def _forget_request(self, request: ServerRequest) -> None:
        self._requests.pop(request.header.message_id, None)
        if request.async_id:
            self._pending.pop(request.async_id, None)

    def _count(self, frame: Frame) -> None:
        """Counts a frame as outstanding."""
        frame.is_counted = True
        self._outstanding_bytes += frame.cost
        self._memory.add(frame.cost)

    async def _execute(self, frame: Frame) -> None:
        try:
            for request in frame.requests:
                frame.current = request
                began = time.monotonic()
                reply = await dispatch.execute(request)
                self._count_request(request, reply, time.monotonic() - began)
                frame.responses.append((request, reply))
                self._forget_request(request)
                if frame.is_pending:
                    # The others of a compound are executed now.
                    self._release(frame)
                    self._count(frame)
            self._send_responses(frame)
        except Disconnect as reason:
            self._disconnect(reason)

    def _count_request(self, request: ServerRequest, reply: Reply, seconds: float) -> None:
        counters = self.server.counters
        operation = COMMAND_NAMES.get(request.header.command, UNKNOWN)
        counters.count(operation, reply.status, seconds)
        counters.received_bytes += len(request.body)
        counters.sent_bytes += len(reply.body) + len(reply.payload)

    def _disconnect(self, reason: Disconnect | None) -> None:
        if reason is not None and not self._is_closing:
            logger.info("closed the connection of SMB client %s: %s", self.client, reason)
        self._is_closing = True
        self._link.abort()

    # Requests that wait

    def send_interim(self, request: ServerRequest) -> None:
        """Tells the client that a request is pending. It does not count as outstanding from then
        on: it may wait for a message of the same client."""
        frame = request.frame
        if (
            len(self._pending) >= PENDING_REQUESTS_MAX
            or self._pending_bytes + frame.length > PENDING_BYTES_MAX
        ):
            raise SmbError(NtStatus.INSUFFICIENT_RESOURCES)
        if self._is_closing:
            raise SmbError(NtStatus.CANCELLED)
        request.async_id = self._next_async_id
        self._next_async_id += 1
        self._pending[request.async_id] = request
        self._send_responses(frame, request)
        self._release(frame)
        frame.is_pending = True
        self._pending_bytes += frame.length
        self._memory.add(frame.length)

    def _receive_cancel(self, cancel: ServerRequest) -> None:
        """Cancels a request ([MS-SMB2] 3.3.5.16). There is no response."""
        header = cancel.header
        if header.flags & Flags.ASYNC:
            request = self._pending.get(header.async_id)
        else:
            request = self._requests.get(header.message_id)
        session = self.sessions.get(header.session_id)
        # A request that has not been started has no session yet.
        if request is None or session is None or request.found_session not in (None, session):
            return
        try:
            dispatch.verify(cancel, session)
        except SmbError:
            return
        self._cancel(request)

    def _cancel(self, request: ServerRequest) -> None:
        """Cancels a request, if it waits, or as soon as it does."""
        request.is_cancelled = True
        task = request.frame.task
        if request.async_id and task is not None:
            task.cancel()

    # Negotiation

    def negotiate(self, request: ServerRequest) -> Reply:
        if self._negotiated is not None:
            raise Disconnect("a second negotiation")
        asked = parse_negotiate(request.message)
        negotiated = negotiate(asked, requires_signing=not self._is_local)
        body = self._negotiate_response(negotiated, [kind for kind, _ in asked.contexts])
        self._negotiated = negotiated
        self._preauth_hash = extend_preauth_hash(INITIAL_PREAUTH_HASH, request.message)
        return Reply(body)

    def _negotiate_response(self, negotiated: Negotiated, asked: Sequence[int]) -> bytes:
        return negotiate_response(
            negotiated,
            asked,
            server_guid=self.server.guid,
            now=self.server.clock.wall(),
            token=OFFER,
            salt=os.urandom(SALT_BYTES),
        )

    # Responses

    def _send_responses(self, frame: Frame, interim: ServerRequest | None = None) -> None:
        """Sends the responses of a frame that have not been sent, and that of a request which is
        pending now."""
        responses = frame.responses
        frame.responses = []
        if interim is not None:
            responses.append((interim, error_reply(NtStatus.PENDING)))
        encrypted_for = session_to_encrypt_for(frame, responses[0][0])
        buffers: list[Buffer] = []
        last = len(responses) - 1
        for number, (request, reply) in enumerate(responses):
            signer = None if encrypted_for is not None else signer_of(request, reply)
            header = self._response_header(request, reply)
            packed = pack_message(header, reply, is_last=number == last, signer=signer)
            if header.command <= Command.SESSION_SETUP:
                self._extend_hash(request, reply, packed[0])
            buffers += packed
        if encrypted_for is not None and encrypted_for.sealer is not None:
            buffers = encrypted_for.sealer.seal(buffers, encrypted_for.id)
        self._link.send(buffers)

    def _response_header(self, request: ServerRequest, reply: Reply) -> Header:
        header, async_id = request.header, request.async_id
        flags = Flags.RESPONSE | header.flags & (Flags.RELATED | Flags.PRIORITY_MASK)
        charge = header.credit_charge or 1
        granted = 0
        if async_id:
            flags |= Flags.ASYNC
        if not async_id or reply.status == NtStatus.PENDING:
            granted = self._window.grant(header.credits, charge)
        return Header(
            header.command,
            charge,
            reply.status,
            granted,
            flags,
            0,
            header.message_id,
            async_id,
            request.tree_id,
            request.session_id,
        )

    def _extend_hash(self, request: ServerRequest, reply: Reply, message: Buffer) -> None:
        """Adds a response to the hash of the messages before the authentication."""
        session = request.found_session
        if request.header.command == Command.NEGOTIATE:
            self._preauth_hash = extend_preauth_hash(self._preauth_hash, message)
        elif (
            session is not None
            and not session.is_authenticated
            and reply.status == NtStatus.MORE_PROCESSING_REQUIRED
        ):
            session.preauth_hash = extend_preauth_hash(session.preauth_hash, message)

    def _send_break(self, session: Session, body: bytes) -> None:
        """Sends a break notification, which is not signed ([MS-SMB2] 3.3.4.6)."""
        self.server.counters.breaks += 1
        header = Header(Command.OPLOCK_BREAK, flags=Flags.RESPONSE, message_id=NO_MESSAGE_ID)
        buffers = pack_message(header, Reply(body))
        if session.is_encrypted and session.sealer is not None:
            buffers = session.sealer.seal(buffers, session.id)
        self._link.send(buffers)

    # The end

    async def finish(self) -> None:
        """Finishes the requests in progress, and takes no others. Those that wait are cancelled."""
        self._is_closing = True
        await self.end_requests(lambda _: True)

    async def close(self) -> None:
        """Ends the sessions of a connection that was lost, and closes everything they have open."""
        await self.finish()
        for frame in self._frames:
            if frame.task is not None:
                frame.task.cancel()
        for session in list(self.sessions.values()):
            try:
                await end_session(self, session)
            except Exception:
                logger.exception("could not end a session of SMB client %s", self.client)
