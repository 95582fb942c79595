"""Pages of long listings, written while they are read.

A page takes rows in slices and makes of them what it will send, so that no more than a slice of
records is in memory at any time. It is full when it has as many rows as were asked for, or bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Generic, NamedTuple, Protocol, TypeVar

from etagere.engine.interface import ReadTxn
from etagere.engine.records import Collection, K, R, Span

Asked = TypeVar("Asked")
Row = TypeVar("Row")
Row_contra = TypeVar("Row_contra", contravariant=True)

_STEP_MIN = 16
STEP_MAX = 256
_STEP_GROWTH = 4
_BRIEF_ROWS_MAX = 128


class Page(Protocol[Row_contra]):
    """Takes the rows of a listing."""

    def add(self, rows: Sequence[Row_contra]) -> int:
        """Adds as many of the rows as fit, and returns how many. The first row of a page always
        fits."""
        ...


class FillPage(NamedTuple, Generic[Asked, Row]):
    """A command to fill a page. It stays in its process, so it may hold a function."""

    asked: Asked
    new_page: Callable[[int], Page[Row]]
    """Makes an empty page as of a moment. An operation that is run again makes another one."""
    brief: bool = False
    """Give up if the page turns out to be long."""

    def rows_max(self, limit: int) -> int:
        """How many rows to look for where so many are asked for."""
        return min(limit, _BRIEF_ROWS_MAX) if self.brief else limit


class FilledPage(NamedTuple, Generic[Row]):
    page: Page[Row]
    following: Row | None
    """The first row of the next page."""


def fill(
    txn: ReadTxn, command: FillPage[Asked, Row], slices: Iterable[Sequence[Row]], limit: int
) -> FilledPage[Row] | None:
    """Puts rows on a page until it has as many as the limit or is full. Returns None if the page
    was to be brief and is not."""
    page = command.new_page(txn.steady_now)
    rows_max = command.rows_max(limit)
    count = 0
    for rows in slices:
        if count and txn.is_overdue:
            return FilledPage(page, rows[0])
        some = rows[: rows_max - count]
        added = page.add(some)
        count += added
        if added < len(rows):
            if command.brief and count < limit:
                return None
            return FilledPage(page, rows[added])
    return FilledPage(page, None)


def scan_in_steps(
    txn: ReadTxn, collection: Collection[K, R], span: Span, rows_max: int
) -> Iterator[list[tuple[K, R]]]:
    """The rows of a span that a page may need: one more than it may have. The first steps are
    small, since a page that may have many rows often has few."""
    step, left = _STEP_MIN, rows_max + 1
    while left > 0:
        wanted = min(step, left)
        rows = txn.scan(collection, span, wanted)
        if rows:
            yield rows
        if len(rows) < wanted:
            return
        span = collection.after(span, rows[-1][0])
        left -= wanted
        step = min(STEP_MAX, step * _STEP_GROWTH)


def in_slices(rows: Iterator[Row]) -> Iterator[list[Row]]:
    size = _STEP_MIN
    while some := list(islice(rows, size)):
        yield some
        size = min(STEP_MAX, size * _STEP_GROWTH)
