"""The body store of files: small bodies are stored in the ledger, larger ones in segments.

Each process appends to its own segments, so processes never wait for each other, and uploads that
end at the same time share one fsync. Small bodies are written together, right before the fsync.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from etagere import directories
from etagere.bodies.disk import Disk, fault_of
from etagere.bodies.own_segments import OwnSegments
from etagere.bodies.reading import FileBodyReader
from etagere.bodies.receiving import receive_to_file
from etagere.bodies.segment_files import DIRECTORY_NAME, SegmentFiles, segment_path
from etagere.bodies.store import BodyCorrupt, LentSocket
from etagere.bodies.writable import FileSegment, NotWritten, runs
from etagere.bodies.writing import Reservations, Reserved, SegmentBodyWriter, checksum
from etagere.config import KIB, Config
from etagere.coordination.interface import Coordinator
from etagere.coordination.local import LocalCoordinator
from etagere.descriptors import OpenFile
from etagere.engine import ledger, reserve
from etagere.engine.interface import Engine, Fault, FaultReason

_NO_DESCRIPTORS = {errno.EMFILE, errno.ENFILE}
_ZEROS_FILE_BYTES = 1 << 62
_THREADS_MAX = 8
_RECEIVER_THREADS = max(1, len(os.sched_getaffinity(0)) // 2)
"""Threads that read uploads from sockets. The senders and the kernel need the other cores."""

T = TypeVar("T")


class FileBodyStore:
    """The bodies in one data directory, as one process sees them."""

    small_bytes_max = 64 * KIB
    """Writing these together at the next sync saves system calls."""

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
        self.storage = SegmentFiles(directory, self._disk, self.segment_file, self.in_thread)
        self._own = OwnSegments(
            engine,
            self.coordinator.process_id,
            self._config,
            self._create_segment,
            self._stored_bytes,
        )
        self._files: OrderedDict[int, OpenFile] = OrderedDict()
        self._zeros_file: OpenFile | None = None

    # Writing

    def writer(
        self, length: int | None = None, *, inline: bool = True, md5: bool = False
    ) -> SegmentBodyWriter[FileSegment]:
        inline_bytes_max = self._config.inline_bytes_max if inline else 0
        return SegmentBodyWriter(
            Reservations(self), length, inline_bytes_max, self._config.piece_bytes_max, md5=md5
        )

    def reservations(self) -> Reservations[FileSegment]:
        """Returns reservations for the collector. They may use the rest of the disk, since moving
        extents frees more space than it takes."""
        return Reservations(self, reclaims=True)

    async def reserve(
        self,
        length: int,
        earlier: Sequence[Reserved[FileSegment]] = (),
        *,
        reclaims: bool = False,
    ) -> Reserved[FileSegment]:
        while True:
            try:
                free = self._disk.free_bytes(self._directory)
            except OSError as error:
                raise fault_of(error) from error
            if free - length < (0 if reclaims else self._bytes_to_keep_free(free - length)):
                self._own.roll_if_abandoned()
                raise Fault(FaultReason.DISK_FULL, f"{free} bytes are left on the disk")
            segment = self._own.current
            if segment is not None and not segment.rolled and not self._is_full(segment, length):
                offset = segment.place(length)
                segment.length = offset + length
                segment.uploads += 1
                return Reserved(segment, offset, length)
            await self._own.begin()

    async def add(self, data: bytes, *, reclaims: bool = False) -> Reserved[FileSegment]:
        reserved = await self.reserve(len(data), reclaims=reclaims)
        reserved.segment.add(reserved.offset, data)
        return reserved

    def _bytes_to_keep_free(self, left: int) -> int:
        """Returns how many bytes uploads must leave free: the reserve, and what a checkpoint of a
        log that cannot be restarted may need. While the reserve is released, that is what the
        writer needs to restore it: otherwise uploads that are retried again and again, and refused
        at commit, would take that space for ever."""
        config = self._config
        usual_bytes = config.log_restart_pages * config.page_bytes
        needed = max(0, ledger.log_bytes(self._directory) - usual_bytes)
        to_restore = (reserve.ROOM_FACTOR + 1) * config.reserve_bytes + needed
        if left < to_restore and reserve.is_released(self._directory):
            return to_restore
        return config.reserve_bytes + needed

    def _is_full(self, segment: FileSegment, length: int) -> bool:
        return (
            segment.length > 0 and segment.place(length) + length > self._config.segment_bytes_max
        )

    async def _create_segment(self, number: int) -> FileSegment:
        try:
            path = segment_path(self._directory, number)
            descriptor = await self.in_thread(self._disk.create, path)
        except OSError as error:
            raise fault_of(error) from error
        return FileSegment(number, OpenFile(descriptor))

    async def _stored_bytes(self, segment: FileSegment) -> int:
        return segment.length

    async def write(
        self,
        segment: FileSegment,
        offset: int,
        buffers: list[memoryview],
        md5: hashlib._Hash | None = None,
    ) -> int:
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
        return checksum(buffers, md5)

    async def receive(
        self,
        lent: LentSocket,
        segment: FileSegment,
        offset: int,
        length: int,
        md5: hashlib._Hash | None,
    ) -> tuple[int, int]:
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

    async def make_durable(self, reserved: Sequence[Reserved[FileSegment]]) -> None:
        for segment in dict.fromkeys(segment for segment, _, _ in reserved):
            await self.sync(segment)

    async def sync(self, segment: FileSegment) -> None:
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
        await self._own.maintain()

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
        mine = self._own.open.get(number)
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
        await self._own.close()
        self._files.clear()
        self._zeros_file = None
        self._threads.shutdown()
        self._receivers.shutdown()
        self.coordinator.close()
