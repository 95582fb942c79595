"""The rules of page blobs: how long they may be, where pages begin, and sequence numbers."""

from __future__ import annotations

from typing import Final

from etagere.errors import Refusal
from etagere.model.blobs import BlobKind
from etagere.model.page_blobs import SequenceAction, SequenceChange, SequenceConditions

PAGE_BYTES: Final = 512
PAGE_BLOB_BYTES_MAX: Final = 8 << 40
SEQUENCE_NUMBER_MAX: Final = 2**63 - 1
LENGTH_HEADER: Final = "x-ms-blob-content-length"


# Where pages begin


def check_pages(start: int, end: int) -> Refusal | None:
    """Whether a range, whose end does not belong to it, is made of whole pages."""
    if start < end and not start % PAGE_BYTES and not end % PAGE_BYTES:
        return None
    return Refusal("InvalidPageRange", {"Start": start, "End": end - 1, "PageSize": PAGE_BYTES})


def check_inside(end: int, length: int) -> Refusal | None:
    if end <= length:
        return None
    return Refusal("InvalidPageRange", {"End": end - 1, "ContentLength": length})


def page_before(offset: int) -> int:
    """Where the page begins that an offset is in."""
    return offset - offset % PAGE_BYTES


def page_after(offset: int) -> int:
    """Where the next page begins, unless one begins here."""
    return page_before(offset + PAGE_BYTES - 1)


def check_resizable(kind: BlobKind) -> Refusal | None:
    """Whether the length of a blob of this kind can be set."""
    if kind is BlobKind.PAGE:
        return None
    facts: dict[str, str | int] = {"HeaderName": LENGTH_HEADER, "BlobType": kind.value}
    return Refusal("UnsupportedHeader", facts)


# Sequence numbers


def check_sequence(asked: SequenceConditions, number: int) -> Refusal | None:
    """All that is asked has to be so."""
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


# What was changed since a snapshot


def check_previous(previous: int, snapshot: int | None) -> Refusal | None:
    """Only forward: from the older of two snapshots to the newer one, or to the blob."""
    if snapshot is None or previous <= snapshot:
        return None
    return Refusal("PreviousSnapshotCannotBeNewer")
