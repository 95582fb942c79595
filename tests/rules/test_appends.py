"""Append blobs: position and size conditions, and limits."""

from __future__ import annotations

import pytest

from etagere.errors import ERRORS, Refusal
from etagere.model.blobs import AppendTraits
from etagere.rules.appends import (
    APPENDED_BLOCKS_MAX,
    check_appendable,
    check_length,
    check_position,
)


def _code(refusal: Refusal | None) -> str:
    return "" if refusal is None else refusal.code


@pytest.mark.parametrize(
    ("position", "length", "code"),
    [
        (None, 0, ""),
        (None, 7, ""),
        (0, 0, ""),
        (7, 7, ""),
        (0, 7, "AppendPositionConditionNotMet"),
        (6, 7, "AppendPositionConditionNotMet"),
        (8, 7, "AppendPositionConditionNotMet"),
    ],
)
def test_append_position_condition(position: int | None, length: int, code: str) -> None:
    assert _code(check_position(position, length)) == code


@pytest.mark.parametrize(
    ("length_max", "length", "added", "code"),
    [
        (None, 2**62, 1, ""),
        (10, 0, 10, ""),
        (10, 4, 6, ""),
        (10, 4, 7, "MaxBlobSizeConditionNotMet"),
        (10, 10, 1, "MaxBlobSizeConditionNotMet"),
        (10, 11, 1, "MaxBlobSizeConditionNotMet"),
        (0, 0, 1, "MaxBlobSizeConditionNotMet"),
    ],
)
def test_max_size_condition(length_max: int | None, length: int, added: int, code: str) -> None:
    assert _code(check_length(length_max, length, added)) == code


@pytest.mark.parametrize(
    ("traits", "code"),
    [
        (AppendTraits(), ""),
        (AppendTraits(APPENDED_BLOCKS_MAX - 1), ""),
        (AppendTraits(APPENDED_BLOCKS_MAX), "BlockCountExceedsLimit"),
        (AppendTraits(1, sealed=True), "BlobIsSealed"),
        (AppendTraits(APPENDED_BLOCKS_MAX, sealed=True), "BlobIsSealed"),
    ],
)
def test_limits_of_an_append_blob(traits: AppendTraits, code: str) -> None:
    assert APPENDED_BLOCKS_MAX == 50_000
    assert _code(check_appendable(traits)) == code


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("AppendPositionConditionNotMet", 412),
        ("MaxBlobSizeConditionNotMet", 412),
        ("BlobIsSealed", 409),
        ("BlockCountExceedsLimit", 409),
    ],
)
def test_messages_of_refusals(code: str, status: int) -> None:
    assert ERRORS[code].status == status
