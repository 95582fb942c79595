"""Segments that are files, while they are being appended to."""

from __future__ import annotations

import asyncio
import mmap
from collections.abc import Callable, Iterator
from operator import itemgetter

from etagere.bodies.disk import fault_of
from etagere.bodies.own_segments import WritableSegment
from etagere.descriptors import OpenFile
from etagere.engine.interface import Fault

_ALIGNED_BYTES_MIN = 256 * 1024
"""Shorter bodies are not aligned to pages, since that would waste space."""

WriteAndSync = Callable[[OpenFile, list[tuple[int, bytes]]], "asyncio.Future[None]"]


class NotWritten(Exception):
    """A write failed, before any sync."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class FileSegment(WritableSegment):
    """A file that this process appends to."""

    def __init__(self, number: int, file: OpenFile) -> None:
        super().__init__(number)
        self.file = file
        self._failed: Fault | None = None
        self._next_sync: asyncio.Task[None] | None = None
        self._this_sync: asyncio.Task[None] | None = None
        self._unwritten: list[tuple[int, bytes]] = []

    def place(self, length: int) -> int:
        """Returns the offset for a write of this length."""
        end = self.length
        return end + (-end % mmap.PAGESIZE if length >= _ALIGNED_BYTES_MIN else 0)

    def trim(self, offset: int, length: int) -> None:
        # Something may have been reserved behind it.
        if self.length == offset + length:
            self.length = offset

    def require_usable(self) -> None:
        """Raises `Fault` after a failed sync, since the contents of the disk are then unknown."""
        if self._failed is not None:
            # A new exception each time, because a raised one keeps its traceback alive.
            raise Fault(self._failed.reason, self._failed.detail)

    def add(self, offset: int, data: bytes) -> None:
        """Adds bytes for reserved space, to be written at the next sync."""
        self._unwritten.append((offset, data))

    async def sync(self, write_and_sync: WriteAndSync) -> None:
        """Makes everything durable that was added or written before this call. A sync that is
        already running may have missed it, so this waits for the next one, which all callers
        share."""
        if self._next_sync is None:
            self._next_sync = asyncio.create_task(self._sync_after(self._this_sync, write_and_sync))
        await asyncio.shield(self._next_sync)

    async def _sync_after(
        self, earlier: asyncio.Task[None] | None, write_and_sync: WriteAndSync
    ) -> None:
        if earlier is not None:
            await asyncio.wait([earlier])
        self._this_sync, self._next_sync = self._next_sync, None
        self.require_usable()
        unwritten, self._unwritten = self._unwritten, []
        try:
            await write_and_sync(self.file, unwritten)
        except NotWritten as failure:
            # Nothing refers to these bytes, and earlier ones are still durable.
            raise fault_of(failure.error) from failure.error
        except OSError as error:
            # The contents of the disk are unknown now, and another fsync would not help: whatever
            # was not durable before is lost, and nothing more is written to this segment.
            self.rolled = True
            self._failed = fault_of(error)
            raise fault_of(error) from error


def runs(unwritten: list[tuple[int, bytes]]) -> Iterator[tuple[int, list[bytes]]]:
    """Joins adjacent writes."""
    start, end, buffers = 0, 0, list[bytes]()
    for offset, data in sorted(unwritten, key=itemgetter(0)):
        if buffers and offset != end:
            yield start, buffers
            buffers = []
        if not buffers:
            start = offset
        buffers.append(data)
        end = offset + len(data)
    if buffers:
        yield start, buffers
