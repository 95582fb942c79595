"""What a body store is: where the bytes of objects are written, once, and read.

Bytes first, ledger last: a writer seals a body, which makes it durable; one ledger operation
then adopts it. A reader pins before it looks anything up; what it finds stays readable, as it
was, until it lets go, whatever happens to the object meanwhile.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Protocol, Self

from etagere.bodies.contents import Plan
from etagere.bodies.maps import BodyCorrupt
from etagere.bodies.presence import Pin
from etagere.descriptors import OpenFile
from etagere.model.bodies import Body

__all__ = ["Arriving", "BodyCorrupt", "BodyStore", "BodyWriter", "LentSocket"]


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


class BodyStore(Protocol):
    """The bytes of one store, as one process sees them."""

    def writer(
        self, length: int | None = None, *, inline: bool = True, md5: bool = False
    ) -> BodyWriter:
        """Begins an upload, of this length if it is known. Without `inline` the body lies in
        pieces however small it is, as the blocks of a list must. An MD5 is made if asked for."""
        ...

    def pinned(self) -> Pin:
        """Keeps what a lookup inside finds from being removed. Narrow it to the segments that
        were found, so that it keeps nothing else."""
        ...

    def read(self, plan: Plan, pin: Pin | None = None) -> AsyncIterator[bytes]:
        """The bytes of a plan in chunks; raises `BodyCorrupt` before the last one of a piece
        that does not match its checksum. Segments of a narrowed pin are released as they are
        passed: such a plan is read once."""
        ...

    async def close(self) -> None: ...
