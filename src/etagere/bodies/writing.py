"""Uploads: writing bodies to segments."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Generic, NamedTuple, Protocol, TypeVar

from awscrt.checksums import combine_crc64nvme, crc64nvme

from etagere.bodies import receiving
from etagere.bodies.own_segments import S
from etagere.bodies.store import IncomingBody, LentSocket
from etagere.config import KIB, MIB
from etagere.engine.interface import Fault
from etagere.model.bodies import Body, Piece
from etagere.model.ids import new_id

_FLUSH_BYTES = 1 * MIB
_QUICK_BYTES = 64 * KIB
"""The checksums of fewer bytes take less time than a thread to compute them."""

T = TypeVar("T")


class Reserved(NamedTuple, Generic[S]):
    """Space in a segment that an upload may write to."""

    segment: S
    offset: int
    length: int


class SegmentAppender(Protocol[S]):
    """The part of a body store that uploads and the collector write to."""

    small_bytes_max: int
    """Bodies up to this length are written together with others."""

    async def reserve(
        self, length: int, earlier: Sequence[Reserved[S]] = (), *, reclaims: bool = False
    ) -> Reserved[S]:
        """Reserves space for this many bytes or, unless `reclaims`, for fewer. `earlier` is what
        the same upload has reserved before; the call may wait until some of it is durable."""
        ...

    async def add(self, data: bytes, *, reclaims: bool = False) -> Reserved[S]:
        """Reserves space for a small body and adds its bytes, which are written together with
        others when somebody waits for them to be durable."""
        ...

    async def write(
        self,
        segment: S,
        offset: int,
        buffers: list[memoryview],
        md5: hashlib._Hash | None = None,
    ) -> int:
        """Writes buffers to reserved space; returns their CRC64, and adds them to `md5`."""
        ...

    async def receive(
        self,
        lent: LentSocket,
        segment: S,
        offset: int,
        length: int,
        md5: hashlib._Hash | None,
    ) -> tuple[int, int]:
        """Writes the bytes that are available in a lent socket. Returns their number and their
        CRC64."""
        ...

    async def make_durable(self, reserved: Sequence[Reserved[S]]) -> None:
        """Makes everything durable that was written to reserved space; raises `Fault` if that
        fails."""
        ...

    def in_thread(self, call: Callable[..., T], *arguments: object) -> asyncio.Future[T]: ...


class Reservations(Generic[S]):
    """Space in segments that an upload has reserved. It is not collected until it is released."""

    def __init__(self, store: SegmentAppender[S], *, reclaims: bool = False) -> None:
        self.store = store
        self._reclaims = reclaims
        self._reserved: list[Reserved[S]] = []

    async def reserve(self, length: int) -> Reserved[S]:
        reserved = await self.store.reserve(length, self._reserved, reclaims=self._reclaims)
        self._reserved.append(reserved)
        return reserved

    async def add(self, data: bytes) -> Reserved[S]:
        """Adds the bytes of a small body, which are written at the next `sync`."""
        reserved = await self.store.add(data, reclaims=self._reclaims)
        self._reserved.append(reserved)
        return reserved

    async def write(self, data: bytes) -> Reserved[S]:
        """Writes bytes of any length as a whole."""
        if len(data) <= self.store.small_bytes_max:
            return await self.add(data)
        reserved = await self.reserve(len(data))
        await self.store.write(reserved.segment, reserved.offset, [memoryview(data)])
        return reserved

    async def sync(self) -> None:
        await self.store.make_durable(self._reserved)

    def release(self, *, abandoned: bool = False) -> None:
        """Ends the reservations. Space that is abandoned is dead."""
        for segment, offset, length in self._reserved:
            segment.release(offset, length, abandoned=abandoned)
        self._reserved.clear()


class _Write(NamedTuple):
    """A write to a segment that is under way."""

    done: asyncio.Task[int]
    """Returns the CRC64 of the bytes."""
    segment: int
    offset: int
    length: int


class SegmentBodyWriter(Generic[S]):
    """An upload to segments, or to memory if it is small."""

    def __init__(
        self,
        reservations: Reservations[S],
        length: int | None,
        inline_bytes_max: int,
        piece_bytes_max: int,
        *,
        md5: bool = False,
    ) -> None:
        self._reservations = reservations
        self._md5 = hashlib.md5(usedforsecurity=False) if md5 else None
        self._expected = length
        self._inline_bytes_max = inline_bytes_max
        self._piece_bytes_max = piece_bytes_max
        self._buffers: deque[bytes | bytearray | memoryview] = deque()
        self._buffered = 0
        self._written = 0
        self._segment: S | None = None
        self._offset = 0
        self._room = 0
        self._pieces: list[Piece] = []
        self._under_way: _Write | None = None

    @property
    def md5(self) -> bytes:
        """The MD5 of the body, once it is sealed."""
        if self._md5 is None:
            raise ValueError("this writer was not asked for it")
        return self._md5.digest()

    async def __aenter__(self) -> SegmentBodyWriter[S]:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Reserved space is not returned here: a cancelled write may still be running.
        if self._under_way is not None and not self._under_way.done.cancel():
            # It has ended, perhaps with an error that no longer matters.
            with contextlib.suppress(Fault, asyncio.CancelledError):
                self._under_way.done.result()
        self._reservations.release(abandoned=kind is not None)

    async def append(self, data: bytes | bytearray | memoryview) -> None:
        self._buffers.append(data)
        self._buffered += len(data)
        if self._buffered >= _FLUSH_BYTES:
            await self._flush()

    async def append_body(self, body: IncomingBody) -> None:
        """Appends a whole body. The thread that writes a long one reads it directly from the
        socket: passing through the event loop would copy it twice more."""
        while True:
            lent = body.lend_socket() if self._missing() >= receiving.BYTES_MIN else None
            if lent is not None:
                with lent:
                    await self._receive(lent)
                continue
            chunk = await anext(body, None)
            if chunk is None:
                return
            await self.append(chunk)

    def _missing(self) -> int:
        """Returns how many bytes are still to come, 0 if that is not known."""
        return (self._expected or 0) - self._written - self._buffered

    async def _receive(self, lent: LentSocket) -> None:
        await self._flush()
        await self._finish_write()
        if not self._room:
            await self._reserve_space()
        assert self._segment is not None
        length = min(self._room, lent.length, receiving.BYTES_MAX)
        count, crc = await self._reservations.store.receive(
            lent, self._segment, self._offset, length, self._md5
        )
        if count:
            self._add(Piece(self._segment.number, self._offset, count, crc))
        self._advance(count)

    async def seal(self) -> Body:
        body_id = new_id()
        total = self._written + self._buffered
        if not self._written and total <= self._inline_bytes_max:
            data = b"".join(self._buffers)
            if self._md5 is not None:
                self._md5.update(data)
            return Body(body_id, total, crc64nvme(data), data=data)
        small_bytes_max = self._reservations.store.small_bytes_max
        if not self._written and total <= min(small_bytes_max, self._piece_bytes_max):
            return await self._seal_small(body_id, b"".join(self._buffers))
        await self._flush()
        await self._finish_write()
        self._release_unused()
        await self._reservations.sync()
        crc = 0
        for piece in self._pieces:
            crc = combine_crc64nvme(crc, piece.crc, piece.length)
        return Body(body_id, total, crc, pieces=tuple(self._pieces))

    async def _seal_small(self, body_id: bytes, data: bytes) -> Body:
        length = len(data)
        if length <= _QUICK_BYTES:
            crc = checksum([data], self._md5)
        else:
            crc = await self._reservations.store.in_thread(checksum, [data], self._md5)
        segment, offset, _ = await self._reservations.add(data)
        await self._reservations.sync()
        return Body(body_id, length, crc, pieces=(Piece(segment.number, offset, length, crc),))

    async def _flush(self) -> None:
        """Begins to write the buffered bytes, while more arrive; one write at a time."""
        while self._buffered:
            if not self._room:
                await self._reserve_space()
            assert self._segment is not None
            await self._finish_write()
            views = self._take(min(self._room, self._buffered))
            length = sum(map(len, views))
            write = self._reservations.store.write(self._segment, self._offset, views, self._md5)
            self._under_way = _Write(
                asyncio.ensure_future(write), self._segment.number, self._offset, length
            )
            self._advance(length)

    def _advance(self, length: int) -> None:
        """Advances behind bytes that are written or being written."""
        self._offset += length
        self._room -= length
        self._written += length

    async def _finish_write(self) -> None:
        if self._under_way is not None:
            write = self._under_way
            crc = await write.done
            self._under_way = None
            self._add(Piece(write.segment, write.offset, write.length, crc))

    async def _reserve_space(self) -> None:
        """Reserves the space that the upload needs. If its length is not known, reserves twice as
        much each time, so that a long upload has few pieces and a short one wastes little."""
        need = self._buffered
        if self._expected is not None:
            need = max(need, self._expected - self._written)
        else:
            need = max(need, self._written)
        reserved = await self._reservations.reserve(min(need, self._piece_bytes_max))
        self._segment, self._offset, self._room = reserved

    def _take(self, length: int) -> list[memoryview]:
        """Removes and returns the first bytes of the buffers, without copying them."""
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
        """Adds a piece, joined with the last one if they are adjacent."""
        if self._pieces:
            last = self._pieces[-1]
            joined = last.length + piece.length
            adjacent = (last.segment, last.offset + last.length) == piece.extent
            if adjacent and joined <= self._piece_bytes_max:
                crc = combine_crc64nvme(last.crc, piece.crc, piece.length)
                self._pieces[-1] = Piece(last.segment, last.offset, joined, crc)
                return
        self._pieces.append(piece)

    def _release_unused(self) -> None:
        if self._segment is not None and self._room:
            self._segment.trim(self._offset, self._room)
        self._room = 0


def checksum(buffers: Iterable[bytes | memoryview], md5: hashlib._Hash | None) -> int:
    """Returns the CRC64 of buffers, and adds them to `md5`."""
    crc = 0
    for buffer in buffers:
        crc = crc64nvme(buffer, crc)
        if md5 is not None:
            md5.update(buffer)
    return crc
