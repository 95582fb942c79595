"""Pages of long listings, encoded while they are read.

A page consumes rows in slices and encodes them, so that only one slice of records is in memory. It
is full when it has the requested number of rows, or too many bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Generic, NamedTuple, Protocol, TypeVar

from etagere.engine.interface import ReadTxn, Steps
from etagere.engine.records import Collection, K, R, Span

Asked = TypeVar("Asked")
Row = TypeVar("Row")
Row_contra = TypeVar("Row_contra", contravariant=True)

_ROWS_FIRST = 16
_GROWTH_MAX = 4
_SLICE_SECONDS_MAX = 0.002
_SLICE_SECONDS_MIN = 0.000_001


class Page(Protocol[Row_contra]):
    """A page of a listing, which consumes its rows."""

    def add(self, rows: Sequence[Row_contra]) -> int:
        """Adds as many rows as fit; returns how many. The first row of a page always fits."""
        ...

    @property
    def rows_at_once(self) -> int:
        """How many rows like these can be added at once without delaying other requests."""
        ...


class StepSize:
    """The number of rows to read at once: few at first, because there may be few, and until their
    size is known."""

    def __init__(self) -> None:
        self.rows = _ROWS_FIRST

    def adapt(self, rows_at_once: int, seconds: float) -> None:
        """Adapts to what the last rows took. Their encoded size alone does not tell: records may
        have much that the page does not show."""
        in_time = int(self.rows * _SLICE_SECONDS_MAX / max(seconds, _SLICE_SECONDS_MIN))
        self.rows = max(1, min(rows_at_once, in_time, self.rows * _GROWTH_MAX))


class FillPage(NamedTuple, Generic[Asked, Row]):
    """A command to fill a page. It is not sent to another process, so it may contain a function."""

    asked: Asked
    new_page: Callable[[int], Page[Row]]
    """Creates an empty page for a given time. An operation that runs again begins with a new
    one."""


class FilledPage(NamedTuple, Generic[Row]):
    page: Page[Row]
    following: Row | None
    """The first row of the next page."""


def fill(
    txn: ReadTxn,
    command: FillPage[Asked, Row],
    slices: Iterable[Sequence[Row]],
    limit: int,
    step_size: StepSize,
) -> Steps[FilledPage[Row]]:
    """Fills a page until it has enough rows, is full, or the snapshot is overdue; yields after each
    slice."""
    page = command.new_page(txn.steady_now)
    left = limit
    began = time.perf_counter()
    for rows in slices:
        added = page.add(rows[:left])
        left -= added
        if added < len(rows):
            return FilledPage(page, rows[added])
        step_size.adapt(page.rows_at_once, time.perf_counter() - began)
        yield
        began = time.perf_counter()
        if txn.is_overdue:
            left = 0
    return FilledPage(page, None)


def scan_in_steps(
    txn: ReadTxn, collection: Collection[K, R], span: Span, limit: int, step_size: StepSize
) -> Iterator[list[tuple[K, R]]]:
    """Yields the rows of a span that a page may need: at most one more than its limit."""
    left = limit + 1
    while left > 0:
        wanted = min(step_size.rows, left)
        rows = txn.scan(collection, span, wanted)
        if rows:
            yield rows
        if len(rows) < wanted:
            return
        span = collection.after(span, rows[-1][0])
        left -= wanted


def in_slices(rows: Iterator[Row], step_size: StepSize) -> Iterator[list[Row]]:
    """Yields slices of rows that are not read in order. A slice is short if finding its rows takes
    long, since each of them may need a scan."""
    while some := list(_found_soon(islice(rows, step_size.rows))):
        yield some


def _found_soon(rows: Iterator[Row]) -> Iterator[Row]:
    ends_at = time.monotonic() + _SLICE_SECONDS_MAX
    for row in rows:
        yield row
        if time.monotonic() > ends_at:
            return
