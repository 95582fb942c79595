"""Requests in progress, and the frames that they came in."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from etagere.nt_status import NtStatus
from etagere.protocol.smb.compounds import CompoundContext, Message
from etagere.protocol.smb.header import HEADER_BYTES, Command, Flags
from etagere.protocol.smb.requests import RELATED_FILE_ID, Reply
from etagere.protocol.smb.services import SmbServices
from etagere.protocol.smb.state import Negotiated, Open, Session, Tree
from etagere.protocol.smb.status import SmbError

if TYPE_CHECKING:
    from etagere.protocol.smb.connection import Connection
    from etagere.protocol.smb.signing import Signer


class ServerRequest:
    """A request in progress."""

    __slots__ = (
        "_tree",
        "async_id",
        "body",
        "cancel_status",
        "connection",
        "found_session",
        "frame",
        "header",
        "is_cancelled",
        "is_last",
        "is_signed",
        "message",
        "must_sign",
    )

    def __init__(self, connection: Connection, frame: Frame, one: Message, is_last: bool) -> None:
        self.connection = connection
        self.frame = frame
        self.header = one.header
        self.message = one.data
        self.body = one.data[HEADER_BYTES:]
        self.is_last = is_last
        """Whether no message follows in its frame."""
        self.async_id = 0
        """0: the client has not been told that the request is pending."""
        self.is_cancelled = False
        self.cancel_status = NtStatus.CANCELLED
        self.is_signed = False
        """Whether the request has a signature that is right."""
        self.must_sign = False
        """Whether the response is signed in any case."""
        self.found_session: Session | None = None
        self._tree: Tree | None = None

    @property
    def log_id(self) -> str:
        """The ID of the request in log lines. Network traces show the message ID, too."""
        return f"smb-{self.connection.id}-{self.header.message_id}"

    @property
    def server(self) -> SmbServices:
        return self.connection.server

    @property
    def negotiated(self) -> Negotiated:
        return self.connection.negotiated

    @property
    def session(self) -> Session:
        if self.found_session is None:
            raise SmbError(NtStatus.USER_SESSION_DELETED)
        return self.found_session

    @property
    def tree(self) -> Tree:
        if self._tree is None:
            raise SmbError(NtStatus.NETWORK_NAME_DELETED)
        return self._tree

    @property
    def tree_id(self) -> int:
        return self.header.tree_id if self._tree is None else self._tree.id

    @property
    def session_id(self) -> int:
        session = self.found_session
        return self.header.session_id if session is None else session.id

    def use_session(self, session: Session) -> None:
        self.found_session = session
        self.frame.context.session_id = session.id

    def use_tree(self, tree: Tree) -> None:
        self._tree = tree
        self.frame.context.tree_id = tree.id

    def has_tree(self, tree: Tree) -> bool:
        return self._tree is tree

    def has_tree_of(self, session: Session) -> bool:
        return self._tree is not None and self._tree.session is session

    def open(self, persistent: int, volatile: int) -> Open:
        context = self.frame.context
        opened: Open | None = None
        if persistent == volatile:
            if volatile != RELATED_FILE_ID:
                opened = self.session.opens.get(volatile)
            elif self.header.flags & Flags.RELATED and context.opened is not None:
                opened = self.session.opens.get(context.opened.id)
        if opened is None or opened.tree is not self._tree:
            raise SmbError(context.create_status or NtStatus.FILE_CLOSED)
        context.opened = opened
        return opened

    def add_open(self, opened: Open) -> None:
        opened.tree.opens[opened.id] = opened
        session = opened.tree.session
        session.opens[opened.id] = opened
        session.open_count.value += 1
        self.frame.context.opened = opened

    @property
    def may_pend(self) -> bool:
        """[MS-SMB2] 3.3.5.2.7."""
        return self.is_last or self.header.command == Command.CREATE

    def pend(self) -> None:
        if self.async_id:
            return
        if self.is_cancelled:
            raise SmbError(NtStatus.CANCELLED)
        if not self.may_pend:
            raise SmbError(NtStatus.INTERNAL_ERROR)
        self.connection.send_interim(self)


class Frame:
    """The messages of one frame, which are executed in turn."""

    __slots__ = (
        "context",
        "cost",
        "current",
        "decrypted_for",
        "is_counted",
        "is_pending",
        "length",
        "requests",
        "responses",
        "task",
    )

    def __init__(self, decrypted_for: Session | None) -> None:
        self.decrypted_for = decrypted_for
        """The session whose key it was encrypted with; None: it was not encrypted."""
        self.context = CompoundContext()
        self.requests: list[ServerRequest] = []
        self.current: ServerRequest | None = None
        """The request that is executed; None: none has been started."""
        self.responses: list[tuple[ServerRequest, Reply]] = []
        """Those that have not been sent yet."""
        self.length = 0
        self.cost = 0
        """The bytes that it is counted with while it is outstanding: its own, and those that the
        responses may have."""
        self.is_counted = False
        """Whether it is counted as outstanding."""
        self.is_pending = False
        """Whether it is counted as pending, with its own bytes."""
        self.task: asyncio.Task[None] | None = None


def session_to_encrypt_for(frame: Frame, request: ServerRequest) -> Session | None:
    """Returns the session that the responses of a frame are encrypted for; None: they are not
    encrypted. `request` is the first that is answered."""
    if frame.decrypted_for is not None:
        return frame.decrypted_for
    session = request.found_session
    if session is None or not session.requires_encryption:
        return None
    return None if request.header.command == Command.SESSION_SETUP else session


def signer_of(request: ServerRequest, reply: Reply) -> Signer | None:
    """Returns what signs a response. A response to a request that is pending is not signed: the
    final one has the same message ID, and thus the same nonce."""
    session = request.found_session
    if session is None or reply.status == NtStatus.PENDING:
        return None
    if request.is_signed or request.must_sign or session.requires_signing:
        return session.signer
    return None
