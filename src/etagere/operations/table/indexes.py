"""Indexes on properties: made because queries would be faster, and kept by every change.

An index is wished for by a query that looked at much and found little. From the moment on when it
is noted in the record of its table, every change of an entity keeps the rows of that entity; the
rows of all that was there before are made in bounded steps. When there are no more, queries use it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from etagere.engine.interface import EXCLUSIVE, WriteTxn, operation
from etagere.model.base import Command
from etagere.model.tables import Entity, Indexed, Keys, PropertyIndex, Table, TableName
from etagere.operations.table.collections import ENTITIES, PROPERTY_VALUES, TABLES
from etagere.rules.indexes import INDEXES_MAX, kept_of

_READ_TOGETHER: Final = 20
# Looking at a few hundred of the largest entities would keep everybody waiting.
_STEP_BYTES_MAX: Final = 1 << 20

_ROW: Final = Indexed()


class WantIndex(Command, frozen=True):
    table: TableName
    name: str
    """Of the property."""


@operation
def want_index(txn: WriteTxn, command: WantIndex) -> bool:
    """Whether there is something to build. A table that is gone wants nothing, and one that has as
    many as it may have gets no other."""
    table = txn.get(TABLES, command.table.key, EXCLUSIVE)
    if table is None:
        return False
    index = _index_of(table, command.name)
    if index is not None:
        return not index.is_ready
    if len(table.indexes) >= INDEXES_MAX:
        return False
    _store(txn, command.table, table, PropertyIndex(len(table.indexes), command.name))
    return True


class BuildIndex(Command, frozen=True):
    table: TableName
    name: str
    """Of the property."""
    rows_max: int = 250


@operation
def build_index(txn: WriteTxn, command: BuildIndex) -> bool:
    """One bounded step; says whether there is more to do. Several may do this for the same index:
    each goes on where the last one has stopped."""
    # Whoever changes an entity guards this too, so that none changes meanwhile.
    table = txn.get(TABLES, command.table.key, EXCLUSIVE)
    index = None if table is None else _index_of(table, command.name)
    if table is None or index is None or index.is_ready:
        return False
    entities = _next_entities(txn, table, index, command.rows_max)
    for keys, entity in entities:
        value = kept_of(index.name, keys, entity)
        if value is not None:
            txn.put(PROPERTY_VALUES, _place(table, index, value, keys), _ROW)
    if entities:
        changed = msgspec.structs.replace(index, built=entities[-1][0])
    else:
        changed = msgspec.structs.replace(index, built=None, is_ready=True)
    _store(txn, command.table, table, changed)
    return not changed.is_ready


def keep_rows(
    txn: WriteTxn, table: Table, keys: Keys, old: Entity | None, new: Entity | None
) -> None:
    """Brings the rows of an entity from what it was to what it is."""
    for index in table.indexes:
        before = None if old is None else kept_of(index.name, keys, old)
        after = None if new is None else kept_of(index.name, keys, new)
        if before == after:
            continue
        if before is not None:
            txn.delete(PROPERTY_VALUES, _place(table, index, before, keys))
        if after is not None:
            txn.put(PROPERTY_VALUES, _place(table, index, after, keys), _ROW)


def _next_entities(
    txn: WriteTxn, table: Table, index: PropertyIndex, rows_max: int
) -> list[tuple[Keys, Entity]]:
    rest = ENTITIES.under((table.id,))
    if index.built is not None:
        rest = ENTITIES.after(rest, (table.id, index.built.partition, index.built.row))
    found: list[tuple[Keys, Entity]] = []
    found_bytes = 0
    while len(found) < rows_max and found_bytes < _STEP_BYTES_MAX:
        rows = txn.scan(ENTITIES, rest, min(_READ_TOGETHER, rows_max - len(found)))
        if not rows:
            break
        rest = ENTITIES.after(rest, rows[-1][0])
        found += [(Keys(partition, row), entity) for (_, partition, row), entity in rows]
        found_bytes += sum([_bytes_of(entity) for _, entity in rows])
    return found


def _bytes_of(entity: Entity) -> int:
    """About so many are stored of it, if they are many."""
    return sum([len(value) for value in entity.properties.values if isinstance(value, str | bytes)])


def _index_of(table: Table, name: str) -> PropertyIndex | None:
    return next((index for index in table.indexes if index.name == name), None)


def _place(
    table: Table, index: PropertyIndex, value: bytes, keys: Keys
) -> tuple[bytes, int, bytes, str, str]:
    return table.id, index.number, value, keys.partition, keys.row


def _store(txn: WriteTxn, name: TableName, table: Table, index: PropertyIndex) -> None:
    others = [other for other in table.indexes if other.number != index.number]
    indexes = tuple(sorted((*others, index), key=lambda other: other.number))
    txn.put(TABLES, name.key, msgspec.structs.replace(table, indexes=indexes))
