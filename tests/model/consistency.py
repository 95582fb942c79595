"""Recounts all references and compares them with the counts in the ledger.

This knows the sample service of the tests and not how counts are kept: it starts from the objects
and walks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from awscrt.checksums import crc64nvme

from etagere.bodies.contents import (
    BLOCK_LISTS,
    CHUNK_SHARERS,
    CHUNKS,
    CONTENT_SHARERS,
    CONTENTS_TO_REAP,
    COUNTED_DEAD,
    DEAD_TOTALS,
    EXTENTS,
    INLINE,
    MOVES,
    SEGMENTS,
    UNCOUNTED_DEAD,
)
from etagere.bodies.objects.names import object_name, offset_in_object
from etagere.bodies.segment_files import segment_path
from etagere.engine.interface import ReadTxn
from etagere.engine.records import Collection
from etagere.model.bodies import Chunked, Empty, Inline, Pieces, SegmentState
from tests.bodies.objects import OBJECTS, STAGED

_ROWS_MAX = 1_000_000

OBJECTS_NAME = "objects"
"""The directory of the bodies, if they are in an object store."""


def rows(txn: ReadTxn, collection: Collection[Any, Any]) -> dict[Any, Any]:
    return dict(txn.scan(collection, collection.all(), _ROWS_MAX))


def require_empty(txn: ReadTxn, _: None) -> None:
    """Checks that nothing is left of any content."""
    for collection in (
        INLINE,
        BLOCK_LISTS,
        CHUNKS,
        CONTENT_SHARERS,
        CHUNK_SHARERS,
        CONTENTS_TO_REAP,
        EXTENTS,
        MOVES,
    ):
        assert rows(txn, collection) == {}, collection


def require_balanced(txn: ReadTxn, directory: Path | None) -> None:
    """Checks every count and, with a directory, the bytes on disk."""
    contents: Counter[bytes] = Counter()
    kinds = {}
    for stored in rows(txn, OBJECTS).values():
        if not isinstance(stored.content, Empty):
            contents[stored.content.id] += 1
            kinds[stored.content.id] = stored.content
    assert _extra(contents) == _stored(txn, CONTENT_SHARERS)
    inline = [content for content in kinds.values() if isinstance(content, Inline)]
    assert {(content.id,) for content in inline} == set(rows(txn, INLINE))
    chunks = _count_chunks(txn, [key for key, kind in kinds.items() if isinstance(kind, Chunked)])
    pieces = [piece for content in kinds.values() if isinstance(content, Pieces)
              for piece in content.pieces]  # fmt: skip
    for waiting in rows(txn, STAGED).values():
        pieces += [piece for block in waiting.blocks for piece in block.pieces]
    stored_chunks = rows(txn, CHUNKS)
    assert set(stored_chunks) == set(chunks)
    for chunk in stored_chunks.values():
        pieces += [piece for block in chunk.blocks for piece in block.pieces]
    _require_extents(txn, Counter(piece.extent for piece in pieces))
    _require_segments(txn, directory)


def _count_chunks(txn: ReadTxn, referenced: Iterable[bytes]) -> Counter[tuple[bytes, int]]:
    lists = rows(txn, BLOCK_LISTS)
    dying = {key for (key,) in rows(txn, CONTENTS_TO_REAP)}
    assert not dying & set(referenced)
    assert dying | set(referenced) == {key for (key,) in lists}
    chunks = Counter(use.key for blocks in lists.values() for use in blocks.chunks)
    assert _extra(chunks) == _stored(txn, CHUNK_SHARERS)
    return chunks


def _extra(counts: Counter[Any]) -> dict[Any, int]:
    return {key: count - 1 for key, count in counts.items() if count > 1}


def _stored(txn: ReadTxn, collection: Collection[Any, Any]) -> dict[Any, int]:
    records = rows(txn, collection)
    return {key[0] if len(key) == 1 else key: record.extra for key, record in records.items()}


def _require_extents(txn: ReadTxn, expected: Counter[tuple[int, int]]) -> None:
    extents = rows(txn, EXTENTS)
    counts = {extent.origin or place: extent.references for place, extent in extents.items()}
    assert counts == dict(expected)
    moved = {extent.origin: place for place, extent in extents.items() if extent.origin}
    moves = {key: (move.segment, move.offset) for key, move in rows(txn, MOVES).items()}
    assert moves == moved


def _require_segments(txn: ReadTxn, directory: Path | None) -> None:
    segments = {number: segment for (number,), segment in rows(txn, SEGMENTS).items()}
    covered: dict[int, list[tuple[int, int]]] = {number: [] for number in segments}
    live = rows(txn, EXTENTS)
    for (number, offset), row in (*live.items(), *rows(txn, UNCOUNTED_DEAD).items()):
        covered[number].append((offset, row.length))
    assert not rows(txn, COUNTED_DEAD)
    totals = {number: total.length for (number,), total in rows(txn, DEAD_TOTALS).items()}
    assert totals.keys() <= segments.keys()
    for number, segment in segments.items():
        is_open = segment.state is SegmentState.OPEN
        at = 0
        dead = segment.covered_bytes if is_open else segment.length
        for offset, length in sorted(covered[number]):
            assert offset >= at, f"rows of segment {number} overlap at {offset}"
            at = offset + length
            if not is_open or offset < segment.counted_to:
                dead -= length
        assert totals.get(number, 0) == dead, number
    for (number, offset), extent in live.items():
        assert segments[number].state is not SegmentState.RETIRED
        if directory is not None:
            path, start = segment_path(directory, number), offset
            if not path.parent.exists():
                name = object_name(number, offset).replace("/", "+")
                path, start = directory / OBJECTS_NAME / name, offset_in_object(offset)
            _require_bytes(path, start, extent.length, extent.crc)


def _require_bytes(path: Path, offset: int, length: int, crc: int | None) -> None:
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read(length)
    assert len(data) == length
    assert crc is None or crc64nvme(data) == crc
