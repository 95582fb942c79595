"""Records and commands of directories and files.

An entry is stored under (share id, id of its directory, folded name). Every directory keeps its id
for life, so that a rename moves one record. The root directory has the id 0.

The record of a file is its entry. A file with a second hard link has a record of its own, which
stays until its last link is deleted: an entry without a name, under the id of the file. The links
are entries that have the id of the file and a `HardLinkNode`.
"""

from __future__ import annotations

from typing import Final

from etagere.model.base import Command, Part, Record
from etagere.model.blobs import Copied
from etagere.model.bodies import Body, Content
from etagere.model.common import ContentHeaders, Metadata, TimedResult
from etagere.model.leases import NO_LEASE, FileLeaseAction, Lease
from etagere.model.shares import ShareName, ShareRef

ROOT_ID: Final = 0


class FileTimes(Part, frozen=True):
    """Times of an entry as clients see and set them, in ticks of 100 ns."""

    created: int
    written: int
    changed: int
    accessed: int | None = None
    """Only if a client has set it: the server does not keep times of access. None: that of the
    creation."""


class PosixOwner(Part, frozen=True):
    """Owner, group and mode of an entry of an NFS share."""

    owner: str = "0"
    group: str = "0"
    mode: int = 0o664


class DirectoryNode(Part, frozen=True, tag=0):
    """The part of an entry that only directories have."""


class FileNode(Part, frozen=True, tag=1):
    """The part of an entry that only files have."""

    content: Content
    headers: ContentHeaders = ContentHeaders()
    lease: Lease = NO_LEASE
    copied: Copied | None = None
    links: int = 0
    """The number of links to a file with a record of its own; 0: the record is the entry."""


class SymbolicLinkNode(Part, frozen=True, tag=2):
    """The part of an entry that only symbolic links have."""

    target: str
    """The link text as the client sent it. The server does not follow links."""


class HardLinkNode(Part, frozen=True, tag=3):
    """One of the links to a file, whose record is elsewhere."""


class FormerPlaceNode(Part, frozen=True, tag=4):
    """Where a file was in earlier generations. Such an entry is only in the history, without a name
    under the id of the file; its name and directory are those that the file had."""


Node = DirectoryNode | FileNode | SymbolicLinkNode | HardLinkNode | FormerPlaceNode


class Entry(Record, frozen=True):
    """A directory, file or link."""

    name: str
    """With its case."""
    id: int
    parent_id: int
    generation: int
    """The generation of the share in which this state was written."""
    stamp: int
    """The stamp of the last change, from which the ETag is made."""
    times: FileTimes
    attributes: int
    node: Node
    permission: int = 0
    """The number of its security descriptor in the share, or that of a default descriptor."""
    metadata: Metadata = ()
    posix: PosixOwner | None = None
    """None in SMB shares."""

    @property
    def is_directory(self) -> bool:
        return isinstance(self.node, DirectoryNode)

    @property
    def link_count(self) -> int:
        """The number of names that the entry has."""
        return max(1, self.node.links) if isinstance(self.node, FileNode) else 1


class FilePermission(Record, frozen=True):
    """A security descriptor under (share id, number)."""

    descriptor: bytes
    """In its self-relative binary form."""


class FilePermissionNumber(Record, frozen=True):
    """The number of a security descriptor, under (share id, SHA-256)."""

    number: int


class FilePermissionUsage(Record, frozen=True):
    """What the security descriptors of a share take, under its id."""

    length: int
    """In bytes, as `stored_length` in the rules for permissions counts them."""


class InheritedPermission(Record, frozen=True):
    """The number of the descriptor that new entries inherit from a directory, under (share id,
    number of the directory's descriptor, 1 for directories and 0 for files)."""

    number: int


# Commands


NO_ENTRY: Final = -1
"""Instead of the ID of an entry: there is none."""


class EntryPath(Part, frozen=True):
    """A directory or file, by its path."""

    ref: ShareRef
    components: tuple[str, ...]
    """The names on the way from the root, which has none itself."""
    expected_id: int | None = None
    """The ID of the entry that the path must lead to, or `NO_ENTRY`; None: whatever is there.

    Set when the caller has checked the open handles of that entry before."""


class NewTimes(Part, frozen=True):
    """The times that a request sets; None: the time of the change."""

    created: int | None = None
    written: int | None = None
    changed: int | None = None


class NewPermission(Part, frozen=True):
    """A security descriptor that a request contains."""

    descriptor: bytes
    """In its self-relative binary form."""
    digest: bytes
    """The SHA-256 of the descriptor."""


class PosixChange(Part, frozen=True):
    """The properties of an NFS share that a request sets; None: the default, or as before."""

    owner: str | None = None
    group: str | None = None
    mode: int | None = None


class NewEntry(Part, frozen=True):
    """What a request that creates an entry says about it."""

    times: NewTimes
    attributes: int
    permission: int | NewPermission | None = None
    """The number of a descriptor of the share, or a new one; None: inherited."""
    metadata: Metadata = ()
    posix: PosixChange = PosixChange()
    restores: bool = False
    """Whether the attributes are stored exactly as they are, without `Archive`."""


class CreateDirectory(Command, frozen=True):
    path: EntryPath
    new: NewEntry


class CreateFile(Command, frozen=True):
    """Create a file of zeros, or replace all of one."""

    path: EntryPath
    new: NewEntry
    content_id: bytes
    length: int
    headers: ContentHeaders = ContentHeaders()
    lease_id: bytes | None = None
    body: Body | None = None
    """The first bytes, where the request has some."""
    only_if_absent: bool = False
    """Whether the caller may create files, but not replace them."""


