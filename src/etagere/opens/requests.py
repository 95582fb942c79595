"""What an SMB client asks for when it opens or creates an entry, and what it gets."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import NamedTuple

from etagere.model.files import Entry, EntryPath, NewPermission
from etagere.opens.caches import CacheGrant
from etagere.opens.handles import Handle
from etagere.rules.caching import Caching
from etagere.rules.opens import OpenMode


class Disposition(enum.Enum):
    """What to do if the entry exists, and if it does not."""

    SUPERSEDE = enum.auto()
    """Replace it, or create it."""
    OPEN = enum.auto()
    CREATE = enum.auto()
    """Create it, or fail if it exists."""
    OPEN_IF = enum.auto()
    """Open it, or create it."""
    OVERWRITE = enum.auto()
    """Truncate it, or fail if it does not exist."""
    OVERWRITE_IF = enum.auto()
    """Truncate it, or create it."""


class Action(enum.Enum):
    """What an open has done."""

    SUPERSEDED = enum.auto()
    OPENED = enum.auto()
    CREATED = enum.auto()
    OVERWRITTEN = enum.auto()


class EntryKind(enum.Enum):
    """The kind of entry that a client asks for."""

    FILE = enum.auto()
    DIRECTORY = enum.auto()
    ANY = enum.auto()
    """Whatever is there; a file if it has to be created."""


CacheNotifier = Callable[[CacheGrant, Caching, bool], None]
"""Tells a client that it may cache less. Gets the grant, what the client may still cache, and
whether it has to acknowledge. Must not wait."""


class CachingRequest(NamedTuple):
    """What a client wants to cache: an oplock, or an SMB lease."""

    wanted: Caching
    lease_key: bytes | None
    """None: an oplock. Level II is `READ`, exclusive `READ | WRITE`, batch all three."""
    client: bytes
    """Identifies the client: lease keys are those of one client."""
    notify: CacheNotifier
    epoch: int = 0
    is_v2: bool = False
    """Whether the client counts the changes of the lease (`epoch`)."""


class OpenRequest(NamedTuple):
    """An open of an entry, which may create or overwrite it."""

    path: EntryPath
    mode: OpenMode
    disposition: Disposition = Disposition.OPEN
    kind: EntryKind = EntryKind.ANY
    attributes: int = 0
    """Those of an entry that is created or overwritten."""
    permission: NewPermission | None = None
    """That of an entry that is created; None: inherited."""
    deletes_on_close: bool = False
    caching: CachingRequest | None = None
    is_attribute_only: bool = False
    """Whether the access includes nothing but attributes and SYNCHRONIZE, so that no cache is
    broken."""
    spares_leases: bool = False
    """Whether it includes the permission besides, so that oplocks are broken, but leases are not.
    """
    allocation: int = 0
    """The number of bytes that a new or overwritten file is expected to have: it is refused if the
    quota does not leave them. They are not reserved."""


class Opened(NamedTuple):
    """An open that has succeeded."""

    handle: Handle
    """Its `grant` is what the client may cache; None: nothing."""
    entry: Entry
    action: Action
