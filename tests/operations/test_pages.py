"""Slices of rows, which others wait for while they are read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from etagere.operations.pages import FillPage, StepSize, fill, in_slices
from etagere.protocol.rest.listings import EncodedRows
from etagere.protocol.time_slices import run_at_once


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


def test_a_slice_is_short_if_its_rows_take_long_but_few_bytes() -> None:
    step_size, lengths = StepSize(), []

    def slices(count: int) -> Iterator[list[int]]:
        while count > 0:
            rows = list(range(min(step_size.rows, count)))
            time.sleep(0.000_1 * len(rows))
            lengths.append(len(rows))
            yield rows
            count -= len(rows)

    txn: Any = SimpleNamespace(steady_now=0, is_overdue=False)
    command = FillPage(None, lambda _now: EncodedRows[int](lambda rows: ["x" for _ in rows], 1_000))
    run_at_once(fill(txn, command, slices(500), 1_000, step_size))
    assert sum(lengths) == 500
    assert max(lengths) <= 64


def test_a_slice_grows_while_a_page_shows_none_of_its_rows() -> None:
    step_size, lengths = StepSize(), []

    def slices(count: int) -> Iterator[list[int]]:
        while count > 0:
            lengths.append(step_size.rows)
            yield []
            count -= step_size.rows

    txn: Any = SimpleNamespace(steady_now=0, is_overdue=False)
    command = FillPage(None, lambda _now: EncodedRows[int](lambda rows: ["x" for _ in rows], 1_000))
    run_at_once(fill(txn, command, slices(2_000), 1_000, step_size))
    assert max(lengths) > 100
