"""Blobs: what is stored of them, and what can be asked of them.

A name in a container may have a blob, snapshots of what the blob was, and blocks that were
uploaded and are in no blob yet. Each is kept in a collection of its own.
"""

from __future__ import annotations

import enum

from etagere.model.base import Command, Part, Record
from etagere.model.bodies import Block, Body, Chunked, ChunkUse, Content, Piece
from etagere.model.common import Metadata, TimedResult
from etagere.model.conditions import NO_CONDITIONS, Conditions
from etagere.model.containers import ContainerName
from etagere.model.leases import NO_LEASE, Lease, LeaseAction


class BlobKind(enum.Enum):
    """How the bytes of a blob can be changed."""

    BLOCK = "BlockBlob"
    PAGE = "PageBlob"
    APPEND = "AppendBlob"


class BlobHeaders(Part, frozen=True):
    """What a download is described with, as the client set it."""

    content_type: str = "application/octet-stream"
    content_encoding: str = ""
    content_language: str = ""
    content_disposition: str = ""
    cache_control: str = ""
    content_md5: bytes | None = None


Tags = tuple[tuple[str, str], ...]
"""Names and values that blobs are found by, in the order of their names."""


class PageTraits(Part, frozen=True, tag=0):
    """What a page blob has besides."""

    sequence_number: int = 0


class AppendTraits(Part, frozen=True, tag=1):
    """What an append blob has besides."""

    blocks: int = 0
    """How often something was appended."""
    sealed: bool = False


class CopyStatus(enum.Enum):
    """How far a copy is."""

    PENDING = "pending"
    SUCCESS = "success"
    ABORTED = "aborted"
    FAILED = "failed"


class Copied(Part, frozen=True):
    """The last attempt to make this blob a copy of another."""

    id: bytes
    source: str
    """Its address, without what gave the right to read it."""
    status: CopyStatus
    copied: int
    total: int
    ended: int = 0
    """When it was no more pending."""
    description: str = ""
    """Why it failed."""
    incremental: bool = False
    snapshot: int = 0
    """Of the destination, that an incremental copy has made last."""


class Rehydration(Part, frozen=True):
    """On the way from the archive."""

    tier: str
    """Where it will be."""
    priority: str
    due: int
    """When it will be there."""


class Blob(Record, frozen=True):
    """The state of a blob: the current one under (container id, name), that of a snapshot under
    these and the moment it was taken."""

    kind: BlobKind
    created: int
    stamp: int
    content: Content
    headers: BlobHeaders = BlobHeaders()
    metadata: Metadata = ()
    lease: Lease = NO_LEASE
    tier: str = ""
    """As the client chose it; nothing: that of the account."""
    tier_changed: int = 0
    tags: Tags = ()
    traits: PageTraits | AppendTraits | None = None
    copied: Copied | None = None
    rehydration: Rehydration | None = None


class Staging(Record, frozen=True):
    """The blocks that wait under (container id, name) to become part of a blob."""

    id: bytes
    block_name_bytes: int
    """All have names of one length."""
    count: int
    stamp: int
    """Of the last change: other stamp, other blocks."""
    staged: int
    """When that was."""


class StagedBlock(Record, frozen=True):
    """A block under (staging id, block name)."""

    pieces: tuple[Piece, ...]
    length: int


class StagingAge(Record, frozen=True):
    """Says, under (hour, container id, name), that the last block was staged in this hour or
    later: where a purge has to look."""


class Draft(Record, frozen=True):
    """A long block list that is put together in steps, under its content's id: it holds what is
    done so far."""

    content: Chunked
    begun: int


class DiscardedStaging(Record, frozen=True):
    """Blocks that no blob will ever have and that are still to be removed."""


# Which blob


class BlobName(Part, frozen=True):
    """Which blob."""

    container: ContainerName
    name: str


class BlobRef(Part, frozen=True):
    """Which state of a blob: the current one, or that of a snapshot."""

    blob: BlobName
    snapshot: int | None = None
    """The moment that names the snapshot."""

    @property
    def is_current(self) -> bool:
        return self.snapshot is None


# What is asked of whole blobs


class PutBlob(Command, frozen=True):
    """Create a blob, or replace all of one."""

    blob: BlobName
    body: Body
    headers: BlobHeaders = BlobHeaders()
    metadata: Metadata = ()
    conditions: Conditions = NO_CONDITIONS
    lease_id: bytes | None = None
    only_if_absent: bool = False
    """The caller may create blobs but not replace them."""
    tier: str = ""
    tags: Tags = ()
    kind: BlobKind = BlobKind.BLOCK
    content_id: bytes = b""
    """For the pages, or what will be appended."""
    length: int = 0
    """Of a page blob, which begins as nothing but holes."""
    sequence_number: int = 0


class GetBlob(Command, frozen=True):
    blob: BlobName
    conditions: Conditions = NO_CONDITIONS
    lease_id: bytes | None = None
    snapshot: int | None = None

    @property
    def ref(self) -> BlobRef:
        return BlobRef(self.blob, self.snapshot)


class OpenBlob(Command, frozen=True):
    """Show a blob together with where its bytes are, all or those of a range."""

    ask: GetBlob
    first: int | None = None
    """None: all bytes."""
    last: int | None = None
    """The end of the range, which belongs to it; None: the end of the blob."""
    brief: bool = False
    """Give up if it takes long."""
    if_range: str = ""
    """The range is asked for only of the blob that has this ETag or date: otherwise all bytes."""


class SetBlobHeaders(Command, frozen=True):
    blob: BlobName
    headers: BlobHeaders
    conditions: Conditions = NO_CONDITIONS
    lease_id: bytes | None = None


