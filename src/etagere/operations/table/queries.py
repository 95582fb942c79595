"""Queries: pages of entities that a filter lets through, in the order of their keys.

What a filter says of the keys bounds the scan, so that a query costs its result as far as keys can
tell. A page is one snapshot, and ends when it is full or when enough has been looked at; the next
one starts with the first entity that was not looked at.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from etagere.engine.interface import ReadTxn, Sifted
from etagere.engine.records import Span
from etagere.model.tables import EVERYTHING, Entity, Keys, Reach, TableName
from etagere.operations.table.collections import ENTITIES
from etagere.operations.table.tables import find
from etagere.rules.entities import KEY_BYTES_MAX
from etagere.rules.filters import Filter, KeyBounds

_STEP_MIN = 32
_STEP_MAX = 1_024
# A thousand of the largest entities would be more than a server can hold for each who asks.
_PAGE_BYTES_MAX = 8 << 20


class Query(NamedTuple):
    """What to look for; not sent anywhere, so it may hold a compiled filter."""

    table: TableName
    limit: int
    filter: Filter | None = None
    start: Keys | None = None
    """The first entity to look at."""
    reach: Reach = EVERYTHING
    rows_max: int | None = None
    """Give up if more than these would have to be looked at."""
    seconds_max: float = 5.0
    """End the page then, full or not."""


_Entities = list[tuple[Keys, Entity]]


class EntityPage(NamedTuple):
    entities: _Entities
    following: Keys | None = None
    """What the next page starts with."""


def query_entities(txn: ReadTxn, query: Query) -> EntityPage | None:
    """None if it takes long and must not."""
    page = _Page(query)
    passes = query.filter.may_match if query.filter is not None else _anything
    # How long it takes, not what time it is.
    ends = time.monotonic() + query.seconds_max
    rest: Span | None = _span(find(txn, query.table).id, query)
    step, seen = _STEP_MIN, 0
    while rest is not None and rest.start < rest.stop:
        sifted = txn.sift(ENTITIES, rest, step, passes)
        seen += sifted.seen
        if query.rows_max is not None and seen > query.rows_max:
            return None
        following = page.add(sifted)
        if following is not None:
            return EntityPage(page.entities, following)
        rest = sifted.rest
        if rest is not None and time.monotonic() > ends:
            return EntityPage(page.entities, _first_of(txn, rest))
        # Not more than the page has room for, if the others are like these.
        enough = _PAGE_BYTES_MAX * sifted.seen // max(1, sifted.seen_bytes)
        wanted = max(_STEP_MIN, query.limit + 1 - len(page.entities))
        step = max(1, min(_STEP_MAX, step * 4, enough, wanted))
    return EntityPage(page.entities)


def _anything(_entity: Entity) -> bool:
    return True


class _Page:
    """What was found so far."""

    def __init__(self, query: Query) -> None:
        self.entities: _Entities = []
        self._bytes = 0
        self._limit = query.limit
        self._chosen = _choose_by_keys(query)

    def add(self, sifted: Sifted[tuple[bytes, str, str], Entity]) -> Keys | None:
        """As many as a page can hold; returns the first that is too much, if one is."""
        rows = [(Keys(partition, row), entity) for (_, partition, row), entity in sifted.rows]
        sizes, chosen = sifted.sizes, self._chosen
        if chosen is not None:
            kept = [(row, size) for row, size in zip(rows, sizes, strict=True) if chosen(*row)]
            rows, sizes = [row for row, _ in kept], [size for _, size in kept]
        whole = self._bytes + sum(sizes)
        if len(self.entities) + len(rows) <= self._limit and whole <= _PAGE_BYTES_MAX:
            self.entities += rows
            self._bytes = whole
            return None
        for row, size in zip(rows, sizes, strict=True):
            is_full = self.entities and self._bytes + size > _PAGE_BYTES_MAX
            if is_full or len(self.entities) == self._limit:
                return row[0]
            self.entities.append(row)
            self._bytes += size
        return None


def _choose_by_keys(query: Query) -> Callable[[Keys, Entity], bool] | None:
    """What is left to say of an entity that has passed the filter as far as keys are not asked;
    None: nothing."""
    matches = query.filter.matches if query.filter and query.filter.asks_of_keys else None
    if query.reach == EVERYTHING:
        return matches
    holds = query.reach.holds
    if matches is None:
        return lambda keys, _: holds(keys)
    return lambda keys, entity: holds(keys) and matches(keys, entity)


def _first_of(txn: ReadTxn, rest: Span) -> Keys | None:
    for (_, partition, row), _ in txn.scan(ENTITIES, rest, 1):
        return Keys(partition, row)
    return None


def _span(table_id: bytes, query: Query) -> Span:
    bounds = query.filter.bounds() if query.filter is not None else KeyBounds()
    whole = ENTITIES.under((table_id,))
    if bounds.is_empty:
        return Span(whole.start, whole.start)
    start, stop = whole
    first = max(filter(None, (bounds.first, query.start, _start_of(query.reach))))
    start = max(start, _packed(table_id, first))
    if bounds.stop is not None:
        stop = min(stop, _packed(table_id, bounds.stop))
    if query.reach.end_partition is not None:
        stop = min(stop, ENTITIES.under((table_id, _short(query.reach.end_partition))).stop)
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


def _start_of(reach: Reach) -> Keys:
    return Keys(reach.start_partition or "", reach.start_row or "")
