"""The state of SMB clients: sessions, trees and opens ([MS-SMB2] 3.3.1.8 to 3.3.1.10).

Everything here belongs to one connection, and to the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from etagere.model.shares import ShareName
    from etagere.opens.client import ShareClient
    from etagere.opens.handles import Handle
    from etagere.opens.watches import Watch
    from etagere.protocol.smb.commands.directories import DirectorySearch
    from etagere.protocol.smb.encryption import Sealer
    from etagere.protocol.smb.signing import Signer
    from etagere.protocol.smb.spnego import Acceptor


def _ignore(_body: bytes) -> None:
    pass


class Negotiated(NamedTuple):
    """What a client and the server have agreed on for a connection ([MS-SMB2] 3.3.5.4)."""

    dialect: int
    client_guid: bytes
    client_security_mode: int
    client_capabilities: int
    client_dialects: tuple[int, ...]
    security_mode: int
    capabilities: int
    cipher: int | None = None
    """None: nothing can be encrypted."""
    signing_algorithm: int = 0


class Pipe(Protocol):
    """A named pipe of IPC$, as a handle on it sees it."""

    async def write(self, data: bytes | memoryview) -> None:
        """Takes a request of the client and carries it out; raises `SmbError`."""
        ...

    def read(self, length: int) -> tuple[bytes, bool]:
        """Returns bytes of the response, and whether there are more in this message. Without a
        response there are none."""
        ...


@dataclass(slots=True, eq=False)
class Open:
    """An open of a client: of a file, a directory or a pipe."""

    id: int
    """Both halves of the file ID; for a file or directory that of the handle."""
    tree: Tree
    access: int
    """The access mask that was granted ([MS-SMB2] 2.2.13.1)."""
    options: int = 0
    """The create options ([MS-SMB2] 2.2.13)."""
    handle: Handle | None = None
    """None for a pipe."""
    pipe: Pipe | None = None
    position: int = 0
    allocation: int = 0
    """The number of bytes that the client has asked to allocate for the file."""
    preserves_changed: bool = False
    """Whether the change time stays as it is, because the client has set it."""
    search: DirectorySearch | None = None
    watch: Watch | None = None


@dataclass(slots=True, eq=False)
class Tree:
    """A connection of a session to a share, or to IPC$."""

    id: int
    session: Session
    name: ShareName | None
    """None for IPC$."""
    client: ShareClient | None = None
    """None for IPC$."""
    opens: dict[int, Open] = field(default_factory=dict)

    @property
    def is_share_gone(self) -> bool:
        """Whether the share was deleted."""
        return self.client is not None and self.client.share.is_gone


class OpenCount:
    """The number of opens of all sessions of clients at one address."""

    __slots__ = ("__weakref__", "value")

    def __init__(self) -> None:
        self.value = 0


@dataclass(slots=True, eq=False)
class Session:
    """An authenticated session, or one that is being authenticated."""

    id: int
    account: str = ""
    """The storage account, which is the user; empty until it is authenticated."""
    password: str = field(default="", repr=False)
    """What the client has logged on with."""
    client_name: str = ""
    """The name of the client's machine, as it says."""
    trees: dict[int, Tree] = field(default_factory=dict)
    opens: dict[int, Open] = field(default_factory=dict)
    """Those of all trees, by ID."""
    open_count: OpenCount = field(default_factory=OpenCount)
    """Those of all sessions of its address."""
    pipes: int = 0
    """The number of those that are pipes."""
    copying: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Copies of a session take turns: each has a chunk of a megabyte in memory."""
    watches: int = 0
    """The number of those that watch a directory."""
    notify: Callable[[bytes], None] = _ignore
    """Sends an OPLOCK_BREAK notification with this body to the client ([MS-SMB2] 2.2.23). Does
    nothing if the client is gone."""
    acceptor: Acceptor | None = None
    """The logon in progress."""
    preauth_hash: bytes = b""
    """Of the messages of the first logon; only 3.1.1 uses it."""
    signer: Signer | None = None
    """None until it is authenticated."""
    sealer: Sealer | None = None
    """None: nothing can be encrypted."""
    requires_signing: bool = False
    requires_encryption: bool = False
    is_encrypted: bool = False
    """Whether the client encrypts its requests, or has to."""
    is_ended: bool = False

    @property
    def is_authenticated(self) -> bool:
        return self.signer is not None


def remove_open(opened: Open) -> None:
    """Removes an open from its tree and session, and ends what waits for it."""
    session = opened.tree.session
    opened.tree.opens.pop(opened.id, None)
    if session.opens.pop(opened.id, None) is None:
        return
    session.open_count.value -= 1
    if opened.pipe is not None:
        session.pipes -= 1
    if opened.watch is not None:
        session.watches -= 1
        opened.watch.end()
