"""Maintenance of interval maps, in bounded steps: removes intervals that no held generation shows,
and copies the visible parts of bases into their children, so that the bases can be removed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import islice

from msgspec.structs import replace

from etagere.bodies.contents import add_reference, drop_references
from etagere.bodies.maps import (
    END,
    FORMER_INTERVALS,
    INTERVAL_MAPS,
    INTERVALS,
    MAPS_TO_FLATTEN,
    MAPS_TO_REAP,
    IntervalRow,
    MapPart,
    current_rows,
    cut_part,
    former_rows,
    is_held,
    offset_of,
    release_generation,
    walk,
)
from etagere.engine.interface import EXCLUSIVE, SHARED, WriteTxn, operation
from etagere.model.base import Command
from etagere.model.bodies import FormerInterval, Interval, IntervalMap, MapToReap, Piece

_SEARCHED_PER_DROPPED = 8
"""Reading an interval costs a fraction of what removing it does."""

# Removing intervals


def reap_intervals(txn: WriteTxn, rows_max: int) -> int:
    """Searches a map of which a generation was released, until this many intervals were removed or
    several times as many were read. Returns 0 if there is no such map."""
    for (map_id,), progress in txn.scan(MAPS_TO_REAP, MAPS_TO_REAP.all(), 1, claim=True):
        # Changes of the map guard this record too, so an interval that is kept for a generation
        # that is released meanwhile is found when that generation is reaped.
        record = txn.get(INTERVAL_MAPS, (map_id,), EXCLUSIVE)
        rest: MapToReap | None
        if progress.former:
            rest = _reap_former(txn, map_id, progress, rows_max)
        else:
            rest = _reap_current(txn, map_id, record, progress, rows_max)
        if rest is not None:
            txn.put(MAPS_TO_REAP, (map_id,), rest)
        elif progress.again:
            txn.put(MAPS_TO_REAP, (map_id,), MapToReap())
        else:
            txn.delete(MAPS_TO_REAP, (map_id,))
            if not is_held(txn, map_id):
                _forget(txn, map_id, record)
        return 1
    return 0


def _reap_former(txn: WriteTxn, map_id: bytes, progress: MapToReap, rows_max: int) -> MapToReap:
    span = FORMER_INTERVALS.under((map_id,))
    span = FORMER_INTERVALS.starting(span, (map_id, progress.offset, progress.born))
    limit = rows_max * _SEARCHED_PER_DROPPED
    rows = txn.scan(FORMER_INTERVALS, span, limit)
    seen = _Seen(txn, map_id)
    unseen = ((key, row) for key, row in rows if not seen.within(key[2], row.ended))
    gone = list(islice(unseen, rows_max))
    for key, _ in gone:
        txn.delete(FORMER_INTERVALS, key)
    _drop(txn, [row.piece for _, row in gone])
    if len(gone) == rows_max:
        _, offset, born = gone[-1][0]
        return replace(progress, offset=offset, born=born + 1)
    if len(rows) < limit:
        return MapToReap(former=False, again=progress.again)
    _, offset, born = rows[-1][0]
    return replace(progress, offset=offset, born=born + 1)


def _reap_current(
    txn: WriteTxn, map_id: bytes, record: IntervalMap | None, progress: MapToReap, rows_max: int
) -> MapToReap | None:
    newest = END - 1 if record is None else record.newest
    if is_held(txn, map_id, newest, newest + 1):
        return None
    span = INTERVALS.starting(INTERVALS.under((map_id,)), (map_id, progress.offset))
    limit = rows_max * _SEARCHED_PER_DROPPED
    rows = txn.scan(INTERVALS, span, limit)
    seen = _Seen(txn, map_id)
    unseen = ((key, row) for key, row in rows if not seen.within(row.born, newest + 1))
    gone = list(islice(unseen, rows_max))
    for key, _ in gone:
        txn.delete(INTERVALS, key)
    _drop(txn, [row.piece for _, row in gone])
    if len(gone) == rows_max:
        return replace(progress, offset=gone[-1][0][1] + 1)
    return None if len(rows) < limit else replace(progress, offset=rows[-1][0][1] + 1)


def _forget(txn: WriteTxn, map_id: bytes, record: IntervalMap | None) -> None:
    """Removes an empty map, and releases its base."""
    txn.delete(INTERVAL_MAPS, (map_id,))
    txn.delete(MAPS_TO_FLATTEN, (map_id,))
    if record is not None and record.base is not None:
        release_generation(txn, record.base, record.base_generation)


class _Seen:
    """Remembers which generations are held, so that each is looked up once."""

    def __init__(self, txn: WriteTxn, map_id: bytes) -> None:
        self._txn = txn
        self._map_id = map_id
        self._known: dict[tuple[int, int], bool] = {}

    def within(self, first: int, stop: int) -> bool:
        held = self._known.get((first, stop))
        if held is None:
            held = self._known[first, stop] = is_held(self._txn, self._map_id, first, stop)
        return held


def _drop(txn: WriteTxn, intervals: Iterable[Piece | bytes | None]) -> None:
    """Removes the references of intervals. Holes and inline intervals have none."""
    drop_references(txn, [piece for piece in intervals if isinstance(piece, Piece)])


# Flattening


class Flatten(Command, frozen=True):
    parts_max: int = 64


@operation
def flatten(txn: WriteTxn, command: Flatten) -> int:
    """Copies a part of the base of one map into it; returns 0 if no map has a base."""
    for (map_id,), _ in txn.scan(MAPS_TO_FLATTEN, MAPS_TO_FLATTEN.all(), 1, claim=True):
        record = txn.get(INTERVAL_MAPS, (map_id,), EXCLUSIVE)
        if (
            record is None
            or record.base is None
            or not is_held(txn, map_id)
            or not _guard_bases(txn, record.base)
        ):
            txn.delete(MAPS_TO_FLATTEN, (map_id,))
            return 1
        record = _copy_some(txn, map_id, record, record.base, command.parts_max)
        if record.flattened >= record.base_length:
            assert record.base is not None
            release_generation(txn, record.base, record.base_generation)
            record = replace(record, base=None, base_generation=0, base_length=0, flattened=0)
            txn.delete(MAPS_TO_FLATTEN, (map_id,))
        txn.put(INTERVAL_MAPS, (map_id,), record)
        return 1
    return 0


def _guard_bases(txn: WriteTxn, base: bytes | None) -> bool:
    """Guards all bases while they are read: an interval that ends meanwhile would be found twice,
    or not at all. Returns whether all exist; nothing can be copied from damaged ones."""
    while base is not None:
        record = txn.get(INTERVAL_MAPS, (base,), SHARED)
        if record is None:
            return False
        base = record.base
    return True


def _copy_some(
    txn: WriteTxn, map_id: bytes, record: IntervalMap, base: bytes, parts_max: int
) -> IntervalMap:
    began = at = record.flattened
    shown = walk(txn, base, record.base_generation, began, record.base_length)
    for count, part in enumerate(shown):
        if count >= parts_max and at > began:
            break
        if part.piece is None:
            at = part.end
            continue
        at, longest = _copy(txn, map_id, record, part, parts_max)
        if longest > record.longest:
            record = replace(record, longest=longest)
        if at < part.end:
            break
    return replace(record, flattened=at)


def _copy(
    txn: WriteTxn, map_id: bytes, record: IntervalMap, part: MapPart, rows_max: int
) -> tuple[int, int]:
    """Copies a part of the base into the generations of the map that show it: from the first up to
    the one that has an interval of its own there. Returns the offset it reached, and the length of
    the longest former interval it created."""
    own = merge(
        current_rows(txn, map_id, part.start, part.end),
        former_rows(txn, map_id, record.longest, part.start, part.end),
        key=offset_of,
    )
    rows = list(islice(own, rows_max))
    reach = part.end
    if len(rows) == rows_max:
        if rows[-1].offset > part.start:
            reach = rows[-1].offset
        else:
            rows += own
    longest = 0
    for start, end, first_own in _gaps(rows, part.start, reach):
        if first_own is not None and not is_held(txn, map_id, 0, first_own):
            continue
        piece, crc = cut_part(part, start, end)
        if isinstance(piece, Piece):
            add_reference(txn, piece)
        if first_own is None:
            txn.put(INTERVALS, (map_id, start), Interval(piece, end - start, 1, crc))
        else:
            former = FormerInterval(piece, end - start, first_own, crc)
            txn.put(FORMER_INTERVALS, (map_id, start, 1), former)
            longest = max(longest, end - start)
    return reach, longest


def _gaps(rows: list[IntervalRow], start: int, end: int) -> Iterator[tuple[int, int, int | None]]:
    """Yields the ranges in which the first generation has none of these rows, each with the first
    generation that has one (or None)."""
    borders = {start, end}
    for row in rows:
        borders.update((min(max(row.offset, start), end), min(row.end, end)))
    at = start
    over: list[IntervalRow] = []
    waiting = deque(rows)
    for border in sorted(borders)[1:]:
        while waiting and waiting[0].offset <= at:
            over.append(waiting.popleft())
        over = [row for row in over if row.end > at]
        first_own = min((row.born for row in over), default=None)
        if first_own != 1:
            yield at, border, first_own
        at = border
