"""Interval maps as they are read: their records, who holds them, and a walk through a generation.

The newest generation of a map lies in `INTERVALS`, where nothing overlaps, so that what lies
under an offset is one step away however long the history is. What only older generations
show lies in `FORMER_INTERVALS`.
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
# Inlays make rows long, and those of many maps come one after the other: in a tree of their keys
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
"""Behind the last offset there can be."""
ROWS_PER_SCAN = 256
_ROWS_PER_FIRST_SCAN = 4
_ROWS_PASSED = 64
"""After so many that a generation does not show, a walk says how far it came."""


class MissingRecord(LookupError):
    """The ledger refers to a record that is not there: `etagere check` tells more."""


class BodyCorrupt(Exception):
    """Stored bytes are not those that were written."""


# Who holds a generation


def share_generation(txn: WriteTxn, content: Mapped) -> None:
    """One more holder."""
    key = (content.id, content.generation)
    txn.put(GENERATIONS, key, Holders(holders(txn, content) + 1))


def release_generation(txn: WriteTxn, map_id: bytes, generation: int) -> None:
    """One holder less. After the last one, what only this generation showed is left to be
    reaped."""
    key = (map_id, generation)
    found = txn.get(GENERATIONS, key, EXCLUSIVE)
    if found is None:
        # A damaged object can still be replaced and deleted.
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
    """How many hold the generation of a content; guarded, so that it stays so."""
    found = txn.get(GENERATIONS, (content.id, content.generation), EXCLUSIVE)
    if found is None:
        raise MissingRecord(f"generation {content.generation} of map {content.id.hex()}")
    return found.count


def is_held(txn: ReadTxn | WriteTxn, map_id: bytes, first: int = 0, stop: int = END) -> bool:
    """Whether anybody holds a generation from `first` up to, but not including, `stop`."""
    span = Span(GENERATIONS.pack((map_id, first)), GENERATIONS.pack((map_id, stop)))
    return bool(txn.scan(GENERATIONS, span, 1))


# What a generation shows


class Part(NamedTuple):
    """Bytes from `start` to `end` of a map: a part of an extent, an inlay, or a hole."""

    start: int
    end: int
    piece: Piece | bytes | None
    cleared: tuple[bytes, int] | None = None
    """Of a hole that was made: in which map and generation."""
    crc: int | None = None
    """CRC64 that an inlay must have, if it is known."""


def length_of(piece: Piece | bytes) -> int:
    return len(piece) if isinstance(piece, bytes) else piece.length


def cut(piece: Piece | bytes | None, skip: int, length: int) -> Piece | bytes | None:
    """A part of a piece or an inlay."""
    if isinstance(piece, bytes):
        return piece[skip : skip + length]
    return None if piece is None else cut_piece(piece, skip, length)


def cut_row(row: Row, start: int, end: int) -> tuple[Piece | bytes | None, int | None]:
    """What an interval shows between two offsets within it, and the checksum of an inlay."""
    return _cut_checked(row.piece, row.crc, start - row.offset, end - start)


def cut_part(part: Part, start: int, end: int) -> tuple[Piece | bytes | None, int | None]:
    """The same of a part."""
    return _cut_checked(part.piece, part.crc, start - part.start, end - start)


def _cut_checked(
    piece: Piece | bytes | None, crc: int | None, skip: int, length: int
) -> tuple[Piece | bytes | None, int | None]:
    """A part of a piece or an inlay, and the checksum of the latter. If the inlay does not match
    its own checksum, the part does not match this one either: damage stays visible, whatever
    becomes of the bytes."""
    shown = cut(piece, skip, length)
    if crc is None or not isinstance(piece, bytes) or not isinstance(shown, bytes):
        return shown, None
    if len(shown) == len(piece):
        return shown, crc
    return shown, crc64nvme(shown) ^ crc64nvme(piece) ^ crc


def is_intact(part: Part) -> bool:
    """Whether an inlay matches its checksum, if it has one."""
    return (
        part.crc is None or not isinstance(part.piece, bytes) or crc64nvme(part.piece) == part.crc
    )


def cut_piece(piece: Piece, skip: int, length: int) -> Piece:
    if not skip and length == piece.length:
        return piece
    return Piece(piece.segment, piece.offset, length, None, piece.skip + skip)


def parts(txn: ReadTxn | WriteTxn, content: Mapped, start: int, end: int) -> Iterator[Part]:
    """What a content shows between two offsets: every byte, in order. Some parts may be empty:
    they show that the walk gets ahead where it passes over what other generations show."""
    return walk(txn, content.id, content.generation, start, min(end, content.length))


def walk(
    txn: ReadTxn | WriteTxn, map_id: bytes, generation: int, start: int, end: int
) -> Iterator[Part]:
    """A map over its base, which may lie over another, and so on: as many as there are, so this
    keeps a stack of its own."""
    levels = [_level(txn, map_id, generation, start, end)] if start < end else []
    while levels:
        found = next(levels[-1], None)
        if found is None:
            levels.pop()
        elif isinstance(found, _Beneath):
            levels.append(_level(txn, *found))
        else:
            yield found


class _Beneath(NamedTuple):
    """Bytes that the base shows."""

    base: bytes
    generation: int
    start: int
    end: int


class Row(NamedTuple):
    """An interval, whether the newest generation shows it or not."""

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
) -> Iterator[Part | _Beneath]:
    """What one map shows by itself, and where it has nothing of its own."""
    record = get_map(txn, map_id)
    rows: Iterable[Row] = current_rows(txn, map_id, start, end)
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
                    yield Part(at, at, None)
            continue
        first, last = max(row.offset, start), min(row.end, end)
        if first > at:
            yield from _gap(record, at, first)
        piece, crc = cut_row(row, first, last)
        yield Part(first, last, piece, (map_id, row.born) if piece is None else None, crc)
        at = last
    if at < end:
        yield from _gap(record, at, end)


def offset_of(row: Row) -> int:
    return row.offset


def _gap(record: IntervalMap, start: int, end: int) -> Iterator[Part | _Beneath]:
    first, last = max(start, record.flattened), min(end, record.base_length)
    if record.base is None or first >= last:
        yield Part(start, end, None)
        return
    if start < first:
        yield Part(start, first, None)
    yield _Beneath(record.base, record.base_generation, first, last)
    if last < end:
        yield Part(last, end, None)


def current_rows(txn: ReadTxn | WriteTxn, map_id: bytes, start: int, end: int) -> Iterator[Row]:
    """The intervals of the newest generation that lie between two offsets, in order."""
    span = Span(INTERVALS.pack((map_id, 0)), INTERVALS.pack((map_id, start)))
    for (_, offset), found in txn.scan(INTERVALS, span, 1, reverse=True):
        if offset + found.length > start:
            yield Row(offset, found.born, found.length, found.piece, None, found.crc)
    span = Span(span.stop, INTERVALS.pack((map_id, end)))
    limit = _ROWS_PER_FIRST_SCAN
    while True:
        rows = txn.scan(INTERVALS, span, limit)
        for (_, offset), found in rows:
            yield Row(offset, found.born, found.length, found.piece, None, found.crc)
        if len(rows) < limit:
            return
        span = INTERVALS.after(span, rows[-1][0])
        limit = min(4 * limit, ROWS_PER_SCAN)


def former_rows(
    txn: ReadTxn | WriteTxn, map_id: bytes, longest: int, start: int, end: int
) -> Iterator[Row]:
    """The intervals that older generations show between two offsets, in order."""
    first = max(0, start - longest)
    pack = FORMER_INTERVALS.pack
    span = Span(pack((map_id, first, 0)), pack((map_id, end, 0)))
    while True:
        rows = txn.scan(FORMER_INTERVALS, span, ROWS_PER_SCAN)
        for (_, offset, born), found in rows:
            if offset + found.length > start:
                yield Row(offset, born, found.length, found.piece, found.ended, found.crc)
        if len(rows) < ROWS_PER_SCAN:
            return
        span = FORMER_INTERVALS.after(span, rows[-1][0])
