"""Slices of rows, which others wait for while they are read."""

from __future__ import annotations

import time
from collections.abc import Iterator

from etagere.operations.pages import StepSize, in_slices


def _found_slowly(count: int, seconds: float) -> Iterator[int]:
    for number in range(count):
        time.sleep(seconds)
        yield number


def test_a_slice_is_short_if_its_rows_are_found_slowly() -> None:
    step_size = StepSize()
    step_size.rows = 1_000
    slices = list(in_slices(_found_slowly(50, 0.001), step_size))
    assert [row for rows in slices for row in rows] == list(range(50))
    assert max(map(len, slices)) < 10
