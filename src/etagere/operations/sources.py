"""Sources in this store, of any service: finding the state that a source names, and the pieces of
its bytes.

Pieces never change, so pieces that are still alive have the bytes that were seen before.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from etagere.bodies.contents import BLOCK_LISTS, CHUNKS
from etagere.bodies.maps import cut_piece, parts
from etagere.engine.interface import ReadTxn, Refused, WriteTxn, abort_if
from etagere.model.blobs import Blob
from etagere.model.bodies import Chunked, Content, Mapped, Piece, Pieces
from etagere.model.common import ContentHeaders, Metadata
from etagere.model.files import Entry
from etagere.model.sources import FindPieces, SourceBlob, StoredSource
from etagere.operations.blob import preconditions
from etagere.operations.blob.lookup import find_blob
from etagere.operations.blob.lookup import find_source as guard_blob
from etagere.operations.file.changes import file_node
from etagere.operations.file.tree import find_entry, find_tree, guard_source
from etagere.rules import copies as copy_rules
from etagere.rules import file_copies as file_copy_rules

PIECES_GONE: Final = "SourceConditionNotMet"
"""The error code for pieces that are gone."""
_BYTES_MIN = 1 << 20
"""Shorter ranges are copied: a small piece would keep a whole large extent from being removed."""
_PIECES_MAX = 64


# Finding


class SourceState(NamedTuple):
    """The state of a source."""

    content: Content
    headers: ContentHeaders
    metadata: Metadata
    entry: Entry | None = None
    """The entry of a file."""
    share_id: bytes = b""
    """The share of a file."""


def guard_stored(txn: WriteTxn, source: StoredSource) -> SourceState:
    """Returns the current state of a source, guarded against changes until the commit. Refuses one
    that cannot be copied."""
    if isinstance(source, SourceBlob):
        blob = guard_blob(txn, source.ref)
        abort_if(copy_rules.check_source(blob))
        abort_if(copy_rules.check_tier(blob, "", txn.steady_now))
        if source.ref.is_current:
            preconditions.check_not_incremental_copy(blob)
        return SourceState(blob.content, blob.headers, blob.metadata)
    tree, entry = guard_source(txn, source.path)
    file = file_node(entry)
    abort_if(file_copy_rules.check_not_pending(file))
    return SourceState(file.content, file.headers, entry.metadata, entry, tree.share.id)


def _find_unchanged(txn: ReadTxn, source: StoredSource) -> Content | None:
    """Returns the content of a source; None if it has changed."""
    try:
        found: Blob | Entry
        if isinstance(source, SourceBlob):
            found = find_blob(txn, source.ref)
            content = found.content
        else:
            path = source.path
            found = find_entry(txn, find_tree(txn, path.ref), path.components)
            content = file_node(found).content
    except Refused:
        return None
    return content if found.stamp == source.stamp else None


# Pieces


def find_pieces(txn: ReadTxn, command: FindPieces) -> tuple[Piece, ...]:
    """Returns the pieces of a range; empty if the source has changed, or if the range should be
    copied."""
    if command.length < _BYTES_MIN:
        return ()
    content = _find_unchanged(txn, command.source)
    if content is None:
        return ()
    return pieces_of(txn, content, command.start, command.length, _PIECES_MAX) or ()


def pieces_of(
    txn: ReadTxn | WriteTxn, content: Content, start: int, length: int, pieces_max: int
) -> tuple[Piece, ...] | None:
    """Returns the pieces of a range; None if there are more, or if they are not all of it: bytes in
    the ledger and holes have no pieces."""
    found = tuple(islice(_range(txn, content, start, length), pieces_max + 1))
    whole = sum(piece.length for piece in found) == length
    return found if whole and len(found) <= pieces_max else None


def _range(txn: ReadTxn | WriteTxn, content: Content, start: int, length: int) -> Iterator[Piece]:
    """Yields the pieces of a range, trimmed to it."""
    if isinstance(content, Mapped):
        for part in parts(txn, content, start, start + length):
            # The rest does not matter then, and there may be very many other parts without a piece.
            if not isinstance(part.piece, Piece):
                return
            yield part.piece
        return
    for skip, piece in _pieces_from(txn, content, start):
        count = min(piece.length - skip, length)
        yield cut_piece(piece, skip, count)
        length -= count
        if not length:
            return


def _pieces_from(
    txn: ReadTxn | WriteTxn, content: Content, start: int
) -> Iterator[tuple[int, Piece]]:
    """Yields the pieces of a content from the one that contains an offset, each with the number of
    its bytes before the offset."""
    runs: Iterator[tuple[int, tuple[Piece, ...]]] = iter(())
    if isinstance(content, Pieces):
        runs = iter([(0, content.pieces)])
    elif isinstance(content, Chunked):
        runs = _chunks_from(txn, content, start)
    for begin, pieces in runs:
        at = begin
        for piece in pieces:
            if at + piece.length > start:
                yield max(0, start - at), piece
            at += piece.length


def _chunks_from(
    txn: ReadTxn | WriteTxn, content: Chunked, start: int
) -> Iterator[tuple[int, tuple[Piece, ...]]]:
    """Yields the pieces of chunks from an offset on, without reading the chunks before it."""
    listed, at = txn.get(BLOCK_LISTS, (content.id,)), 0
    for use in () if listed is None else listed.chunks:
        if at + use.length > start:
            chunk = txn.get(CHUNKS, use.key)
            blocks = () if chunk is None else chunk.blocks
            yield at, tuple(piece for block in blocks for piece in block.pieces)
        at += use.length
