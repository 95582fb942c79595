"""Records and commands of copies to files."""

from __future__ import annotations

from typing import Literal, Self

from msgspec.structs import replace

from etagere.model.base import Command, Part, Record, Result
from etagere.model.bodies import Body
from etagere.model.common import ContentHeaders, Metadata
from etagere.model.copies import PendingCopyRef
from etagere.model.files import Entry, EntryPath, NewPermission, PosixChange
from etagere.model.shares import ShareName
from etagere.model.sources import SourceBlob, SourceFile

FromSource = Literal["source"]
"""Stands for the value that the source has. Only files have times, attributes, a permission and an
owner."""


class PendingFileCopy(Record, frozen=True):
    """A pending copy to (share id, directory id, folded name), and the process that runs it."""

    copy_id: bytes
    share: ShareName
    """The name of the share when the copy began."""
    process: bytes


# Commands


class CopyTimes(Part, frozen=True):
    """The times of a copy; None is the time of the copy."""

    created: int | FromSource | None = None
    written: int | FromSource | None = None
    changed: int | FromSource | None = None


class FileDestination(Part, frozen=True):
    """The destination of a copy, its preconditions, and the properties that the request sets."""

    path: EntryPath
    copy_id: bytes
    source: str
    """The URL of the source, without its token."""
    content_id: bytes
    """For the interval map of the copy, if it cannot share that of its source."""
    lease_id: bytes | None = None
    only_if_absent: bool = False
    """Whether the caller may create files, but not replace them."""
    ignore_read_only: bool = False
    metadata: Metadata = ()
    """The metadata of the copy; empty: that of the source."""
    times: CopyTimes = CopyTimes()
    attributes: int | FromSource = 0
    sets_archive: bool = False
    """Whether the copy has the attribute `Archive`, whatever `attributes` says."""
    permission: int | NewPermission | FromSource | None = None
    """None: inherited from the directory."""
    posix: PosixChange = PosixChange()
    copies_owner: bool = False
    """Whether owner and group are those of the source."""
    copies_mode: bool = False


class CopyToFile(Command, frozen=True):
    """A command that creates or replaces the destination of a copy."""

    destination: FileDestination

    def at(self, path: EntryPath) -> Self:
        """Returns the command with another form of the path of its destination."""
        return replace(self, destination=replace(self.destination, path=path))


class CopyFile(CopyToFile, frozen=True):
    """Copy a blob or file of this store, sharing its bytes."""

    source: SourceBlob | SourceFile


class PutFileCopy(CopyToFile, frozen=True):
    """Create a file from bytes that were read from a source."""

    body: Body
    headers: ContentHeaders
    metadata: Metadata


class BeginFileCopy(CopyToFile, frozen=True):
    """Create the destination of a copy whose source is read later."""

    total: int
    headers: ContentHeaders
    metadata: Metadata
    process: bytes


class FileCopyRef(PendingCopyRef, frozen=True):
    """A pending copy and its destination."""

    share: ShareName
    share_id: bytes
    directory_id: int
    name: str
    """The folded name."""

    @property
    def key(self) -> tuple[bytes, int, str]:
        return self.share_id, self.directory_id, self.name


class AbortFileCopy(Command, frozen=True):
    path: EntryPath
    copy_id: bytes
    lease_id: bytes | None = None


# Results


class BegunFileCopy(Result, frozen=True):
    entry: Entry
    copy_ref: FileCopyRef
