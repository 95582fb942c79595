"""Reading interval maps: their records, the holders of generations, and the parts of a generation.

`INTERVALS` contains the newest generation of a map without overlaps, so that the interval at an
offset is found with one lookup, however long the history is. `FORMER_INTERVALS` contains intervals
that only older generations show.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from typing import NamedTuple

from awscrt.checksums import crc64nvme

from etagere.engine.interface import EXCLUSIVE, ReadTxn, WriteTxn
from etagere.engine.records import ID, UINT, UINT_MAX, Collection, Layout, Span
from etagere.model.bodies import (
    FormerInterval,
    Holders,
    Interval,
    IntervalMap,
    Mapped,
    MapToFlatten,
    MapToReap,
    Piece,
)

INTERVAL_MAPS: Collection[tuple[bytes], IntervalMap] = Collection(
    "interval_maps", IntervalMap, (ID,)
)
# Rows with inline bytes are long, and are appended to many maps in turn: stored in the key's B-tree
# they would fill twice as many pages.
INTERVALS: Collection[tuple[bytes, int], Interval] = Collection(
    "intervals", Interval, (ID, UINT), layout=Layout.LARGE
)
FORMER_INTERVALS: Collection[tuple[bytes, int, int], FormerInterval] = Collection(
    "former_intervals", FormerInterval, (ID, UINT, UINT)
)
GENERATIONS: Collection[tuple[bytes, int], Holders] = Collection("generations", Holders, (ID, UINT))
MAPS_TO_REAP: Collection[tuple[bytes], MapToReap] = Collection("fading_maps", MapToReap, (ID,))
MAPS_TO_FLATTEN: Collection[tuple[bytes], MapToFlatten] = Collection(
    "stacked_maps", MapToFlatten, (ID,)
)

END = UINT_MAX
"""Beyond the last possible offset."""
ROWS_PER_SCAN = 256
_ROWS_PER_FIRST_SCAN = 4
_ROWS_PASSED = 64
"""After this many intervals of other generations, a walk yields an empty part to report its
progress."""


class MissingRecord(LookupError):
    """The ledger refers to a missing record; `etagere check` reports details."""


class BodyCorrupt(Exception):
    """Stored bytes do not match their checksum, or are missing."""


# Holders of generations


def share_generation(txn: WriteTxn, content: Mapped) -> None:
    """Adds a holder to a generation."""
    key = (content.id, content.generation)
    txn.put(GENERATIONS, key, Holders(holders(txn, content) + 1))


def release_generation(txn: WriteTxn, map_id: bytes, generation: int) -> None:
    """Removes a holder of a generation. When it was the last one, the intervals that only this
    generation showed are left to be reaped."""
    key = (map_id, generation)
    found = txn.get(GENERATIONS, key, EXCLUSIVE)
    if found is None:
        # So that a damaged object can still be replaced and deleted.
        return
    if found.count > 1:
        txn.put(GENERATIONS, key, Holders(found.count - 1))
        return
    txn.delete(GENERATIONS, key)
    reaping = txn.get(MAPS_TO_REAP, (map_id,), EXCLUSIVE)
    if reaping is None or reaping == MapToReap():
        txn.put(MAPS_TO_REAP, (map_id,), MapToReap())
    else:
        txn.put(
            MAPS_TO_REAP,
            (map_id,),
            MapToReap(reaping.former, reaping.offset, reaping.born, again=True),
        )


def holders(txn: WriteTxn, content: Mapped) -> int:
    """Returns the number of holders of a content's generation, and guards it."""
    found = txn.get(GENERATIONS, (content.id, content.generation), EXCLUSIVE)
    if found is None:
        raise MissingRecord(f"generation {content.generation} of map {content.id.hex()}")
    return found.count


def is_held(txn: ReadTxn | WriteTxn, map_id: bytes, first: int = 0, stop: int = END) -> bool:
    """Returns whether a generation from `first` up to, but not including, `stop` has a holder."""
    span = Span(GENERATIONS.pack((map_id, first)), GENERATIONS.pack((map_id, stop)))
    return bool(txn.scan(GENERATIONS, span, 1))


