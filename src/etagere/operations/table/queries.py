"""Queries: pages of entities that a filter lets through, in the order of their keys.

What a filter says of the keys bounds the scan, so that a query costs its result as far as keys can
tell. A page is one snapshot, and ends when it is full or when enough has been looked at; the next
one starts with the first entity that was not looked at.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from etagere.engine.interface import ReadTxn
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


class EntityPage(NamedTuple):
    entities: list[tuple[Keys, Entity]]
    following: Keys | None = None
    """What the next page starts with."""


def query_entities(txn: ReadTxn, query: Query) -> EntityPage | None:
    """None if it takes long and must not."""
    table_id = find(txn, query.table).id
    found: list[tuple[Keys, Entity]] = []
    matches = query.filter.matches if query.filter is not None else None
    holds = query.reach.holds if query.reach != EVERYTHING else None
    seen = size = 0
    # How long it takes, not what time it is.
    ends = time.monotonic() + query.seconds_max
    for rows in _rows(txn, table_id, query):
        seen += len(rows)
        if query.rows_max is not None and seen > query.rows_max:
            return None
        # At least some of what was looked for has been looked at: there is progress.
        if seen > len(rows) and time.monotonic() > ends:
            return EntityPage(found, _keys(rows[0][0]))
        for key, entity in rows:
            keys = _keys(key)
            if holds is not None and not holds(keys):
                continue
            if matches is None or matches(keys, entity):
                size += _bytes_of(entity)
                if len(found) == query.limit or (found and size > _PAGE_BYTES_MAX):
                    return EntityPage(found, keys)
                found.append((keys, entity))
    return EntityPage(found)


def _bytes_of(entity: Entity) -> int:
    """About: only what can be long counts."""
    return sum([len(value) for value in entity.properties.values if type(value) in _LONG])


_LONG = (str, bytes)


def _keys(key: tuple[bytes, str, str]) -> Keys:
    return Keys(key[1], key[2])


_Rows = list[tuple[tuple[bytes, str, str], Entity]]


def _rows(txn: ReadTxn, table_id: bytes, query: Query) -> Iterator[_Rows]:
    """What lies within the bounds, some at a time."""
    span = _span(table_id, query)
    step = _STEP_MIN
    while span.start < span.stop and (rows := txn.scan(ENTITIES, span, step)):
        yield rows
        if len(rows) < step:
            return
        span = ENTITIES.after(span, rows[-1][0])
        # As many as would be enough, if the others are like the last.
        enough = _PAGE_BYTES_MAX // (_bytes_of(rows[-1][1]) or 1)
        step = max(1, min(_STEP_MAX, step * 4, enough))


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
