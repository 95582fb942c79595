"""Page blobs: what can be asked of them besides what can be asked of any blob.

Ranges begin and end where pages do, and the end does not belong to them.
"""

from __future__ import annotations

import enum

from etagere.model.base import Command, Part
from etagere.model.blobs import Blob, BlobHeaders, BlobName, GetBlob
from etagere.model.bodies import Body
from etagere.model.common import TimedResult
from etagere.model.conditions import NO_CONDITIONS, Conditions


class SequenceConditions(Part, frozen=True):
    """What the sequence number has to be."""

    at_most: int | None = None
    below: int | None = None
    equal: int | None = None


ANY_SEQUENCE = SequenceConditions()


class PutPage(Command, frozen=True):
    """Write pages over what is there."""

    blob: BlobName
    start: int
    body: Body
    """Whole pages, always in pieces, however few they are."""
    child_id: bytes
    """For the map of the blob's bytes, if it has to part from that of a copy."""
    conditions: Conditions = NO_CONDITIONS
    lease_id: bytes | None = None
    sequence: SequenceConditions = ANY_SEQUENCE
    borrowed: bool = False
    """Others hold the pieces already, and keep them."""

    @property
    def end(self) -> int:
        return self.start + self.body.length


class ClearPages(Command, frozen=True):
    """Make a hole."""

    blob: BlobName
    start: int
    end: int
    child_id: bytes
    conditions: Conditions = NO_CONDITIONS
    lease_id: bytes | None = None
    sequence: SequenceConditions = ANY_SEQUENCE


class SequenceAction(enum.Enum):
    """How a sequence number is changed."""

    MAX = "max"
    UPDATE = "update"
    INCREMENT = "increment"


class SequenceChange(Part, frozen=True):
    action: SequenceAction
    number: int = 0
    """Nothing to an increment."""


class SetPageBlobProperties(Command, frozen=True):
    """Change what only page blobs have, and with it how the blob is described, if that is
    asked for."""

    blob: BlobName
    child_id: bytes
    headers: BlobHeaders | None = None
    length: int | None = None
    sequence: SequenceChange | None = None
    conditions: Conditions = NO_CONDITIONS
    lease_id: bytes | None = None


# Which pages were written


class GetPageRanges(Command, frozen=True):
    ask: GetBlob
    limit: int
    first: int = 0
    last: int | None = None
    """The end of the range, which belongs to it; None: the end of the blob."""
    start: int = 0
    """What is before was told already."""
    previous: int | None = None
    """Only what was changed since this snapshot."""


class PageRange(Part, frozen=True):
    start: int
    end: int
    written: bool = True
    """Otherwise it was cleared."""


class PageRangesResult(TimedResult, frozen=True):
    """Ranges in their order."""

    blob: Blob
    ranges: tuple[PageRange, ...]
    following: int | None = None
    """Where the next answer goes on."""
