"""Queries: pages of entities that a filter lets through, in the order of their keys.

What a filter says of the keys bounds the scan, so that a query costs its result as far as keys can
tell; for what it says of properties there may be indexes. Both find the same. A page is one
snapshot, and ends when it is full or when enough has been looked at; the next one starts with the
first entity that was not looked at.
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
    """What one page may cost. A page that reaches a limit ends, and the next one goes on: that it
    is short, or even empty, is no sign that nothing follows."""

    page_bytes_max: int = 8 << 20
    page_seconds_max: float = 0.2
    step_rows_min: int = 8
    step_rows_max: int = 1_024
    step_bytes_max: int = 2 << 20
    # Comparisons that are asked in one step: the terms of the filter for each of its rows.
    step_terms_max: int = 50_000
    # The limits of a query that runs on the event loop; a longer one runs in a thread.
    brief_rows_max: int = 256
    brief_terms_max: int = 10_000
    brief_bytes_max: int = 1 << 20
    brief_seconds_max: float = 0.01


LIMITS: Final = QueryLimits()

# If an index has no more rows than these for what is asked, they are all that is looked at.
_FEW = 128
# Otherwise so many entities are scanned first, for a page that is filled soon. If fewer than one in
# so many matches, an index is asked once more, and may then have so many rows.
_SCANNED_FIRST = 512
_DENSE = 8
_MANY = 4_096
# Who looked at so many and found fewer than one in so many wishes for an index. A page that took
# all of its time has looked at enough as well.
_INDEX_WORTH_ROWS = 5_000
_INDEX_WORTH_ROWS_SLOW = 500
_INDEX_WORTH_RATIO = 50
# An index is wished for if some of what was found, or at least one in so many of those that are
# looked at once more, have the property.
_SAMPLES_MAX = 32
_SAMPLED_SHARE = 8


class Query(NamedTuple):
    """What to look for; not sent anywhere, so it may hold a compiled filter."""

    table: TableName
    limit: int
    filter: Filter | None = None
    start: Keys | None = None
    """The first entity to look at."""
    key_limits: KeyLimits = NO_KEY_LIMITS
    rows_max: int | None = None
    """Give up if more than these would have to be looked at, or if it takes more than is allowed
    for what is brief."""
    seconds_max: float = LIMITS.page_seconds_max
    """End the page then, full or not."""
    shown_bytes: int = 0
    """What each entity takes of a page beside its own bytes, for properties that it lacks."""


_Entities = list[tuple[Keys, Entity]]


class EntityPage(NamedTuple):
    entities: _Entities
    sizes: list[int]
    """How many bytes are stored of each."""
    following: Keys | None = None
    """What the next page starts with."""
    missing_index: str | None = None
    """The property whose index would have spared looking at so much."""
    used: str | None = None
    """The property by whose index entities were found."""


def query_entities(txn: ReadTxn, query: Query) -> EntityPage | None:
    """None if it takes long and must not."""
    table = find(txn, query.table)
    page = _Page(query)
    passes = query.filter.may_match if query.filter is not None else _anything
    # How long it takes, not what time it is.
    budget = _Budget(query, time.monotonic())
    bounds = query.filter.bounds() if query.filter is not None else KeyBounds()
    span = _span(table.id, query, bounds)
    usable = [] if not table.indexes or bounds.is_point else usable_indexes(table, query.filter)
    table_scan = TableScan(txn, span, passes)
    few = key_list_scan(txn, usable, span, _FEW, passes) if usable else None
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
        if scan is table_scan and usable and seen >= _SCANNED_FIRST:
            if table_scan.rest is not None and len(page.entities) * _DENSE < seen:
                scan = _by_index(txn, usable, table_scan.rest, passes) or table_scan
            # Whatever they led to, once is enough.
            usable = []
        # Not more than the page has room for, if the others are like these.
        enough = LIMITS.page_bytes_max * filtered.seen // max(1, filtered.seen_bytes)
        wanted = max(LIMITS.step_rows_min, query.limit + 1 - len(page.entities))
        step = max(1, min(LIMITS.step_rows_max, step * 4, enough, wanted))
        if query.rows_max is not None:
            # One more than may be looked at is enough to know that there are more.
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
        """How many of these one step may look at."""
        return min(wanted, self._step_rows_max)


def _anything(_entity: Entity) -> bool:
    return True


def _by_index(
    txn: ReadTxn, usable: list[IndexRanges], rest: Span, passes: Passes
) -> EntityScan | None:
    """For what a scan finds too little of; None if no index finds it sooner."""
    if len(usable) == 1 and usable[0].is_point:
        return equal_value_scan(txn, usable, rest, passes)
    return key_list_scan(txn, usable, rest, _MANY, passes) or equal_value_scan(
        txn, usable, rest, passes
    )


def _missing_index(
    txn: ReadTxn, table: Table, asked: Filter | None, seen: int, found: int, steps: list[Span]
) -> str | None:
    """Which property an index would have helped with, that is not there or not ready."""
    if asked is None or found * _INDEX_WORTH_RATIO >= seen:
        return None
    ready = {index.name for index in table.indexes if index.is_ready}
    looked_for = index_ranges(asked.condition)
    # What cannot be is found nowhere, with an index or without.
    names = [name for name in by_selectivity(looked_for) if looked_for[name] and name not in ready]
    if not names or found:
        # Whatever was found has all of these.
        return names[0] if names else None
    samples = _samples(txn, steps)
    for name in names:
        having = [name == ROW_KEY or name in entity.properties.names for entity in samples]
        if having.count(True) * _SAMPLED_SHARE >= max(1, len(samples)):
            return name
    return None


def _samples(txn: ReadTxn, steps: list[Span]) -> list[Entity]:
    """Some of what was scanned: the first entity of steps that are spread over all of it."""
    spread = steps[:: -(-len(steps) // _SAMPLES_MAX)] if steps else []
    return [entity for span in spread for _, entity in txn.scan(ENTITIES, span, 1)]


class _Page:
    """What was found so far."""

    def __init__(self, query: Query) -> None:
        self.entities: _Entities = []
        self.sizes: list[int] = []
        self._bytes = 0
        self._shown_bytes = query.shown_bytes
        self._limit = query.limit
        self._chosen = _choose_by_keys(query)

    def add(self, filtered: Found) -> Keys | None:
        """As many as a page can hold; returns the first that is too much, if one is."""
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
    """What is left to say of an entity that has passed the filter as far as keys are not asked;
    None: nothing."""
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
    """Where keys would be."""
    return ENTITIES.pack((table_id, _short(keys.partition), _short(keys.row)))


def _short(text: str) -> str:
    """No key is as long as a bound may be: what differs only behind the longest is in the same
    place between all keys that there can be."""
    if len(text) <= KEY_BYTES_MAX // 4:
        return text
    # With three bytes more, what is left of a character that was cut is never needed.
    return text.encode()[: KEY_BYTES_MAX + 4].decode(errors="ignore")


def _start_of(key_limits: KeyLimits) -> Keys:
    return Keys(key_limits.start_partition or "", key_limits.start_row or "")
