"""Recounts the references that the records of the blob service hold, and compares them with the
stored counts.

The audit behind `etagere check` reads only SQLite, and knows contents but no staged blocks; this
walks any engine, starting from the holders."""

from __future__ import annotations

from collections import Counter
from typing import Any

from etagere.bodies.contents import (
    BLOCK_LISTS,
    CHUNK_SHARERS,
    CHUNKS,
    CONTENT_SHARERS,
    CONTENTS_TO_REAP,
    EXTENTS,
    HOLDERS,
    INLINE,
    UNCOUNTED_DEAD,
)
from etagere.bodies.maps import FORMER_INTERVALS, GENERATIONS, INTERVAL_MAPS, INTERVALS
from etagere.clock import TICKS_PER_SECOND
from etagere.engine.interface import ReadTxn
from etagere.engine.records import Collection
from etagere.model.bodies import Chunked, Content, Empty, Inline, Mapped, Piece, Pieces
from etagere.operations.blob.collections import (
    BLOBS,
    DISCARDED_STAGINGS,
    SNAPSHOTS,
    STAGED_BLOCKS,
    STAGING_AGES,
    STAGINGS,
)

_ROWS_MAX = 100_000
_TICKS_PER_HOUR = 3600 * TICKS_PER_SECOND


def rows(txn: ReadTxn, collection: Collection[Any, Any]) -> dict[Any, Any]:
    return dict(txn.scan(collection, collection.all(), _ROWS_MAX))


def require_balanced(txn: ReadTxn, _: None) -> None:
    """Checks that every content, chunk and extent has as many holders as its count says."""
    contents: list[Content] = []
    pieces: list[Piece] = []
    for holder in HOLDERS:
        for record in rows(txn, holder.collection).values():
            contents += [held for held in holder.contents(record) if not isinstance(held, Empty)]
            pieces += holder.pieces(record)
    pieces += _require_maps(txn, [content for content in contents if isinstance(content, Mapped)])
    contents = [content for content in contents if not isinstance(content, Mapped)]
    held = {_id(content): content for content in contents}
    assert _sharers(txn, CONTENT_SHARERS) == _extra([(_id(content),) for content in contents])
    inline = {key for key, content in held.items() if isinstance(content, Inline)}
    assert {key for (key,) in rows(txn, INLINE)} == inline
    chunks = _require_lists(txn, {k: c for k, c in held.items() if isinstance(c, Chunked)})
    for content in held.values():
        if isinstance(content, Pieces):
            pieces += content.pieces
    for chunk in chunks:
        pieces += [piece for block in chunk.blocks for piece in block.pieces]
    extents = rows(txn, EXTENTS)
    assert {e.origin or place: e.references for place, e in extents.items()} == dict(
        Counter(piece.extent for piece in pieces)
    )
    assert not extents.keys() & rows(txn, UNCOUNTED_DEAD).keys()


def _require_maps(txn: ReadTxn, held: list[Mapped]) -> list[Piece]:
    """Checks the pieces of all interval maps. Contents and child maps hold generations."""
    maps = {key: found for (key,), found in rows(txn, INTERVAL_MAPS).items()}
    bases = [(m.base, m.base_generation) for m in maps.values() if m.base is not None]
    counted = {key: found.count for key, found in rows(txn, GENERATIONS).items()}
    used = Counter([(content.id, content.generation) for content in held] + bases)
    assert counted == dict(used)
    intervals = {**rows(txn, INTERVALS), **rows(txn, FORMER_INTERVALS)}
    assert {key[0] for key in intervals} | {key for key, _ in counted} <= maps.keys()
    return [found.piece for found in intervals.values() if isinstance(found.piece, Piece)]


def _id(content: Content) -> bytes:
    assert not isinstance(content, Empty)
    return content.id


def _require_lists(txn: ReadTxn, held: dict[bytes, Chunked]) -> list[Any]:
    """Checks that the chunks are those of lists that are held or about to be reaped."""
    lists = {key: found.chunks for (key,), found in rows(txn, BLOCK_LISTS).items()}
    dying = {key for (key,) in rows(txn, CONTENTS_TO_REAP)}
    assert not dying & held.keys()
    assert dying | held.keys() == lists.keys()
    for key, content in held.items():
        assert content.length == sum(use.length for use in lists[key])
    uses = [use.key for chunks in lists.values() for use in chunks]
    assert _sharers(txn, CHUNK_SHARERS) == _extra(uses)
    chunks = rows(txn, CHUNKS)
    assert chunks.keys() == set(uses)
    return list(chunks.values())


def _extra(keys: list[Any]) -> dict[Any, int]:
    return {key: count - 1 for key, count in Counter(keys).items() if count > 1}


def _sharers(txn: ReadTxn, collection: Collection[Any, Any]) -> dict[Any, int]:
    return {key: record.extra for key, record in rows(txn, collection).items()}


def require_reachable(txn: ReadTxn, _: None) -> None:
    """Checks that every staged block can be found for use and removal, and that no snapshot is
    without its blob."""
    stagings = rows(txn, STAGINGS)
    staged = Counter(staging_id for staging_id, _ in rows(txn, STAGED_BLOCKS))
    for staging in stagings.values():
        assert staged.pop(staging.id, 0) == staging.count > 0
    assert staged.keys() <= {key for (key,) in rows(txn, DISCARDED_STAGINGS)}
    ages = {(found.staged // _TICKS_PER_HOUR, *key) for key, found in stagings.items()}
    assert rows(txn, STAGING_AGES).keys() == ages
    assert {key[:2] for key in rows(txn, SNAPSHOTS)} <= rows(txn, BLOBS).keys()


def held_records(txn: ReadTxn, _: None) -> int:
    """Counts the records of bytes that are held or not yet released."""
    kept: tuple[Collection[Any, Any], ...] = (
        INLINE,
        EXTENTS,
        CHUNKS,
        BLOCK_LISTS,
        STAGED_BLOCKS,
        INTERVAL_MAPS,
        INTERVALS,
        FORMER_INTERVALS,
        GENERATIONS,
    )
    return sum(len(rows(txn, collection)) for collection in kept)
