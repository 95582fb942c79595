"""Reference counting of contents, chunks and extents in the ledger.

These functions are steps of operations. A reference is counted only when something is shared: a
content or chunk without a `Sharers` record has one holder, and an extent, which has a record while
it is alive, has its count in it.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec

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


# Block lists


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
