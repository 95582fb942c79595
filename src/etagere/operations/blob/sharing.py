"""Sharing bytes between blobs of this store instead of copying them.

A whole content gets another holder, whatever its size. Of a range, the pieces are shared.
"""

from __future__ import annotations

from etagere.bodies.contents import MissingRecord, share
from etagere.engine.interface import Refused, WriteTxn, operation
from etagere.errors import Refusal
from etagere.model.appends import AppendBlock, Appended
from etagere.model.blobs import Blob
from etagere.model.bodies import Piece
from etagere.model.page_blobs import PutPage
from etagere.model.sources import PutBlobFromBlob, SourceBlob
from etagere.operations.blob import appends, blobs, page_blobs, preconditions, staging
from etagere.operations.blob.lookup import find_for_change, find_source
from etagere.operations.sources import PIECES_GONE
from etagere.rules.page_blobs import PAGE_BYTES

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
