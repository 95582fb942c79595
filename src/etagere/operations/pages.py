"""Pages of long listings, written while they are read.

A page takes rows in slices and makes of them what it will send, so that no more than a slice of
records is in memory at any time. It is full when it has as many rows as were asked for, or bytes.
"""

from __future__ import annotations

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


class Page(Protocol[Row_contra]):
    """Takes the rows of a listing."""

    def add(self, rows: Sequence[Row_contra]) -> int:
        """Adds as many of the rows as fit, and returns how many. The first row of a page always
        fits."""
        ...

    @property
    def rows_at_once(self) -> int:
        """How many rows of the kind that it has it takes without keeping others waiting."""
        ...


class Pace:
    """How many rows are read at once: few at first, since who asks for many may find few, and as
    long as nobody knows how long they are."""

    def __init__(self) -> None:
        self.rows = _ROWS_FIRST

    def adapt(self, rows_at_once: int) -> None:
        self.rows = max(1, min(rows_at_once, self.rows * _GROWTH_MAX))


class FillPage(NamedTuple, Generic[Asked, Row]):
    """A command to fill a page. It stays in its process, so it may hold a function."""

    asked: Asked
    new_page: Callable[[int], Page[Row]]
    """An empty page as of a moment. An operation that is run again begins with another one."""


class FilledPage(NamedTuple, Generic[Row]):
    page: Page[Row]
    following: Row | None
    """The first row of the next page."""


def fill(
    txn: ReadTxn,
    command: FillPage[Asked, Row],
    slices: Iterable[Sequence[Row]],
    limit: int,
    pace: Pace,
) -> Steps[FilledPage[Row]]:
    """Puts rows on a page until it has so many of them, is full, or has been read for long
    enough; stops after each slice of them."""
    page = command.new_page(txn.steady_now)
    left = limit
    for rows in slices:
        added = page.add(rows[:left])
        left -= added
        if added < len(rows):
            return FilledPage(page, rows[added])
        pace.adapt(page.rows_at_once)
        yield
        if txn.is_overdue:
            left = 0
    return FilledPage(page, None)


def scan_in_steps(
    txn: ReadTxn, collection: Collection[K, R], span: Span, limit: int, pace: Pace
) -> Iterator[list[tuple[K, R]]]:
    """The rows of a span that a page may need: one more than it may have."""
    left = limit + 1
    while left > 0:
        wanted = min(pace.rows, left)
        rows = txn.scan(collection, span, wanted)
        if rows:
            yield rows
        if len(rows) < wanted:
            return
        span = collection.after(span, rows[-1][0])
        left -= wanted


def in_slices(rows: Iterator[Row], pace: Pace) -> Iterator[list[Row]]:
    while some := list(islice(rows, pace.rows)):
        yield some
