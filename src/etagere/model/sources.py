"""Blobs and files of this store that others are created from."""

from __future__ import annotations

from etagere.model.base import Command, Part
from etagere.model.blobs import BlobName, BlobRef, PutBlob
from etagere.model.files import EntryPath


class SourceBlob(Part, frozen=True, tag="blob"):
    """A version of a blob or snapshot, as a request found it."""

    blob: BlobName
    snapshot: int | None
    stamp: int
    """Identifies the version: a blob with another stamp has other bytes."""

    @property
    def ref(self) -> BlobRef:
        return BlobRef(self.blob, self.snapshot)


class SourceFile(Part, frozen=True, tag="file"):
    """A version of a file, in a share or a snapshot of it, as a request found it."""

    path: EntryPath
    stamp: int
    """Identifies the version: a file with another stamp may have other bytes."""


StoredSource = SourceBlob | SourceFile


class PutBlobFromBlob(Command, frozen=True):
    """Create a blob with the bytes of another, or replace one."""

    put: PutBlob
    """The command, whose body and kind are ignored."""
    source: SourceBlob


class FindPieces(Command, frozen=True):
    """Find the pieces of a range of a source."""

    source: StoredSource
    start: int
    length: int
