"""A request as a command sees it, and its reply."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from etagere.nt_status import NtStatus
from etagere.protocol.smb.header import Header
from etagere.protocol.smb.services import SmbServices
from etagere.protocol.smb.state import Negotiated, Open, Session, Tree

RELATED_FILE_ID = 0xFFFF_FFFF_FFFF_FFFF
"""Both halves of a file ID that refers to the open of the previous message of a compound."""


class Reply(NamedTuple):
    """The response to a request, without its header."""

    body: bytes | bytearray
    """From the structure size on."""
    status: NtStatus = NtStatus.SUCCESS
    payload: bytes | bytearray | memoryview = b""
    """Sent after the body without a copy: the bytes of a READ."""


class Request(Protocol):
    """A request that has been verified, with the session and tree that it belongs to."""

    header: Header
    body: memoryview
    """From the structure size to the end of the message."""

    @property
    def server(self) -> SmbServices: ...

    @property
    def negotiated(self) -> Negotiated:
        """What the connection has negotiated: the dialect, the GUID of the client."""
        ...

    @property
    def session(self) -> Session: ...

    @property
    def tree(self) -> Tree:
        """Raises `SmbError` if the request has no valid tree ID."""
        ...

    def open(self, persistent: int, volatile: int) -> Open:
        """Returns the open with a file ID, which may be that of the previous message of a compound;
        raises `SmbError(FILE_CLOSED)`."""
        ...

    def add_open(self, opened: Open) -> None:
        """Registers a new open in its tree and session. The messages that follow in a compound may
        refer to it. `state.remove_open` is the inverse."""
        ...

    @property
    def may_pend(self) -> bool:
        """Whether the request may wait without bound: only the last message of a compound, or a
        CREATE."""
        ...

    def pend(self) -> None:
        """Tells the client that the reply takes longer (STATUS_PENDING), so that it can cancel the
        request. Does nothing the second time. The task of the request is cancelled if it does.
        Raises `SmbError` if it must not wait."""
        ...


Handler = Callable[[Request], Awaitable[Reply]]
"""A command. Raises `SmbError`, or `Refused`."""
