"""Records and commands of blobs.

A name in a container may have a blob, snapshots of the blob, and uncommitted blocks. Each is stored
in its own collection.
"""

from __future__ import annotations

import enum

from etagere.model.base import Command, Part, Record
from etagere.model.bodies import Block, Body, Chunked, ChunkUse, Content, Piece
from etagere.model.common import ContentHeaders, Metadata, TimedResult
from etagere.model.conditions import NO_CONDITIONS, Conditions
from etagere.model.containers import ContainerName
from etagere.model.leases import NO_LEASE, Lease, LeaseAction


class BlobKind(enum.Enum):
    """The type of a blob, which determines how its bytes can be changed."""

    BLOCK = "BlockBlob"
    PAGE = "PageBlob"
    APPEND = "AppendBlob"


Tags = tuple[tuple[str, str], ...]
"""The names and values of a blob's tags, ordered by name."""


class PageTraits(Part, frozen=True, tag=0):
    """The properties that only page blobs have."""

    sequence_number: int = 0


class AppendTraits(Part, frozen=True, tag=1):
    """The properties that only append blobs have."""

    blocks: int = 0
    """The number of committed blocks."""
    sealed: bool = False


class CopyStatus(enum.Enum):
    """The status of a copy."""

    PENDING = "pending"
    SUCCESS = "success"
    ABORTED = "aborted"
    FAILED = "failed"


class Copied(Part, frozen=True):
    """The last copy operation with this blob as its destination."""

    id: bytes
    source: str
    """The URL of the source, without its token."""
    status: CopyStatus
    copied: int
    total: int
    ended: int = 0
    """When it ended; 0 while it is pending."""
    description: str = ""
    """Why it failed."""
    incremental: bool = False
    snapshot: int = 0
    """The snapshot of the destination that the last incremental copy created."""


class Rehydration(Part, frozen=True):
    """A pending rehydration from the archive tier."""

    tier: str
    """The tier to move to."""
    priority: str
    due: int
    """When it will be complete."""


class Blob(Record, frozen=True):
    """A blob: the current one under (container id, name), a snapshot under (container id, name,
    time of the snapshot)."""

    kind: BlobKind
    created: int
    stamp: int
    content: Content
    headers: ContentHeaders = ContentHeaders()
    metadata: Metadata = ()
    lease: Lease = NO_LEASE
    tier: str = ""
    """The tier that the client chose; "": the default of the account."""
    tier_changed: int = 0
    tags: Tags = ()
    traits: PageTraits | AppendTraits | None = None
    copied: Copied | None = None
    rehydration: Rehydration | None = None
    read_at: int = 0
    """The date of the last read that was recorded; 0: none was. `rules.last_access` defines which
    reads are recorded."""


class Staging(Record, frozen=True):
    """The uncommitted blocks under (container id, name)."""

    id: bytes
    block_name_bytes: int
    """The length that all block names must have."""
    count: int
    stamp: int
    """The stamp of the last change, which identifies this set of blocks."""
    staged: int
    """The time of the last change."""


class StagedBlock(Record, frozen=True):
    """An uncommitted block under (staging id, block name)."""

    pieces: tuple[Piece, ...]
    length: int


class StagingAge(Record, frozen=True):
    """An index of stagings by age, under (hour, container id, name): the last block was staged in
    this hour or later."""


class Draft(Record, frozen=True):
    """A long block list that is being assembled in steps, under its content's id. It holds the
    content so far."""

    content: Chunked
    begun: int


class DiscardedStaging(Record, frozen=True):
    """A staging that was discarded, and whose blocks are still to be removed."""


# Identifying blobs


class BlobName(Part, frozen=True):
    """The name of a blob."""

    container: ContainerName
    name: str


class BlobRef(Part, frozen=True):
    """A reference to the current state of a blob, or to a snapshot."""

    blob: BlobName
    snapshot: int | None = None
    """The time of the snapshot."""

    @property
    def is_current(self) -> bool:
        return self.snapshot is None


# Commands for whole blobs


class PutBlob(Command, frozen=True):
    """Create a blob, or replace one."""

    blob: BlobName
    body: Body
    headers: ContentHeaders = ContentHeaders()
    metadata: Metadata = ()
    conditions: Conditions = NO_CONDITIONS
    lease_id: bytes | None = None
    only_if_absent: bool = False
    """The caller may create blobs but not replace them."""
    tier: str = ""
    tags: Tags = ()
    kind: BlobKind = BlobKind.BLOCK
    content_id: bytes = b""
    """The id of the content of a page or append blob."""
    length: int = 0
    """The length of a page blob, which is empty at first."""
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
    """Get a blob together with the location of its bytes, all or those of a range."""

    ask: GetBlob
    first: int | None = None
    """The first byte of the range; None: all bytes."""
    last: int | None = None
    """The last byte of the range (inclusive); None: the end of the blob."""
    brief: bool = False
    """Return None if the lookup would take long."""
    if_range: str = ""
    """The ETag or date that the blob must have for the range to apply; otherwise all bytes are
    returned."""
    tracks_access: bool = False
    """Whether to decide if this read is to be recorded."""


