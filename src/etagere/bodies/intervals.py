"""Interval maps as they change: the contents of page and append blobs.

These are steps of operations, as in `contents`. Whoever is the only holder of the newest
generation changes it in place. Whoever shares it goes on in a new one, and what the others
still see is kept beside. Whoever holds an older one goes on in a child, and so does whoever
covers so many intervals at once that others would wait for it: what a child covers is taken
apart later, in steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from awscrt.checksums import crc64nvme
from msgspec.structs import replace

from etagere.bodies.contents import drop, hold, refer, refer_all
from etagere.bodies.maps import (
    FORMER_INTERVALS,
    GENERATIONS,
    INTERVAL_MAPS,
    INTERVALS,
    MAPS_TO_FLATTEN,
    MissingRecord,
    Part,
    Row,
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

INLAY_BYTES_MAX = 7 * KIB
"""Up to this length an inlay is added to: it fits into a page, which is written in any case."""
ROWS_AT_ONCE_MAX = 500
"""More intervals than this are not taken apart in one transaction."""

# Changing


def begin(txn: WriteTxn, map_id: bytes, length: int) -> Mapped:
    """A map that is one hole, held once."""
    txn.put(INTERVAL_MAPS, (map_id,), IntervalMap(newest=1, family=map_id))
    txn.put(GENERATIONS, (map_id, 1), Holders(1))
    return Mapped(map_id, length, 1)


def write(
    txn: WriteTxn, content: Mapped, offset: int, pieces: Iterable[Piece], child_id: bytes
) -> Mapped:
    """Lays freshly written pieces at an offset, over what was there. The content grows if they
    reach further. `child_id` was drawn for a child, should one have to be started."""
    pieces = tuple(pieces)
    changed = lay_counted(txn, content, offset, pieces, child_id)
    hold(txn, pieces)
    return changed


def append(txn: WriteTxn, content: Mapped, pieces: Iterable[Piece], child_id: bytes) -> Mapped:
    """Lays freshly written pieces behind the end."""
    return write(txn, content, content.length, pieces, child_id)


def lay(
    txn: WriteTxn, content: Mapped, offset: int, pieces: Iterable[Piece], child_id: bytes
) -> Mapped:
    """The same for pieces that others hold and keep: each gains a reference."""
    pieces = tuple(pieces)
    refer_all(txn, pieces)
    return lay_counted(txn, content, offset, pieces, child_id)


def inlay(txn: WriteTxn, content: Mapped, offset: int, data: bytes, child_id: bytes) -> Mapped:
    """Lays bytes themselves at an offset, to lie in the ledger. Contents that are compared must
    not have any: inlays cannot tell when they were written."""
    if not data:
        return content
    end = offset + len(data)
    going_on = _go_on(txn, content, offset, end, child_id)
    _uncover(txn, going_on, offset, end)
    content = going_on.content
    before = _grown(txn, content, offset, data)
    start, grown, crc = offset, data, crc64nvme(data)
    if before is not None:
        start, grown = content.tail, before.piece + data
        # On from its own checksum, not from what its bytes have become since.
        crc = crc64nvme(grown) if before.crc is None else crc64nvme(data, before.crc)
    inlaid = Interval(grown, end - start, content.generation, crc)
    txn.put(INTERVALS, (content.id, start), inlaid)
    return replace(
        content,
        length=max(content.length, end),
        folded=min(content.folded, offset) if content.inlaid else offset,
        inlaid=content.inlaid + len(data),
        inlays=content.inlays + 1 if before is None else content.inlays,
        tail=start,
    )


class _Inlay(NamedTuple):
    """The bytes of an inlay and their checksum, if it has one."""

    piece: bytes
    crc: int | None


def _grown(txn: WriteTxn, content: Mapped, offset: int, data: bytes) -> _Inlay | None:
    """The inlay that this one can be added to, since it is the last one and has room."""
    last = txn.get(INTERVALS, (content.id, content.tail))
    if (
        last is not None
        and isinstance(last.piece, bytes)
        and last.born == content.generation
        and content.tail + last.length == offset
        and last.length + len(data) <= INLAY_BYTES_MAX
    ):
        return _Inlay(last.piece, last.crc)
    return None


def clear(txn: WriteTxn, content: Mapped, start: int, end: int, child_id: bytes) -> Mapped:
    """Makes a hole."""
    end = min(end, content.length)
    if start >= end:
        return content
    going_on = _go_on(txn, content, start, end, child_id)
    _empty(txn, going_on, start, end)
    return going_on.content


def resize(txn: WriteTxn, content: Mapped, length: int, child_id: bytes) -> Mapped:
    """Shorter drops what lies behind; longer adds a hole."""
    if length == content.length:
        return content
    end = max(length, content.length)
    going_on = _go_on(txn, content, length, end, child_id)
    if length < end:
        _empty(txn, going_on, length, end)
    content = going_on.content
    return replace(content, length=length, folded=min(length, content.folded))


def lay_counted(
    txn: WriteTxn,
    content: Mapped,
    offset: int,
    pieces: Sequence[Piece],
    child_id: bytes,
) -> Mapped:
    """The same for pieces whose references the caller counts."""
    if not pieces:
        return content
    end = offset + sum([piece.length for piece in pieces])
    going_on = _go_on(txn, content, offset, end, child_id)
    _uncover(txn, going_on, offset, end)
    content = going_on.content
    for piece in pieces:
        laid = Interval(piece, piece.length, content.generation)
        txn.put(INTERVALS, (content.id, offset), laid)
        offset += piece.length
    return replace(content, length=max(content.length, end))


class _GoingOn(NamedTuple):
    """The generation to change, which nobody else holds, and what lies where it is to change."""

    content: Mapped
    record: IntervalMap
    rows: list[Row]


def _go_on(txn: WriteTxn, content: Mapped, start: int, end: int, child_id: bytes) -> _GoingOn:
    """Finds the generation to change in place of this one, or makes it; the hold on this one
    moves. Nobody else changes the map meanwhile."""
    # First the generation: as long as it is guarded, the newest cannot cease to be it.
    count = holders(txn, content)
    record = txn.get(INTERVAL_MAPS, (content.id,), EXCLUSIVE)
    if record is None:
        raise MissingRecord(f"the map {content.id.hex()}")
    rows: list[Row] = []
    # Behind the end of a content there are at most holes: whoever appends need not look.
    end = min(end, max(content.length, record.cleared))
    if content.generation == record.newest and start < end:
        rows = list(islice(current_rows(txn, content.id, start, end), ROWS_AT_ONCE_MAX + 1))
    if content.generation != record.newest or len(rows) > ROWS_AT_ONCE_MAX:
        child = IntervalMap(1, record.family, content.id, content.generation, content.length)
        txn.put(INTERVAL_MAPS, (child_id,), child)
        txn.put(GENERATIONS, (child_id, 1), Holders(1))
        txn.put(MAPS_TO_FLATTEN, (child_id,), MapToFlatten())
        return _GoingOn(replace(content, id=child_id, generation=1), child, [])
    if count > 1:
        record = replace(record, newest=record.newest + 1)
        txn.put(INTERVAL_MAPS, (content.id,), record)
        txn.put(GENERATIONS, (content.id, content.generation), Holders(count - 1))
        txn.put(GENERATIONS, (content.id, record.newest), Holders(1))
        content = replace(content, generation=record.newest)
    return _GoingOn(content, record, rows)


def _empty(txn: WriteTxn, going_on: _GoingOn, start: int, end: int) -> None:
    content = going_on.content
    record = _uncover(txn, going_on, start, end)
    if record.base is not None:
        start, end = max(start, record.flattened), min(end, record.base_length)
    elif not is_held(txn, content.id, 0, content.generation):
        # Nobody has an older content, so nobody will ask whether this was cleared since.
        return
    if start < end:
        hidden = Interval(None, end - start, content.generation)
        txn.put(INTERVALS, (content.id, start), hidden)
        if end > record.cleared:
            txn.put(INTERVAL_MAPS, (content.id,), replace(record, cleared=end))


def _uncover(txn: WriteTxn, going_on: _GoingOn, start: int, end: int) -> IntervalMap:
    """Takes what lies between two offsets out of the newest generation. What reaches over the
    ends is split. What older generations show is kept for them. Returns the map as it is then."""
    content, record, rows = going_on
    longest = 0
    for row in rows:
        kept = 0
        if row.offset < start:
            _put_rest(txn, content.id, row, row.offset, start)
            kept += 1
        else:
            txn.delete(INTERVALS, (content.id, row.offset))
        if row.end > end:
            _put_rest(txn, content.id, row, end, row.end)
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
            drop(txn, (row.piece,))
        for _ in range(1, kept):
            refer(txn, row.piece)
    if longest > record.longest:
        # A power of two, so that this is seldom written.
        record = replace(record, longest=1 << (longest - 1).bit_length())
        txn.put(INTERVAL_MAPS, (content.id,), record)
    return record


def _put_rest(txn: WriteTxn, map_id: bytes, row: Row, start: int, end: int) -> None:
    piece, crc = cut_row(row, start, end)
    txn.put(INTERVALS, (map_id, start), Interval(piece, end - start, row.born, crc))


def _put_former(txn: WriteTxn, content: Mapped, row: Row, start: int, end: int) -> int:
    start, end = max(start, row.offset), min(end, row.end)
    piece, crc = cut_row(row, start, end)
    former = FormerInterval(piece, end - start, content.generation, crc)
    txn.put(FORMER_INTERVALS, (content.id, start, row.born), former)
    return end - start


# Showing


def ranges(
    txn: ReadTxn | WriteTxn, content: Mapped, start: int, end: int, limit: int
) -> list[tuple[int, int]]:
    """Where something was written, in order, neighbours as one; one more than the limit says
    that there are more."""
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
    """Where the new content has other bytes than the old one: written (True), or a hole where
    there was something, or that was made since (False). In order, neighbours as one; one more
    than the limit says that there are more. None if the two have nothing to do with each other.

    Bytes are the same if they are those that were uploaded at the same time. Whether equal
    ones were uploaded again does not matter: they count as written. So do inlays, always.
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


def _side_by_side(old: Iterator[Part], new: Iterator[Part]) -> Iterator[tuple[Part | None, Part]]:
    """The parts of both, cut so that they match. The old may end first."""
    before = next(old, None)
    for after in new:
        at = after.start
        while at < after.end:
            while before is not None and before.end <= at:
                before = next(old, None)
            stop = after.end if before is None else min(after.end, before.end)
            yield (
                _between(before, at, stop),
                Part(at, stop, cut(after.piece, at - after.start, stop - at), after.cleared),
            )
            at = stop


def _between(part: Part | None, start: int, end: int) -> Part | None:
    if part is None:
        return None
    return Part(start, end, cut(part.piece, start - part.start, end - start), part.cleared)


def _is_same(one: Piece | bytes | None, other: Piece | bytes | None) -> bool:
    return (
        isinstance(one, Piece)
        and isinstance(other, Piece)
        and one.extent == other.extent
        and one.skip == other.skip
    )
