"""The interface of a body store, which keeps the bytes of objects.

Bytes first, ledger last: a writer seals a body, which makes it durable; then one ledger operation
adopts it. A reader is opened before anything is looked up. The plans that are found while it is
open stay readable until it is closed, whatever happens to the objects meanwhile.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Protocol, Self

from etagere.bodies.maps import BodyCorrupt
from etagere.bodies.plans import Plan
from etagere.descriptors import FilePart, OpenFile
from etagere.model.bodies import Body

__all__ = [
    "BodyCorrupt",
    "BodyReader",
    "BodyStore",
    "BodyWriter",
    "IncomingBody",
    "LentSocket",
    "Plan",
]


class LentSocket(Protocol):
    """A socket from which the rest of a body can be read directly, lent for a while."""

    @property
    def file(self) -> OpenFile:
        """The socket, in non-blocking mode."""
        ...

    @property
    def length(self) -> int:
        """The length of the rest of the body. The bytes after it do not belong to the body."""
        ...

    taken: int | None
    """The number of bytes that the borrower has read, set before the socket is returned; None while
    it is unknown."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class IncomingBody(Protocol):
    """A body that is being received, as an iterator over chunks."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def __anext__(self) -> bytes: ...

    def lend_socket(self) -> LentSocket | None:
        """Lends the socket, if many bytes can be read from it."""
        ...


class BodyWriter(Protocol):
    """An upload. What it has written is not collected before its context ends, so the context must
    enclose the ledger operation that adopts the body."""

    async def __aenter__(self) -> BodyWriter: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    @property
    def md5(self) -> bytes: ...

    async def append(self, data: bytes | bytearray | memoryview) -> None:
        """Appends bytes, which the caller must not change afterwards."""
        ...

    async def append_body(self, body: IncomingBody) -> None:
        """Appends a whole body."""
        ...

    async def seal(self) -> Body:
        """Makes the body durable; raises `Fault` if that fails."""
        ...


class BodyReader(Protocol):
    """Read access to the bytes that one lookup finds.

        with store.open_reader() as reader:
            plan = await engine.read(find, ...)
            reader.limit_to(plan)
            data = await reader.read(plan)

    Open it before the transaction that makes the plan begins. What the plan refers to stays
    readable until the reader is closed.
    """

    @property
    def buffer_bytes(self) -> int:
        """The memory that `chunks` always uses, for the caller to count. What it uses in addition
        is counted by the store."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def limit_to(self, plan: Plan) -> None:
        """Allows everything that the plan does not need to be removed. Call it as soon as the plan
        is known: a reader that is not limited keeps the space of everything that is deleted
        meanwhile."""
        ...

    async def read(self, plan: Plan) -> bytes:
        """Returns all bytes of a short plan, or raises `BodyCorrupt`."""
        ...

    async def read_into(self, plan: Plan, buffer: memoryview) -> None:
        """Reads all bytes of a short plan into the beginning of a buffer of zeros, or raises
        `BodyCorrupt`."""
        ...

    def chunks(self, plan: Plan, *, final: bool = False) -> AsyncIterator[bytes]:
        """Returns the bytes of a plan in chunks; raises `BodyCorrupt`, at the latest before the
        last chunk of a piece that does not match its checksum. With `final`, segments may be
        removed once they are read: the plan cannot be read again."""
        ...

    def file_parts(self, plan: Plan) -> Iterator[FilePart] | None:
        """Returns the parts of open files that make up a plan, for the kernel to send; None if
        some of its bytes are in no file. The first part is open on return, each other one is
        opened when it is asked for. The plan cannot be read again."""
        ...

    def close(self) -> None: ...


class BodyStore(Protocol):
    """The bodies of a store, as one process uses them."""

    def writer(
        self, length: int | None = None, *, inline: bool = True, md5: bool = False
    ) -> BodyWriter:
        """Begins an upload. `length` is the length of the body, if it is known. Without `inline`,
        the body is stored in pieces even if it is small, as block lists require. `md5` asks for an
        MD5."""
        ...

    def open_reader(self) -> BodyReader:
        """Opens a reader for the next lookup."""
        ...

    async def close(self) -> None: ...
