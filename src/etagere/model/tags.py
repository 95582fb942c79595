"""Records of the tag index, and commands."""

from __future__ import annotations

from etagere.model.base import Command, Record
from etagere.model.blobs import BlobName, BlobRef, Tags
from etagere.model.conditions import NO_CONDITIONS, Conditions


class TaggedBlob(Record, frozen=True):
    """A row of the index by value, under (account, tag, value, container, container id, blob)."""


class TagValue(Record, frozen=True):
    """A row of the index by blob: the value of a tag, under (account, tag, container, container id,
    blob)."""

    value: str


class TaggedContainer(Record, frozen=True):
    """The account and name of a container with tagged blobs, under its id, which is all that a
    purge knows."""

    account: str
    name: str


class SetBlobTags(Command, frozen=True):
    """Replace the tags of a blob or a snapshot."""

    blob: BlobName
    tags: Tags
    conditions: Conditions = NO_CONDITIONS
    lease_id: bytes | None = None
    snapshot: int | None = None

    @property
    def ref(self) -> BlobRef:
        return BlobRef(self.blob, self.snapshot)