# The parts of a generation


class MapPart(NamedTuple):
    """The bytes from `start` to `end` of a map: a part of an extent, of an inline interval, or a
    hole."""

    start: int
    end: int
    piece: Piece | bytes | None
    cleared: tuple[bytes, int] | None = None
    """For a hole that was cleared: the map and the generation in which it was."""
    crc: int | None = None
    """The CRC64 of an inline interval, if it is known."""


def length_of(piece: Piece | bytes) -> int:
    return len(piece) if isinstance(piece, bytes) else piece.length


def cut(piece: Piece | bytes | None, skip: int, length: int) -> Piece | bytes | None:
    """Returns a part of a piece or of inline bytes."""
    if isinstance(piece, bytes):
        return piece[skip : skip + length]
    return None if piece is None else cut_piece(piece, skip, length)


def cut_row(row: IntervalRow, start: int, end: int) -> tuple[Piece | bytes | None, int | None]:
    """Returns the part of an interval between two offsets, and the checksum if its bytes are
    inline."""
    return _cut_checked(row.piece, row.crc, start - row.offset, end - start)


def cut_part(part: MapPart, start: int, end: int) -> tuple[Piece | bytes | None, int | None]:
    """Does the same for a part."""
    return _cut_checked(part.piece, part.crc, start - part.start, end - start)


def _cut_checked(
    piece: Piece | bytes | None, crc: int | None, skip: int, length: int
) -> tuple[Piece | bytes | None, int | None]:
    """Returns a part of a piece or of inline bytes, and the checksum of the latter. If the whole
    does not match its checksum, neither does the part: damage stays visible, whatever becomes of
    the bytes."""
    shown = cut(piece, skip, length)
    if crc is None or not isinstance(piece, bytes) or not isinstance(shown, bytes):
        return shown, None
    if len(shown) == len(piece):
        return shown, crc
    return shown, crc64nvme(shown) ^ crc64nvme(piece) ^ crc


def is_intact(part: MapPart) -> bool:
    """Returns whether inline bytes match their checksum, if they have one."""
    return (
        part.crc is None or not isinstance(part.piece, bytes) or crc64nvme(part.piece) == part.crc
    )


def cut_piece(piece: Piece, skip: int, length: int) -> Piece:
    if not skip and length == piece.length:
        return piece
    return Piece(piece.segment, piece.offset, length, None, piece.skip + skip)


def parts(txn: ReadTxn | WriteTxn, content: Mapped, start: int, end: int) -> Iterator[MapPart]:
    """Yields the parts of a content between two offsets, in order and without gaps. Some may be
    empty: they show progress while the walk skips intervals of other generations."""
    return walk(txn, content.id, content.generation, start, min(end, content.length))


def find_covering(txn: ReadTxn, content: Mapped, start: int, end: int) -> Piece | None:
    """Returns the piece with all bytes between two offsets, if one interval of the newest
    generation contains them. For short reads, this is usual, and takes half as long as `parts`."""
    pack = INTERVALS.pack
    span = Span(pack((content.id, 0)), pack((content.id, start + 1)))
    for (_, offset), found in txn.scan(INTERVALS, span, 1, reverse=True):
        is_shown = found.born <= content.generation
        if is_shown and offset + found.length >= end and isinstance(found.piece, Piece):
            return cut_piece(found.piece, start - offset, end - start)
    return None


def walk(
    txn: ReadTxn | WriteTxn, map_id: bytes, generation: int, start: int, end: int
) -> Iterator[MapPart]:
    """Yields the parts of a map and, where it has none, of its base, which may have a base too.
    Uses a stack of its own, because chains of bases may be long."""
    levels = [_level(txn, map_id, generation, start, end)] if start < end else []
    while levels:
        found = next(levels[-1], None)
        if found is None:
            levels.pop()
        elif isinstance(found, _BaseRange):
            levels.append(_level(txn, *found))
        else:
            yield found


class _BaseRange(NamedTuple):
    """A range for which the base has to be read."""

    base: bytes
    generation: int
    start: int
    end: int


