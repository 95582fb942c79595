"""Copying extents from the bodies of one ledger to those of another, while both are in use.

Copies are written to segments of this process, and nothing refers to them until a transaction
stores their records. If this process ends before that, its segments are sealed, and the copies are
dead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, NamedTuple, Protocol

from awscrt.checksums import crc64nvme

from etagere.bodies.contents import EXTENTS, MOVES
from etagere.bodies.segment_backend import SegmentBackend
from etagere.bodies.transfer import DamagedExtent, ExtentsDamaged
from etagere.bodies.writing import Reservations, SegmentAppender
from etagere.config import MIB
from etagere.engine.records import ENCODE, Collection, Span
from etagere.model.bodies import Extent, Piece

Place = tuple[int, int]
"""A segment, and an offset in it."""

_SYNC_BYTES: Final = 64 * MIB
"""After this many bytes the copies are made durable, so that little is left to do at the end."""
_PORTION_BYTES: Final = 8 * MIB
_PORTION_EXTENTS_MAX: Final = 100
_PORTIONS_IN_FLIGHT_MAX: Final = 4


class RecordSource(Protocol):
    """The encoded records of a ledger in one snapshot."""

    def find(
        self, collection: Collection[Any, Any], keys: Sequence[bytes]
    ) -> Mapping[bytes, bytes]:
        """Returns the records of those keys that exist."""
        ...

    def pages(
        self, collection: Collection[Any, Any], spans: Sequence[Span]
    ) -> Iterator[list[tuple[bytes, bytes]]]:
        """Yields the records in these spans, in pages. Other records may be looked up between
        pages."""
        ...


class CopiedExtent:
    """The copy of an extent."""

    __slots__ = ("crc", "length", "place", "references")

    def __init__(self, place: Place, extent: Extent) -> None:
        self.place = place
        self.length = extent.length
        self.crc = extent.crc
        self.references = 0


class _SourceExtent(NamedTuple):
    """An extent of the source."""

    place: Place
    origin: Place
    extent: Extent


class ExtentCopier:
    """Copies extents, each once, and counts the references to the copies. Extents are identified by
    the place where they were first written, which stays the same if the source moves them."""

    def __init__(
        self,
        storage: SegmentBackend,
        target: SegmentAppender[Any],
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`progress` is called with the number of bytes that were copied so far."""
        self._storage = storage
        self._target = target
        self._progress = progress
        self._copied: dict[Place, CopiedExtent] = {}
        self._reservations: list[Reservations[Any]] = []
        self._unsynced: list[Reservations[Any]] = []
        self._unsynced_bytes = 0
        self.copied_bytes = 0
        self.copied_extents = 0

    async def copy(self, source: RecordSource, pieces: Iterable[Piece]) -> None:
        """Copies the extents of pieces, unless that was done before. Raises `ExtentsDamaged` if
        bytes are missing or do not match their checksum, and `Fault`."""
        missing = sorted({piece.extent for piece in pieces}.difference(self._copied))
        if not missing:
            return
        reservations = Reservations(self._target)
        self._reservations.append(reservations)
        self._unsynced.append(reservations)
        turns = asyncio.Semaphore(_PORTIONS_IN_FLIGHT_MAX)
        try:
            async with asyncio.TaskGroup() as copies:
                for portion in _portions(_find_extents(source, missing)):
                    await turns.acquire()
                    copy = copies.create_task(self._copy_portion(portion, reservations))
                    copy.add_done_callback(lambda _: turns.release())
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        if self._unsynced_bytes >= _SYNC_BYTES:
            await self.sync()

    async def _copy_portion(
        self, portion: list[_SourceExtent], reservations: Reservations[Any]
    ) -> None:
        places = [(each.place[1], each.extent.length) for each in portion]
        rest = iter(portion)
        async with aclosing(self._storage.read(portion[0].place[0], places)) as stored:
            async for data in stored:
                (segment, offset), origin, extent = next(rest)
                if len(data) != extent.length or extent.crc not in (None, crc64nvme(data)):
                    raise ExtentsDamaged([DamagedExtent(segment, offset, extent.length)])
                reserved = await reservations.write(data)
                place = reserved.segment.number, reserved.offset
                self._copied[origin] = CopiedExtent(place, extent)
                self.copied_bytes += extent.length
                self.copied_extents += 1
                self._unsynced_bytes += extent.length
                self._progress(self.copied_bytes)

    async def sync(self) -> None:
        """Makes all copies durable. Raises `Fault`."""
        for reservations in self._unsynced:
            await reservations.sync()
        self._unsynced.clear()
        self._unsynced_bytes = 0

    def reset_references(self) -> None:
        """Resets the counts of references to 0."""
        for copied in self._copied.values():
            copied.references = 0

    def add_references(self, pieces: Iterable[Piece]) -> None:
        """Counts a reference to the copy of the extent of each piece."""
        for piece in pieces:
            self._copied[piece.extent].references += 1

    def copied_piece(self, piece: Piece) -> Piece:
        """Returns the piece that refers to the copy of an extent instead of the original."""
        segment, offset = self._copied[piece.extent].place
        return Piece(segment, offset, piece.length, piece.crc, piece.skip)

    def records(self) -> Iterator[tuple[bytes, bytes]]:
        """Yields the encoded records of the copies that have references."""
        for copied in self._copied.values():
            if copied.references:
                record = Extent(copied.length, copied.crc, copied.references)
                yield EXTENTS.pack(copied.place), ENCODE(record)

    def segments(self) -> set[int]:
        """Returns the segments of the copies that have references."""
        return {copied.place[0] for copied in self._copied.values() if copied.references}

    def release(self, *, abandoned: bool) -> None:
        """Releases the reservations of the copies. The bytes of abandoned ones are dead."""
        for reservations in self._reservations:
            reservations.release(abandoned=abandoned)
        self._reservations.clear()


def _portions(found: Iterable[_SourceExtent]) -> Iterator[list[_SourceExtent]]:
    """Divides extents into portions, each of which is in one segment."""
    portion: list[_SourceExtent] = []
    portion_bytes = 0
    for each in found:
        is_full = portion_bytes >= _PORTION_BYTES or len(portion) >= _PORTION_EXTENTS_MAX
        if portion and (is_full or each.place[0] != portion[0].place[0]):
            yield portion
            portion, portion_bytes = [], 0
        portion.append(each)
        portion_bytes += each.extent.length
    if portion:
        yield portion


def _find_extents(source: RecordSource, origins: Sequence[Place]) -> list[_SourceExtent]:
    """Returns extents in the order of their current places. Raises `ExtentsDamaged` if one is
    missing."""
    keys = [MOVES.pack(origin) for origin in origins]
    moves = source.find(MOVES, keys)
    places: dict[bytes, Place] = {}
    for key, origin in zip(keys, origins, strict=True):
        place = origin
        if key in moves:
            move = MOVES.decode(moves[key])
            place = move.segment, move.offset
        places[EXTENTS.pack(place)] = origin
    stored = source.find(EXTENTS, list(places))
    missing = [EXTENTS.unpack(key) for key in places if key not in stored]
    if missing:
        raise ExtentsDamaged([DamagedExtent(*place, 0) for place in missing])
    return sorted(
        _SourceExtent(EXTENTS.unpack(key), places[key], EXTENTS.decode(value))
        for key, value in stored.items()
    )
