"""What happened in a run: requests with what came of them, and the deaths of the server.

All times are nanoseconds of the machine's monotonic clock, which its processes share. Every write
is known by a token that no other write has. A blob tells the token of the write that made its
version in its metadata, and the tokens of what it is made of in its content; so whoever reads it
says exactly which writes they saw. An append or page blob tells in its metadata who created it; its
later versions have no other name than their ETags.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

NANOSECONDS: Final = 1_000_000_000
"""In a second."""
NEVER: Final = 1 << 62
"""Later than anything."""
ANY: Final = "*"
"""In place of an ETag: whichever there is."""


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
"""What makes versions of append and page blobs. A seal of what is sealed makes none."""
MAKES_VERSION: Final = frozenset({Verb.PUT, Verb.COMMIT, Verb.DESCRIBE}) | ONLY_ETAG_NAMES - {
    Verb.SEAL
}
WRITES: Final = MAKES_VERSION | {Verb.STAGE, Verb.DELETE, Verb.SEAL}
"""What needs the lease's id while the blob is leased."""
READS: Final = frozenset({Verb.GET, Verb.HEAD, Verb.LIST_PAGES})
ACTS_ON_LEASE: Final = frozenset({Verb.ACQUIRE, Verb.RENEW, Verb.CHANGE, Verb.RELEASE, Verb.BREAK})


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a client asks of a blob. What the verb does not use is left out."""

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
    """What becomes of the sequence number."""
    number: int | None = None
    snapshot: str = ""


class Seen(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an answer shows of the blob."""

    etag: str = ""
    modified: int = 0
    """Seconds since 1970."""
    version: str = ""
    """The token of the write that made the version; only reads tell it."""
    content: tuple[str, ...] | None = None
    """The tokens that the content is made of; one that nobody wrote if it is damaged."""
    lease: str = ""
    """The state of the lease, where it is told."""
    seconds: int | None = None
    """How long a broken lease goes on."""
    origin: str = ""
    """The token of the write that created the append or page blob; only reads tell it."""
    length: int | None = None
    """In bytes. This and what follows are left out where they are not told."""
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
    seen: Seen = Seen()


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    code: str


class Unknown(msgspec.Struct, frozen=True, tag="unknown"):
    """Nobody told the client whether it was done."""

    why: str = ""


class Operation(msgspec.Struct, frozen=True, tag="operation"):
    client: int
    request: Request
    began: int
    ended: int
    """When the client had its answer, or gave up."""
    outcome: Done | Refused | Unknown


class Death(msgspec.Struct, frozen=True, tag="death"):
    """The whole server was killed."""

    ended: int
    """When none of its processes was left."""
    revived: int
    """When the next server was about to be started."""


class Run(msgspec.Struct, frozen=True, tag="run"):
    """How a history was made, so that the same choices can be made again."""

    made_by: str
    seed: int


class History(msgspec.Struct, frozen=True):
    run: Run
    operations: tuple[Operation, ...]
    deaths: tuple[Death, ...] = ()

    def blobs(self) -> dict[str, list[Operation]]:
        """The operations of each blob, by the time at which they began."""
        found: dict[str, list[Operation]] = {}
        for operation in sorted(self.operations, key=lambda each: each.began):
            found.setdefault(operation.request.blob, []).append(operation)
        return found


def number_of(etag: str) -> int:
    """Clients may not read anything into an ETag, but this server's are increasing numbers."""
    return int(etag.strip('"'), 16)


_LINES: Final = msgspec.json.Decoder(Run | Operation | Death)


def write_lines(path: Path, events: Iterable[Run | Operation | Death]) -> None:
    path.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))


def write_history(path: Path, history: History) -> None:
    write_lines(path, (history.run, *history.deaths, *history.operations))


def read_history(*paths: Path) -> History:
    """A history from the lines of one or several files; one of them begins with its run."""
    events = _read_lines(*paths)
    (run,) = (event for event in events if isinstance(event, Run))
    return History(
        run,
        tuple(event for event in events if isinstance(event, Operation)),
        tuple(event for event in events if isinstance(event, Death)),
    )


def read_operations(*paths: Path) -> list[Operation]:
    return [event for event in _read_lines(*paths) if isinstance(event, Operation)]


def _read_lines(*paths: Path) -> list[Run | Operation | Death]:
    lines = [line for path in paths for line in path.read_bytes().splitlines()]
    return [_LINES.decode(line) for line in lines]


def describe(operation: Operation, origin: int) -> str:
    """One line for people, with times in milliseconds after the origin."""
    asked = msgspec.to_builtins(operation.request)
    told = {name: value for name, value in asked.items() if name not in ("verb", "blob")}
    arguments = ", ".join(f"{name}={value}" for name, value in told.items())
    began = (operation.began - origin) / 1e6
    ended = (operation.ended - origin) / 1e6
    return (
        f"[{began:10.3f} .. {ended:10.3f}] client {operation.client}: "
        f"{operation.request.verb.value}({arguments}) -> {_describe_outcome(operation.outcome)}"
    )


def _describe_outcome(outcome: Done | Refused | Unknown) -> str:
    if isinstance(outcome, Done):
        seen = msgspec.to_builtins(outcome.seen)
        return "done" + "".join(f" {name}={value}" for name, value in seen.items())
    return f"refused {outcome.code}" if isinstance(outcome, Refused) else f"unknown {outcome.why}"
