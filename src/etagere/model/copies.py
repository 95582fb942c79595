"""Records and commands of copies."""

from __future__ import annotations

from typing import Generic, TypeVar

from etagere.model.base import Command, Part, Record, Result
from etagere.model.blobs import Blob, BlobName, BlobRef, Tags
from etagere.model.bodies import Body
from etagere.model.common import ContentHeaders, Metadata
from etagere.model.conditions import NO_CONDITIONS, Conditions
from etagere.model.containers import ContainerName


class PendingCopy(Record, frozen=True):
    """A pending copy to (container id, name), and the process that runs it."""

    copy_id: bytes
    container: ContainerName
    process: bytes


# Commands


class BlobSource(Part, frozen=True):
    """A source in this store: a blob or a snapshot."""

    blob: BlobName
    snapshot: int | None = None
    conditions: Conditions = NO_CONDITIONS
    stamp: int | None = None
    """The version that was checked before; another one is not copied."""

    @property
    def ref(self) -> BlobRef:
        return BlobRef(self.blob, self.snapshot)


class Destination(Part, frozen=True):
    """The destination of a copy, its preconditions and the properties that differ from the
    source."""

    blob: BlobName
    copy_id: bytes
    source: str
    """The URL of the source, without its token."""
    conditions: Conditions = NO_CONDITIONS
    lease_id: bytes | None = None
    only_if_absent: bool = False
    """The caller may create blobs but not replace them."""
    metadata: Metadata = ()
    """The metadata of the copy; empty: that of the source."""
    tags: Tags = ()
    source_tags: bool = False
    """Whether the copy has the tags of its source."""
    tier: str = ""
    seals: bool | None = None
    """Whether an append blob is sealed; None: like the source."""
    asynchronous: bool = False
    """Whether the copy may continue after the response. A lease with an end cannot protect it
    then."""


class CopyBlob(Command, frozen=True):
    """Copy a blob of this store synchronously."""

    destination: Destination
    source: BlobSource


class CopyIncrementally(Command, frozen=True):
    """Copy a snapshot of a page blob incrementally."""

    destination: Destination
    source: BlobSource


class PutCopy(Command, frozen=True):
    """Create a blob from bytes that were read from another server."""

    destination: Destination
    body: Body
    headers: ContentHeaders
    metadata: Metadata


class BeginCopy(Command, frozen=True):
    """Create the destination of a copy from another server."""

    destination: Destination
    total: int
    headers: ContentHeaders
    metadata: Metadata
    process: bytes


class PendingCopyRef(Part, frozen=True):
    """A pending copy. The reference to its destination is different in each service."""

    copy_id: bytes


class CopyRef(PendingCopyRef, frozen=True):
    """A pending copy and its destination."""

    container: ContainerName
    container_id: bytes
    name: str

    @property
    def key(self) -> tuple[bytes, str]:
        return self.container_id, self.name


Ref = TypeVar("Ref", bound=PendingCopyRef)


class RecordProgress(Command, Generic[Ref], frozen=True):
    copy_ref: Ref
    copied: int


class FinishCopy(Command, Generic[Ref], frozen=True):
    copy_ref: Ref
    body: Body


class FailCopy(Command, Generic[Ref], frozen=True):
    copy_ref: Ref
    description: str


class AbortCopy(Command, frozen=True):
    blob: BlobName
    copy_id: bytes
    lease_id: bytes | None = None


# Results


class BegunCopy(Result, frozen=True):
    blob: Blob
    copy_ref: CopyRef
