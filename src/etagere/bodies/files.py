"""Bodies in files: small ones go inline, larger ones are appended to segments.

Each process appends to segments of its own, so processes never wait for each other, and all
uploads of a process that end together share one fsync. Small ones are not even written before
that, but together with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, TypeVar

from awscrt.checksums import combine_crc64nvme, crc64nvme

from etagere import directories
from etagere.bodies.contents import DEAD, Hole, Plan, Stretch
from etagere.bodies.disk import Disk, fault_of
from etagere.bodies.presence import Pin, Presence
from etagere.bodies.segments import OpenSegment, open_segment, seal
from etagere.bodies.store import BodyCorrupt
from etagere.config import MIB, Config
from etagere.engine.interface import Engine, Fault, FaultReason, ReadTxn, Unknown
from etagere.model.bodies import Body, Piece
from etagere.model.ids import new_id

logger = logging.getLogger(__name__)

DIRECTORY_NAME = "segments"
_FLUSH_BYTES = 1 * MIB
_READ_BYTES = 256 * 1024
_ZEROS = bytes(_READ_BYTES)
_ZEROS_FILE_BYTES = 1 << 62
_THREADS_MAX = 8
_SMALL_BYTES = 64 * 1024
"""What is not longer is written with the next sync: alone it would cost more than its bytes do."""

T = TypeVar("T")


def segment_path(directory: Path, number: int) -> Path:
    return directory / DIRECTORY_NAME / f"{number:08x}.seg"


class _SegmentFile:
    """A descriptor that is closed when the last one who uses it lets go of this object."""

    __slots__ = ("descriptor",)

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.descriptor)


_WriteAndSync = Callable[[_SegmentFile, list[tuple[int, bytes]]], "asyncio.Future[None]"]


class _NotWritten(Exception):
    """A write failed, before any sync."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class _OpenSegment:
    """A segment that this process appends to."""

    def __init__(self, number: int, file: _SegmentFile) -> None:
        self.number = number
        self.file = file
        self.end = 0
        self.uploads = 0
        self.rolled = False
        self.failed: Fault | None = None
        self._next_sync: asyncio.Task[None] | None = None
        self._this_sync: asyncio.Task[None] | None = None
        self._unwritten: list[tuple[int, bytes]] = []

    def add(self, offset: int, data: bytes) -> None:
        """Bytes for room that was reserved, to be written with the next sync."""
        self._unwritten.append((offset, data))

    async def sync(self, write_and_sync: _WriteAndSync) -> None:
        """Makes durable what has been added or written before this call. A sync that is under
        way may have missed it, so the next one counts; all who ask meanwhile share that."""
        if self._next_sync is None:
            self._next_sync = asyncio.create_task(self._sync_after(self._this_sync, write_and_sync))
        await asyncio.shield(self._next_sync)

    async def _sync_after(
        self, earlier: asyncio.Task[None] | None, write_and_sync: _WriteAndSync
    ) -> None:
        if earlier is not None:
            await asyncio.wait([earlier])
        self._this_sync, self._next_sync = self._next_sync, None
        if self.failed is not None:
            raise self.failed
        unwritten, self._unwritten = self._unwritten, []
        try:
            await write_and_sync(self.file, unwritten)
        except _NotWritten as failure:
            # Nothing refers to it, and what was durable before still is.
            raise fault_of(failure.error) from failure.error
        except OSError as error:
            # Nobody knows what is on disk now, and another fsync would not tell: whatever was
            # not durable before is lost, and nothing is written here again.
            self.rolled = True
            self.failed = fault_of(error)
            raise self.failed from error


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
        self._segment: _OpenSegment | None = None
        self._open: dict[int, _OpenSegment] = {}
        self._rolling: asyncio.Task[None] | None = None
        self._files: OrderedDict[int, _SegmentFile] = OrderedDict()
        self._zeros_file: _SegmentFile | None = None

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

    async def reserve(self, length: int, *, reclaims: bool = False) -> tuple[_OpenSegment, int]:
        """Room for this many bytes in a segment of ours, and where it is."""
        while True:
            free = self._disk.free_bytes(self._directory)
            if free - length < (0 if reclaims else self._config.reserve_bytes):
                raise Fault(FaultReason.DISK_FULL, f"{free} bytes are left on the disk")
            segment = self._segment
            if segment is not None and not segment.rolled and not self._is_full(segment, length):
                offset = segment.end
                segment.end += length
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

    def _is_full(self, segment: _OpenSegment, length: int) -> bool:
        return segment.end > 0 and segment.end + length > self._config.segment_bytes_max

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
            await self._seal_in_ledger(number, 0)
            raise fault_of(error) from error
        self._segment = self._open[number] = _OpenSegment(number, _SegmentFile(descriptor))

    async def write(
        self,
        segment: _OpenSegment,
        offset: int,
        buffers: list[memoryview],
        md5: hashlib._Hash | None = None,
    ) -> int:
        """Returns the CRC64 of what it has written, which it adds to `md5` too."""
        if segment.failed is not None:
            raise segment.failed
        try:
            return await self.in_thread(self._write_to, segment.file, buffers, offset, md5)
        except OSError as error:
            raise fault_of(error) from error

    def _write_to(
        self,
        file: _SegmentFile,
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

    async def sync(self, segment: _OpenSegment) -> None:
        await segment.sync(partial(self.in_thread, self._write_and_sync))

    def _write_and_sync(self, file: _SegmentFile, unwritten: list[tuple[int, bytes]]) -> None:
        try:
            for offset, buffers in _runs(unwritten):
                self._disk.write(file.descriptor, buffers, offset)
        except OSError as error:
            raise _NotWritten(error) from error
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
            dead = await self._engine.read(_dead_bytes, current.number)
            if dead > self._config.sparse_dead_share * current.end:
                current.rolled = True
        for segment in list(self._open.values()):
            if segment.rolled and not segment.uploads:
                await self._seal(segment)

    async def _seal(self, segment: _OpenSegment) -> None:
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
            logger.warning("segment %d could not be sealed: %s", number, error)
            return False
        return True

    # Reading

    def pinned(self) -> Pin:
        return self.presence.pin()

    async def read(self, plan: Plan) -> AsyncIterator[bytes]:
        if isinstance(plan, bytes):
            if plan:
                yield plan
            return
        for stretch in plan:
            if isinstance(stretch, Hole):
                for chunk in _zeros(stretch.length):
                    yield chunk
                    await asyncio.sleep(0)  # a hole may be long, and nothing else waits in it
                continue
            if isinstance(stretch, bytes):
                yield stretch
                continue
            async for chunk in self._read_stretch(stretch):
                yield chunk

    async def _read_stretch(self, stretch: Stretch) -> AsyncIterator[bytes]:
        file = self.segment_file(stretch.segment)
        at, end, crc = stretch.offset, stretch.offset + stretch.length, 0
        while at < end:
            chunk = await self._read_chunk(file.descriptor, min(_READ_BYTES, end - at), at)
            if not chunk:
                raise BodyCorrupt(f"segment {stretch.segment} ends before {end}")
            at += len(chunk)
            if stretch.crc is not None:
                crc = crc64nvme(chunk, crc)
                if at == end and crc != stretch.crc:
                    raise BodyCorrupt(f"segment {stretch.segment} at {stretch.offset}: checksum")
            yield chunk

    async def _read_chunk(self, descriptor: int, length: int, offset: int) -> bytes:
        cached = self._disk.read_cached(descriptor, length, offset)
        if cached is not None:
            return cached
        return await self.in_thread(self._disk.read, descriptor, length, offset)

    def segment_file(self, number: int) -> _SegmentFile:
        """An open segment; keep the object for as long as its descriptor is used."""
        mine = self._open.get(number)
        if mine is not None:
            return mine.file
        file = self._files.get(number)
        if file is None:
            path = segment_path(self._directory, number)
            try:
                file = self._files[number] = _SegmentFile(self._disk.open(path))
            except FileNotFoundError:
                raise BodyCorrupt(f"segment {number} is missing: {path}") from None
            if len(self._files) > self._config.segment_files_max:
                self._files.popitem(last=False)
        self._files.move_to_end(number)
        return file

    def zeros(self) -> _SegmentFile:
        """A file that shows zeros wherever it is read and takes no room for them: what holes are
        sent from."""
        if self._zeros_file is None:
            file = _SegmentFile(os.memfd_create("zeros", os.MFD_CLOEXEC))
            os.ftruncate(file.descriptor, _ZEROS_FILE_BYTES)
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
        self.presence.close()


def _runs(unwritten: list[tuple[int, bytes]]) -> Iterator[tuple[int, list[bytes]]]:
    """What lies behind each other, as one."""
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


def _zeros(length: int) -> Iterator[bytes]:
    for _ in range(length // _READ_BYTES):
        yield _ZEROS
    if length % _READ_BYTES:
        yield _ZEROS[: length % _READ_BYTES]


def _dead_bytes(txn: ReadTxn, segment: int) -> int:
    rows = txn.scan(DEAD, DEAD.under((segment,)), 1_000_000)
    return sum(dead.length for _, dead in rows)


class Flight:
    """Reservations that belong together: nothing of them is collected until they land."""

    def __init__(self, store: FileBodyStore, *, reclaims: bool = False) -> None:
        self.store = store
        self._reclaims = reclaims
        self._segments: list[_OpenSegment] = []

    async def reserve(self, length: int) -> tuple[_OpenSegment, int]:
        segment, offset = await self.store.reserve(length, reclaims=self._reclaims)
        self._segments.append(segment)
        return segment, offset

    async def sync(self) -> None:
        for segment in dict.fromkeys(self._segments):
            await self.store.sync(segment)

    def land(self) -> None:
        for segment in self._segments:
            segment.uploads -= 1
        self._segments.clear()


class _Write(NamedTuple):
    """Bytes on their way to a segment."""

    done: asyncio.Task[int]
    """Their CRC64."""
    segment: int
    offset: int
    length: int


class FileBodyWriter:
    """One upload into segments, or into memory if it stays small."""

    def __init__(
        self,
        flight: Flight,
        length: int | None,
        inline_bytes_max: int,
        piece_bytes_max: int,
        *,
        md5: bool = False,
    ) -> None:
        self._flight = flight
        self._md5 = hashlib.md5(usedforsecurity=False) if md5 else None
        self._expected = length
        self._inline_bytes_max = inline_bytes_max
        self._piece_bytes_max = piece_bytes_max
        self._buffers: deque[bytes | memoryview] = deque()
        self._buffered = 0
        self._written = 0
        self._segment: _OpenSegment | None = None
        self._offset = 0
        self._room = 0
        self._pieces: list[Piece] = []
        self._under_way: _Write | None = None

    @property
    def md5(self) -> bytes:
        """Of all that was appended, once it is sealed."""
        if self._md5 is None:
            raise ValueError("this writer was not asked for it")
        return self._md5.digest()

    async def __aenter__(self) -> FileBodyWriter:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Room is not given back here: a write that was cancelled may still be under way.
        if self._under_way is not None and not self._under_way.done.cancel():
            # It has ended, perhaps in a failure that nobody asks for any more.
            with contextlib.suppress(Fault, asyncio.CancelledError):
                self._under_way.done.result()
        self._flight.land()

    async def append(self, data: bytes) -> None:
        self._buffers.append(data)
        self._buffered += len(data)
        if self._buffered >= _FLUSH_BYTES:
            await self._flush()

    async def seal(self) -> Body:
        body_id = new_id()
        total = self._written + self._buffered
        if total <= self._inline_bytes_max:
            data = b"".join(self._buffers)
            if self._md5 is not None:
                self._md5.update(data)
            return Body(body_id, total, crc64nvme(data), data=data)
        if not self._written and total <= min(_SMALL_BYTES, self._piece_bytes_max):
            return await self._seal_small(body_id, b"".join(self._buffers))
        await self._flush()
        await self._finish_write()
        self._give_back()
        await self._flight.sync()
        crc = 0
        for piece in self._pieces:
            crc = combine_crc64nvme(crc, piece.crc, piece.length)
        return Body(body_id, total, crc, pieces=tuple(self._pieces))

    async def _seal_small(self, body_id: bytes, data: bytes) -> Body:
        length, crc = len(data), crc64nvme(data)
        if self._md5 is not None:
            self._md5.update(data)
        segment, offset = await self._flight.reserve(length)
        segment.add(offset, data)
        await self._flight.sync()
        return Body(body_id, length, crc, pieces=(Piece(segment.number, offset, length, crc),))

    async def _flush(self) -> None:
        """Hands over what is buffered, to be written while more arrives; one write at a time."""
        while self._buffered:
            if not self._room:
                await self._find_room()
            assert self._segment is not None
            await self._finish_write()
            views = self._take(min(self._room, self._buffered))
            length = sum(map(len, views))
            write = self._flight.store.write(self._segment, self._offset, views, self._md5)
            self._under_way = _Write(
                asyncio.ensure_future(write), self._segment.number, self._offset, length
            )
            self._offset += length
            self._room -= length
            self._written += length

    async def _finish_write(self) -> None:
        if self._under_way is not None:
            write = self._under_way
            crc = await write.done
            self._under_way = None
            self._add(Piece(write.segment, write.offset, write.length, crc))

    async def _find_room(self) -> None:
        """As much as the upload is known to need; if that is not known, twice as much each
        time, so that a long upload lies in few pieces and a short one wastes little."""
        need = self._buffered
        if self._expected is not None:
            need = max(need, self._expected - self._written)
        else:
            need = max(need, self._written)
        self._room = min(need, self._piece_bytes_max)
        self._segment, self._offset = await self._flight.reserve(self._room)

    def _take(self, length: int) -> list[memoryview]:
        """The first bytes of the buffers, uncopied."""
        views: list[memoryview] = []
        self._buffered -= length
        while length:
            view = memoryview(self._buffers.popleft())
            if len(view) > length:
                self._buffers.appendleft(view[length:])
                view = view[:length]
            views.append(view)
            length -= len(view)
        return views

    def _add(self, piece: Piece) -> None:
        """Records what was written, as part of the last piece if it lies right behind it."""
        if self._pieces:
            last = self._pieces[-1]
            joined = last.length + piece.length
            adjacent = (last.segment, last.offset + last.length) == piece.extent
            if adjacent and joined <= self._piece_bytes_max:
                crc = combine_crc64nvme(last.crc, piece.crc, piece.length)
                self._pieces[-1] = Piece(last.segment, last.offset, joined, crc)
                return
        self._pieces.append(piece)

    def _give_back(self) -> None:
        """Returns room that was reserved and not used, if nobody came behind."""
        if self._segment is not None and self._segment.end == self._offset + self._room:
            self._segment.end = self._offset
        self._room = 0
