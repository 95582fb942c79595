"""Requests to blobs and their outcomes.

Every write has a token that no other write has. A blob contains the token of the write that made
its version in its metadata, and the tokens of its parts in its content, so a reader knows exactly
which writes it saw. An append or page blob has the token of its creation in its metadata; its later
versions are known by their ETags only.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from tests.history import events

ANY: Final = "*"
"""In place of an ETag: any."""


class Verb(enum.Enum):
    PUT = "put"
    STAGE = "stage"
    COMMIT = "commit"
    DESCRIBE = "describe"
    DELETE = "delete"
    GET = "get"
    HEAD = "head"
    ACQUIRE = "acquire"
    RENEW = "renew"
    CHANGE = "change"
    RELEASE = "release"
    BREAK = "break"
    CREATE_APPEND = "create append blob"
    APPEND = "append"
    SEAL = "seal"
    CREATE_PAGES = "create page blob"
    PUT_PAGES = "put pages"
    CLEAR_PAGES = "clear pages"
    RENUMBER = "set sequence number"
    RESIZE = "resize"
    LIST_PAGES = "list pages"
    SNAPSHOT = "snapshot"
    GET_SNAPSHOT = "get snapshot"


CREATES: Final = frozenset({Verb.CREATE_APPEND, Verb.CREATE_PAGES})
CHANGES_PAGES: Final = frozenset({Verb.PUT_PAGES, Verb.CLEAR_PAGES})
ONLY_ETAG_NAMES: Final = (
    CREATES | CHANGES_PAGES | {Verb.APPEND, Verb.SEAL, Verb.RENUMBER, Verb.RESIZE}
)
"""Verbs that make versions of append and page blobs. Sealing a sealed blob makes none."""
MAKES_VERSION: Final = frozenset({Verb.PUT, Verb.COMMIT, Verb.DESCRIBE}) | ONLY_ETAG_NAMES - {
    Verb.SEAL
}
WRITES: Final = MAKES_VERSION | {Verb.STAGE, Verb.DELETE, Verb.SEAL}
"""Verbs that need the lease id while the blob is leased."""
READS: Final = frozenset({Verb.GET, Verb.HEAD, Verb.LIST_PAGES})
ACTS_ON_LEASE: Final = frozenset({Verb.ACQUIRE, Verb.RENEW, Verb.CHANGE, Verb.RELEASE, Verb.BREAK})


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request to a blob, with the fields that its verb uses."""

    verb: Verb
    blob: str
    token: str = ""
    if_match: str | None = None
    if_none_match: str | None = None
    lease_id: str | None = None
    """Of a write or read: the lease that it claims. Of a lease action: the lease it is about."""
    proposed_id: str | None = None
    seconds: int | None = None
    """How long an acquired lease lasts (None: without end) or a broken one may go on."""
    block: str = ""
    blocks: tuple[str, ...] = ()
    position: int | None = None
    """Where the client says that the append blob ends."""
    first: int = 0
    """The number of the page at which those begin that are written or cleared."""
    count: int = 0
    """How many pages, or how many the blob has afterwards."""
    comparison: str = ""
    """How the sequence number has to compare with the one sent, to let pages be changed."""
    action: str = ""
    """The action on the sequence number."""
    number: int | None = None
    snapshot: str = ""


class Seen(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an answer shows of the blob."""

    etag: str = ""
    modified: int = 0
    """Seconds since 1970."""
    version: str = ""
    """The token of the write that made the version; only reads show it."""
    content: tuple[str, ...] | None = None
    """The tokens that the content is made of; an unknown one if it is damaged."""
    lease: str = ""
    """The state of the lease, if the answer has it."""
    seconds: int | None = None
    """How long a broken lease goes on."""
    origin: str = ""
    """The token of the write that created the append or page blob; only reads show it."""
    length: int | None = None
    """In bytes. This and the following fields are None if the answer does not have them."""
    blocks: int | None = None
    """How many an append blob has."""
    sealed: bool | None = None
    number: int | None = None
    """The sequence number."""
    pages: tuple[int, ...] | None = None
    """The numbers of those that were written and not cleared."""
    snapshot: str = ""
    """The name of the one that was taken."""


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The operation succeeded."""

    seen: Seen = Seen()


class Operation(events.Operation[Request, Done], frozen=True, tag="operation"):
    """An operation of the blob service."""


History = events.History[Operation]
LOG: Final = events.EventLog(Operation, Request, Done)


def operations_by_blob(history: History) -> dict[str, list[Operation]]:
    """Returns the operations of each blob, by the time at which they began."""
    found: dict[str, list[Operation]] = {}
    for operation in sorted(history.operations, key=lambda each: each.began):
        found.setdefault(operation.request.blob, []).append(operation)
    return found


def number_of(etag: str) -> int:
    """The number in an ETag: opaque to clients, but increasing in this server."""
    return int(etag.strip('"'), 16)
