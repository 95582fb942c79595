"""Downloads: reading the bytes of plans from segments.

A plan may use thousands of segments. Each is opened when it is needed. When a plan is read only
once, each segment may be removed as soon as its last byte was read.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, Self

from awscrt.checksums import crc64nvme

from etagere.bodies.disk import fault_of
from etagere.bodies.plans import Hole, Plan, PlanPart, SegmentRange, require_intact, segments_of
from etagere.bodies.store import BodyCorrupt
from etagere.coordination.interface import Pin
from etagere.descriptors import FilePart, OpenFile
from etagere.engine.interface import Fault

if TYPE_CHECKING:
    from etagere.bodies.files import FileBodyStore

_READ_BYTES = 256 * 1024
_ZEROS = bytes(_READ_BYTES)


class PinnedReader(ABC):
    """Reads plans from segments that a pin keeps, wherever they are stored."""

    __slots__ = ("_pin", "close")

    def __init__(self, pin: Pin) -> None:
        self._pin = pin
        self.close = pin.close

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pin.close()

    def limit_to(self, plan: Plan) -> None:
        self._pin.narrow(segments_of(plan))

    def chunks(self, plan: Plan, *, final: bool = False) -> AsyncIterator[bytes]:
        require_intact(plan)
        return self._chunks((plan,) if isinstance(plan, bytes) else plan, final)

    @abstractmethod
    def _chunks(self, parts: tuple[PlanPart, ...], final: bool) -> AsyncIterator[bytes]:
        """Returns the bytes of intact parts; as `chunks`."""


def last_uses(parts: Sequence[PlanPart]) -> dict[int, int]:
    """Returns the number of the last part in each segment of a plan."""
    return {
        part.segment: number for number, part in enumerate(parts) if isinstance(part, SegmentRange)
    }


class FileBodyReader(PinnedReader):
    """Reads plans from the segment files of a store."""

    __slots__ = ("_store",)
    buffer_bytes = 0
    """Less than the buffers of a connection, which are not counted either."""

    def __init__(self, store: FileBodyStore, pin: Pin) -> None:
        super().__init__(pin)
        self._store = store

    async def read(self, plan: Plan) -> bytes:
        if isinstance(plan, bytes):
            return plan
        require_intact(plan)
        store = self._store
        chunks: list[bytes] = []
        for part in plan:
            if isinstance(part, bytes):
                chunks.append(part)
                continue
            if not isinstance(part, SegmentRange):
                chunks.append(bytes(part.length))
                continue
            segment, offset, length, crc = part
            try:
                data = await store.read_from(store.segment_file(segment), length, offset)
            except OSError as error:
                raise _unreadable(segment, offset, error) from None
            if len(data) < length:
                raise BodyCorrupt(f"segment {segment} ends before {offset + length}")
            if crc is not None and crc64nvme(data) != crc:
                raise BodyCorrupt(f"segment {segment} at {offset}: checksum")
            chunks.append(data)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def read_into(self, plan: Plan, buffer: memoryview) -> None:
        require_intact(plan)
        store = self._store
        at = 0
        for part in (plan,) if isinstance(plan, bytes) else plan:
            if isinstance(part, bytes):
                buffer[at : at + len(part)] = part
                at += len(part)
                continue
            view = buffer[at : at + part.length]
            at += part.length
            if not isinstance(part, SegmentRange):
                continue
            segment, offset, length, crc = part
            try:
                count = await store.read_into(store.segment_file(segment), view, offset)
            except OSError as error:
                raise _unreadable(segment, offset, error) from None
            if count < length:
                raise BodyCorrupt(f"segment {segment} ends before {offset + length}")
            if crc is not None and crc64nvme(view) != crc:
                raise BodyCorrupt(f"segment {segment} at {offset}: checksum")

    async def _chunks(self, parts: tuple[PlanPart, ...], final: bool) -> AsyncIterator[bytes]:
        last_use = last_uses(parts)
        for number, part in enumerate(parts):
            if isinstance(part, bytes):
                if part:
                    yield part
            elif isinstance(part, Hole):
                for chunk in zeros(part.length):
                    yield chunk
                    await asyncio.sleep(0)  # a hole may be long, and nothing else waits in it
            elif isinstance(part, SegmentRange):
                async for chunk in self._read_range(part):
                    yield chunk
                if final and last_use[part.segment] == number:
                    self._pin.release(part.segment)

    async def _read_range(self, segment_range: SegmentRange) -> AsyncIterator[bytes]:
        store = self._store
        file = store.segment_file(segment_range.segment)
        at, end, crc = segment_range.offset, segment_range.offset + segment_range.length, 0
        while at < end:
            try:
                chunk = await store.read_from(file, min(_READ_BYTES, end - at), at)
            except OSError as error:
                raise _unreadable(segment_range.segment, at, error) from None
            if not chunk:
                raise BodyCorrupt(f"segment {segment_range.segment} ends before {end}")
            at += len(chunk)
            if segment_range.crc is not None:
                crc = crc64nvme(chunk, crc)
                if at == end and crc != segment_range.crc:
                    raise BodyCorrupt(
                        f"segment {segment_range.segment} at {segment_range.offset}: checksum"
                    )
            yield chunk

    def file_parts(self, plan: Plan) -> Iterator[FilePart] | None:
        if isinstance(plan, bytes):
            return None
        parts = [part for part in plan if isinstance(part, SegmentRange | Hole)]
        if len(parts) < len(plan):
            return None
        return file_parts(parts, self._file_of, self._pin)

    def _file_of(self, segment: int | None) -> OpenFile:
        return self._store.zeros() if segment is None else self._store.segment_file(segment)


def _unreadable(segment: int, offset: int, error: OSError) -> Fault:
    """Returns the fault for a segment that the disk cannot read."""
    fault = fault_of(error)
    return Fault(fault.reason, f"segment {segment} at {offset}: {fault.detail}")


def zeros(length: int) -> Iterator[bytes]:
    """Yields the bytes of a hole."""
    for _ in range(length // _READ_BYTES):
        yield _ZEROS
    if length % _READ_BYTES:
        yield _ZEROS[: length % _READ_BYTES]


class SegmentRun(NamedTuple):
    """Adjacent bytes of a segment, or (None) of a hole."""

    segment: int | None
    offset: int
    length: int


def runs(plan: Iterable[SegmentRange | Hole]) -> Iterator[SegmentRun]:
    """Joins adjacent segment_ranges of a plan."""
    segment: int | None = None
    offset = length = 0
    for segment_range in plan:
        if isinstance(segment_range, Hole):
            if length:
                yield SegmentRun(segment, offset, length)
            segment, offset, length = None, 0, segment_range.length
        elif segment_range.segment == segment and segment_range.offset == offset + length:
            length += segment_range.length
        else:
            if length:
                yield SegmentRun(segment, offset, length)
            segment, offset, length = segment_range[:3]
    if length:
        yield SegmentRun(segment, offset, length)


def file_parts(
    plan: Iterable[SegmentRange | Hole], open_file: Callable[[int | None], OpenFile], pin: Pin
) -> Iterator[FilePart]:
    """Returns the parts of files that make up a plan. The first one is open on return, so that its
    failure can still be answered; each other one is opened when it is asked for."""
    parts = _opened_in_turn(list(runs(plan)), open_file, pin)
    return chain((next(parts),), parts)


def _opened_in_turn(
    found: list[SegmentRun], open_file: Callable[[int | None], OpenFile], pin: Pin
) -> Iterator[FilePart]:
    last_use = {run.segment: number for number, run in enumerate(found)}
    for number, (segment, offset, length) in enumerate(found):
        file = open_file(segment)
        yield FilePart(file.descriptor, offset, length, file, segment)
        if segment is not None and last_use[segment] == number:
            pin.release(segment)
