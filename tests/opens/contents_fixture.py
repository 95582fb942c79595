"""The fixture of the tests of contents: a share with clients that read and write open files."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Any

from hypothesis.strategies import SearchStrategy

from etagere.bodies.store import BodyStore
from etagere.engine.interface import C, Engine, ReadTxn, T, WriteTxn
from etagere.model.files import Entry, FileNode
from etagere.opens.client import ShareClient
from etagere.opens.contents import FileContents
from etagere.opens.handles import Handle
from etagere.rules.opens import RestAccess
from tests.opens.fixture import OpensFixture, R, W, opened
from tests.operations.file.fixture import path_of
from tests.operations.fixture import Test, engine_property_test, engine_test


class CountedMemory:
    """A memory budget that counts."""

    def __init__(self, bytes_max: int = 1 << 30) -> None:
        self.bytes_max = bytes_max
        self.used = 0

    def reserve(self, count: int) -> bool:
        if self.used + count > self.bytes_max:
            return False
        self.used += count
        return True

    def release(self, count: int) -> None:
        self.used -= count
        assert self.used >= 0


class WatchedEngine:
    """An engine that counts writes, and can be made to fail or to wait."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.writes = 0
        self.fault: Exception | None = None
        """Raised by writes instead of running them."""
        self.gate = asyncio.Event()
        """Writes wait until it is set."""
        self.gate.set()

    async def read(self, operation: Callable[[ReadTxn, C], T], command: C) -> T:
        return await self._engine.read(operation, command)

    async def write(self, operation: Callable[[WriteTxn, C], T], command: C) -> T:
        await self.gate.wait()
        if self.fault is not None:
            raise self.fault
        self.writes += 1
        return await self._engine.write(operation, command)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


class ContentsFixture(OpensFixture):
    """A client with files open, through the table of opens and the contents."""

    client: ShareClient

    @cached_property
    def memory(self) -> CountedMemory:
        return CountedMemory()

    @cached_property
    def watched(self) -> WatchedEngine:
        return WatchedEngine(self.engine)

    @cached_property
    def contents(self) -> FileContents:
        engine: Any = self.watched
        store: BodyStore = self.store
        return FileContents(engine, store, self.table, self.memory, self.clock)

    async def start(self, **settings: Any) -> None:
        await self.create(**settings)
        self.client = await self.connect()

    async def opened_file(self, path: str = "f", data: bytes = b"") -> Handle:
        """Creates a file and opens it."""
        await self.put(path, data)
        return await opened(self.client, path, R | W)

    async def smb_write(self, handle: Handle, offset: int, data: bytes, **how: bool) -> None:
        await self.contents.write(self.client.share, handle, offset, data, **how)

    async def smb_read(self, handle: Handle, offset: int = 0, length: int = 1 << 20) -> bytes:
        return bytes(await self.contents.read(self.client.share, handle, offset, length))

    async def resize(self, handle: Handle, length: int) -> None:
        await self.contents.resize(self.client.share, handle, length)

    async def clear_bytes(self, handle: Handle, start: int, end: int) -> None:
        await self.contents.clear(self.client.share, handle, start, end)

    async def flush(self, handle: Handle) -> None:
        await self.contents.flush(self.client.share, handle.entry)

    async def rest_bytes(self, path: str = "f") -> bytes:
        """Returns the bytes that Get File returns."""

        async def run(_: object) -> bytes:
            return await self.stored_bytes(path)

        return await self.table.rest(path_of(path), RestAccess.READ, run)

    async def stored_bytes(self, path: str = "f", snapshot: int | None = None) -> bytes:
        """Returns the bytes that the ledger has."""
        return await self.get(path, snapshot=snapshot)

    async def stored_length(self, path: str = "f") -> int:
        return length_of(await self.entry(path))


def length_of(entry: Entry) -> int:
    assert isinstance(entry.node, FileNode)
    return entry.node.content.length


def contents_test(body: Callable[[ContentsFixture], Awaitable[None]]) -> Test:
    """Turns a coroutine into a test that runs with every engine."""
    return engine_test(ContentsFixture, body)


def contents_property_test(
    examples: SearchStrategy[T], *, count: int
) -> Callable[[Callable[[ContentsFixture, T], Awaitable[None]]], Test]:
    """Turns a coroutine into a property test that runs with every engine."""
    return lambda body: engine_property_test(ContentsFixture, examples, count, body)