class IntervalRow(NamedTuple):
    """An interval of the newest or an older generation."""

    offset: int
    born: int
    length: int
    piece: Piece | bytes | None
    ended: int | None
    crc: int | None = None

    @property
    def end(self) -> int:
        return self.offset + self.length


def get_map(txn: ReadTxn | WriteTxn, map_id: bytes) -> IntervalMap:
    record = txn.get(INTERVAL_MAPS, (map_id,))
    if record is None:
        raise MissingRecord(f"the map {map_id.hex()}")
    return record


def _level(
    txn: ReadTxn | WriteTxn, map_id: bytes, generation: int, start: int, end: int
) -> Iterator[MapPart | _BaseRange]:
    """Yields the parts that a map itself has, and the ranges to read from its base."""
    record = get_map(txn, map_id)
    rows: Iterable[IntervalRow] = current_rows(txn, map_id, start, end)
    if generation != record.newest:
        rows = merge(rows, former_rows(txn, map_id, record.longest, start, end), key=offset_of)
    at, passed = start, 0
    for row in rows:
        if row.born > generation or (row.ended is not None and row.ended <= generation):
            passed += 1
            if not passed % _ROWS_PASSED:
                if row.offset > at:
                    yield from _gap(record, at, row.offset)
                    at = row.offset
                else:
                    yield MapPart(at, at, None)
            continue
        first, last = max(row.offset, start), min(row.end, end)
        if first > at:
            yield from _gap(record, at, first)
        piece, crc = cut_row(row, first, last)
        yield MapPart(first, last, piece, (map_id, row.born) if piece is None else None, crc)
        at = last
    if at < end:
        yield from _gap(record, at, end)


def offset_of(row: IntervalRow) -> int:
    return row.offset


def _gap(record: IntervalMap, start: int, end: int) -> Iterator[MapPart | _BaseRange]:
    first, last = max(start, record.flattened), min(end, record.base_length)
    if record.base is None or first >= last:
        yield MapPart(start, end, None)
        return
    if start < first:
        yield MapPart(start, first, None)
    yield _BaseRange(record.base, record.base_generation, first, last)
    if last < end:
        yield MapPart(last, end, None)


def current_rows(
    txn: ReadTxn | WriteTxn, map_id: bytes, start: int, end: int
) -> Iterator[IntervalRow]:
    """Yields the intervals of the newest generation between two offsets, in order."""
    first = INTERVALS.pack((map_id, start))
    if start:
        span = Span(INTERVALS.pack((map_id, 0)), first)
        for (_, offset), found in txn.scan(INTERVALS, span, 1, reverse=True):
            if offset + found.length > start:
                yield IntervalRow(offset, found.born, found.length, found.piece, None, found.crc)
    span = Span(first, INTERVALS.pack((map_id, end)))
    limit = _ROWS_PER_FIRST_SCAN
    while True:
        rows = txn.scan(INTERVALS, span, limit)
        for (_, offset), found in rows:
            yield IntervalRow(offset, found.born, found.length, found.piece, None, found.crc)
        if len(rows) < limit:
            return
        span = INTERVALS.after(span, rows[-1][0])
        limit = min(4 * limit, ROWS_PER_SCAN)


def former_rows(
    txn: ReadTxn | WriteTxn, map_id: bytes, longest: int, start: int, end: int
) -> Iterator[IntervalRow]:
    """Yields the intervals of older generations between two offsets, in order."""
    first = max(0, start - longest)
    pack = FORMER_INTERVALS.pack
    span = Span(pack((map_id, first, 0)), pack((map_id, end, 0)))
    while True:
        rows = txn.scan(FORMER_INTERVALS, span, ROWS_PER_SCAN)
        for (_, offset, born), found in rows:
            if offset + found.length > start:
                yield IntervalRow(offset, born, found.length, found.piece, found.ended, found.crc)
        if len(rows) < ROWS_PER_SCAN:
            return
        span = FORMER_INTERVALS.after(span, rows[-1][0])
