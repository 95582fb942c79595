"""The body store of files: small bodies are stored in the ledger, larger ones in segments.

Each process appends to its own segments, so processes never wait for each other, and uploads that
end at the same time share one fsync. Small bodies are written together, right before the fsync.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import logging
import os
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from awscrt.checksums import crc64nvme

from etagere import directories
from etagere.bodies.contents import UNCOUNTED_DEAD
from etagere.bodies.disk import Disk, fault_of
from etagere.bodies.reading import FileBodyReader
from etagere.bodies.receiving import receive_to_file
from etagere.bodies.segments import OpenSegment, open_segment, seal
from etagere.bodies.store import BodyCorrupt, LentSocket
from etagere.bodies.writable import NotWritten, WritableSegment, runs
from etagere.bodies.writing import FileBodyWriter, Reservations
from etagere.config import Config
from etagere.coordination.interface import Coordinator
from etagere.coordination.local import LocalCoordinator
from etagere.descriptors import OpenFile
from etagere.engine import reserve
from etagere.engine.interface import Engine, Fault, FaultReason, ReadTxn, Unknown

logger = logging.getLogger(__name__)

DIRECTORY_NAME = "segments"
_NO_DESCRIPTORS = {errno.EMFILE, errno.ENFILE}
_ZEROS_FILE_BYTES = 1 << 62
_THREADS_MAX = 8
_DEAD_ROWS_PER_SLICE = 200
_DEAD_SLICES_PER_ROUND = 20
_RECEIVER_THREADS = max(1, len(os.sched_getaffinity(0)) // 2)
"""Threads that read uploads from sockets. The senders and the kernel need the other cores."""

T = TypeVar("T")


def segment_path(directory: Path, number: int) -> Path:
    return directory / DIRECTORY_NAME / f"{number:08x}.seg"


class FileBodyStore:
    """The bodies in one data directory, as one process sees them."""

    def __init__(
        self,
        directory: Path,
        engine: Engine,
        config: Config | None = None,
        disk: Disk | None = None,
        coordinator: Coordinator | None = None,
    ) -> None:
        """By default all processes of the store run on this machine. The store closes the
        coordinator when it is closed."""
        self._directory = directory
        self._engine = engine
        self._config = config or Config()
        self._disk = disk or Disk(durable=self._config.durable)
        directories.make(directory / DIRECTORY_NAME, durable=self._config.durable)
        self.coordinator = coordinator or LocalCoordinator(directory)
        self._threads = ThreadPoolExecutor(_THREADS_MAX, "bodies")
        self._receivers = ThreadPoolExecutor(_RECEIVER_THREADS, "receivers")
        self._segment: WritableSegment | None = None
        self._open: dict[int, WritableSegment] = {}
        self._uncreated: set[int] = set()
        """Segments whose files could not be created; they are still to be sealed in the ledger."""
        self._rolling: asyncio.Task[None] | None = None
        self._dead_count = _DeadCount(0)
        self._files: OrderedDict[int, OpenFile] = OrderedDict()
        self._zeros_file: OpenFile | None = None

    # Writing

    def writer(
        self, length: int | None = None, *, inline: bool = True, md5: bool = False
    ) -> FileBodyWriter:
        inline_bytes_max = self._config.inline_bytes_max if inline else 0
        return FileBodyWriter(
            Reservations(self), length, inline_bytes_max, self._config.piece_bytes_max, md5=md5
        )

    def reservations(self) -> Reservations:
        """Returns reservations for the collector. They may use the rest of the disk, since moving
        extents frees more space than it takes."""
        return Reservations(self, reclaims=True)

    async def reserve(self, length: int, *, reclaims: bool = False) -> tuple[WritableSegment, int]:
        """Reserves space for this many bytes; returns the segment and the offset."""
        while True:
            try:
                free = self._disk.free_bytes(self._directory)
            except OSError as error:
                raise fault_of(error) from error
            if free - length < (0 if reclaims else self._bytes_to_keep_free(free - length)):
                self._roll_if_abandoned()
                raise Fault(FaultReason.DISK_FULL, f"{free} bytes are left on the disk")
            segment = self._segment
            if segment is not None and not segment.rolled and not self._is_full(segment, length):
                offset = segment.place(length)
                segment.end = offset + length
                segment.uploads += 1
                return segment, offset
            # A separate task, shared by all uploads that wait: a cancelled upload must not leave a
            # half-created segment.
            mine = self._rolling is None
            if self._rolling is None:
                self._rolling = asyncio.create_task(self._roll())
            try:
                await asyncio.shield(self._rolling)
            except (Fault, Unknown):
                if mine:
                    raise

    def _bytes_to_keep_free(self, left: int) -> int:
        """Returns how many bytes uploads must leave free. While the ledger's reserve is released,
        that is what the writer needs to restore it: otherwise uploads that are retried again and
        again, and refused at commit, would take that space for ever."""
        reserve_bytes = self._config.reserve_bytes
        to_restore = (reserve.ROOM_FACTOR + 1) * reserve_bytes
        if left < to_restore and reserve.is_released(self._directory):
            return to_restore
        return reserve_bytes

    def _is_full(self, segment: WritableSegment, length: int) -> bool:
        return segment.end > 0 and segment.place(length) + length > self._config.segment_bytes_max

    def _roll_if_abandoned(self) -> None:
        """Makes the next upload begin a new segment: abandoned space can be collected only once its
        segment is sealed."""
        if self._segment is not None and self._segment.abandoned:
            self._segment.rolled = True

    async def _roll(self) -> None:
        try:
            await self._begin_segment()
        finally:
            self._rolling = None

    async def _begin_segment(self) -> None:
        if self._segment is not None:
            self._segment.rolled = True
            self._segment = None
        number = await self._engine.write(open_segment, OpenSegment(self.coordinator.process_id))
        path = segment_path(self._directory, number)
        try:
            descriptor = await self.in_thread(self._disk.create, path)
        except OSError as error:
            self._uncreated.add(number)
            await self._seal_uncreated()
            raise fault_of(error) from error
        self._segment = self._open[number] = WritableSegment(number, OpenFile(descriptor))

    async def write(
        self,
        segment: WritableSegment,
        offset: int,
        buffers: list[memoryview],
        md5: hashlib._Hash | None = None,
    ) -> int:
        """Writes buffers; returns their CRC64, and adds them to `md5`."""
        segment.require_usable()
        try:
            return await self.in_thread(self._write_to, segment.file, buffers, offset, md5)
        except OSError as error:
            raise fault_of(error) from error

    def _write_to(
        self,
        file: OpenFile,
        buffers: list[memoryview],
        offset: int,
        md5: hashlib._Hash | None,
    ) -> int:
        # The thread holds a reference to the file: when an upload is cancelled, its write
        # continues, and the number of a closed descriptor may by then belong to another file.
        self._disk.write(file.descriptor, buffers, offset)
        crc = 0
        for buffer in buffers:
            crc = crc64nvme(buffer, crc)
            if md5 is not None:
                md5.update(buffer)
        return crc

    async def receive(
        self,
        lent: LentSocket,
        segment: WritableSegment,
        offset: int,
        length: int,
        md5: hashlib._Hash | None,
    ) -> tuple[int, int]:
        """Writes the bytes that are available in a lent socket. Returns their number and their
        CRC64."""
        segment.require_usable()
        lent.taken = None
        received = await asyncio.get_running_loop().run_in_executor(
            self._receivers,
            receive_to_file,
            self._disk,
            lent.file,
            segment.file,
            offset,
            length,
            md5,
        )
        lent.taken = received.length
        if received.error is not None:
            raise fault_of(received.error) from received.error
        return received.length, received.crc

    async def sync(self, segment: WritableSegment) -> None:
        await segment.sync(partial(self.in_thread, self._write_and_sync))

    def _write_and_sync(self, file: OpenFile, unwritten: list[tuple[int, bytes]]) -> None:
        try:
            for offset, buffers in runs(unwritten):
                self._disk.write(file.descriptor, buffers, offset)
        except OSError as error:
            raise NotWritten(error) from error
        self._disk.sync(file.descriptor)

    def in_thread(self, call: Callable[..., T], *arguments: object) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._threads, call, *arguments)

    async def maintain(self) -> None:
        """Maintains the segments of this process: closes files that were removed, begins a new
        segment when much of the current one is dead, and seals segments that nothing is being
        uploaded to."""
        for number, file in list(self._files.items()):
            if not os.fstat(file.descriptor).st_nlink:
                del self._files[number]
        current = self._segment
        if current is not None and not current.rolled:
            dead = current.abandoned + await self._count_dead(current.number)
            if dead > self._config.sparse_dead_share * current.end:
                current.rolled = True
        for segment in list(self._open.values()):
            if segment.rolled and not segment.uploads:
                await self._seal(segment)
        await self._seal_uncreated()

    async def _count_dead(self, segment: int) -> int:
        """Returns how many bytes of an open segment are dead, at least. Each call counts a bounded
        number of extents and goes on where the last call stopped, beginning again at the end."""
        count = self._dead_count
        if count.segment != segment:
            count = _DeadCount(segment)
        for _ in range(_DEAD_SLICES_PER_ROUND):
            count, is_cut = await self._engine.read(_count_further, count)
            if not is_cut:
                self._dead_count = _DeadCount(segment)
                return count.length
            await asyncio.sleep(0)
        self._dead_count = count
        return count.length

    async def _seal_uncreated(self) -> None:
        for number in list(self._uncreated):
            if await self._seal_in_ledger(number, 0):
                self._uncreated.discard(number)

    async def _seal(self, segment: WritableSegment) -> None:
        if await self._seal_in_ledger(segment.number, segment.end):
            self._open.pop(segment.number, None)
            # A reference would keep the file open, and the space of a removed file allocated.
            if self._segment is segment:
                self._segment = None

    async def _seal_in_ledger(self, number: int, length: int) -> bool:
        try:
            await seal(self._engine, number, length)
        except (Fault, Unknown) as error:
            # `maintain` retries it, or a collector after this process has ended.
            logger.warning("segment %d could not be sealed: %s", number, error)
            return False
        return True

    # Reading

    def open_reader(self) -> FileBodyReader:
        return FileBodyReader(self, self.coordinator.pin())

    async def read_from(self, file: OpenFile, length: int, offset: int) -> bytes:
        """Reads up to `length` bytes; fewer at the end of the file."""
        cached = self._disk.read_cached(file.descriptor, length, offset)
        if cached is not None:
            return cached
        return await self.in_thread(self._read_blocking, file, length, offset)

    async def read_into(self, file: OpenFile, buffer: memoryview, offset: int) -> int:
        """Fills a buffer; returns the number of bytes, which is less at the end of the file."""
        if self._disk.read_cached_into(file.descriptor, buffer, offset):
            return len(buffer)
        return await self.in_thread(self._read_into_blocking, file, buffer, offset)

    def _read_into_blocking(self, file: OpenFile, buffer: memoryview, offset: int) -> int:
        return self._disk.read_into(file.descriptor, buffer, offset)

    def _read_blocking(self, file: OpenFile, length: int, offset: int) -> bytes:
        return self._disk.read(file.descriptor, length, offset)

    def segment_file(self, number: int) -> OpenFile:
        """Returns the open file of a segment; keep the object while its descriptor is used. Raises
        `BodyCorrupt` if there is no such file, and `Fault` if it cannot be opened now."""
        mine = self._open.get(number)
        if mine is not None:
            return mine.file
        file = self._files.get(number)
        if file is None:
            file = self._files[number] = self._opened(segment_path(self._directory, number))
            if len(self._files) > self._config.segment_files_max:
                self._files.popitem(last=False)
        self._files.move_to_end(number)
        return file

    def _opened(self, path: Path) -> OpenFile:
        try:
            return OpenFile(self._disk.open(path))
        except FileNotFoundError:
            raise BodyCorrupt(f"a segment is missing: {path}") from None
        except OSError as error:
            if error.errno not in _NO_DESCRIPTORS or not self._files:
                raise fault_of(error) from error
        # Files that nobody reads are kept open only as a cache.
        self._files.clear()
        return self._opened(path)

    def zeros(self) -> OpenFile:
        """Returns an open, sparse file of zeros, from which holes are sent."""
        if self._zeros_file is None:
            try:
                file = OpenFile(os.memfd_create("zeros", os.MFD_CLOEXEC))
                os.ftruncate(file.descriptor, _ZEROS_FILE_BYTES)
            except OSError as error:
                raise fault_of(error) from error
            self._zeros_file = file
        return self._zeros_file

    async def close(self) -> None:
        """Closes the store, and seals the segments that have no upload under way."""
        if self._rolling is not None:
            await asyncio.wait([self._rolling])
        for segment in list(self._open.values()):
            segment.rolled = True
            if not segment.uploads:
                await self._seal(segment)
        self._segment = None
        self._open.clear()
        self._files.clear()
        self._zeros_file = None
        self._threads.shutdown()
        self._receivers.shutdown()
        self.coordinator.close()


class _DeadCount(NamedTuple):
    """The number of dead bytes of a segment before an offset."""

    segment: int
    offset: int = 0
    length: int = 0


def _count_further(txn: ReadTxn, count: _DeadCount) -> tuple[_DeadCount, bool]:
    """Counts a slice of the dead extents of a segment; also returns whether there are more."""
    segment, offset, length = count
    span = UNCOUNTED_DEAD.starting(UNCOUNTED_DEAD.under((segment,)), (segment, offset))
    rows = txn.scan(UNCOUNTED_DEAD, span, _DEAD_ROWS_PER_SLICE)
    if not rows:
        return count, False
    further = _DeadCount(segment, rows[-1][0][1] + 1, length + sum(r.length for _, r in rows))
    return further, len(rows) == _DEAD_ROWS_PER_SLICE
