"""The bytes of open files: reads, and writes that are gathered in memory before they are stored.

A write is acknowledged when it is in memory. From then on every read of this process sees it, and
REST operations store it first. `flush` makes it durable. See decision 28.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from etagere.bodies.store import BodyStore
from etagere.engine.interface import Engine
from etagere.model.shares import ShareName
from etagere.opens.handles import Handle, OpenEntry
from etagere.opens.share import ShareOpens
from etagere.opens.table import OpenTable


class Memory(Protocol):
    """The memory budget of the server."""

    def reserve(self, count: int) -> bool:
        """Reserves memory if there is enough; returns whether there was."""
        ...

    def release(self, count: int) -> None: ...


class FileContents:
    """The bytes of the open files of a process."""

    def __init__(
        self, engine: Engine, store: BodyStore, opens: OpenTable, memory: Memory
    ) -> None:
        self._engine = engine
        self._store = store
        self._opens = opens
        self._memory = memory

    async def read(
        self, share: ShareOpens, handle: Handle, offset: int, length: int
    ) -> bytes | bytearray | memoryview:
        """Returns bytes of a file, fewer at its end, and none behind it."""
        raise NotImplementedError

    async def write(
        self,
        share: ShareOpens,
        handle: Handle,
        offset: int,
        data: bytes | memoryview,
        *,
        through: bool = False,
        preserve_written: bool = False,
    ) -> None:
        """Writes bytes; the file grows if they reach beyond its end. The caller must not change the
        memory of `data` afterwards. `through`: returns when they are durable. `preserve_written`:
        the last write time stays as it is, because the client has set it."""
        raise NotImplementedError

    async def resize(self, share: ShareOpens, handle: Handle, length: int) -> None:
        """Sets the length of a file."""
        raise NotImplementedError

    async def clear(self, share: ShareOpens, handle: Handle, start: int, end: int) -> None:
        """Replaces bytes by zeros, within the length of the file."""
        raise NotImplementedError

    async def allocated_ranges(
        self, share: ShareOpens, handle: Handle, start: int, end: int, limit: int
    ) -> list[tuple[int, int]]:
        """Returns the ranges that were written, at most one more than the limit."""
        raise NotImplementedError

    async def flush(self, share: ShareOpens, entry: OpenEntry) -> None:
        """Makes everything durable that was written to a file. Raises `Fault`; the bytes are kept
        then, and stored as soon as possible."""
        raise NotImplementedError

    async def flush_share(self, name: ShareName) -> None:
        """Makes everything durable that was written to the files of a share."""
        raise NotImplementedError

    @asynccontextmanager
    async def stored(self, share: ShareOpens, entry: OpenEntry) -> AsyncIterator[None]:
        """Flushes a file, and lets writers wait until the context ends: for a transaction that
        changes the content, the name or the times of an open file."""
        raise NotImplementedError
        yield

    def length(self, share: ShareOpens, entry: OpenEntry) -> int | None:
        """Returns the length of a file with its gathered writes; None: as in the ledger."""
        raise NotImplementedError

    async def close(self) -> None:
        """Stores everything before the process ends."""
        raise NotImplementedError
