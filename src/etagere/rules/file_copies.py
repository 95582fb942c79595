"""Rules for copies to files: what a copy takes from its source."""

from __future__ import annotations

from etagere.errors import Refusal
from etagere.model.blobs import CopyStatus
from etagere.model.common import Metadata
from etagere.model.file_copies import FileDestination, FromSource
from etagere.model.files import (
    Entry,
    FileNode,
    NewEntry,
    NewPermission,
    NewTimes,
    PosixChange,
    PosixOwner,
)
from etagere.rules.file_attributes import FileAttributes


def is_pending(file: FileNode) -> bool:
    return file.copied is not None and file.copied.status is CopyStatus.PENDING


def check_not_pending(file: FileNode) -> Refusal | None:
    """Refuses a file whose copy is pending: it has no bytes yet, and must not be changed."""
    return Refusal("PendingCopyOperation") if is_pending(file) else None


def new_copy(
    destination: FileDestination,
    metadata: Metadata,
    permission: int | NewPermission | None,
    source: Entry | None = None,
) -> NewEntry:
    """Returns what a copy is created with. `metadata` is that of the source, and `source` the entry
    of a file; other sources do not have the properties that only files have."""
    asked, of_source = destination.times, source.times if source is not None else None
    attributes, restores = destination.attributes, False
    if attributes == "source":
        attributes, restores = (0, False) if source is None else (source.attributes, True)
    if destination.sets_archive:
        attributes |= int(FileAttributes.ARCHIVE)
    return NewEntry(
        NewTimes(
            _time(asked.created, of_source.created if of_source else None),
            _time(asked.written, of_source.written if of_source else None),
            _time(asked.changed, of_source.changed if of_source else None),
        ),
        attributes,
        permission,
        destination.metadata or metadata,
        _posix(destination, source.posix if source is not None else None),
        restores=restores,
    )


def _time(asked: int | FromSource | None, of_source: int | None) -> int | None:
    """Returns a time; None: that of the copy."""
    return of_source if asked == "source" else asked


def _posix(destination: FileDestination, source: PosixOwner | None) -> PosixChange:
    given = destination.posix
    if source is None:
        return given
    owner = source if destination.copies_owner else given
    return PosixChange(
        owner.owner, owner.group, source.mode if destination.copies_mode else given.mode
    )