class SetBlobMetadata(Command, frozen=True):
    blob: BlobName
    metadata: Metadata
    conditions: Conditions = NO_CONDITIONS
    lease_id: bytes | None = None


class LeaseBlob(Command, frozen=True):
    blob: BlobName
    action: LeaseAction
    conditions: Conditions = NO_CONDITIONS


class DeleteSnapshots(enum.Enum):
    """What a delete does to snapshots."""

    NO = ""
    INCLUDE = "include"
    ONLY = "only"


class DeleteBlob(Command, frozen=True):
    blob: BlobName
    conditions: Conditions = NO_CONDITIONS
    lease_id: bytes | None = None
    snapshots: DeleteSnapshots = DeleteSnapshots.NO
    tier_modified_since: int | None = None
    """Seconds since 1970, as is the next."""
    tier_unmodified_since: int | None = None
    uncommitted: bool = False
    """Where there are only uncommitted blocks, delete those."""


class BlobResult(TimedResult, frozen=True):
    blob: Blob


# What is asked of snapshots


class SnapshotBlob(Command, frozen=True):
    blob: BlobName
    metadata: Metadata = ()
    """If there is any, the snapshot has this in place of the blob's."""
    conditions: Conditions = NO_CONDITIONS
    lease_id: bytes | None = None


class SnapshotResult(TimedResult, frozen=True):
    snapshot: int
    blob: Blob


class DeleteSnapshot(Command, frozen=True):
    blob: BlobName
    snapshot: int
    conditions: Conditions = NO_CONDITIONS
    lease_id: bytes | None = None

    @property
    def ref(self) -> BlobRef:
        return BlobRef(self.blob, self.snapshot)


# What is asked of blocks


class PutBlock(Command, frozen=True):
    """Upload a block for a blob that may not be there yet."""

    blob: BlobName
    block: bytes
    body: Body
    staging_id: bytes
    """For the first block."""
    lease_id: bytes | None = None
    only_if_absent: bool = False
    """The caller may create blobs but not replace them."""


class BlockSource(enum.Enum):
    """Where a block of a list is looked for."""

    COMMITTED = "Committed"
    UNCOMMITTED = "Uncommitted"
    LATEST = "Latest"


class ListedBlock(Part, frozen=True):
    source: BlockSource
    name: bytes


class PutBlockList(Command, frozen=True):
    """Make a blob of blocks, or replace all of one."""

    blob: BlobName
    content_id: bytes
    blocks: tuple[ListedBlock, ...]
    headers: BlobHeaders = BlobHeaders()
    metadata: Metadata = ()
    conditions: Conditions = NO_CONDITIONS
    lease_id: bytes | None = None
    only_if_absent: bool = False
    tier: str = ""
    tags: Tags = ()


class DraftSources(Part, frozen=True):
    """What a block list is drafted from, as long as staging and blob stay what they are."""

    staging_stamp: int | None
    base_id: bytes | None
    """The content of the blob as it is, if the list may mean blocks of that."""
    base_chunks: tuple[ChunkUse, ...] = ()


class FindStagedBlocks(Command, frozen=True):
    asked: PutBlockList
    """Without its blocks, here as below."""
    sources: DraftSources
    names: frozenset[bytes]


class FindCommittedBlocks(Command, frozen=True):
    asked: PutBlockList
    sources: DraftSources
    chunks: tuple[ChunkUse, ...]


class ExtendDraft(Command, frozen=True):
    content_id: bytes
    shared: tuple[ChunkUse, ...] = ()
    blocks: tuple[Block, ...] = ()
    """Behind those that are shared."""
    begins: bool = False
    """The first step, for which there must be no draft yet; for all others there must be one."""


class AbandonDraft(Command, frozen=True):
    content_id: bytes


class PutDraft(Command, frozen=True):
    """Carry out a command for which a draft was made, if that still is what it asks for."""

    command: PutBlockList
    staging_stamp: int | None
    base_id: bytes | None


class GetBlockList(Command, frozen=True):
    blob: BlobName
    committed: bool
    uncommitted: bool
    lease_id: bytes | None = None
    snapshot: int | None = None
    if_tags: str | None = None
    public: bool = False
    """The caller is anonymous, and sees no uncommitted blocks."""

    @property
    def ref(self) -> BlobRef:
        return BlobRef(self.blob, self.snapshot)


class BlockSize(Part, frozen=True):
    name: bytes
    length: int


class BlockListResult(TimedResult, frozen=True):
    blob: Blob | None
    """None if there is none but in blocks."""
    committed: tuple[BlockSize, ...] = ()
    uncommitted: tuple[BlockSize, ...] = ()


class OpenedBlockList(TimedResult, frozen=True):
    """What there is to list, before it is listed."""

    blob: Blob | None
    key: tuple[bytes, str]
    chunks: tuple[ChunkUse, ...]
    staging: Staging | None


class ListStagedBlocks(Command, frozen=True):
    key: tuple[bytes, str]
    staging: Staging
    after: bytes
    limit: int


# Listings


class ListBlobs(Command, frozen=True):
    container: ContainerName
    limit: int
    prefix: str = ""
    delimiter: str = ""
    start: str = ""
    """The first name, or prefix, to show."""
    start_snapshot: int = 0
    """The first snapshot of that name to show; `NO_SNAPSHOT`: none of them."""
    end: str = ""
    """The first name not to show any more."""
    snapshots: bool = False
    uncommitted: bool = False


NO_SNAPSHOT = 2**63 - 1
"""After every snapshot: where the blob itself stands."""

BlobEntry = tuple[str, Blob | Staging | None, int]
"""A row of a listing: a name, what it has, and which snapshot that is, or `NO_SNAPSHOT`. Without
anything it is a prefix, which stands for all blobs whose names begin with it."""
