"""Plans: which parts of segments, holes and bytes of the ledger make up a range of a content."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from awscrt.checksums import crc64nvme

from etagere.bodies import maps
from etagere.bodies.contents import (
    INLINE,
    MOVES,
    SEGMENTS,
    BodyCorrupt,
    MissingRecord,
    blocks_in,
    chunks_of,
)
from etagere.engine.interface import ReadTxn
from etagere.model.bodies import (
    Chunked,
    Content,
    Empty,
    Inline,
    Mapped,
    Piece,
    Pieces,
    SegmentState,
)

_LONG_CHUNKS = 4
_LONG_PARTS = 256
_LONG_INLINE_BYTES = 128 * 1024


class SegmentRange(NamedTuple):
    """A range of bytes in a segment."""

    segment: int
    offset: int
    length: int
    crc: int | None


class Hole(NamedTuple):
    """Zeros that are not stored."""

    length: int


class DamagedRange(NamedTuple):
    """A range of bytes in the ledger that do not match their checksum."""

    place: str
    length: int


PlanPart = SegmentRange | Hole | bytes | DamagedRange
Plan = bytes | tuple[PlanPart, ...]
"""The bytes of a range, or the places they are in: segments, holes and, in between, bytes from the
ledger. Damage to bytes in segments is detected only when they are read."""


def require_intact(plan: Plan) -> None:
    """Raises `BodyCorrupt` for a plan that is known to be damaged."""
    for part in plan if isinstance(plan, tuple) else ():
        if isinstance(part, DamagedRange):
            raise BodyCorrupt(f"{part.place}: checksum")


def segments_of(plan: Plan) -> set[int]:
    """Returns the segments of a plan, which a pin has to keep."""
    if isinstance(plan, bytes):
        return set()
    return {part.segment for part in plan if isinstance(part, SegmentRange)}


def locate(txn: ReadTxn, content: Content, start: int = 0, length: int | None = None) -> Plan:
    """Returns the plan of a range of a content. It stays valid for readers that were pinned before
    the transaction began."""
    length = _located_length(content, start, length)
    if length <= 0 or isinstance(content, Empty):
        return b""
    if isinstance(content, Inline):
        stored = txn.get(INLINE, (content.id,))
        if stored is None:
            raise MissingRecord(f"the bytes of content {content.id.hex()}")
        if crc64nvme(stored.data) != content.crc:
            return (DamagedRange(f"the bytes of inline content {content.id.hex()}", length),)
        return stored.data[start : start + length]
    if isinstance(content, Pieces):
        return _plan(txn, content.pieces, start, length)
    if isinstance(content, Chunked):
        start, pieces = _pieces_from(txn, content, start)
        return _plan(txn, pieces, start, length)
    covering = maps.find_covering(txn, content, start, start + length)
    if covering is not None:
        return _plan(txn, (covering,), 0, length)
    parts = maps.parts(txn, content, start, start + length)
    return _plan(txn, _pieces_and_holes(content, parts), 0, length)


def try_locate(
    txn: ReadTxn, content: Content, start: int = 0, length: int | None = None
) -> Plan | None:
    """Like `locate`, but returns None if it would take long."""
    if isinstance(content, Chunked):
        is_long = len(chunks_of(txn, content)) > _LONG_CHUNKS
        return None if is_long else locate(txn, content, start, length)
    if not isinstance(content, Mapped):
        return locate(txn, content, start, length)
    length = _located_length(content, start, length)
    if length <= 0:
        return b""
    end = start + length
    covering = maps.find_covering(txn, content, start, end)
    if covering is not None:
        return _plan(txn, (covering,), 0, length)
    if min(content.inline_bytes, end - max(start, content.folded)) > _LONG_INLINE_BYTES:
        return None
    parts = list(islice(maps.parts(txn, content, start, end), _LONG_PARTS + 1))
    if len(parts) > _LONG_PARTS:
        return None
    return _plan(txn, _pieces_and_holes(content, parts), 0, length)


def _located_length(content: Content, start: int, length: int | None) -> int:
    return min(content.length - start, content.length if length is None else length)


def _plan(
    txn: ReadTxn, pieces: Iterable[Piece | Hole | bytes | DamagedRange], start: int, length: int
) -> Plan:
    plan = tuple(_segment_ranges(txn, pieces, start, length))
    return plan[0] if len(plan) == 1 and isinstance(plan[0], bytes) else plan


def _pieces_from(txn: ReadTxn, content: Chunked, start: int) -> tuple[int, Iterator[Piece]]:
    """Returns the pieces from the chunk that contains `start`, and the offset of `start` in
    them."""
    uses = chunks_of(txn, content)
    first = 0
    while first < len(uses) and start >= uses[first].length:
        start -= uses[first].length
        first += 1
    blocks = (block for use in islice(uses, first, None) for block in blocks_in(txn, use))
    return start, (piece for block in blocks for piece in block.pieces)


def _pieces_and_holes(
    content: Mapped, parts: Iterable[maps.MapPart]
) -> Iterator[Piece | Hole | bytes | DamagedRange]:
    """Yields the parts of a map, with adjacent holes joined, and adjacent inline bytes."""
    hole = 0
    inline: list[bytes] = []
    for part in parts:
        if part.start == part.end:
            continue
        if hole and part.piece is not None:
            yield Hole(hole)
            hole = 0
        if inline and not isinstance(part.piece, bytes):
            yield b"".join(inline)
            inline.clear()
        if part.piece is None:
            hole += part.end - part.start
        elif not isinstance(part.piece, bytes):
            yield part.piece
        elif maps.is_intact(part):
            inline.append(part.piece)
        else:
            if inline:
                yield b"".join(inline)
                inline.clear()
            place = f"the inline interval at {part.start} of map {content.id.hex()}"
            yield DamagedRange(place, part.end - part.start)
    if hole:
        yield Hole(hole)
    if inline:
        yield b"".join(inline)


def _segment_ranges(
    txn: ReadTxn, pieces: Iterable[Piece | Hole | bytes | DamagedRange], start: int, length: int
) -> Iterator[PlanPart]:
    stays: dict[int, bool] = {}
    for piece in pieces:
        if not isinstance(piece, Piece):
            yield piece
            continue
        if start >= piece.length:
            start -= piece.length
            continue
        if piece.segment not in stays:
            segment = txn.get(SEGMENTS, (piece.segment,))
            stays[piece.segment] = segment is not None and segment.state != SegmentState.RETIRED
        place = piece.extent
        if not stays[piece.segment] and (move := txn.get(MOVES, place)) is not None:
            place = move.segment, move.offset
        count = min(piece.length - start, length)
        whole = count == piece.length
        offset = place[1] + piece.skip + start
        yield SegmentRange(place[0], offset, count, piece.crc if whole else None)
        length -= count
        start = 0
        if not length:
            return
