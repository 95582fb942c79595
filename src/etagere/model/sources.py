"""Blobs of this store that other blobs are created from."""

from __future__ import annotations

from etagere.model.base import Command, Part
from etagere.model.blobs import BlobName, BlobRef, PutBlob


class SourceBlob(Part, frozen=True):
    """A version of a blob or snapshot, as a request found it."""

    blob: BlobName
    snapshot: int | None
    stamp: int
    """Identifies the version: a blob with another stamp has other bytes."""

    @property
    def ref(self) -> BlobRef:
        return BlobRef(self.blob, self.snapshot)


class PutBlobFromBlob(Command, frozen=True):
    """Create a blob with the bytes of another, or replace one."""

    put: PutBlob
    """The command, whose body and kind are ignored."""
    source: SourceBlob


class FindPieces(Command, frozen=True):
    """Find the pieces of a range of a blob."""

    source: SourceBlob
    start: int
    length: int
