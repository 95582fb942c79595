"""Drivers for object stores in tests: in memory, in a directory, and with faults and delays."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from etagere.bodies.objects.interface import ObjectEntry, ObjectExists, ObjectMissing, ObjectStore
from etagere.engine.interface import Fault, FaultReason

_WAIT_SECONDS_MAX = 20.0


class MemoryObjectStore:
    """An object store in the memory of this process."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    async def put(self, name: str, buffers: Sequence[bytes | bytearray | memoryview]) -> None:
        await asyncio.sleep(0)
        if name in self.objects:
            raise ObjectExists(name)
        self.objects[name] = b"".join(buffers)

    async def get(self, name: str, offset: int, length: int) -> bytes:
        await asyncio.sleep(0)
        if name not in self.objects:
            raise ObjectMissing(name)
        return self.objects[name][offset : offset + length]

    async def delete(self, names: Iterable[str]) -> None:
        await asyncio.sleep(0)
        for name in names:
            self.objects.pop(name, None)

    async def list(self, prefix: str) -> AsyncIterator[ObjectEntry]:
        for name, data in list(self.objects.items()):
            if name.startswith(prefix):
                await asyncio.sleep(0)
                yield ObjectEntry(name, len(data))

    async def names(self, prefix: str) -> AsyncIterator[str]:
        async for entry in self.list(prefix):
            yield entry.name

    async def close(self) -> None:
        pass


class DirectoryObjectStore:
    """An object store in a directory, for tests with several processes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def path(self, name: str) -> Path:
        return self._directory / name.replace("/", "+")

    async def put(self, name: str, buffers: Sequence[bytes | bytearray | memoryview]) -> None:
        await asyncio.sleep(0)
        path = self.path(name)
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        partial.write_bytes(b"".join(buffers))
        try:
            os.link(partial, path)
        except FileExistsError:
            raise ObjectExists(name) from None
        finally:
            partial.unlink()

    async def get(self, name: str, offset: int, length: int) -> bytes:
        await asyncio.sleep(0)
        try:
            with self.path(name).open("rb") as file:
                return os.pread(file.fileno(), length, offset)
        except FileNotFoundError:
            raise ObjectMissing(name) from None

    async def delete(self, names: Iterable[str]) -> None:
        await asyncio.sleep(0)
        for name in names:
            self.path(name).unlink(missing_ok=True)

    async def list(self, prefix: str) -> AsyncIterator[ObjectEntry]:
        for path in self._directory.iterdir():
            name = path.name.replace("+", "/")
            if name.startswith(prefix) and not name.startswith("."):
                await asyncio.sleep(0)
                try:
                    yield ObjectEntry(name, path.stat().st_size)
                except FileNotFoundError:
                    continue

    async def names(self, prefix: str) -> AsyncIterator[str]:
        async for entry in self.list(prefix):
            yield entry.name

    async def close(self) -> None:
        pass


class FaultyObjectStore:
    """Counts, delays and fails the calls of another driver.

    `strike("put", 2, ...)` fails the second put from now, once; with `afterwards`, after it was
    done. `hold("put")` makes puts wait until `let_go("put")`, and `reached("put")` waits until one
    is waiting. `fail_all` makes every call fail while its context lasts.
    """

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner
        self.calls: Counter[str] = Counter()
        self.under_way: Counter[str] = Counter()
        self.under_way_max: Counter[str] = Counter()
        self.delays: dict[str, float] = {}
        self.sizes: list[int] = []
        """Of the objects that were put."""
        self.fetched: list[int] = []
        """The lengths of the ranges that were requested."""
        self.has_struck = False
        self._struck: tuple[str, int, BaseException, bool] | None = None
        self._held: dict[str, tuple[asyncio.Event, asyncio.Event]] = {}
        self._failing: Callable[[], BaseException] | None = None

    def strike(
        self, call: str, number: int, error: BaseException, *, afterwards: bool = False
    ) -> None:
        self._struck = (call, number, error, afterwards)
        self.has_struck = False

    @contextmanager
    def fail_all(self, reason: FaultReason = FaultReason.UNAVAILABLE) -> Iterator[None]:
        self._failing = lambda: Fault(reason, "the store is down")
        try:
            yield
        finally:
            self._failing = None

    def hold(self, call: str) -> None:
        self._held[call] = (asyncio.Event(), asyncio.Event())

    async def reached(self, call: str) -> None:
        await asyncio.wait_for(self._held[call][0].wait(), _WAIT_SECONDS_MAX)

    def let_go(self, call: str) -> None:
        self._held.pop(call)[1].set()

    def let_others_go(self, call: str) -> asyncio.Event:
        """Later calls do not wait; those that are waiting continue when the event is set."""
        return self._held.pop(call)[1]

    async def _before(self, call: str) -> BaseException | None:
        """Waits and fails as it was told; returns the error to raise after the call."""
        self.calls[call] += 1
        held = self._held.get(call)
        if held is not None:
            held[0].set()
            await asyncio.wait_for(held[1].wait(), _WAIT_SECONDS_MAX)
        await asyncio.sleep(self.delays.get(call, 0))
        if self._failing is not None:
            raise self._failing()
        if self._struck is None or self._struck[0] != call:
            return None
        _, number, error, afterwards = self._struck
        if number > 1:
            self._struck = (call, number - 1, error, afterwards)
            return None
        self._struck = None
        self.has_struck = True
        if afterwards:
            return error
        raise error

    @contextmanager
    def _counted(self, call: str) -> Iterator[None]:
        self.under_way[call] += 1
        self.under_way_max[call] = max(self.under_way_max[call], self.under_way[call])
        try:
            yield
        finally:
            self.under_way[call] -= 1

    async def put(self, name: str, buffers: Sequence[bytes | bytearray | memoryview]) -> None:
        with self._counted("put"):
            error = await self._before("put")
            self.sizes.append(sum(map(len, buffers)))
            await self.inner.put(name, buffers)
            if error is not None:
                raise error

    async def get(self, name: str, offset: int, length: int) -> bytes:
        with self._counted("get"):
            self.fetched.append(length)
            error = await self._before("get")
            data = await self.inner.get(name, offset, length)
            if error is not None:
                raise error
            return data

    async def delete(self, names: Iterable[str]) -> None:
        with self._counted("delete"):
            error = await self._before("delete")
            await self.inner.delete(names)
            if error is not None:
                raise error

    async def list(self, prefix: str) -> AsyncIterator[ObjectEntry]:
        with self._counted("list"):
            error = await self._before("list")
            async for entry in self.inner.list(prefix):
                yield entry
            if error is not None:
                raise error

    async def names(self, prefix: str) -> AsyncIterator[str]:
        async for entry in self.list(prefix):
            yield entry.name

    async def close(self) -> None:
        await self.inner.close()
