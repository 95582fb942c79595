"""The bytes of open files: reads, and writes that are gathered in memory before they are stored.

A write is acknowledged when it is in memory. From then on every read of this process sees it, and
REST operations store it first. `flush` makes it durable. See decision 28.

Byte-range locks are checked by the caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Protocol, TypeVar

from etagere.bodies.plans import Plan
from etagere.bodies.store import BodyCorrupt, BodyReader, BodyStore
from etagere.clock import Clock
from etagere.config import MIB
from etagere.engine.interface import Engine, Fault, FaultReason, Refused, Unknown
from etagere.errors import Refusal
from etagere.model.open_files import ListAllocated, OpenFileRef, ReadOpenFile
from etagere.opens.changes import ChangeSignal
from etagere.opens.extents import Extent, part_of
from etagere.opens.gathering import GatheredFile, Layer
from etagere.opens.handles import Handle, OpenEntry
from etagere.opens.quotas import require_room
from etagere.opens.share import ShareOpens
from etagere.opens.storing import store_layer
from etagere.opens.table import OpenTable
from etagere.operations.file.writes import (
    LocatedBytes,
    find_writable_length,
    list_allocated,
    locate_bytes,
)
from etagere.rules.file_ranges import FILE_BYTES_MAX
from etagere.telemetry.context import ACCOUNT

logger = logging.getLogger(__name__)

T = TypeVar("T")

GATHERED_BYTES_MAX: Final = 64 * MIB
"""What all files of a process gather at most; then writers wait."""
_WAIT_SECONDS_MAX: Final = 60.0
"""How long a write waits for room."""
_ALLOWANCE_BYTES_MAX: Final = 8 * MIB
_ALLOWANCE_SECONDS: Final = 1.0
"""How far, and for how long, files grow before the quota is examined again. Near the quota it is
examined for every write."""
_LOOK_SECONDS: Final = 0.05
"""How often a write that finds no memory looks again."""
_ATTEMPTS_MAX: Final = 20
"""How often a file that is being renamed is looked up."""
_TRY_SECONDS: Final = 0.2
"""How often everything is tried to be stored before the process ends."""
_CLOSE_SECONDS_MAX: Final = 1.0
"""How long the last attempt takes: most was stored while connections were drained."""


class Memory(Protocol):
    """The memory budget of the server."""

    def reserve(self, count: int) -> bool:
        """Reserves memory if there is enough; returns whether there was."""
        ...

    def release(self, count: int) -> None: ...


_Span = tuple[int, int]
_SpanOfLength = Callable[[int], _Span]
"""The range that a change concerns, if the file has this length. The end is exclusive."""


class FileContents:
    """The bytes of the open files of a process."""

    def __init__(
        self,
        engine: Engine,
        store: BodyStore,
        opens: OpenTable,
        memory: Memory,
        clock: Clock,
        *,
        bytes_max: int = GATHERED_BYTES_MAX,
    ) -> None:
        self._engine = engine
        self._store = store
        self._opens = opens
        self._memory = memory
        self._clock = clock
        self._bytes_max = bytes_max
        self._reserved = 0
        self._room = ChangeSignal()
        self._files: dict[int, GatheredFile] = {}
        """The files with gathered writes, by the IDs of their entries, which are unique."""

    # Reading

    async def read(
        self, share: ShareOpens, handle: Handle, offset: int, length: int
    ) -> bytes | memoryview:
        """Returns bytes of a file, fewer at its end, and none behind it."""
        entry = handle.entry

        async def read(ref: OpenFileRef) -> bytes | memoryview:
            while True:
                file = None if entry.snapshot is not None else share.gathered.get(entry.id)
                if file is None:
                    return await self._read_stored(ref, offset, length)
                data = await self._read_gathered(file, ref, offset, length)
                if data is not None:
                    return data

        return await _follow(share, entry, read)

    async def _read_stored(self, ref: OpenFileRef, offset: int, length: int) -> memoryview:
        with self._store.open_reader() as reader:
            found = await self._locate(ref, offset, length)
            reader.limit_to(found.plan)
            data = memoryview(bytearray(found.length))
            await _read_into(reader, found.plan, data)
            return data

    async def _read_gathered(
        self, file: GatheredFile, ref: OpenFileRef, offset: int, length: int
    ) -> bytes | memoryview | None:
        """Returns bytes of a file with gathered writes; None if it was stored meanwhile, so that
        the ledger has to be read again."""
        end = min(offset + length, file.length)
        if end <= offset:
            return b""
        extents = file.extents(offset, end)
        if len(extents) == 1 and extents[0].start <= offset and end <= extents[0].end:
            data = part_of(extents[0], offset, end)
            return bytes(end - offset) if data is None else memoryview(data)
        if _covers(extents, offset, end):
            return _overlaid(memoryview(bytearray(end - offset)), extents, offset)
        with self._store.open_reader() as reader:
            stores = file.stores
            found = await self._locate(ref, offset, end - offset)
            if file.stores != stores:
                return None
            # Together with what the ledger had, this is the state at one moment.
            count = max(0, min(length, file.length - offset))
            extents = file.extents(offset, offset + count)
            reader.limit_to(found.plan)
            stored = memoryview(bytearray(max(count, found.length)))
            await _read_into(reader, found.plan, stored)
        return _overlaid(stored[:count], extents, offset)

    async def _locate(self, ref: OpenFileRef, offset: int, length: int) -> LocatedBytes:
        command = ReadOpenFile(ref, offset, length)
        found = await self._engine.read(locate_bytes, command)
        if found is None:
            command = ReadOpenFile(ref, offset, length, brief=False)
            found = await self._engine.read_in_thread(locate_bytes, command)
        assert found is not None, "a lookup that may take long returned nothing"
        return found

    async def allocated_ranges(
        self, share: ShareOpens, handle: Handle, start: int, end: int, limit: int
    ) -> list[tuple[int, int]]:
        """Returns the ranges that were written, at most one more than the limit."""
        entry = handle.entry
        await self.flush(share, entry)
        return await _follow(
            share,
            entry,
            lambda ref: self._engine.read_in_thread(
                list_allocated, ListAllocated(ref, start, end, limit)
            ),
        )

    def length(self, entry: OpenEntry) -> int | None:
        """Returns the length of a file with its gathered writes; None: as in the ledger."""
        file = None if entry.snapshot is not None else self._files.get(entry.id)
        return None if file is None else file.length

    # Writing

    async def write(
        self,
        share: ShareOpens,
        handle: Handle,
        offset: int | None,
        data: bytes | memoryview,
        through: bool = False,
    ) -> int:
        """Writes bytes, at least one, at the end of the file if `offset` is None; the file grows if
        they reach beyond its end. Returns the offset behind them. The caller must not change the
        memory of `data` afterwards.

        `through`: returns when they are durable.
        """
        count = len(data)

        def span(length: int) -> _Span:
            start = length if offset is None else offset
            return start, start + count

        file = await self._writable(share, handle, span, count)
        start, end = span(file.length)
        file.write(start, data, preserve_written=handle.preserves_written)
        if through:
            await self.flush(share, handle.entry)
        return end

    async def resize(self, share: ShareOpens, handle: Handle, length: int) -> None:
        """Sets the length of a file. What is added is zeros."""

        def span(old: int) -> _Span:
            return min(old, length), max(old, length)

        file = await self._writable(share, handle, span)
        file.resize(length, preserve_written=handle.preserves_written)

    async def clear(self, share: ShareOpens, handle: Handle, start: int, end: int) -> None:
        """Replaces bytes by zeros, within the length of the file."""

        def span(length: int) -> _Span:
            return min(start, length), min(end, length)

        file = await self._writable(share, handle, span)
        end = min(end, file.length)
        if start < end:
            file.clear(start, end, preserve_written=handle.preserves_written)
        elif file.is_empty:
            share.gathered.remove(file)

    async def _writable(
        self, share: ShareOpens, handle: Handle, span: _SpanOfLength, count: int = 0
    ) -> GatheredFile:
        """Returns the file as soon as it accepts a change of a range, with memory reserved for
        `count` bytes. The caller changes it at once, so that no lock, cache or other change comes
        in between."""
        try:
            return await self._wait_until_writable(share, handle, span, count)
        except BaseException:
            file = share.gathered.get(handle.entry.id)
            if file is not None and file.is_empty:
                share.gathered.remove(file)
            raise

    async def _wait_until_writable(
        self, share: ShareOpens, handle: Handle, span: _SpanOfLength, count: int
    ) -> GatheredFile:
        gathered, entry = share.gathered, handle.entry
        loop = asyncio.get_running_loop()
        gives_up_at = loop.time() + _WAIT_SECONDS_MAX
        # Whatever is awaited, everything is examined again afterwards.
        while True:
            if share.is_gone:
                raise Refused(Refusal("ShareBeingDeleted"))
            if gathered.is_held(entry.id):
                await _wait(share.changes, gives_up_at)
                continue
            file = gathered.get(entry.id)
            if file is None:
                await self._begin(share, entry)
                continue
            if file.fault is not None:
                raise file.fault.with_traceback(None)
            if file.is_full:
                await _wait(share.changes, gives_up_at)
                continue
            start, end = span(file.length)
            if end > FILE_BYTES_MAX:
                raise Refused(Refusal("ShareSizeLimitReached"))
            share.check_write(handle, start, end)
            growth = end - file.length
            if growth > 0 and not self._take_allowance(share, growth):
                await self._examine_quota(share, growth)
                continue
            if count and not self._reserve(count):
                # Returned, because it is examined again.
                gathered.allowance += max(growth, 0)
                await self._wait_for_memory(gives_up_at)
                continue
            return file

    async def _begin(self, share: ShareOpens, entry: OpenEntry) -> None:
        """Begins to gather the changes of a file."""
        gathered = share.gathered
        holds_ended = gathered.holds_ended
        length = await _follow(
            share, entry, lambda ref: self._engine.read(find_writable_length, ref)
        )
        is_current = holds_ended == gathered.holds_ended and not gathered.is_held(entry.id)
        if is_current and gathered.get(entry.id) is None and not share.is_gone:
            file = GatheredFile(gathered, entry, length, self)
            self._files[entry.id] = file
            gathered.add(file)

    def _take_allowance(self, share: ShareOpens, growth: int) -> bool:
        gathered = share.gathered
        now = asyncio.get_running_loop().time()
        if growth > gathered.allowance or now > gathered.allowed_until:
            return False
        gathered.allowance -= growth
        return True

    async def _examine_quota(self, share: ShareOpens, growth: int) -> None:
        """Allows files to grow, or refuses it if the quota would be exceeded."""
        gathered = share.gathered
        left = await require_room(self._engine, share, growth)
        gathered.allowance = max(growth, min(left // 8, _ALLOWANCE_BYTES_MAX))
        gathered.allowed_until = asyncio.get_running_loop().time() + _ALLOWANCE_SECONDS

    # Memory

    def _reserve(self, count: int) -> bool:
        if self._reserved and self._reserved + count > self._bytes_max:
            return False
        if not self._memory.reserve(count):
            return False
        self._reserved += count
        return True

    async def _wait_for_memory(self, gives_up_at: float) -> None:
        """Begins to store the file that takes the most memory, and waits until there is room. If
        none of them can be stored, raises the fault."""
        holding = [one for one in self._files.values() if one.reserved]
        waiting = [one for one in holding if one.fault is None and not one.is_being_stored]
        faults = [one.fault for one in holding if one.fault is not None]
        if waiting:
            max(waiting, key=lambda file: file.reserved).store_soon()
        elif faults and len(faults) == len(holding):
            raise faults[0].with_traceback(None)
        if self._reserved:
            await _wait(self._room, gives_up_at)
        elif asyncio.get_running_loop().time() > gives_up_at:
            raise Refused(Refusal("ServerBusy"))
        else:
            # Requests of other kinds use the whole budget.
            await asyncio.sleep(_LOOK_SECONDS)

    # Storing

    async def flush(self, share: ShareOpens, entry: OpenEntry) -> None:
        """Makes everything durable that was written to a file. Raises `Fault` or `Unknown` if that
        fails; the bytes are kept then, and stored as soon as possible."""
        if entry.snapshot is None:
            await share.gathered.flush(entry.id)

    async def flush_account(self, account: str) -> None:
        """Makes everything durable that was written to the files of an account; as `flush`."""
        files = [file for file in self._files.values() if file.share.account == account]
        for failure in await asyncio.gather(
            *(file.flush() for file in files), return_exceptions=True
        ):
            if failure is not None:
                raise failure

    def now(self) -> int:
        """Returns the wall clock; as in `Storage`."""
        return self._clock.wall()

    async def store(self, file: GatheredFile, layer: Layer) -> bool:
        """Stores a layer; as in `Storage`."""
        ACCOUNT.set(file.share.account)  # a request for another file may have started the task
        try:
            return await store_layer(self._engine, self._store, file.ref, layer)
        except Unknown:
            # The writer process is being restarted. To store it twice does no harm.
            return await store_layer(self._engine, self._store, file.ref, layer)

    def ended(self, layer: Layer) -> None:
        """Releases the memory of a layer; as in `Storage`."""
        self._memory.release(layer.reserved)
        self._reserved -= layer.reserved
        self._room.notify()

    def failed(self) -> None:
        """Wakes those who wait for memory; as in `Storage`."""
        self._room.notify()

    def forget(self, file: GatheredFile) -> None:
        """Forgets a file, and its share if nobody uses it; as in `Storage`."""
        del self._files[file.entry.id]
        self._opens.forget_if_idle(file.share)

    async def store_all(self, seconds_max: float) -> bool:
        """Stores everything that was written so far, and returns whether it could. What cannot be
        stored is tried again."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                while True:
                    flushes = [file.flush() for file in self._files.values()]
                    if not any(await asyncio.gather(*flushes, return_exceptions=True)):
                        return True
                    await asyncio.sleep(_TRY_SECONDS)
        return False

    async def close(self) -> None:
        """Stores the rest before the process ends."""
        await self.store_all(_CLOSE_SECONDS_MAX)
        for file in self._files.values():
            if not file.is_empty:
                reason = file.fault or "there was no time to store them"
                logger.error("writes to %s are lost: %s", file.entry.path, reason)


