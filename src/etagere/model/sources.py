"""Sources: blobs of this store that others are made from."""

from __future__ import annotations

from etagere.model.base import Command, Part
from etagere.model.blobs import BlobName, BlobRef, PutBlob


class SourceBlob(Part, frozen=True):
    """A blob, or what it was, as a request found it."""

    blob: BlobName
    snapshot: int | None
    stamp: int
    """Pins it: other stamp, other bytes."""

    @property
    def ref(self) -> BlobRef:
        return BlobRef(self.blob, self.snapshot)


class PutBlobFromBlob(Command, frozen=True):
    """Create a blob with the bytes of another, or replace all of one by them."""

    put: PutBlob
    """Whose body and kind do not count."""
    source: SourceBlob


class FindPieces(Command, frozen=True):
    """Tell which pieces a range of a blob lies in."""

    source: SourceBlob
    start: int
    length: int
