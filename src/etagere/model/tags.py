"""Tags: what is kept of them besides the blobs themselves, and what can be asked of them."""

from __future__ import annotations

from etagere.model.base import Command, Record
from etagere.model.blobs import BlobName, BlobRef, Tags
from etagere.model.conditions import NO_CONDITIONS, Conditions


class TaggedBlob(Record, frozen=True):
    """Says under (account, tag, value, container, container id, blob) that the blob has the tag
    with this value."""


class TagValue(Record, frozen=True):
    """The value of a tag under (account, tag, container, container id, blob)."""

    value: str


class TaggedContainer(Record, frozen=True):
    """Where the tags of a container's blobs are found, under its id: a purge knows no more."""

    account: str
    name: str


class SetBlobTags(Command, frozen=True):
    """Give a blob, or a snapshot, these tags and no others."""

    blob: BlobName
    tags: Tags
    conditions: Conditions = NO_CONDITIONS
    lease_id: bytes | None = None
    snapshot: int | None = None

    @property
    def ref(self) -> BlobRef:
        return BlobRef(self.blob, self.snapshot)
