"""Sharing bytes between blobs of this store instead of copying them.

A whole content gets another holder, whatever its size. Of a range, the pieces are shared: they
never change, so pieces that are still alive have the bytes that were seen before.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from etagere.bodies.contents import BLOCK_LISTS, CHUNKS, MissingRecord, share
from etagere.bodies.maps import cut_piece, parts
from etagere.engine.interface import ReadTxn, Refused, WriteTxn, operation
from etagere.errors import Refusal
from etagere.model.appends import AppendBlock, Appended
from etagere.model.blobs import Blob
from etagere.model.bodies import Chunked, Content, Mapped, Piece, Pieces
from etagere.model.page_blobs import PutPage
from etagere.model.sources import FindPieces, PutBlobFromBlob, SourceBlob
from etagere.operations.blob import appends, blobs, page_blobs, preconditions, staging
from etagere.operations.blob.lookup import find_blob, find_for_change, find_source
from etagere.rules.page_blobs import PAGE_BYTES

PIECES_GONE = "SourceConditionNotMet"
"""The error code for pieces that are gone."""
_BYTES_MIN = 1 << 20
"""Shorter ranges are copied: a small piece would keep a whole large extent from being removed."""
_PIECES_MAX = 64


# Whole contents


@operation
def put_blob_from_blob(txn: WriteTxn, command: PutBlobFromBlob) -> Blob | None:
    """Puts a blob with the bytes of another; returns None if the source has changed since it was
    checked."""
    put = command.put
    key, old = find_for_change(txn, put.blob)
    preconditions.check_replace(old, put, txn.steady_now)
    source = _find_unchanged(txn, command.source)
    if source is None:
        return None
    staging.discard(txn, key)
    return blobs.replace_blob(txn, key, old, put, share(txn, source.content))


def _find_unchanged(txn: WriteTxn, source: SourceBlob) -> Blob | None:
    """Returns a source, guarded; None if it has changed."""
    try:
        found = find_source(txn, source.ref)
    except Refused:
        return None
    return found if found.stamp == source.stamp else None


# Pieces of ranges


def find_pieces(txn: ReadTxn, command: FindPieces) -> tuple[Piece, ...]:
    """Returns the pieces of a range; empty if the source has changed, or if the range should be
    copied."""
    if command.length < _BYTES_MIN:
        return ()
    try:
        blob = find_blob(txn, command.source.ref)
    except Refused:
        return ()
    if blob.stamp != command.source.stamp:
        return ()
    range_ = _range(txn, blob.content, command.start, command.length)
    found = tuple(islice(range_, _PIECES_MAX + 1))
    # Bytes in the ledger and holes have no pieces.
    whole = sum(piece.length for piece in found) == command.length
    return found if whole and len(found) <= _PIECES_MAX else ()


def _range(txn: ReadTxn, content: Content, start: int, length: int) -> Iterator[Piece]:
    """Yields the pieces of a range, trimmed to it."""
    if isinstance(content, Mapped):
        for part in parts(txn, content, start, start + length):
            if isinstance(part.piece, bytes):
                return
            if part.piece is not None and part.start < part.end:
                yield part.piece
        return
    for skip, piece in _pieces_from(txn, content, start):
        count = min(piece.length - skip, length)
        yield cut_piece(piece, skip, count)
        length -= count
        if not length:
            return


def _pieces_from(txn: ReadTxn, content: Content, start: int) -> Iterator[tuple[int, Piece]]:
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
    txn: ReadTxn, content: Chunked, start: int
) -> Iterator[tuple[int, tuple[Piece, ...]]]:
    """Yields the pieces of chunks from an offset on, without reading the chunks before it."""
    listed, at = txn.get(BLOCK_LISTS, (content.id,)), 0
    for use in () if listed is None else listed.chunks:
        if at + use.length > start:
            chunk = txn.get(CHUNKS, use.key)
            blocks = () if chunk is None else chunk.blocks
            yield at, tuple(piece for block in blocks for piece in block.pieces)
        at += use.length


def are_page_aligned(pieces: tuple[Piece, ...]) -> bool:
    """Returns whether all pieces consist of whole pages."""
    return all(piece.length % PAGE_BYTES == 0 for piece in pieces)


@operation
def append_shared_block(txn: WriteTxn, command: AppendBlock) -> Appended:
    try:
        return appends.append_block(txn, command)
    except MissingRecord:
        raise Refused(Refusal(PIECES_GONE)) from None


@operation
def put_shared_page(txn: WriteTxn, command: PutPage) -> Blob:
    try:
        return page_blobs.put_page(txn, command)
    except MissingRecord:
        raise Refused(Refusal(PIECES_GONE)) from None