async def _read_into(reader: BodyReader, plan: Plan, data: memoryview) -> None:
    """Reads bytes from segments; raises `Fault` if they cannot be read."""
    try:
        await reader.read_into(plan, data)
    except (OSError, BodyCorrupt) as error:
        raise Fault(FaultReason.FAILED, str(error)) from error


async def _follow(
    share: ShareOpens, entry: OpenEntry, look_up: Callable[[OpenFileRef], Awaitable[T]]
) -> T:
    """Looks up an open file in the ledger, wherever it is moved meanwhile."""
    for _ in range(_ATTEMPTS_MAX):
        ref = share.gathered.ref(entry)
        try:
            return await look_up(ref)
        except Refused:
            if not share.rest.is_moving and share.gathered.ref(entry) == ref:
                raise
        if share.rest.is_moving:
            await share.changes.next()
    raise Refused(Refusal("ServerBusy"))


async def _wait(signal: ChangeSignal, gives_up_at: float) -> None:
    seconds = gives_up_at - asyncio.get_running_loop().time()
    done, _ = await asyncio.wait((signal.next(),), timeout=max(seconds, 0))
    if not done:
        raise Refused(Refusal("ServerBusy"))


def _covers(extents: Iterable[Extent], start: int, end: int) -> bool:
    """Returns whether the extents of one layer, or of both, leave no gap."""
    at = start
    for extent in sorted(extents, key=lambda one: one.start):
        if extent.start > at:
            return False
        at = max(at, extent.end)
    return at >= end


def _overlaid(stored: memoryview, extents: Iterable[Extent], start: int) -> memoryview:
    """Writes extents over the bytes of the ledger, which begin at an offset, and returns them."""
    end = start + len(stored)
    for extent in extents:
        first, last = max(extent.start, start), min(extent.end, end)
        data = part_of(extent, first, last)
        stored[first - start : last - start] = bytes(last - first) if data is None else data
    return stored
