"""Requests to shares, directories and files, and their outcomes.

Every write has a token that no other write has. A write of bytes replaces the whole content, so a
reader knows exactly which write it saw; likewise with metadata.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from tests.history import events

ROOT: Final = ""
"""The path of the root directory of a share."""


class Verb(enum.Enum):
    CREATE = "create"
    PUT = "put"
    CLEAR = "clear"
    SET_METADATA = "set metadata"
    GET = "get"
    DELETE = "delete"
    RENAME = "rename"
    LIST = "list"
    CREATE_DIRECTORY = "create directory"
    DELETE_DIRECTORY = "delete directory"
    RENAME_DIRECTORY = "rename directory"
    ACQUIRE = "acquire"
    CHANGE = "change"
    RELEASE = "release"
    BREAK = "break"
    SNAPSHOT = "snapshot"
    DELETE_SNAPSHOT = "delete snapshot"
    SMB_WRITE = "SMB write"
    SMB_WRITE_THROUGH = "SMB write through"
    SMB_FLUSH = "SMB flush"
    SMB_READ = "SMB read"
    CRASH = "crash"
    """No request: unflushed SMB writes may be lost."""


READS: Final = frozenset({Verb.GET, Verb.LIST, Verb.SMB_READ})
OVER_SMB: Final = frozenset({Verb.SMB_WRITE, Verb.SMB_WRITE_THROUGH, Verb.SMB_FLUSH, Verb.SMB_READ})
LEASE_ACTIONS: Final = frozenset({Verb.ACQUIRE, Verb.CHANGE, Verb.RELEASE, Verb.BREAK})
RENAMES: Final = frozenset({Verb.RENAME, Verb.RENAME_DIRECTORY})
WRITES: Final = frozenset({Verb.CREATE, Verb.PUT, Verb.CLEAR, Verb.SET_METADATA, Verb.DELETE})
"""Requests to a file that need the ID of its lease."""


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request to a share, or to a directory or file in it."""

    verb: Verb
    share: str
    path: str = ROOT
    target: str = ""
    """The new path, of a rename."""
    token: str = ""
    """Names the content or metadata that is written, or the proposed lease."""
    lease: str = ""
    """The token of the lease whose ID is sent."""
    target_lease: str = ""
    """Likewise for the file that a rename replaces."""
    replace: bool = False
    """Whether a rename may replace a file."""
    snapshot: str = ""
    """The snapshot that is read or deleted."""


class FileSeen(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file, by the tokens that it contains."""

    content: str = ""
    """Empty: only zeros."""
    metadata: str = ""


class Done(msgspec.Struct, frozen=True, tag="done", omit_defaults=True):
    """The operation succeeded."""

    etag: str = ""
    """The ETag of the file that was read or written."""
    file: FileSeen | None = None
    """The file that was read."""
    names: tuple[str, ...] = ()
    """The names in the directory that was listed."""
    snapshot: str = ""
    """The snapshot that was taken."""


class Operation(events.Operation[Request, Done], frozen=True, tag="operation"):
    """An operation of the file service."""


History = events.History[Operation]
LOG: Final = events.EventLog(Operation, Request, Done)


def operations_by_share(history: History) -> dict[str, list[Operation]]:
    """Returns the operations of each share, by the time at which they began."""
    found: dict[str, list[Operation]] = {}
    for operation in sorted(history.operations, key=lambda each: each.began):
        found.setdefault(operation.request.share, []).append(operation)
    return found
