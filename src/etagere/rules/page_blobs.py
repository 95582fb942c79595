"""Rules for page blobs: lengths, page ranges and sequence numbers."""

from __future__ import annotations

from typing import Final

from etagere.errors import Refusal
from etagere.model.blobs import BlobKind
from etagere.model.page_blobs import SequenceAction, SequenceChange, SequenceConditions

PAGE_BYTES: Final = 512
PAGE_BLOB_BYTES_MAX: Final = 8 << 40
SEQUENCE_NUMBER_MAX: Final = 2**63 - 1
LENGTH_HEADER: Final = "x-ms-blob-content-length"


# Pages


def check_pages(start: int, end: int) -> Refusal | None:
    """Requires a range (end exclusive) of whole pages."""
    if start < end and not start % PAGE_BYTES and not end % PAGE_BYTES:
        return None
    return Refusal("InvalidPageRange", {"Start": start, "End": end - 1, "PageSize": PAGE_BYTES})


def check_inside(end: int, length: int) -> Refusal | None:
    if end <= length:
        return None
    return Refusal("InvalidPageRange", {"End": end - 1, "ContentLength": length})


def page_before(offset: int) -> int:
    """Returns the beginning of the page that contains an offset."""
    return offset - offset % PAGE_BYTES


def page_after(offset: int) -> int:
    """Returns the first beginning of a page at or after an offset."""
    return page_before(offset + PAGE_BYTES - 1)


def check_resizable(kind: BlobKind) -> Refusal | None:
    """Requires a type of blob whose length can be set."""
    if kind is BlobKind.PAGE:
        return None
    facts: dict[str, str | int] = {"HeaderName": LENGTH_HEADER, "BlobType": kind.value}
    return Refusal("UnsupportedHeader", facts)


# Sequence numbers


def check_sequence(asked: SequenceConditions, number: int) -> Refusal | None:
    """Checks all conditions on a sequence number."""
    for condition, limit, is_met in (
        ("x-ms-if-sequence-number-le", asked.at_most, number <= (asked.at_most or 0)),
        ("x-ms-if-sequence-number-lt", asked.below, number < (asked.below or 0)),
        ("x-ms-if-sequence-number-eq", asked.equal, number == (asked.equal or 0)),
    ):
        if limit is not None and not is_met:
            facts: dict[str, str | int] = {
                "Condition": condition,
                "Sent": limit,
                "Current": number,
            }
            return Refusal("SequenceNumberConditionNotMet", facts)
    return None


def next_sequence_number(number: int, change: SequenceChange) -> int | Refusal:
    if change.action is SequenceAction.UPDATE:
        return change.number
    if change.action is SequenceAction.MAX:
        return max(number, change.number)
    if number >= SEQUENCE_NUMBER_MAX:
        return Refusal("SequenceNumberIncrementTooLarge", {"Current": number})
    return number + 1


# Differences between snapshots


def check_previous(previous: int, snapshot: int | None) -> Refusal | None:
    """Requires that the previous snapshot is not newer than the one it is compared with."""
    if snapshot is None or previous <= snapshot:
        return None
    return Refusal("PreviousSnapshotCannotBeNewer")
