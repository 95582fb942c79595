"""What a body store is: where the bytes of objects are written, once, and read.

Bytes first, ledger last: a writer seals a body, which makes it durable; one ledger operation
then adopts it. A reader is opened before anything is looked up; the plans that are found while it
is open stay readable until it is closed, whatever happens to the objects meanwhile.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Protocol, Self

from etagere.bodies.contents import Plan
from etagere.bodies.maps import BodyCorrupt
from etagere.descriptors import FilePart, OpenFile
from etagere.model.bodies import Body

__all__ = [
    "Arriving",
    "BodyCorrupt",
    "BodyReader",
    "BodyStore",
    "BodyWriter",
    "LentSocket",
    "Plan",
]


class LentSocket(Protocol):
    """Where the rest of a body arrives: a socket, lent to one who reads it there for a while."""

    @property
    def file(self) -> OpenFile:
        """Reading from it does not wait."""
        ...

    @property
    def length(self) -> int:
        """Of the rest. What follows it is not the body's."""
        ...

    taken: int | None
    """What the borrower has read, to be said before it returns the socket; None while nobody
    knows."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Arriving(Protocol):
    """A body while it arrives, in chunks."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def __anext__(self) -> bytes: ...

    def lend_socket(self) -> LentSocket | None:
        """Where the next bytes of it wait, if those are many."""
        ...


class BodyWriter(Protocol):
    """One upload. Until its context ends, what it has written cannot be collected, so the
    context must enclose the ledger operation that adopts the body."""

    async def __aenter__(self) -> BodyWriter: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    @property
    def md5(self) -> bytes: ...

    async def append(self, data: bytes) -> None:
        """Adds bytes, which the caller must not change afterwards."""
        ...

    async def append_arriving(self, body: Arriving) -> None:
        """Adds all of a body."""
        ...

    async def seal(self) -> Body:
        """Makes everything durable; raises `Fault` if it cannot."""
        ...


class BodyReader(Protocol):
    """Read access to what one lookup finds.

        with store.open_reader() as reader:
            plan = await engine.read(find, ...)
            reader.limit_to(plan)
            data = await reader.read(plan)

    Open it before the transaction that makes the plan begins. What the plan leads to stays
    readable until the reader is closed.
    """

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def limit_to(self, plan: Plan) -> None:
        """Lets everything be removed that this plan does not lead to. Call it as soon as the plan
        is known: a reader that is not limited keeps the space of all that is deleted meanwhile."""
        ...

    async def read(self, plan: Plan) -> bytes:
        """Returns all bytes of a short plan, or raises `BodyCorrupt`."""
        ...

    def chunks(self, plan: Plan, *, final: bool = False) -> AsyncIterator[bytes]:
        """Returns the bytes of a plan in chunks; raises `BodyCorrupt`, at the latest before the
        last chunk of a piece that does not match its checksum. With `final`, what was read may be
        removed before the reader is closed: the plan cannot be read again."""
        ...

    def file_parts(self, plan: Plan) -> Iterator[FilePart] | None:
        """Returns the parts of open files that make up a plan, for the kernel to send; None if
        some of its bytes are in no file. The first part is open on return, each other one is
        opened when it is asked for. The plan cannot be read again."""
        ...

    def close(self) -> None: ...


class BodyStore(Protocol):
    """The bytes of one store, as one process sees them."""

    def writer(
        self, length: int | None = None, *, inline: bool = True, md5: bool = False
    ) -> BodyWriter:
        """Begins an upload, of this length if it is known. Without `inline` the body lies in
        pieces however small it is, as the blocks of a list must. An MD5 is made if asked for."""
        ...

    def open_reader(self) -> BodyReader:
        """Opens a reader for what is looked up next."""
        ...

    async def close(self) -> None: ...
