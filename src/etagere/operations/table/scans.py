"""Scans of the entities that a query may match, always in the order of their keys.

TableScan        all entities of a span
KeyListScan      entities that were found in an index, and sorted
EqualValueScan   entities with one value of an index, which are in order there
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol, TypeAlias

from etagere.engine.interface import FilteredRows, ReadTxn
from etagere.engine.records import Span
from etagere.model.ids import ID_BYTES
from etagere.model.tables import Entity, Keys, Table
from etagere.operations.table.collections import ENTITIES, PROPERTY_VALUES
from etagere.rules.filters import Filter
from etagere.rules.indexes import Range, Ranges, by_selectivity, index_ranges

EntityKey: TypeAlias = tuple[bytes, str, str]
Found: TypeAlias = FilteredRows[EntityKey, Entity]
Passes: TypeAlias = Callable[[Entity], bool]


_LOOKUP_BATCH: Final = 64
"""The number of entities that are looked up by their keys at once, however large they are."""


class EntityScan(Protocol):
    """A scan of entities, in the order of their keys."""

    @property
    def index_name(self) -> str | None:
        """The property whose index the scan uses, if any."""
        ...

    @property
    def is_over(self) -> bool: ...

    def take(self, count: int, bytes_max: int) -> Found:
        """Reads at most this many entities, or bytes; returns those that pass the filter."""
        ...

    def following(self) -> Keys | None:
        """Returns the first entity that was not read."""
        ...


class TableScan:
    """A scan of all entities of a span."""

    index_name: Final = None

    def __init__(self, txn: ReadTxn, span: Span, passes: Passes) -> None:
        self._txn = txn
        self._passes = passes
        self.rest: Span | None = span if span.start < span.stop else None

    @property
    def is_over(self) -> bool:
        return self.rest is None

    def take(self, count: int, bytes_max: int) -> Found:
        assert self.rest is not None
        filtered = self._txn.scan_filtered(ENTITIES, self.rest, count, self._passes, bytes_max)
        self.rest = filtered.rest
        return filtered

    def following(self) -> Keys | None:
        if self.rest is not None:
            for (_, partition, row), _ in self._txn.scan(ENTITIES, self.rest, 1):
                return Keys(partition, row)
        return None


class KeyListScan:
    """A scan of entities by their keys."""

    def __init__(self, txn: ReadTxn, keys: list[EntityKey], passes: Passes, name: str) -> None:
        self.index_name = name
        self._txn = txn
        self._passes = passes
        self._keys = keys
        self._at = 0

    @property
    def is_over(self) -> bool:
        return self._at >= len(self._keys)

    def take(self, count: int, bytes_max: int) -> Found:
        count = min(count, _LOOKUP_BATCH)
        some = self._keys[self._at : self._at + count]
        self._at += count
        return self._txn.get_filtered(ENTITIES, some, self._passes)

    def following(self) -> Keys | None:
        return None if self.is_over else Keys(*self._keys[self._at][1:])


class EqualValueScan:
    """A scan of the entities with one value of an index."""

    def __init__(self, txn: ReadTxn, span: Span, passes: Passes, name: str) -> None:
        """`span` is a span of the index."""
        self.index_name = name
        self._txn = txn
        self._passes = passes
        self._rest: Span | None = span

    @property
    def is_over(self) -> bool:
        return self._rest is None

    def take(self, count: int, bytes_max: int) -> Found:
        assert self._rest is not None
        count = min(count, _LOOKUP_BATCH)
        places = self._txn.scan(PROPERTY_VALUES, self._rest, count)
        if len(places) < count:
            self._rest = None
        else:
            self._rest = PROPERTY_VALUES.after(self._rest, places[-1][0])
        keys = [(table_id, partition, row) for (table_id, _, _, partition, row), _ in places]
        return self._txn.get_filtered(ENTITIES, keys, self._passes)

    def following(self) -> Keys | None:
        if self._rest is not None:
            for (_, _, _, partition, row), _ in self._txn.scan(PROPERTY_VALUES, self._rest, 1):
                return Keys(partition, row)
        return None


# Indexes


class IndexRanges(NamedTuple):
    """An index, and the ranges of it that contain all matches of a filter."""

    table_id: bytes
    number: int
    name: str
    """The name of the property."""
    ranges: Ranges

    @property
    def is_point(self) -> bool:
        return len(self.ranges) == 1 and self.ranges[0].is_point

    def spans(self, within: Span) -> Iterable[Span]:
        """Returns spans of the index for the entities in the span `within`."""
        return [self._span(range_, within) for range_ in self.ranges]

    def _span(self, range_: Range, within: Span) -> Span:
        first = PROPERTY_VALUES.under((self.table_id, self.number, range_.first))
        if not range_.is_point:
            last = PROPERTY_VALUES.under((self.table_id, self.number, range_.last))
            return Span(first.start, last.stop)
        # After the value, the key of an index row equals that of the entity after the table id.
        start, stop = first.start + within.start[ID_BYTES:], first.stop
        if within.stop.startswith(self.table_id):
            stop = first.start + within.stop[ID_BYTES:]
        return Span(start, stop)


def usable_indexes(table: Table, asked: Filter | None) -> list[IndexRanges]:
    """Returns the complete indexes that a filter can use, the most selective first."""
    numbers = {index.name: index.number for index in table.indexes if index.is_ready}
    if asked is None or not numbers:
        return []
    found = index_ranges(asked.condition)
    names = [name for name in by_selectivity(found) if name in numbers]
    return [IndexRanges(table.id, numbers[name], name, found[name]) for name in names]


def key_list_scan(
    txn: ReadTxn, usable: list[IndexRanges], within: Span, rows_max: int, passes: Passes
) -> KeyListScan | None:
    """Returns a scan of the keys in the first index that has at most this many rows; None if there
    is none."""
    for candidate in usable:
        keys = _keys(txn, candidate, within, rows_max)
        if keys is not None:
            return KeyListScan(txn, keys, passes, candidate.name)
    return None


def equal_value_scan(
    txn: ReadTxn, usable: list[IndexRanges], within: Span, passes: Passes
) -> EqualValueScan | None:
    """Returns a scan of the entities with one value; None if no index is searched for a single
    value."""
    for candidate in usable:
        if candidate.is_point:
            (span,) = candidate.spans(within)
            return EqualValueScan(txn, span, passes, candidate.name)
    return None


def _keys(
    txn: ReadTxn, candidate: IndexRanges, within: Span, rows_max: int
) -> list[EntityKey] | None:
    keys: list[EntityKey] = []
    for span in candidate.spans(within):
        places = txn.scan(PROPERTY_VALUES, span, rows_max + 1 - len(keys))
        keys += [(table_id, partition, row) for (table_id, _, _, partition, row), _ in places]
        if len(keys) > rows_max:
            return None
    if within != ENTITIES.under((candidate.table_id,)) and not candidate.is_point:
        keys = [key for key in keys if within.start <= ENTITIES.pack(key) < within.stop]
    keys.sort()
    return keys
