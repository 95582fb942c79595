"""What the commands of the SMB server work with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from etagere.bodies.store import BodyStore
from etagere.clock import Clock
from etagere.engine.interface import Engine
from etagere.model.shares import ShareName
from etagere.opens.handles import Handle, OpenEntry
from etagere.opens.share import ShareOpens
from etagere.opens.table import OpenTable
from etagere.settings import Settings


class Contents(Protocol):
    """The bytes of open files."""

    async def read(
        self, share: ShareOpens, handle: Handle, offset: int, length: int
    ) -> bytes | memoryview:
        """Returns bytes; none at or behind the end of the file."""
        ...

    async def write(
        self,
        share: ShareOpens,
        handle: Handle,
        offset: int,
        data: bytes | memoryview,
        through: bool = False,
    ) -> None:
        """Writes bytes, which every reader sees from now on. With `through`, they are durable."""
        ...

    async def flush(self, share: ShareOpens, entry: OpenEntry) -> None:
        """Makes the writes to a file durable."""
        ...

    async def flush_share(self, name: ShareName) -> None: ...

    async def resize(self, share: ShareOpens, handle: Handle, length: int) -> None: ...

    async def clear(self, share: ShareOpens, handle: Handle, start: int, end: int) -> None: ...

    def length(self, entry: OpenEntry) -> int | None:
        """Returns the length with the writes that are not in the ledger yet; None: the length in
        the ledger is right."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class SmbServices:
    """The dependencies of the SMB server."""

    engine: Engine
    store: BodyStore
    opens: OpenTable
    contents: Contents
    settings: Settings
    clock: Clock
    guid: bytes
    """Identifies the server; 16 bytes."""
    name: str
    """The NetBIOS name of the server."""
    started: int
    """When the server was started, in ticks since 1970."""
