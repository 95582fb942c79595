"""Commands for page blobs.

Ranges consist of whole pages, and their ends are exclusive.
"""

from __future__ import annotations

import enum

from msgspec.structs import replace

from etagere.model.base import Command, Part
from etagere.model.blobs import Blob, BlobName, GetBlob
from etagere.model.bodies import Body
from etagere.model.common import ContentHeaders, TimedResult
from etagere.model.conditions import NO_CONDITIONS, Conditions


class SequenceConditions(Part, frozen=True):
    """Conditions on the sequence number."""

    at_most: int | None = None
    below: int | None = None
    equal: int | None = None


ANY_SEQUENCE = SequenceConditions()


class PutPage(Command, frozen=True):
    """Write pages."""

    blob: BlobName
    start: int
    body: Body
    """Whole pages, always stored in pieces."""
    child_id: bytes
    """The id of the child map, if one has to be created because a copy shares the blob's map."""
    conditions: Conditions = NO_CONDITIONS
    lease_id: bytes | None = None
    sequence: SequenceConditions = ANY_SEQUENCE
    borrowed: bool = False
    """The pieces belong to another blob too."""

    @property
    def end(self) -> int:
        return self.start + self.body.length

    def unconditional(self) -> PutPage:
        """Returns the same write without conditions."""
        return replace(self, conditions=NO_CONDITIONS, sequence=ANY_SEQUENCE)


class ClearPages(Command, frozen=True):
    """Clear pages."""

    blob: BlobName
    start: int
    end: int
    child_id: bytes
    conditions: Conditions = NO_CONDITIONS
    lease_id: bytes | None = None
    sequence: SequenceConditions = ANY_SEQUENCE


class SequenceAction(enum.Enum):
    """How to change the sequence number."""

    MAX = "max"
    UPDATE = "update"
    INCREMENT = "increment"


class SequenceChange(Part, frozen=True):
    action: SequenceAction
    number: int = 0
    """Ignored by an increment."""


class SetPageBlobProperties(Command, frozen=True):
    """Set the properties that only page blobs have and, optionally, the headers."""

    blob: BlobName
    child_id: bytes
    headers: ContentHeaders | None = None
    length: int | None = None
    sequence: SequenceChange | None = None
    conditions: Conditions = NO_CONDITIONS
    lease_id: bytes | None = None


# Page ranges


class GetPageRanges(Command, frozen=True):
    ask: GetBlob
    limit: int
    first: int = 0
    last: int | None = None
    """The last byte of the range (inclusive); None: the end of the blob."""
    start: int = 0
    """Where the next page of results begins."""
    previous: int | None = None
    """If set, only ranges that changed since this snapshot."""


class PageRange(Part, frozen=True):
    start: int
    end: int
    written: bool = True
    """False if it was cleared."""


class PageRangesResult(TimedResult, frozen=True):
    """Page ranges, in order."""

    blob: Blob
    ranges: tuple[PageRange, ...]
    following: int | None = None
    """Where the next page of results begins, if there is one."""
