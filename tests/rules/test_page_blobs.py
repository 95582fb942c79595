"""Page blobs: alignment, sequence numbers, and comparable snapshots."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etagere.errors import ERRORS, Refusal
from etagere.model.page_blobs import SequenceAction, SequenceChange, SequenceConditions
from etagere.rules.page_blobs import (
    PAGE_BLOB_BYTES_MAX,
    PAGE_BYTES,
    SEQUENCE_NUMBER_MAX,
    check_inside,
    check_pages,
    check_previous,
    check_sequence,
    next_sequence_number,
    page_after,
    page_before,
)

MAX, UPDATE, INCREMENT = SequenceAction.MAX, SequenceAction.UPDATE, SequenceAction.INCREMENT
UNMET = "SequenceNumberConditionNotMet"


def _code(refusal: Refusal | None) -> str:
    return "" if refusal is None else refusal.code


# Alignment


@pytest.mark.parametrize(
    ("start", "end", "is_pages"),
    [
        (0, 512, True),
        (512, 1024, True),
        (0, PAGE_BLOB_BYTES_MAX, True),
        (0, 0, False),
        (512, 512, False),
        (1024, 512, False),
        (0, 511, False),
        (0, 513, False),
        (1, 512, False),
        (256, 768, False),
    ],
)
def test_ranges_are_page_aligned(start: int, end: int, is_pages: bool) -> None:
    assert _code(check_pages(start, end)) == ("" if is_pages else "InvalidPageRange")


@pytest.mark.parametrize(
    ("end", "length", "code"),
    [
        (512, 512, ""),
        (512, 1024, ""),
        (1024, 512, "InvalidPageRange"),
        (512, 0, "InvalidPageRange"),
    ],
)
def test_ranges_are_within_the_blob(end: int, length: int, code: str) -> None:
    assert _code(check_inside(end, length)) == code


@given(st.integers(0, PAGE_BLOB_BYTES_MAX))
def test_pages_around_an_offset(offset: int) -> None:
    before, after = page_before(offset), page_after(offset)
    assert before <= offset <= after
    assert before % PAGE_BYTES == after % PAGE_BYTES == 0
    assert after - before == (PAGE_BYTES if offset % PAGE_BYTES else 0)


# Sequence numbers


@pytest.mark.parametrize(
    ("asked", "met"),
    [
        (SequenceConditions(), (4, 5, 6)),
        (SequenceConditions(at_most=5), (4, 5)),
        (SequenceConditions(below=5), (4,)),
        (SequenceConditions(equal=5), (5,)),
        (SequenceConditions(at_most=5, equal=5), (5,)),
        (SequenceConditions(at_most=6, below=6, equal=5), (5,)),
        (SequenceConditions(below=5, equal=5), ()),
        (SequenceConditions(at_most=0), ()),
        (SequenceConditions(below=0), ()),
        (SequenceConditions(equal=0), ()),
    ],
)
def test_sequence_number_conditions(asked: SequenceConditions, met: tuple[int, ...]) -> None:
    for number in (4, 5, 6):
        assert _code(check_sequence(asked, number)) == ("" if number in met else UNMET)


@pytest.mark.parametrize("asked", [SequenceConditions(at_most=0), SequenceConditions(equal=0)])
def test_sequence_number_conditions_with_zero(asked: SequenceConditions) -> None:
    assert check_sequence(asked, 0) is None
    assert _code(check_sequence(SequenceConditions(below=0), 0)) == UNMET


@pytest.mark.parametrize(
    ("number", "change", "following"),
    [
        (5, SequenceChange(UPDATE, 3), 3),
        (5, SequenceChange(UPDATE, 0), 0),
        (5, SequenceChange(UPDATE, SEQUENCE_NUMBER_MAX), SEQUENCE_NUMBER_MAX),
        (5, SequenceChange(MAX, 3), 5),
        (5, SequenceChange(MAX, 7), 7),
        (5, SequenceChange(INCREMENT), 6),
        (SEQUENCE_NUMBER_MAX - 1, SequenceChange(INCREMENT), SEQUENCE_NUMBER_MAX),
        (SEQUENCE_NUMBER_MAX, SequenceChange(MAX, 7), SEQUENCE_NUMBER_MAX),
    ],
)
def test_sequence_number_actions(number: int, change: SequenceChange, following: int) -> None:
    assert next_sequence_number(number, change) == following


def test_the_maximum_sequence_number_cannot_be_incremented() -> None:
    assert SEQUENCE_NUMBER_MAX == 2**63 - 1
    refusal = next_sequence_number(SEQUENCE_NUMBER_MAX, SequenceChange(INCREMENT))
    assert isinstance(refusal, Refusal)
    assert refusal.code == "SequenceNumberIncrementTooLarge"


# Snapshots to compare


@pytest.mark.parametrize(
    ("previous", "snapshot", "code"),
    [
        (5, None, ""),
        (5, 6, ""),
        (5, 5, ""),
        (6, 5, "PreviousSnapshotCannotBeNewer"),
    ],
)
def test_snapshots_are_compared_forward_only(
    previous: int, snapshot: int | None, code: str
) -> None:
    assert _code(check_previous(previous, snapshot)) == code


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("InvalidPageRange", 416),
        (UNMET, 412),
        ("SequenceNumberIncrementTooLarge", 409),
        ("PreviousSnapshotCannotBeNewer", 400),
        ("PreviousSnapshotNotFound", 409),
        ("PreviousSnapshotOperationNotSupported", 409),
        ("BlobOverwritten", 409),
    ],
)
def test_messages_of_refusals(code: str, status: int) -> None:
    assert ERRORS[code].status == status
