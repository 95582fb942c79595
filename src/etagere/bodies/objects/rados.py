"""The driver for RADOS, the object store of Ceph, on librados.

librados repeats requests when OSDs fail, and OSDs recognize repetitions, so the driver does not
retry.

RADOS cannot list by prefix: it lists whole pools, at the cost of reading every name in them. The
objects of a segment are found by their names instead, which are known.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, Final, TypeVar

from etagere.bodies.objects.interface import (
    OBJECT_BYTES_MAX,
    ObjectEntry,
    ObjectExists,
    ObjectMissing,
)
from etagere.bodies.objects.names import possible_names
from etagere.bodies.objects.rados_binding import load_binding
from etagere.bodies.objects.rados_connection import (
    TIMEOUTS,
    Connection,
    RadosAddress,
    Timeouts,
    connect,
    error_number,
    fault_of,
)
from etagere.config import KIB
from etagere.engine.interface import Fault, FaultReason

logger = logging.getLogger(__name__)

_GRACE_SECONDS: Final = 5
"""How much longer a call waits than librados itself."""
_OPERATIONS_MAX: Final = 256
"""The operations under way, including those whose callers do not wait any more."""
_OPERATIONS_PER_CALL_MAX: Final = 64
_QUICK_BYTES: Final = 64 * KIB
_NAMES_PER_PAGE: Final = 1_000
_BLOCKLISTED: Final = -errno.ESHUTDOWN
"""The cluster accepts nothing from this connection any more."""

T = TypeVar("T")
Completed = Callable[..., None]
"""Called with the completion and what was found, in a thread of librados."""


class RadosObjectStore:
    """The objects below a prefix of a pool."""

    def __init__(self, address: RadosAddress, timeouts: Timeouts = TIMEOUTS) -> None:
        """Raises `InvalidStore` if the binding is not installed. Connects with the first call."""
        self._binding = load_binding()
        self._address = address
        self._timeouts = timeouts
        self._prefix = f"{address.prefix}/" if address.prefix else ""
        self._connection: Connection | None = None
        self._abandoned: list[Connection] = []
        self._connecting: asyncio.Task[Fault | None] | None = None
        # For calls of librados that block: connecting, listing and disconnecting.
        self._thread = ThreadPoolExecutor(1, "rados")
        self._copying = ThreadPoolExecutor(1, "rados-put")
        self._slots = asyncio.Semaphore(_OPERATIONS_MAX)
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def put(self, name: str, buffers: Sequence[bytes | bytearray | memoryview]) -> None:
        def start(pool: Any, completed: Completed) -> None:
            data = b"".join(buffers)
            with self._binding.WriteOpCtx() as operation:
                operation.new(self._binding.LIBRADOS_CREATE_EXCLUSIVE)
                operation.write_full(data)
                pool.operate_aio_write_op(operation, self._prefix + name, completed)

        # The binding and librados copy the data.
        is_long = sum(map(len, buffers)) > _QUICK_BYTES
        code, _ = await self._operate(f"put {name}", start, in_thread=is_long)
        if code == -errno.EEXIST:
            raise ObjectExists(name)
        _require_success(f"put {name}", code)

    async def get(self, name: str, offset: int, length: int) -> bytes:
        length = min(length, OBJECT_BYTES_MAX)
        if not length:
            return b""

        def start(pool: Any, completed: Completed) -> None:
            pool.aio_read(self._prefix + name, length, offset, completed)

        code, data = await self._operate(f"get {name}", start)
        if code == -errno.ENOENT:
            raise ObjectMissing(name)
        _require_success(f"get {name}", code)
        assert isinstance(data, bytes)
        return data if len(data) == code else data[:code]  # not shortened if nothing was read

    async def delete(self, names: Iterable[str]) -> None:
        for batch in _batches(names):
            await asyncio.gather(*map(self._delete_one, batch))

    async def _delete_one(self, name: str) -> None:
        def start(pool: Any, completed: Completed) -> None:
            with self._binding.WriteOpCtx() as operation:
                operation.remove()
                pool.operate_aio_write_op(operation, self._prefix + name, completed)

        code, _ = await self._operate(f"delete {name}", start)
        if code != -errno.ENOENT:
            _require_success(f"delete {name}", code)

    async def _size(self, name: str) -> int | None:
        """Returns the size of an object; None if it is missing."""

        def start(pool: Any, completed: Completed) -> None:
            pool.aio_stat(self._prefix + name, completed)

        code, size = await self._operate(f"stat {name}", start)
        if code == -errno.ENOENT:
            return None
        _require_success(f"stat {name}", code)
        assert isinstance(size, int)
        return size

    async def list(self, prefix: str) -> AsyncIterator[ObjectEntry]:
        possible = possible_names(prefix)
        if possible is not None:
            async for entry in self._existing(possible):
                yield entry
            return
        async for page in self._pages(prefix):
            async for entry in self._existing(page):
                yield entry

    async def _existing(self, names: Iterable[str]) -> AsyncIterator[ObjectEntry]:
        for batch in _batches(names):
            sizes = await asyncio.gather(*map(self._size, batch))
            for name, size in zip(batch, sizes, strict=True):
                if size is not None:
                    yield ObjectEntry(name, size)

    async def names(self, prefix: str) -> AsyncIterator[str]:
        async for page in self._pages(prefix):
            for name in page:
                yield name

    async def _pages(self, prefix: str) -> AsyncIterator[Sequence[str]]:
        """Yields the names of the objects of the pool that have a prefix."""
        objects = (await self._wait_for_connection()).pool.list_objects()
        start = self._prefix + prefix
        while page := await self._in_thread(_next_names, objects, self._timeouts.operation):
            yield [name.removeprefix(self._prefix) for name in page if name.startswith(start)]

    # Operations

    async def _operate(
        self, what: str, start: Callable[[Any, Completed], None], *, in_thread: bool = False
    ) -> tuple[int, object]:
        """Runs an operation; returns its return value, negative for errors, and what it found."""
        try:
            async with asyncio.timeout(sum(self._timeouts) + _GRACE_SECONDS):
                connection = await self._wait_for_connection()
                await self._slots.acquire()
                answer = await self._start(connection, start, in_thread=in_thread)
        except TimeoutError:
            raise Fault(FaultReason.UNAVAILABLE, f"RADOS, {what}: no answer in time") from None
        if answer[0] == _BLOCKLISTED and self._connection is connection:
            self._connection = None
            self._abandoned.append(connection)  # others may still wait for its answers
        return answer

    def _start(
        self, connection: Connection, start: Callable[[Any, Completed], None], *, in_thread: bool
    ) -> asyncio.Future[tuple[int, object]]:
        """Starts an operation, which has a slot until it ends, even if nobody waits for it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[tuple[int, object]] = loop.create_future()

        def end(code: int, found: object = None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop may be closed
                loop.call_soon_threadsafe(self._end, future, (code, found))

        def completed(completion: Any, found: object = None, _: object = None) -> None:
            end(completion.get_return_value(), found)

        def submit() -> None:
            try:
                start(connection.pool, completed)
            except self._binding.Error as error:
                end(-error_number(error))
            except Exception:
                logger.exception("Ceph's Python binding failed")
                end(-errno.EINVAL)

        self._under_way += 1
        self._idle.clear()
        if in_thread:
            self._copying.submit(submit)
        else:
            submit()
        return future

    def _end(self, future: asyncio.Future[tuple[int, object]], answer: tuple[int, object]) -> None:
        self._slots.release()
        self._under_way -= 1
        if not self._under_way:
            self._idle.set()
        if not future.done():
            future.set_result(answer)

    # Connections

    async def _wait_for_connection(self) -> Connection:
        while self._connection is None:
            if self._connecting is None:
                self._connecting = asyncio.create_task(self._connect())
            fault = await asyncio.shield(self._connecting)
            if fault is not None:
                raise fault
        return self._connection

    async def _connect(self) -> Fault | None:
        """Connects to the cluster, for all calls that wait for it."""
        try:
            self._connection = await self._in_thread(
                connect, self._binding, self._address, self._timeouts
            )
        except Fault as fault:
            return fault
        finally:
            self._connecting = None
        return None

    def _in_thread(self, call: Callable[..., T], *arguments: object) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)

    async def close(self) -> None:
        """Disconnects. Operations whose callers were cancelled may still be under way; they end
        first."""
        if self._connecting is not None:
            await self._connecting
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), self._timeouts.operation + _GRACE_SECONDS)
        if self._connection is not None:
            self._abandoned.append(self._connection)
            self._connection = None
        while self._abandoned:
            await self._in_thread(self._abandoned.pop().close)
        self._copying.shutdown()
        self._thread.shutdown()


def _next_names(objects: Iterator[Any], operation_seconds_max: int) -> Sequence[str]:
    """Returns the next names in a pool; none at the end. Raises `Fault`."""
    names: list[str] = []
    while len(names) < _NAMES_PER_PAGE:
        try:
            found = next(objects, None)
            if found is None:
                # The binding also ends the iteration when a request fails. At the next call,
                # librados repeats the request, while it knows at once that a pool has ended.
                began = time.monotonic()
                found = next(objects, None)
                if found is None:
                    if time.monotonic() - began > operation_seconds_max / 2:
                        raise fault_of("list", errno.ETIMEDOUT)
                    break
        except UnicodeDecodeError:
            continue  # it belongs to another program
        names.append(found.key)
    return names


def _batches(names: Iterable[str]) -> Iterator[Sequence[str]]:
    rest = iter(names)
    while batch := tuple(islice(rest, _OPERATIONS_PER_CALL_MAX)):
        yield batch


def _require_success(what: str, code: int) -> None:
    if code < 0:
        raise fault_of(what, -code)