class BlobRead(Part, frozen=True):
    """A version of a blob that was read."""

    blob: BlobName
    stamp: int


class RecordReads(Command, frozen=True):
    """Record that these blobs were read, each at most once."""

    reads: tuple[BlobRead, ...]


class SetBlobHeaders(Command, frozen=True):
    blob: BlobName
    headers: ContentHeaders
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
    """What a delete does with the snapshots of a blob."""

    NO = ""
    INCLUDE = "include"
    ONLY = "only"


class DeleteBlob(Command, frozen=True):
    blob: BlobName
    conditions: Conditions = NO_CONDITIONS
    lease_id: bytes | None = None
    snapshots: DeleteSnapshots = DeleteSnapshots.NO
    tier_modified_since: int | None = None
    """In seconds since 1970, like the next field."""
    tier_unmodified_since: int | None = None
    uncommitted: bool = False
    """If there is no blob but uncommitted blocks, delete those."""


class BlobResult(TimedResult, frozen=True):
    blob: Blob


# Commands for snapshots


class SnapshotBlob(Command, frozen=True):
    blob: BlobName
    metadata: Metadata = ()
    """The metadata of the snapshot; empty: that of the blob."""
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


# Commands for blocks


class PutBlock(Command, frozen=True):
    """Upload a block for a blob that may not exist yet."""

    blob: BlobName
    block: bytes
    body: Body
    staging_id: bytes
    """The id of the staging, if this is the first block."""
    lease_id: bytes | None = None
    only_if_absent: bool = False
    """The caller may create blobs but not replace them."""


class BlockSource(enum.Enum):
    """Where to look for a block of a list."""

    COMMITTED = "Committed"
    UNCOMMITTED = "Uncommitted"
    LATEST = "Latest"


class ListedBlock(Part, frozen=True):
    source: BlockSource
    name: bytes


class PutBlockList(Command, frozen=True):
    """Create a blob from blocks, or replace one."""

    blob: BlobName
    content_id: bytes
    blocks: tuple[ListedBlock, ...]
    headers: ContentHeaders = ContentHeaders()
    metadata: Metadata = ()
    conditions: Conditions = NO_CONDITIONS
    lease_id: bytes | None = None
    only_if_absent: bool = False
    tier: str = ""
    tags: Tags = ()
    base_chunks_max: int | None = None
    """The maximum number of chunks of the current blob to read for blocks; None: all."""


class DraftSources(Part, frozen=True):
    """The sources of a draft, which are valid as long as the staging and the blob do not change."""

    staging_stamp: int | None
    base_id: bytes | None
    """The content of the current blob, if the list may refer to its blocks."""
    base_chunks: tuple[ChunkUse, ...] = ()


class FindStagedBlocks(Command, frozen=True):
    asked: PutBlockList
    """The command without its blocks, here and below."""
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
    """New blocks, after the shared chunks."""
    begins: bool = False
    """Whether this is the first step. A draft must exist for all steps but the first."""


class AbandonDraft(Command, frozen=True):
    content_id: bytes


class PutDraft(Command, frozen=True):
    """Carry out a command with its draft, if the sources of the draft have not changed."""

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
    """None if there are only uncommitted blocks."""
    committed: tuple[BlockSize, ...] = ()
    uncommitted: tuple[BlockSize, ...] = ()


class OpenedBlockList(TimedResult, frozen=True):
    """The sources of a block list that is listed in steps."""

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
    """The first name or prefix of the page."""
    start_snapshot: int = 0
    """The first snapshot of that name to list; `NO_SNAPSHOT`: none."""
    end: str = ""
    """The first name after the listing; "": no limit."""
    snapshots: bool = False
    uncommitted: bool = False


NO_SNAPSHOT = 2**63 - 1
"""Sorts after all snapshots: the blob itself."""

BlobEntry = tuple[str, Blob | Staging | None, int]
"""A row of a listing: a name, its blob or staging, and the snapshot or `NO_SNAPSHOT`. None instead
of a blob means that the name is a prefix."""