class OverwriteFile(Command, frozen=True):
    """Truncate a file to zero length and set its attributes; its metadata and headers stay."""

    path: EntryPath
    attributes: int
    """A hidden or system file is overwritten only if these include the same attribute."""
    supersedes: bool = False
    """Whether it gets a new creation time as well."""


class CreateSymbolicLink(Command, frozen=True):
    path: EntryPath
    new: NewEntry
    target: str
    lease_id: bytes | None = None


class CreateHardLink(Command, frozen=True):
    """Give a file of the same share another name."""

    path: EntryPath
    target: tuple[str, ...]
    """The path of the file."""
    lease_id: bytes | None = None
    """That of the file."""


class GetEntry(Command, frozen=True):
    path: EntryPath
    lease_id: bytes | None = None


class DeleteEntry(Command, frozen=True):
    path: EntryPath
    is_directory: bool
    lease_id: bytes | None = None


class SetEntryMetadata(Command, frozen=True):
    path: EntryPath
    is_directory: bool
    metadata: Metadata
    lease_id: bytes | None = None


PRESERVE_TIME: Final = -(1 << 62)
"""Before any time of a file: the time stays as it is."""


class ChangedTimes(Part, frozen=True):
    """The times that a request changes; None is the time of the change."""

    created: int | None = PRESERVE_TIME
    written: int | None = PRESERVE_TIME
    changed: int | None = None
    accessed: int = PRESERVE_TIME


class SetEntryProperties(Command, frozen=True):
    """Change the properties that are named; None leaves a property as it is."""

    path: EntryPath
    is_directory: bool
    times: ChangedTimes = ChangedTimes()
    attributes: int | None = None
    permission: int | NewPermission | None = None
    posix: PosixChange = PosixChange()
    headers: ContentHeaders | None = None
    length: int | None = None
    child_id: bytes = b""
    """For the interval map of the file, if it has to be separated from that of a copy."""
    lease_id: bytes | None = None
    ignore_read_only: bool = False
    """Whether the properties of a read-only file may be changed without setting its attributes, as
    in Windows."""


class RenameEntry(Command, frozen=True):
    """Move an entry to another name, directory, or both, within its share."""

    source: EntryPath
    destination: EntryPath
    is_directory: bool
    replace: bool = False
    ignore_read_only: bool = False
    source_lease_id: bytes | None = None
    destination_lease_id: bytes | None = None
    times: ChangedTimes = ChangedTimes()
    attributes: int | None = None
    permission: int | NewPermission | None = None
    metadata: Metadata | None = None
    only_if_absent: bool = False
    """Whether the caller may create files at the destination, but not replace them."""
    content_type: str | None = None


class LeaseFile(Command, frozen=True):
    path: EntryPath
    action: FileLeaseAction


class PutRange(Command, frozen=True):
    """Write bytes over those of a file, within its length."""

    path: EntryPath
    start: int
    body: Body
    child_id: bytes
    lease_id: bytes | None = None
    preserve_written: bool = False
    borrowed: bool = False
    """Whether others hold the pieces already, and keep them."""


class ClearRange(Command, frozen=True):
    path: EntryPath
    start: int
    end: int
    child_id: bytes
    lease_id: bytes | None = None
    preserve_written: bool = False
    zeros: Body | None = None
    """For the parts that are not aligned; None: they are freed, too."""


class TimedEntry(TimedResult, frozen=True):
    entry: Entry


class ListEntries(Command, frozen=True):
    """List the entries of a directory in the order of their folded names."""

    path: EntryPath
    limit: int
    prefix: str = ""
    marker: str = ""
    """The first folded name of the page."""
    hidden_ids: frozenset[int] = frozenset()
    """The IDs of entries that are not listed, because they are deleted as soon as the last handle
    on them is closed."""
    directory_id: int | None = None
    """The ID of the directory, if the client has it open: its path may change at any time."""


class OpenFile(Command, frozen=True):
    """Get a file together with the location of its bytes, all or those of a range."""

    ask: GetEntry
    first: int | None = None
    """The first byte of the range; None: all bytes."""
    last: int | None = None
    """The last byte of the range (inclusive); None: the end of the file."""
    brief: bool = False
    """Return None if the lookup would take long."""


class ListRanges(Command, frozen=True):
    """List the ranges of a file that were written, or that have changed since a snapshot."""

    ask: GetEntry
    limit: int
    first: int | None = None
    last: int | None = None
    start: int = 0
    """Where the page starts."""
    previous: int | None = None
    """The time of the snapshot to compare with."""
    follows_renames: bool = False
    """Whether the file may have had another path in that snapshot."""


class FileRange(Part, frozen=True):
    """A range of a file. The end is exclusive."""

    start: int
    end: int
    written: bool = True
    """False: cleared since the snapshot."""


class FileRanges(TimedResult, frozen=True):
    entry: Entry
    length: int
    """The length of the file."""
    ranges: tuple[FileRange, ...]
    following: int | None
    """Where the next page starts; None: there is none."""


class CreatePermission(Command, frozen=True):
    """Store a security descriptor in a share."""

    share: ShareName
    permission: NewPermission


class GetPermission(Command, frozen=True):
    share: ShareName
    number: int


class FindInherited(Command, frozen=True):
    """Determine what new entries inherit from a permission."""

    share: ShareName
    parent: int
    """The number of the permission of their directory."""
    is_directory: bool


class KeepInherited(Command, frozen=True):
    """Store what new entries inherit from a permission."""

    found: FindInherited
    share_id: bytes
    """The incarnation of the share that it was determined in."""
    inherited: NewPermission
