"""Bodies in files: small ones go inline, larger ones are appended to segments.

Each process appends to segments of its own, so processes never wait for each other, and all
uploads of a process that end together share one fsync. Small ones are not even written before
that, but together with it.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import logging
import os
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from awscrt.checksums import crc64nvme

from etagere import directories
from etagere.bodies.contents import (
    DEAD_TOTALS,
    Damaged,
    Hole,
    Plan,
    Stretch,
    require_intact,
)
from etagere.bodies.disk import Disk, fault_of
from etagere.bodies.drawing import draw
from etagere.bodies.presence import Pin, Presence
from etagere.bodies.reading import file_parts
from etagere.bodies.segments import OpenSegment, open_segment, seal
from etagere.bodies.store import BodyCorrupt, Tap
from etagere.bodies.writable import NotWritten, WritableSegment, runs
from etagere.bodies.writing import FileBodyWriter, Flight
from etagere.config import Config
from etagere.descriptors import FilePart, OpenFile
from etagere.engine import reserve
from etagere.engine.interface import Engine, Fault, FaultReason, ReadTxn, Unknown

logger = logging.getLogger(__name__)

DIRECTORY_NAME = "segments"
_NO_DESCRIPTORS = {errno.EMFILE, errno.ENFILE}
_READ_BYTES = 256 * 1024
_ZEROS = bytes(_READ_BYTES)
_ZEROS_FILE_BYTES = 1 << 62
_THREADS_MAX = 8
_DRAWERS = max(1, len(os.sched_getaffinity(0)) // 2)
"""Threads that draw. Those who send need the other cores, and the kernel for both."""

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
    ) -> None:
        self._directory = directory
        self._engine = engine
        self._config = config or Config()
        self._disk = disk or Disk(durable=self._config.durable)
        directories.make(directory / DIRECTORY_NAME)
        self.presence = Presence(directory)
        self._threads = ThreadPoolExecutor(_THREADS_MAX, "bodies")
        self._drawers = ThreadPoolExecutor(_DRAWERS, "drawers")
        self._segment: WritableSegment | None = None
        self._open: dict[int, WritableSegment] = {}
        self._uncreated: set[int] = set()
        """Segments whose files could not be created; they are still to be sealed in the ledger."""
        self._rolling: asyncio.Task[None] | None = None
        self._files: OrderedDict[int, OpenFile] = OrderedDict()
        self._zeros_file: OpenFile | None = None

    # Writing

    def writer(
        self, length: int | None = None, *, inline: bool = True, md5: bool = False
    ) -> FileBodyWriter:
        inline_bytes_max = self._config.inline_bytes_max if inline else 0
        return FileBodyWriter(
            Flight(self), length, inline_bytes_max, self._config.piece_bytes_max, md5=md5
        )

    def flight(self) -> Flight:
        """Reservations for the collector. They may use up what is left of the disk, since they
        make more room than they take."""
        return Flight(self, reclaims=True)

    async def reserve(self, length: int, *, reclaims: bool = False) -> tuple[WritableSegment, int]:
        """Room for this many bytes in a segment of ours, and where it is."""
        while True:
            try:
                free = self._disk.free_bytes(self._directory)
            except OSError as error:
                raise fault_of(error) from error
            if free - length < (0 if reclaims else self._room_for_others(free - length)):
                self._give_up_abandoned()
                raise Fault(FaultReason.DISK_FULL, f"{free} bytes are left on the disk")
            segment = self._segment
            if segment is not None and not segment.rolled and not self._is_full(segment, length):
                offset = segment.place(length)
                segment.end = offset + length
                segment.uploads += 1
                return segment, offset
            # A task of its own, shared by all who wait: an upload that is cancelled meanwhile
            # must not leave a segment half begun.
            mine = self._rolling is None
            if self._rolling is None:
                self._rolling = asyncio.create_task(self._roll())
            try:
                await asyncio.shield(self._rolling)
            except (Fault, Unknown):
                if mine:
                    raise

    def _room_for_others(self, left: int) -> int:
        """How many bytes uploads must leave free. While the ledger's reserve is spent, that is what
        the writer needs to restore it. Otherwise uploads that are retried all the time, and
        refused at commit, would take that space for ever."""
        reserve_bytes = self._config.reserve_bytes
        to_restore = (reserve.ROOM_FACTOR + 1) * reserve_bytes
        if left < to_restore and reserve.is_spent(self._directory):
            return to_restore
        return reserve_bytes

    def _is_full(self, segment: WritableSegment, length: int) -> bool:
        return segment.end > 0 and segment.place(length) + length > self._config.segment_bytes_max

    def _give_up_abandoned(self) -> None:
        """What uploads have left behind is collected only when its segment is sealed."""
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
        number = await self._engine.write(open_segment, OpenSegment(self.presence.id))
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
        """Returns the CRC64 of what it has written, which it adds to `md5` too."""
        segment.require_sound()
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
        # The thread keeps the file open: a cancelled upload leaves its write under way, and by
        # then the number of a closed descriptor may be another file's.
        self._disk.write(file.descriptor, buffers, offset)
        crc = 0
        for buffer in buffers:
            crc = crc64nvme(buffer, crc)
            if md5 is not None:
                md5.update(buffer)
        return crc

    async def draw(
        self,
        tap: Tap,
        segment: WritableSegment,
        offset: int,
        length: int,
        md5: hashlib._Hash | None,
    ) -> tuple[int, int]:
        """Writes what has arrived at a tap. Returns how much that was, and its CRC64."""
        segment.require_sound()
        tap.taken = None
        drawn = await asyncio.get_running_loop().run_in_executor(
            self._drawers, draw, self._disk, tap.file, segment.file, offset, length, md5
        )
        tap.taken = drawn.length
        if drawn.error is not None:
            raise fault_of(drawn.error) from drawn.error
        return drawn.length, drawn.crc

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

    async def housekeep(self) -> None:
        """What a process does for its own segments now and then: lets go of files that were
        removed, begins a new segment when much of the current one is dead, and seals the
        segments that nothing is being uploaded to."""
        for number, file in list(self._files.items()):
            if not os.fstat(file.descriptor).st_nlink:
                del self._files[number]
        current = self._segment
        if current is not None and not current.rolled:
            dead = current.abandoned + await self._engine.read(_dead_bytes, current.number)
            if dead > self._config.sparse_dead_share * current.end:
                current.rolled = True
        for segment in list(self._open.values()):
            if segment.rolled and not segment.uploads:
                await self._seal(segment)
        await self._seal_uncreated()

    async def _seal_uncreated(self) -> None:
        for number in list(self._uncreated):
            if await self._seal_in_ledger(number, 0):
                self._uncreated.discard(number)

    async def _seal(self, segment: WritableSegment) -> None:
        if await self._seal_in_ledger(segment.number, segment.end):
            self._open.pop(segment.number, None)
            # Whoever refers to it keeps its file open, and the space of a removed file taken.
            if self._segment is segment:
                self._segment = None

    async def _seal_in_ledger(self, number: int, length: int) -> bool:
        try:
            await seal(self._engine, number, length)
        except (Fault, Unknown) as error:
            # It will be tried again by `housekeep`, or by a collector when we are gone.
            logger.warning("cannot seal segment %d: %s", number, error)
            return False
        return True

    # Reading

    def pinned(self) -> Pin:
        return self.presence.pin()

    def files(self, plan: Sequence[Stretch | Hole], pin: Pin | None = None) -> Iterator[FilePart]:
        """The parts of files that make up a plan, each opened when its turn comes. Segments of a
        narrowed pin are released as they are passed."""
        return file_parts(plan, self._file_of, pin)

    async def read(self, plan: Plan, pin: Pin | None = None) -> AsyncIterator[bytes]:
        if isinstance(plan, bytes):
            if plan:
                yield plan
            return
        last_use = {
            stretch.segment: number
            for number, stretch in enumerate(plan)
            if isinstance(stretch, Stretch)
        }
        for number, stretch in enumerate(plan):
            if isinstance(stretch, Hole):
                for chunk in _zeros(stretch.length):
                    yield chunk
                    await asyncio.sleep(0)  # a hole may be long, and nothing else waits in it
                continue
            if isinstance(stretch, bytes):
                yield stretch
                continue
            if isinstance(stretch, Damaged):
                raise BodyCorrupt(f"{stretch.place}: checksum")
            async for chunk in self._read_stretch(stretch):
                yield chunk
            if pin is not None and last_use[stretch.segment] == number:
                pin.release(stretch.segment)

    async def _read_stretch(self, stretch: Stretch) -> AsyncIterator[bytes]:
        file = self.segment_file(stretch.segment)
        at, end, crc = stretch.offset, stretch.offset + stretch.length, 0
        while at < end:
            chunk = await self._read_chunk(file, min(_READ_BYTES, end - at), at)
            if not chunk:
                raise BodyCorrupt(f"segment {stretch.segment} ends before {end}")
            at += len(chunk)
            if stretch.crc is not None:
                crc = crc64nvme(chunk, crc)
                if at == end and crc != stretch.crc:
                    raise BodyCorrupt(f"segment {stretch.segment} at {stretch.offset}: checksum")
            yield chunk

    async def read_short(self, plan: Plan) -> bytes:
        """All bytes of a plan that is known to be short, or `BodyCorrupt`."""
        if isinstance(plan, bytes):
            return plan
        require_intact(plan)
        chunks: list[bytes] = []
        for stretch in plan:
            if isinstance(stretch, bytes):
                chunks.append(stretch)
                continue
            if not isinstance(stretch, Stretch):
                chunks.append(bytes(stretch.length))
                continue
            segment, offset, length, crc = stretch
            data = await self._read_chunk(self.segment_file(segment), length, offset)
            if len(data) < length:
                raise BodyCorrupt(f"segment {segment} ends before {offset + length}")
            if crc is not None and crc64nvme(data) != crc:
                raise BodyCorrupt(f"segment {segment} at {offset}: checksum")
            chunks.append(data)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def _read_chunk(self, file: OpenFile, length: int, offset: int) -> bytes:
        cached = self._disk.read_cached(file.descriptor, length, offset)
        if cached is not None:
            return cached
        return await self.in_thread(self._read_from, file, length, offset)

    def _read_from(self, file: OpenFile, length: int, offset: int) -> bytes:
        return self._disk.read(file.descriptor, length, offset)

    def _file_of(self, segment: int | None) -> OpenFile:
        return self.zeros() if segment is None else self.segment_file(segment)

    def segment_file(self, number: int) -> OpenFile:
        """An open segment; keep the object for as long as its descriptor is used. Raises
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
        # Files that nobody reads are open only to save the next reader from opening them.
        self._files.clear()
        return self._opened(path)

    def zeros(self) -> OpenFile:
        """A file that shows zeros wherever it is read and takes no room for them: what holes are
        sent from."""
        if self._zeros_file is None:
            try:
                file = OpenFile(os.memfd_create("zeros", os.MFD_CLOEXEC))
                os.ftruncate(file.descriptor, _ZEROS_FILE_BYTES)
            except OSError as error:
                raise fault_of(error) from error
            self._zeros_file = file
        return self._zeros_file

    async def close(self) -> None:
        """Seals what can be sealed. Uploads still under way keep their segments from it."""
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
        self._drawers.shutdown()
        self.presence.close()


def _zeros(length: int) -> Iterator[bytes]:
    for _ in range(length // _READ_BYTES):
        yield _ZEROS
    if length % _READ_BYTES:
        yield _ZEROS[: length % _READ_BYTES]


def _dead_bytes(txn: ReadTxn, segment: int) -> int:
    total = txn.get(DEAD_TOTALS, (segment,))
    return total.length if total is not None else 0
