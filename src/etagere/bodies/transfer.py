"""Copying all live extents to another store, of files or of objects.

A segment keeps its number and the offsets in it if the target can have it as it is. Otherwise its
extents get new places, packed into new segments, and a `Move` each, as if the collector had moved
them. A reader follows moves only from segments that are gone: so a segment moves as a whole, and
one from which the collector has moved extents does too. Dead bytes are not copied.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from itertools import groupby
from typing import Any, Final, NamedTuple, Protocol

from awscrt.checksums import crc64nvme
from msgspec.structs import replace

from etagere.bodies.contents import (
    COUNTED_DEAD,
    COUNTERS,
    DEAD_TOTALS,
    EXTENTS,
    MOVES,
    SEGMENTS,
    UNCOUNTED_DEAD,
)
from etagere.bodies.objects.names import INDEX_SHIFT
from etagere.bodies.segments import SEGMENT_NUMBERS
from etagere.config import MIB
from etagere.engine.loading import Rows, StoppedLedger
from etagere.engine.records import ENCODE, Collection
from etagere.model.bodies import Counter, DeadTotal, Extent, Move, Segment, SegmentState

COLLECTIONS: Final = (
    SEGMENTS,
    EXTENTS,
    MOVES,
    COUNTED_DEAD,
    UNCOUNTED_DEAD,
    DEAD_TOTALS,
    COUNTERS,
)
"""The collections that a transfer reads, and those that it writes anew."""

_BYTES_IN_FLIGHT_MAX: Final = 128 * MIB
_PORTIONS_IN_FLIGHT_MAX: Final = 8
_PARTS_PER_PORTION_MAX: Final = 20_000
_ROWS_PER_LOAD: Final = 10_000


class PlacedExtent(NamedTuple):
    """An extent of a portion: where it is now, and its offset in the new segment."""

    source: tuple[int, int]
    extent: Extent
    offset: int

    @property
    def end(self) -> int:
        return self.offset + self.extent.length


class Portion(NamedTuple):
    """Extents that are stored together: in one object of a segment, or in one file."""

    number: int
    parts: list[PlacedExtent]
    """In the order of their offsets."""

    @property
    def start(self) -> int:
        """The offset of its first byte in the segment."""
        return self.parts[0].offset >> INDEX_SHIFT << INDEX_SHIFT

    @property
    def length(self) -> int:
        return self.parts[-1].end - self.start


class Source(Protocol):
    """The store that extents are copied from."""

    def read(self, portion: Portion) -> AsyncGenerator[bytes, None]:
        """Yields the bytes of each part, fewer if they are missing. Raises `Fault`."""
        ...


class Target(Protocol):
    """The store that portions are copied to."""

    kept_bytes_max: int
    """The longest segment that can stay as it is."""
    portion_bytes_max: int
    """How much is packed into one portion. A longer extent has its own."""
    portions_per_segment: int
    holds_portions: bool
    """Whether a portion is in memory as a whole."""

    async def write(self, portion: Portion, data: AsyncGenerator[bytes, None]) -> None:
        """Stores a portion, whose parts `data` yields, durably. Raises `Fault` or `OSError`."""
        ...


Load = Callable[[Collection[Any, Any], Rows], None]


class DamagedExtent(NamedTuple):
    """An extent whose bytes are missing or do not match their checksum."""

    segment: int
    offset: int
    length: int


class ExtentsDamaged(Exception):
    """Some extents are damaged."""

    def __init__(self, extents: Sequence[DamagedExtent]) -> None:
        super().__init__(f"{len(extents)} extents are damaged")
        self.extents = extents


class Transferred(NamedTuple):
    """The result of a transfer."""

    extents: int
    extent_bytes: int
    segments: int
    moved: int
    """The number of extents whose place has changed."""


class _SegmentSummary(NamedTuple):
    """The size of a segment of the source."""

    end: int
    live_bytes: int


class _SegmentTotals:
    """The size of a segment of the target."""

    def __init__(self) -> None:
        self.length = 0
        self.live_bytes = 0


class Transfer:
    """Copies the extents of a ledger, and writes the records that describe their new places."""

    def __init__(self, ledger: StoppedLedger, target: Target, load: Load, owner: bytes) -> None:
        """`load` stores the new records. `owner` is recorded as that of new segments."""
        self._ledger = ledger
        self._target = target
        self._load = load
        self._owner = owner
        self._summaries: dict[int, _SegmentSummary] = {}
        self._moved_from: set[int] = set()
        self._summarize()
        counter = ledger.get(COUNTERS, (SEGMENT_NUMBERS,))
        self._last_number = max(counter.last if counter else 0, max(self._summaries, default=0))
        self._stored: dict[int, _SegmentTotals] = {}
        self._rows: dict[Collection[Any, Any], list[tuple[bytes, bytes]]] = {EXTENTS: [], MOVES: []}
        self._flight_limit = _FlightLimit()
        self._damaged: list[DamagedExtent] = []
        self._extents = self._moved = self._done_bytes = 0
        self.total_bytes = sum(summary.live_bytes for summary in self._summaries.values())

    def _summarize(self) -> None:
        for number, rows in groupby(self._ledger.records(EXTENTS), key=lambda row: row[0][0]):
            end = live_bytes = 0
            for (_, offset), extent in rows:
                end = max(end, offset + extent.length)
                live_bytes += extent.length
                if extent.origin is not None:
                    self._moved_from.add(extent.origin[0])
            self._summaries[number] = _SegmentSummary(end, live_bytes)

    def _is_kept(self, number: int) -> bool:
        is_short = self._summaries[number].end <= self._target.kept_bytes_max
        return is_short and number not in self._moved_from

    def portions(self) -> Iterator[Portion]:
        """Yields the portions to store."""
        packer = _Packer(self._target, self._last_number)
        for number, rows in groupby(self._ledger.records(EXTENTS), key=lambda row: row[0][0]):
            if self._is_kept(number):
                parts = [PlacedExtent(place, extent, place[1]) for place, extent in rows]
                yield Portion(number, parts)
            else:
                for place, extent in rows:
                    yield from packer.add(place, extent)
        yield from packer.finish()
        self._last_number = packer.last_number

    async def run(self, source: Source, progress: Callable[[int, int], None]) -> Transferred:
        """Copies everything. Raises `ExtentsDamaged` after all else was copied, `Fault` or
        `OSError`."""
        try:
            async with asyncio.TaskGroup() as copies:
                for portion in self.portions():
                    buffer_bytes = self._buffer_bytes(portion)
                    await self._flight_limit.take(buffer_bytes)
                    copies.create_task(self._copy(source, portion, buffer_bytes, progress))
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        if self._damaged:
            raise ExtentsDamaged(sorted(self._damaged))
        self._load_rows()
        self._load_segments()
        return Transferred(self._extents, self.total_bytes, len(self._stored), self._moved)

    def _buffer_bytes(self, portion: Portion) -> int:
        if self._target.holds_portions:
            return portion.length
        return max(part.extent.length for part in portion.parts)

    async def _copy(
        self,
        source: Source,
        portion: Portion,
        buffer_bytes: int,
        progress: Callable[[int, int], None],
    ) -> None:
        try:
            async with aclosing(self._verified(source, portion, progress)) as data:
                await self._target.write(portion, data)
        finally:
            self._flight_limit.give_back(buffer_bytes)
        self._record(portion)
        if len(self._rows[EXTENTS]) >= _ROWS_PER_LOAD:
            self._load_rows()

    async def _verified(
        self, source: Source, portion: Portion, progress: Callable[[int, int], None]
    ) -> AsyncGenerator[bytes, None]:
        parts = iter(portion.parts)
        async with aclosing(source.read(portion)) as found:
            async for data in found:
                place, extent, _ = next(parts)
                is_whole = len(data) == extent.length
                if not is_whole or extent.crc not in (None, crc64nvme(data)):
                    self._damaged.append(DamagedExtent(*place, extent.length))
                self._done_bytes += extent.length
                progress(self._done_bytes, self.total_bytes)
                # The rest is read all the same, to find all damage.
                yield data if is_whole else bytes(extent.length)

    def _record(self, portion: Portion) -> None:
        """Adds the records of a portion that was stored."""
        number = portion.number
        stored = self._stored.setdefault(number, _SegmentTotals())
        stored.length += portion.length
        for source, extent, offset in portion.parts:
            place = number, offset
            origin = extent.origin
            if place != source:
                origin = origin or source
                self._moved += 1
            record = replace(extent, origin=origin)
            self._rows[EXTENTS].append((EXTENTS.pack(place), ENCODE(record)))
            if origin is not None:
                self._rows[MOVES].append((MOVES.pack(origin), ENCODE(Move(*place))))
            stored.live_bytes += extent.length
        self._extents += len(portion.parts)

    def _load_rows(self) -> None:
        for collection, rows in self._rows.items():
            self._load(collection, rows)
            rows.clear()

    def _load_segments(self) -> None:
        segments: list[tuple[bytes, bytes]] = []
        dead: list[tuple[bytes, bytes]] = []
        for number, stored in sorted(self._stored.items()):
            old = self._ledger.get(SEGMENTS, (number,))
            owner = old.owner if old is not None else self._owner
            record = Segment(owner, SegmentState.SEALED, stored.length, closed=True)
            segments.append((SEGMENTS.pack((number,)), ENCODE(record)))
            if stored.length > stored.live_bytes:
                total = DeadTotal(stored.length - stored.live_bytes)
                dead.append((DEAD_TOTALS.pack((number,)), ENCODE(total)))
        self._load(SEGMENTS, segments)
        self._load(DEAD_TOTALS, dead)
        counters = {key: counter for (key,), counter in self._ledger.records(COUNTERS)}
        counters[SEGMENT_NUMBERS] = Counter(self._last_number)
        self._load(
            COUNTERS,
            [(COUNTERS.pack((key,)), ENCODE(counter)) for key, counter in sorted(counters.items())],
        )


class _Packer:
    """Packs extents into portions of new segments."""

    def __init__(self, target: Target, last_number: int) -> None:
        self._target = target
        self.last_number = last_number
        self._index = target.portions_per_segment
        """Of the next portion in the last segment."""
        self._parts: list[PlacedExtent] = []
        self._length = 0

    def add(self, place: tuple[int, int], extent: Extent) -> Iterator[Portion]:
        is_full = self._length + extent.length > self._target.portion_bytes_max
        if self._parts and (is_full or len(self._parts) >= _PARTS_PER_PORTION_MAX):
            yield from self.finish()
        if not self._parts and self._index >= self._target.portions_per_segment:
            self.last_number += 1
            self._index = 0
        self._parts.append(PlacedExtent(place, extent, (self._index << INDEX_SHIFT) + self._length))
        self._length += extent.length

    def finish(self) -> Iterator[Portion]:
        """Ends the current portion."""
        if self._parts:
            yield Portion(self.last_number, self._parts)
            self._parts, self._length = [], 0
            self._index += 1


class _FlightLimit:
    """Limits the portions that are being copied, by number and by memory."""

    def __init__(self) -> None:
        self._bytes = 0
        self._count = 0
        self._freed = asyncio.Event()

    async def take(self, buffer_bytes: int) -> None:
        while self._count and (
            self._bytes + buffer_bytes > _BYTES_IN_FLIGHT_MAX
            or self._count >= _PORTIONS_IN_FLIGHT_MAX
        ):
            self._freed.clear()
            await self._freed.wait()
        self._bytes += buffer_bytes
        self._count += 1

    def give_back(self, buffer_bytes: int) -> None:
        self._bytes -= buffer_bytes
        self._count -= 1
        self._freed.set()
