"""Copies of blobs: what can be asked of them, and what is kept of those that are under way."""

from __future__ import annotations

from etagere.model.base import Command, Part, Record, Result
from etagere.model.blobs import Blob, BlobHeaders, BlobName, BlobRef, Tags
from etagere.model.bodies import Body
from etagere.model.common import Metadata
from etagere.model.conditions import NO_CONDITIONS, Conditions
from etagere.model.containers import ContainerName


class PendingCopy(Record, frozen=True):
    """A copy that is under way to (container id, name), and the process that carries it."""

    copy_id: bytes
    container: ContainerName
    process: bytes


# What is asked


class BlobSource(Part, frozen=True):
    """A blob of this store, or a snapshot of one, that is to be copied."""

    blob: BlobName
    snapshot: int | None = None
    conditions: Conditions = NO_CONDITIONS
    stamp: int | None = None
    """The version that was looked at before; another one is not copied."""

    @property
    def ref(self) -> BlobRef:
        return BlobRef(self.blob, self.snapshot)


class Destination(Part, frozen=True):
    """Where a copy goes, on what terms, and what it will have that its source has not."""

    blob: BlobName
    copy_id: bytes
    source: str
    """The address of the source, without what gave the right to read it."""
    conditions: Conditions = NO_CONDITIONS
    lease_id: bytes | None = None
    only_if_absent: bool = False
    """The caller may create blobs but not replace them."""
    metadata: Metadata = ()
    """If there is any, the copy has this in place of the source's."""
    tags: Tags = ()
    source_tags: bool = False
    """The copy has the tags of its source."""
    tier: str = ""
    seals: bool | None = None
    """Whether an append blob is sealed; None: as the source is."""
    asynchronous: bool = False
    """The copy may go on after its answer, so that a lease that ends cannot protect it."""


class CopyBlob(Command, frozen=True):
    """Copy a blob of this store, at once."""

    destination: Destination
    source: BlobSource


class CopyIncrementally(Command, frozen=True):
    """Copy a snapshot of a page blob to where earlier ones were copied."""

    destination: Destination
    source: BlobSource


class PutCopy(Command, frozen=True):
    """Make what was read from elsewhere a blob, at once."""

    destination: Destination
    body: Body
    headers: BlobHeaders
    metadata: Metadata


class BeginCopy(Command, frozen=True):
    """Make a place for what will be read from elsewhere."""

    destination: Destination
    total: int
    headers: BlobHeaders
    metadata: Metadata
    process: bytes


class CopyRef(Part, frozen=True):
    """Which copy, and where it goes."""

    container: ContainerName
    container_id: bytes
    name: str
    copy_id: bytes

    @property
    def key(self) -> tuple[bytes, str]:
        return self.container_id, self.name


class RecordProgress(Command, frozen=True):
    copy_ref: CopyRef
    copied: int


class FinishCopy(Command, frozen=True):
    copy_ref: CopyRef
    body: Body


class FailCopy(Command, frozen=True):
    copy_ref: CopyRef
    description: str


class AbortCopy(Command, frozen=True):
    blob: BlobName
    copy_id: bytes
    lease_id: bytes | None = None


# What is answered


class BegunCopy(Result, frozen=True):
    blob: Blob
    copy_ref: CopyRef
