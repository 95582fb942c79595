"""Reference counting of contents, chunks and extents in the ledger, and lookup of their bytes.

These functions are steps of operations. A reference is counted only when something is shared: a
content or chunk without a `Sharers` record has one holder, and an extent, which has a record while
it is alive, has its count in it.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

import msgspec
from awscrt.checksums import crc64nvme

from etagere.bodies import maps
from etagere.bodies.chunking import Chunker, ReusableChunk
from etagere.engine.interface import EXCLUSIVE, SHARED, ReadTxn, WriteTxn
from etagere.engine.records import ID, UINT, Collection, K, Layout, R
from etagere.model.bodies import (
    Block,
    BlockList,
    Body,
    Chunk,
    Chunked,
    ChunkUse,
    Content,
    ContentToReap,
    Counter,
    DeadExtent,
    DeadTotal,
    Empty,
    Extent,
    Inline,
    InlineBytes,
    Mapped,
    Move,
    Piece,
    Pieces,
    Segment,
    SegmentState,
    Sharers,
)

INLINE: Collection[tuple[bytes], InlineBytes] = Collection(
    "inline_bodies", InlineBytes, (ID,), layout=Layout.LARGE
)
BLOCK_LISTS: Collection[tuple[bytes], BlockList] = Collection("block_lists", BlockList, (ID,))
CHUNKS: Collection[tuple[bytes, int], Chunk] = Collection(
    "chunks", Chunk, (ID, UINT), layout=Layout.LARGE
)
CONTENT_SHARERS: Collection[tuple[bytes], Sharers] = Collection("content_sharers", Sharers, (ID,))
CHUNK_SHARERS: Collection[tuple[bytes, int], Sharers] = Collection(
    "chunk_sharers", Sharers, (ID, UINT)
)
CONTENTS_TO_REAP: Collection[tuple[bytes], ContentToReap] = Collection(
    "dying_contents", ContentToReap, (ID,)
)
EXTENTS: Collection[tuple[int, int], Extent] = Collection("extents", Extent, (UINT, UINT))
MOVES: Collection[tuple[int, int], Move] = Collection("moves", Move, (UINT, UINT))
UNCOUNTED_DEAD: Collection[tuple[int, int], DeadExtent] = Collection(
    "uncounted_dead_extents", DeadExtent, (UINT, UINT)
)
"""Dead extents that no total contains yet. Sealing a segment and, afterwards, the collector count
and delete them."""
COUNTED_DEAD: Collection[tuple[int, int], DeadExtent] = Collection(
    "dead_extents", DeadExtent, (UINT, UINT)
)
"""Dead extents of segments that schema 1 wrote, which are in the totals as well."""
DEAD_TOTALS: Collection[tuple[int], DeadTotal] = Collection("dead_totals", DeadTotal, (UINT,))
SEGMENTS: Collection[tuple[int], Segment] = Collection("segments", Segment, (UINT,))
COUNTERS: Collection[tuple[int], Counter] = Collection("counters", Counter, (UINT,))

PIECES_MAX = 8
"""A content with more pieces than this is chunked, so that the record of the object stays small."""
CHUNK_PIECES_MAX = 512
_LONG_CHUNKS = 4
_LONG_PARTS = 256
_LONG_INLINE_BYTES = 128 * 1024


# Holders


class Holder(NamedTuple):
    """A collection whose records hold contents, or pieces directly (as staged blocks do)."""

    collection: Collection[Any, Any]
    contents: Callable[[Any], Iterable[Content]]
    pieces: Callable[[Any], Iterable[Piece]]


HOLDERS: list[Holder] = []
"""Every collection that holds contents or pieces, so that a check can count references."""


def declare_holder(
    collection: Collection[Any, R],
    *,
    contents: Callable[[R], Iterable[Content]] = lambda _: (),
    pieces: Callable[[R], Iterable[Piece]] = lambda _: (),
) -> None:
    """Declares the contents or pieces that the records of a collection hold."""
    HOLDERS.append(Holder(collection, contents, pieces))


# Holding


def adopt_body(txn: WriteTxn, body: Body) -> Content:
    """Returns the content of a sealed upload, with one holder: the record that stores it."""
    if not body.length:
        return Empty()
    if not body.pieces:
        txn.put(INLINE, (body.id,), InlineBytes(body.data))
        return Inline(body.id, body.length, body.crc)
    create_extents(txn, body.pieces)
    if len(body.pieces) <= PIECES_MAX:
        return Pieces(body.id, body.length, body.pieces)
    return compose(txn, body.id, [Block(b"", (piece,)) for piece in body.pieces])


def create_extents(txn: WriteTxn, pieces: Iterable[Piece]) -> None:
    """Creates the records of new extents, each with one reference."""
    segment = None
    for piece in pieces:
        if piece.segment != segment:
            segment = piece.segment
            require_open(txn, segment)
        txn.put(EXTENTS, piece.extent, Extent(piece.length, piece.crc))


def require_open(txn: WriteTxn, number: int) -> None:
    """Raises `MissingRecord` unless a segment is open, as it must be to get new references. A
    process may exit after it sent a command; when the command runs, its segment may be sealed or
    gone, or the first steps of sealing may have counted the bytes as dead."""
    segment = txn.get(SEGMENTS, (number,), SHARED)
    if segment is None or segment.closed or segment.state is not SegmentState.OPEN:
        raise MissingRecord(f"the open segment {number}: its process is gone")


def add_reference(txn: WriteTxn, piece: Piece) -> None:
    """Adds a reference to a live extent."""
    add_references(txn, (piece,))


def add_references(txn: WriteTxn, pieces: Iterable[Piece]) -> None:
    """Adds a reference to the extent of each piece."""
    uses = collections.Counter(piece.extent for piece in pieces)
    for place, extent, count in _extents(txn, uses):
        if extent is None:
            raise MissingRecord(f"the extent at {place[1]} of segment {place[0]}")
        more = msgspec.structs.replace(extent, references=extent.references + count)
        txn.put(EXTENTS, place, more)


def share(txn: WriteTxn, content: Content) -> Content:
    """Adds a holder to a content, whatever its size."""
    if isinstance(content, Mapped):
        maps.share_generation(txn, content)
    elif not isinstance(content, Empty):
        _add_sharer(txn, CONTENT_SHARERS, (content.id,))
    return content


def compose(
    txn: WriteTxn,
    content_id: bytes,
    blocks: Sequence[Block],
    *,
    base: Chunked | None = None,
    borrowed: Container[tuple[int, int]] = frozenset(),
) -> Chunked:
    """Stores a block list.

    `borrowed` are the extents that others, such as the base, hold too: each use adds a reference,
    unless it is in a chunk of the base that is shared as a whole. The first use of any other extent
    takes over its existing reference.
    """
    uses: list[ChunkUse] = []
    taken: set[tuple[int, int]] = set()
    chunker = Chunker(CHUNK_PIECES_MAX)
    for use in chunks_of(txn, base) if base is not None else ():
        chunker.offer(use, blocks_in(txn, use))
    for run in chain(chunker.add(blocks), chunker.finish()):
        if isinstance(run, ReusableChunk):
            _add_sharer(txn, CHUNK_SHARERS, run.use.key)
            uses.append(run.use)
            continue
        lent = []
        for block in run:
            for piece in block.pieces:
                if piece.extent in taken or piece.extent in borrowed:
                    lent.append(piece)
                taken.add(piece.extent)
        add_references(txn, lent)
        length = sum([block.length for block in run])
        use = ChunkUse(content_id, len(uses), length)
        txn.put(CHUNKS, use.key, Chunk(tuple(run)))
        uses.append(use)
    txn.put(BLOCK_LISTS, (content_id,), BlockList(tuple(uses)))
    return Chunked(content_id, sum(use.length for use in uses))


def begin_list(txn: WriteTxn, content_id: bytes) -> Chunked:
    """Stores an empty block list, which its holder extends in steps."""
    txn.put(BLOCK_LISTS, (content_id,), BlockList(()))
    return Chunked(content_id, 0)


def extend_list(
    txn: WriteTxn, content: Chunked, shared: Iterable[ChunkUse], blocks: Sequence[Block]
) -> Chunked:
    """Appends chunks of another list, and one new chunk of blocks that others hold too: each gets
    another reference."""
    uses = list(_block_list(txn, content).chunks)
    for use in shared:
        # The guard comes before the read: the removal of a chunk guards its sharers too.
        _add_sharer(txn, CHUNK_SHARERS, use.key)
        _chunk(txn, use)
        uses.append(use)
    if blocks:
        add_references(txn, [piece for block in blocks for piece in block.pieces])
        use = ChunkUse(content.id, len(uses), sum(block.length for block in blocks))
        txn.put(CHUNKS, use.key, Chunk(tuple(blocks)))
        uses.append(use)
    txn.put(BLOCK_LISTS, (content.id,), BlockList(tuple(uses)))
    return Chunked(content.id, sum(use.length for use in uses))


# Releasing


def release(txn: WriteTxn, content: Content) -> None:
    """Removes a holder of a content. When it was the last one, small contents are removed at once,
    and chunked and mapped ones are left to `reap`, so that no delete takes long."""
    if isinstance(content, Mapped):
        maps.release_generation(txn, content.id, content.generation)
        return
    if isinstance(content, Empty) or _drop_sharer(txn, CONTENT_SHARERS, (content.id,)):
        return
    if isinstance(content, Inline):
        txn.delete(INLINE, (content.id,))
    elif isinstance(content, Pieces):
        drop_references(txn, content.pieces)
    else:
        txn.put(CONTENTS_TO_REAP, (content.id,), ContentToReap())


def drop_references(txn: WriteTxn, pieces: Iterable[Piece]) -> None:
    """Removes a reference from the extent of each piece. An extent without references is dead.
    Missing extents are ignored, so that a damaged object can still be replaced and deleted."""
    uses = collections.Counter(piece.extent for piece in pieces)
    dead: list[tuple[tuple[int, int], int]] = []
    for place, extent, count in _extents(txn, uses):
        if extent is None:
            continue
        if extent.references > count:
            fewer = msgspec.structs.replace(extent, references=extent.references - count)
            txn.put(EXTENTS, place, fewer)
            continue
        txn.delete(EXTENTS, place)
        if extent.origin is not None:
            txn.delete(MOVES, extent.origin)
        dead.append((place, extent.length))
    mark_dead(txn, dead)


def mark_dead(txn: WriteTxn, extents: Iterable[tuple[tuple[int, int], int]]) -> None:
    """Records extents, each by its place and length, as dead. Each gets a record of its own, and
    no total is changed: releases of bytes of the same segment must not wait for each other."""
    for place, length in extents:
        txn.put(UNCOUNTED_DEAD, place, DeadExtent(length))


def add_to_dead_total(txn: WriteTxn, segment: int, length: int) -> None:
    """Counts more bytes of a segment as dead. For sealing and the collector only: it guards the
    total of the segment exclusively."""
    if length:
        total = txn.get(DEAD_TOTALS, (segment,), EXCLUSIVE)
        counted = total.length if total is not None else 0
        txn.put(DEAD_TOTALS, (segment,), DeadTotal(counted + length))


def reap_some(txn: WriteTxn, chunks_max: int) -> int:
    """Releases contents that have no holder, at most this many chunks; returns how many chunks it
    released (0: none is left)."""
    reaped = 0
    for (content_id,), _ in txn.scan(
        CONTENTS_TO_REAP, CONTENTS_TO_REAP.all(), chunks_max, claim=True
    ):
        blocks = txn.get(BLOCK_LISTS, (content_id,), EXCLUSIVE)
        rest = list(blocks.chunks) if blocks is not None else []
        while rest and reaped < chunks_max:
            _release_chunk(txn, rest.pop())
            reaped += 1
        if rest:
            txn.put(BLOCK_LISTS, (content_id,), BlockList(tuple(rest)))
            break
        txn.delete(BLOCK_LISTS, (content_id,))
        txn.delete(CONTENTS_TO_REAP, (content_id,))
        reaped = max(reaped, 1)
        if reaped >= chunks_max:
            break
    return reaped


def _release_chunk(txn: WriteTxn, use: ChunkUse) -> None:
    if _drop_sharer(txn, CHUNK_SHARERS, use.key):
        return
    drop_references(txn, [piece for block in _chunk(txn, use).blocks for piece in block.pieces])
    txn.delete(CHUNKS, use.key)


# Locating bytes


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


Plan = bytes | tuple[SegmentRange | Hole | bytes | DamagedRange, ...]
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
        is_long = len(_block_list(txn, content).chunks) > _LONG_CHUNKS
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


def blocks_of(txn: ReadTxn | WriteTxn, content: Chunked) -> Iterator[Block]:
    """Returns the blocks of a list, in order."""
    for use in chunks_of(txn, content):
        yield from blocks_in(txn, use)


def chunks_of(txn: ReadTxn | WriteTxn, content: Chunked) -> tuple[ChunkUse, ...]:
    """Returns the chunks of a list, in order."""
    return _block_list(txn, content).chunks


def blocks_in(txn: ReadTxn | WriteTxn, use: ChunkUse) -> tuple[Block, ...]:
    """Returns the blocks of a chunk, in order."""
    return _chunk(txn, use).blocks


def _pieces_from(txn: ReadTxn, content: Chunked, start: int) -> tuple[int, Iterator[Piece]]:
    """Returns the pieces from the chunk that contains `start`, and the offset of `start` in
    them."""
    uses = _block_list(txn, content).chunks
    first = 0
    while first < len(uses) and start >= uses[first].length:
        start -= uses[first].length
        first += 1
    blocks = (block for use in islice(uses, first, None) for block in _chunk(txn, use).blocks)
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
) -> Iterator[SegmentRange | Hole | bytes | DamagedRange]:
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


# Records

MissingRecord = maps.MissingRecord
BodyCorrupt = maps.BodyCorrupt


def _extents(
    txn: WriteTxn, uses: collections.Counter[tuple[int, int]]
) -> Iterator[tuple[tuple[int, int], Extent | None, int]]:
    """Returns extents, their places and how often each is used. The guard on the move of each,
    present or not, keeps it in place: the collector takes the same guard."""
    origins = sorted(uses)
    moves = txn.get_all(MOVES, origins, EXCLUSIVE)
    places = [
        origin if move is None else (move.segment, move.offset)
        for origin, move in zip(origins, moves, strict=True)
    ]
    found = txn.get_all(EXTENTS, places, EXCLUSIVE)
    return zip(places, found, [uses[origin] for origin in origins], strict=True)


def _block_list(txn: ReadTxn | WriteTxn, content: Chunked) -> BlockList:
    blocks = txn.get(BLOCK_LISTS, (content.id,))
    if blocks is None:
        raise MissingRecord(f"the block list of content {content.id.hex()}")
    return blocks


def _chunk(txn: ReadTxn | WriteTxn, use: ChunkUse) -> Chunk:
    chunk = txn.get(CHUNKS, use.key)
    if chunk is None:
        raise MissingRecord(f"chunk {use.number} of content {use.content.hex()}")
    return chunk


def _add_sharer(txn: WriteTxn, sharers: Collection[K, Sharers], key: K) -> None:
    found = txn.get(sharers, key, EXCLUSIVE)
    txn.put(sharers, key, Sharers((found.extra if found else 0) + 1))


def _drop_sharer(txn: WriteTxn, sharers: Collection[K, Sharers], key: K) -> bool:
    """Removes a sharer; returns whether there was one."""
    found = txn.get(sharers, key, EXCLUSIVE)
    if found is None:
        return False
    if found.extra > 1:
        txn.put(sharers, key, Sharers(found.extra - 1))
    else:
        txn.delete(sharers, key)
    return True
