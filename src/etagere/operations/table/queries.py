"""Queries: pages of the entities that match a filter, in the order of their keys.

Conditions on keys bound the scan; conditions on properties may use indexes. The result is the same.
A page is read from one snapshot, and ends when it is full or when enough was read; the next page
begins with the first entity that was not read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

from etagere.engine.interface import ReadTxn
from etagere.engine.records import Span
from etagere.model.tables import NO_KEY_LIMITS, Entity, KeyLimits, Keys, Table, TableName
from etagere.operations.table.collections import ENTITIES
from etagere.operations.table.scans import (
    EntityScan,
    Found,
    IndexRanges,
    Passes,
    TableScan,
    equal_value_scan,
    key_list_scan,
    usable_indexes,
)
from etagere.operations.table.tables import find
from etagere.rules.entities import KEY_BYTES_MAX
from etagere.rules.filters import ROW_KEY, Filter, KeyBounds
from etagere.rules.indexes import by_selectivity, index_ranges


@dataclass(frozen=True)
class QueryLimits:
    """The limits of one page. A page that reaches one ends, and the next page continues: a short or
    even empty page does not mean that nothing follows."""

    page_bytes_max: int = 8 << 20
    page_seconds_max: float = 0.2
    step_rows_min: int = 8
    step_rows_max: int = 1_024
    step_bytes_max: int = 2 << 20
    # The comparisons of one step: the terms of the filter times the number of rows.
    step_terms_max: int = 50_000
    # The limits of a query that runs on the event loop; a longer one runs in a thread.
    brief_rows_max: int = 256
    brief_terms_max: int = 10_000
    brief_bytes_max: int = 1 << 20
    brief_seconds_max: float = 0.01


LIMITS: Final = QueryLimits()

# If an index has no more than this many rows for the filter, only those are read.
_FEW_ROWS_MAX = 128
# Otherwise this many entities are scanned first, because the page may soon be full. If fewer than
# one in `_DENSE_RATIO` matches, an index with up to `_MANY_ROWS_MAX` rows is used.
_SCANNED_FIRST_ROWS = 512
_DENSE_RATIO = 8
_MANY_ROWS_MAX = 4_096
# A query that read this many entities, and of which fewer than one in `_INDEX_WORTH_RATIO` matched,
# requests an index. So does one that reached its time limit after reading fewer.
_INDEX_WORTH_ROWS = 5_000
_INDEX_WORTH_ROWS_SLOW = 500
_INDEX_WORTH_RATIO = 50
# An index is requested for a property if a match has it, or at least one in `_SAMPLED_SHARE` of the
# samples.
_SAMPLES_MAX = 32
_SAMPLED_SHARE = 8


class Query(NamedTuple):
    """A query. It is not sent to another process, so it may contain a compiled filter."""

    table: TableName
    limit: int
    filter: Filter | None = None
    start: Keys | None = None
    """The first entity to read."""
    key_limits: KeyLimits = NO_KEY_LIMITS
    rows_max: int | None = None
    """Return None if more rows than this have to be read, or if the limits of a short query are
    exceeded."""
    seconds_max: float = LIMITS.page_seconds_max
    """The time after which the page ends, full or not."""
    shown_bytes: int = 0
    """The additional size of each entity on a page, for properties that it lacks."""


_Entities = list[tuple[Keys, Entity]]


class EntityPage(NamedTuple):
    entities: _Entities
    sizes: list[int]
    """The stored size of each, in bytes."""
    following: Keys | None = None
    """The first entity of the next page."""
    missing_index: str | None = None
    """The property whose index would have made the query faster, if there is one."""
    used: str | None = None
    """The property whose index was used, if any."""


def query_entities(txn: ReadTxn, query: Query) -> EntityPage | None:
    """Returns a page; None if it would exceed the limits of a short query."""
    table = find(txn, query.table)
    page = _Page(query)
    passes = query.filter.may_match if query.filter is not None else _anything
    # A duration, not a date.
    budget = _Budget(query, time.monotonic())
    bounds = query.filter.bounds() if query.filter is not None else KeyBounds()
    span = _span(table.id, query, bounds)
    usable = [] if not table.indexes or bounds.is_point else usable_indexes(table, query.filter)
    table_scan = TableScan(txn, span, passes)
    few = key_list_scan(txn, usable, span, _FEW_ROWS_MAX, passes) if usable else None
    scan: EntityScan = table_scan if few is None else few
    step, seen = LIMITS.step_rows_min, 0
    following: Keys | None = None
    is_late = False
    steps: list[Span] = []
    while not scan.is_over:
        if scan is table_scan and table_scan.rest is not None:
            steps.append(table_scan.rest)
        filtered = scan.take(budget.rows(step), budget.step_bytes_max)
        seen += filtered.seen
        if query.rows_max is not None and seen > query.rows_max:
            return None
        following = page.add(filtered)
        if following is not None or scan.is_over:
            break
        now = time.monotonic()
        if now > budget.gives_up_at:
            return None
        is_late = now > budget.ends_at
        if is_late:
            following = scan.following()
            break
        if scan is table_scan and usable and seen >= _SCANNED_FIRST_ROWS:
            if table_scan.rest is not None and len(page.entities) * _DENSE_RATIO < seen:
                scan = _by_index(txn, usable, table_scan.rest, passes) or table_scan
            # Indexes are tried only once.
            usable = []
        # No more than fit on the page, if the others are of the same size.
        enough = LIMITS.page_bytes_max * filtered.seen // max(1, filtered.seen_bytes)
        wanted = max(LIMITS.step_rows_min, query.limit + 1 - len(page.entities))
        step = max(1, min(LIMITS.step_rows_max, step * 4, enough, wanted))
        if query.rows_max is not None:
            # One more than the limit is enough to know that there are more.
            step = min(step, query.rows_max + 1 - seen)
    missing_index = None
    if seen >= (_INDEX_WORTH_ROWS_SLOW if is_late else _INDEX_WORTH_ROWS):
        missing_index = _missing_index(txn, table, query.filter, seen, len(page.entities), steps)
    return EntityPage(page.entities, page.sizes, following, missing_index, scan.index_name)


class _Budget:
    """The time and the work that a page may take."""

    def __init__(self, query: Query, began: float) -> None:
        is_brief = query.rows_max is not None
        self.ends_at = began + query.seconds_max
        self.gives_up_at = began + LIMITS.brief_seconds_max if is_brief else inf
        self.step_bytes_max = LIMITS.brief_bytes_max if is_brief else LIMITS.step_bytes_max
        terms = 1 if query.filter is None else max(1, query.filter.terms)
        terms_max = LIMITS.brief_terms_max if is_brief else LIMITS.step_terms_max
        self._step_rows_max = max(1, terms_max // terms)

    def rows(self, wanted: int) -> int:
        """Returns how many rows one step may read."""
        return min(wanted, self._step_rows_max)


def _anything(_entity: Entity) -> bool:
    return True


def _by_index(
    txn: ReadTxn, usable: list[IndexRanges], rest: Span, passes: Passes
) -> EntityScan | None:
    """Returns an index scan to use instead of the table scan; None if there is none."""
    if len(usable) == 1 and usable[0].is_point:
        return equal_value_scan(txn, usable, rest, passes)
    return key_list_scan(txn, usable, rest, _MANY_ROWS_MAX, passes) or equal_value_scan(
        txn, usable, rest, passes
    )


def _missing_index(
    txn: ReadTxn, table: Table, asked: Filter | None, seen: int, found: int, steps: list[Span]
) -> str | None:
    """Returns the property whose index would have helped, and is missing or incomplete."""
    if asked is None or found * _INDEX_WORTH_RATIO >= seen:
        return None
    ready = {index.name for index in table.indexes if index.is_ready}
    looked_for = index_ranges(asked.condition)
    # A property with empty ranges matches nothing, with or without an index.
    names = [name for name in by_selectivity(looked_for) if looked_for[name] and name not in ready]
    if not names or found:
        # All matches have these properties.
        return names[0] if names else None
    samples = _samples(txn, steps)
    for name in names:
        having = [name == ROW_KEY or name in entity.properties.names for entity in samples]
        if having.count(True) * _SAMPLED_SHARE >= max(1, len(samples)):
            return name
    return None


def _samples(txn: ReadTxn, steps: list[Span]) -> list[Entity]:
    """Returns a sample of the scanned entities: the first one of steps that are evenly spread."""
    spread = steps[:: -(-len(steps) // _SAMPLES_MAX)] if steps else []
    return [entity for span in spread for _, entity in txn.scan(ENTITIES, span, 1)]


class _Page:
    """The entities found so far."""

    def __init__(self, query: Query) -> None:
        self.entities: _Entities = []
        self.sizes: list[int] = []
        self._bytes = 0
        self._shown_bytes = query.shown_bytes
        self._limit = query.limit
        self._chosen = _choose_by_keys(query)

    def add(self, filtered: Found) -> Keys | None:
        """Adds entities until the page is full; returns the first that does not fit, if any."""
        rows = [(Keys(partition, row), entity) for (_, partition, row), entity in filtered.rows]
        sizes, chosen = filtered.sizes, self._chosen
        if chosen is not None:
            kept = [(row, size) for row, size in zip(rows, sizes, strict=True) if chosen(*row)]
            rows, sizes = [row for row, _ in kept], [size for _, size in kept]
        whole = self._bytes + sum(sizes) + self._shown_bytes * len(rows)
        if len(self.entities) + len(rows) <= self._limit and whole <= LIMITS.page_bytes_max:
            self.entities += rows
            self.sizes += sizes
            self._bytes = whole
            return None
        for row, size in zip(rows, sizes, strict=True):
            whole = self._bytes + size + self._shown_bytes
            is_full = self.entities and whole > LIMITS.page_bytes_max
            if is_full or len(self.entities) == self._limit:
                return row[0]
            self.entities.append(row)
            self.sizes.append(size)
            self._bytes = whole
        return None


def _choose_by_keys(query: Query) -> Callable[[Keys, Entity], bool] | None:
    """Returns the rest of the filter, which depends on keys; None if there is none."""
    matches = query.filter.matches if query.filter and query.filter.depends_on_keys else None
    if query.key_limits == NO_KEY_LIMITS:
        return matches
    holds = query.key_limits.contains
    if matches is None:
        return lambda keys, _: holds(keys)
    return lambda keys, entity: holds(keys) and matches(keys, entity)


def _span(table_id: bytes, query: Query, bounds: KeyBounds) -> Span:
    whole = ENTITIES.under((table_id,))
    if bounds.is_empty:
        return Span(whole.start, whole.start)
    start, stop = whole
    first = max(filter(None, (bounds.first, query.start, _start_of(query.key_limits))))
    start = max(start, _packed(table_id, first))
    if bounds.stop is not None:
        stop = min(stop, _packed(table_id, bounds.stop))
    if query.key_limits.end_partition is not None:
        stop = min(stop, ENTITIES.under((table_id, _short(query.key_limits.end_partition))).stop)
    return Span(start, stop)


def _packed(table_id: bytes, keys: Keys) -> bytes:
    """Returns the encoded keys of an entity."""
    return ENTITIES.pack((table_id, _short(keys.partition), _short(keys.row)))


def _short(text: str) -> str:
    """Truncates a bound that is longer than any key, which does not change its position among
    keys."""
    if len(text) <= KEY_BYTES_MAX // 4:
        return text
    # Three more bytes than the longest key, so that dropping a truncated character does not matter.
    return text.encode()[: KEY_BYTES_MAX + 4].decode(errors="ignore")


def _start_of(key_limits: KeyLimits) -> Keys:
    return Keys(key_limits.start_partition or "", key_limits.start_row or "")
