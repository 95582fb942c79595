"""Changes to interval maps, the contents of page and append blobs.

These functions are steps of operations, as in `contents`. A content that is the only holder of the
newest generation is changed in place. If the generation is shared, the change begins a new
generation, and the intervals that other holders still see become former intervals. A change of an
older generation begins a child map. So does a change that covers very many intervals, because other
requests would have to wait: they are released later, in steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from awscrt.checksums import crc64nvme
from msgspec.structs import replace

from etagere.bodies.contents import add_reference, add_references, create_extents, drop_references
from etagere.bodies.maps import (
    FORMER_INTERVALS,
    GENERATIONS,
    INTERVAL_MAPS,
    INTERVALS,
    MAPS_TO_FLATTEN,
    IntervalRow,
    MapPart,
    MissingRecord,
    current_rows,
    cut,
    cut_row,
    get_map,
    holders,
    is_held,
    parts,
)
from etagere.config import KIB
from etagere.engine.interface import EXCLUSIVE, ReadTxn, WriteTxn
from etagere.model.bodies import (
    FormerInterval,
    Holders,
    Interval,
    IntervalMap,
    Mapped,
    MapToFlatten,
    Piece,
)

INLINE_INTERVAL_BYTES_MAX = 7 * KIB
"""An inline interval grows up to this length. It then still fits into a database page, which is
written in any case."""
ROWS_AT_ONCE_MAX = 500
"""More intervals than this are not removed in one transaction."""

# Changing


def begin(txn: WriteTxn, map_id: bytes, length: int) -> Mapped:
    """Creates a map that consists of one hole and has one holder."""
    txn.put(INTERVAL_MAPS, (map_id,), IntervalMap(newest=1, family=map_id))
    txn.put(GENERATIONS, (map_id, 1), Holders(1))
    return Mapped(map_id, length, 1)


def write(
    txn: WriteTxn, content: Mapped, offset: int, pieces: Iterable[Piece], child_id: bytes
) -> Mapped:
    """Writes new pieces at an offset. The content grows if they reach beyond its end. `child_id` is
    the id of the child map, if one has to be created."""
    pieces = tuple(pieces)
    changed = write_uncounted(txn, content, offset, pieces, child_id)
    create_extents(txn, pieces)
    return changed


def append(txn: WriteTxn, content: Mapped, pieces: Iterable[Piece], child_id: bytes) -> Mapped:
    """Writes new pieces at the end."""
    return write(txn, content, content.length, pieces, child_id)


def write_shared(
    txn: WriteTxn, content: Mapped, offset: int, pieces: Iterable[Piece], child_id: bytes
) -> Mapped:
    """Writes pieces that other contents hold too: each gets another reference."""
    pieces = tuple(pieces)
    add_references(txn, pieces)
    return write_uncounted(txn, content, offset, pieces, child_id)


def write_inline(
    txn: WriteTxn, content: Mapped, offset: int, data: bytes, child_id: bytes
) -> Mapped:
    """Writes bytes at an offset as an inline interval, stored in the ledger. Contents that are
    compared by `changes` must not have any: inline intervals do not record when they were written.
    """
    if not data:
        return content
    end = offset + len(data)
    writable = _writable_map(txn, content, offset, end, child_id)
    _remove_range(txn, writable, offset, end)
    content = writable.content
    before = _appendable_tail(txn, content, offset, data)
    start, grown, crc = offset, data, crc64nvme(data)
    if before is not None:
        start, grown = content.tail, before.piece + data
        # Continued from the stored checksum, so that damage to the stored bytes stays detectable.
        crc = crc64nvme(grown) if before.crc is None else crc64nvme(data, before.crc)
    interval = Interval(grown, end - start, content.generation, crc)
    txn.put(INTERVALS, (content.id, start), interval)
    return replace(
        content,
        length=max(content.length, end),
        folded=min(content.folded, offset) if content.inline_bytes else offset,
        inline_bytes=content.inline_bytes + len(data),
        inline_intervals=content.inline_intervals + 1
        if before is None
        else content.inline_intervals,
        tail=start,
    )


class _InlineInterval(NamedTuple):
    """The bytes of an inline interval and their checksum, if it has one."""

    piece: bytes
    crc: int | None


def _appendable_tail(
    txn: WriteTxn, content: Mapped, offset: int, data: bytes
) -> _InlineInterval | None:
    """Returns the last inline interval if these bytes can be appended to it."""
    last = txn.get(INTERVALS, (content.id, content.tail))
    if (
        last is not None
        and isinstance(last.piece, bytes)
        and last.born == content.generation
        and content.tail + last.length == offset
        and last.length + len(data) <= INLINE_INTERVAL_BYTES_MAX
    ):
        return _InlineInterval(last.piece, last.crc)
    return None


def clear(txn: WriteTxn, content: Mapped, start: int, end: int, child_id: bytes) -> Mapped:
    """Replaces a range by a hole."""
    end = min(end, content.length)
    if start >= end:
        return content
    writable = _writable_map(txn, content, start, end, child_id)
    _clear_range(txn, writable, start, end)
    return writable.content


def resize(txn: WriteTxn, content: Mapped, length: int, child_id: bytes) -> Mapped:
    """Sets the length. A shorter content loses the bytes beyond the new end, a longer one ends with
    a hole."""
    if length == content.length:
        return content
    end = max(length, content.length)
    writable = _writable_map(txn, content, length, end, child_id)
    if length < end:
        _clear_range(txn, writable, length, end)
    content = writable.content
    return replace(content, length=length, folded=min(length, content.folded))


def write_uncounted(
    txn: WriteTxn,
    content: Mapped,
    offset: int,
    pieces: Sequence[Piece],
    child_id: bytes,
) -> Mapped:
    """Writes pieces without changing their reference counts, which the caller does."""
    if not pieces:
        return content
    end = offset + sum([piece.length for piece in pieces])
    writable = _writable_map(txn, content, offset, end, child_id)
    _remove_range(txn, writable, offset, end)
    content = writable.content
    for piece in pieces:
        interval = Interval(piece, piece.length, content.generation)
        txn.put(INTERVALS, (content.id, offset), interval)
        offset += piece.length
    return replace(content, length=max(content.length, end))


class _WritableMap(NamedTuple):
    """A generation that only this content holds, and the intervals in the range to change."""

    content: Mapped
    record: IntervalMap
    rows: list[IntervalRow]


def _writable_map(
    txn: WriteTxn, content: Mapped, start: int, end: int, child_id: bytes
) -> _WritableMap:
    """Returns the generation to write to, creating it if the current one is shared or not the
    newest. The holder moves to it. The map is guarded against other changes."""
    # The generation is guarded first: while it is, the newest generation stays the newest.
    count = holders(txn, content)
    record = txn.get(INTERVAL_MAPS, (content.id,), EXCLUSIVE)
    if record is None:
        raise MissingRecord(f"the map {content.id.hex()}")
    rows: list[IntervalRow] = []
    # Only holes lie beyond the end of a content, so an append reads no intervals.
    end = min(end, max(content.length, record.cleared))
    if content.generation == record.newest and start < end:
        rows = list(islice(current_rows(txn, content.id, start, end), ROWS_AT_ONCE_MAX + 1))
    if content.generation != record.newest or len(rows) > ROWS_AT_ONCE_MAX:
        child = IntervalMap(1, record.family, content.id, content.generation, content.length)
        txn.put(INTERVAL_MAPS, (child_id,), child)
        txn.put(GENERATIONS, (child_id, 1), Holders(1))
        txn.put(MAPS_TO_FLATTEN, (child_id,), MapToFlatten())
        return _WritableMap(replace(content, id=child_id, generation=1), child, [])
    if count > 1:
        record = replace(record, newest=record.newest + 1)
        txn.put(INTERVAL_MAPS, (content.id,), record)
        txn.put(GENERATIONS, (content.id, content.generation), Holders(count - 1))
        txn.put(GENERATIONS, (content.id, record.newest), Holders(1))
        content = replace(content, generation=record.newest)
    return _WritableMap(content, record, rows)


def _clear_range(txn: WriteTxn, writable: _WritableMap, start: int, end: int) -> None:
    content = writable.content
    record = _remove_range(txn, writable, start, end)
    if record.base is not None:
        start, end = max(start, record.flattened), min(end, record.base_length)
    elif not is_held(txn, content.id, 0, content.generation):
        # No older generation is held, so `changes` will never ask whether this range was cleared.
        return
    if start < end:
        hidden = Interval(None, end - start, content.generation)
        txn.put(INTERVALS, (content.id, start), hidden)
        if end > record.cleared:
            txn.put(INTERVAL_MAPS, (content.id,), replace(record, cleared=end))


def _remove_range(txn: WriteTxn, writable: _WritableMap, start: int, end: int) -> IntervalMap:
    """Removes a range from the newest generation: intervals that reach beyond it are split, and
    those that older generations show are kept as former intervals. Returns the new record of the
    map."""
    content, record, rows = writable
    longest = 0
    for row in rows:
        kept = 0
        if row.offset < start:
            _put_remainder(txn, content.id, row, row.offset, start)
            kept += 1
        else:
            txn.delete(INTERVALS, (content.id, row.offset))
        if row.end > end:
            _put_remainder(txn, content.id, row, end, row.end)
            kept += 1
        matters = row.piece is not None or record.base is not None
        if (
            matters
            and row.born < content.generation
            and is_held(txn, content.id, row.born, content.generation)
        ):
            longest = max(longest, _put_former(txn, content, row, start, end))
            kept += 1
        if not isinstance(row.piece, Piece):
            continue
        if not kept:
            drop_references(txn, (row.piece,))
        for _ in range(1, kept):
            add_reference(txn, row.piece)
    if longest > record.longest:
        # Rounded up to a power of two, so that it is seldom written.
        record = replace(record, longest=1 << (longest - 1).bit_length())
        txn.put(INTERVAL_MAPS, (content.id,), record)
    return record


def _put_remainder(txn: WriteTxn, map_id: bytes, row: IntervalRow, start: int, end: int) -> None:
    piece, crc = cut_row(row, start, end)
    txn.put(INTERVALS, (map_id, start), Interval(piece, end - start, row.born, crc))


def _put_former(txn: WriteTxn, content: Mapped, row: IntervalRow, start: int, end: int) -> int:
    start, end = max(start, row.offset), min(end, row.end)
    piece, crc = cut_row(row, start, end)
    former = FormerInterval(piece, end - start, content.generation, crc)
    txn.put(FORMER_INTERVALS, (content.id, start, row.born), former)
    return end - start


# Reading


def ranges(
    txn: ReadTxn | WriteTxn, content: Mapped, start: int, end: int, limit: int
) -> list[tuple[int, int]]:
    """Returns the written ranges in order, with adjacent ranges joined. One more than the limit
    means that there are more."""
    found: list[tuple[int, int]] = []
    for part in parts(txn, content, start, end):
        if part.piece is None:
            continue
        if found and found[-1][1] == part.start:
            found[-1] = (found[-1][0], part.end)
            continue
        if len(found) > limit:
            break
        found.append((part.start, part.end))
    return found


def changes(
    txn: ReadTxn | WriteTxn, old: Mapped, new: Mapped, start: int, end: int, limit: int
) -> list[tuple[int, int, bool]] | None:
    """Returns the ranges in which two contents differ: True for written ranges, False for holes
    that replaced data or were made since. Ranges are in order, and adjacent ones are joined. One
    more than the limit means that there are more. Returns None if the contents are not related.

    Bytes are equal if they come from the same upload at the same place. Equal bytes that were
    uploaded again count as written, and so do inline intervals. A hole that both contents have may
    count as made since if one of them was copied from another content of the family: flattening a
    map forgets where its holes come from. Reports of such holes do no harm.
    """
    if get_map(txn, old.id).family != get_map(txn, new.id).family:
        return None
    end = min(end, new.length)
    found: list[tuple[int, int, bool]] = []
    for before, after in _side_by_side(parts(txn, old, start, end), parts(txn, new, start, end)):
        if before is not None and _is_same(before.piece, after.piece):
            continue
        if after.piece is None and (before is None or before.piece is None):
            was_cleared = None if before is None else before.cleared
            if after.cleared is None or after.cleared == was_cleared:
                continue
        written = after.piece is not None
        if found and found[-1][1:] == (after.start, written):
            found[-1] = (found[-1][0], after.end, written)
            continue
        if len(found) > limit:
            break
        found.append((after.start, after.end, written))
    return found


def _side_by_side(
    old: Iterator[MapPart], new: Iterator[MapPart]
) -> Iterator[tuple[MapPart | None, MapPart]]:
    """Yields the parts of both contents, split at the same offsets. The old one may end first."""
    before = next(old, None)
    for after in new:
        at = after.start
        while at < after.end:
            while before is not None and before.end <= at:
                before = next(old, None)
            stop = after.end if before is None else min(after.end, before.end)
            yield (
                _between(before, at, stop),
                MapPart(at, stop, cut(after.piece, at - after.start, stop - at), after.cleared),
            )
            at = stop


def _between(part: MapPart | None, start: int, end: int) -> MapPart | None:
    if part is None:
        return None
    return MapPart(start, end, cut(part.piece, start - part.start, end - start), part.cleared)


def _is_same(one: Piece | bytes | None, other: Piece | bytes | None) -> bool:
    return (
        isinstance(one, Piece)
        and isinstance(other, Piece)
        and one.extent == other.extent
        and one.skip == other.skip
    )
