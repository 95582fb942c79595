"""Indexes on properties, created on demand and maintained by every change.

A query that read many entities and found few requests an index. Once it is in the record of its
table, every change of an entity updates its rows; the rows of existing entities are added in
bounded steps. Queries use it when it is complete.

An index that has not been used for long, or is needed less than another one, is dropped: it is
removed from the record of its table at once, and `purge_tables` removes its rows in bounded steps.
Its number is never used again, so that old rows are not taken for rows of a new index.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from etagere.engine.interface import EXCLUSIVE, ReadTxn, WriteTxn, operation
from etagere.model.base import Command
from etagere.model.tables import (
    DroppedIndex,
    Entity,
    Keys,
    PropertyIndex,
    PropertyIndexRow,
    Table,
    TableName,
)
from etagere.operations.table.collections import (
    DROPPED_INDEXES,
    ENTITIES,
    PROPERTY_VALUES,
    TABLES,
)
from etagere.rules.indexes import INDEXES_MAX, decayed, index_to_replace, indexed_value, is_unused

_READ_BATCH: Final = 20
# Reading a few hundred of the largest entities would delay other requests.
_STEP_BYTES_MAX: Final = 1 << 20

_TABLES_BATCH: Final = 200

_ROW: Final = PropertyIndexRow()


class RequestIndex(Command, frozen=True):
    table: TableName
    name: str
    """Of the property."""
    demand: float = 1.0
    """How many queries lacked the index recently."""


@operation
def request_index(txn: WriteTxn, command: RequestIndex) -> bool:
    """Adds an index to a table; returns whether it has to be built. A table with the maximum number
    of indexes gets another only in place of one that is used less."""
    table = txn.get(TABLES, command.table.key, EXCLUSIVE)
    if table is None:
        return False
    index = _index_of(table, command.name)
    if index is not None:
        return not index.is_ready
    kept = list(table.indexes)
    if len(kept) >= INDEXES_MAX:
        replaced = index_to_replace(command.demand, kept, txn.now)
        if replaced is None:
            return False
        kept.remove(replaced)
        txn.put(DROPPED_INDEXES, (table.id, replaced.number), DroppedIndex())
    made = PropertyIndex(_next_number(table), command.name, created_at=txn.now)
    txn.put(TABLES, command.table.key, _with_indexes(table, [*kept, made]))
    return True


def may_request_index(txn: ReadTxn, command: RequestIndex) -> bool:
    """Returns what `request_index` would return, without a change."""
    table = txn.get(TABLES, command.table.key)
    if table is None:
        return False
    index = _index_of(table, command.name)
    if index is not None:
        return not index.is_ready
    if len(table.indexes) < INDEXES_MAX:
        return True
    return index_to_replace(command.demand, table.indexes, txn.now) is not None


class CountUses(Command, frozen=True):
    table: TableName
    uses: dict[str, int]
    """The number of uses, by property."""


@operation
def count_uses(txn: WriteTxn, command: CountUses) -> None:
    """Adds uses to the scores of indexes that still exist."""
    table = txn.get(TABLES, command.table.key, EXCLUSIVE)
    if table is None:
        return
    counted = [_counted(index, command.uses.get(index.name, 0), txn.now) for index in table.indexes]
    if tuple(counted) != table.indexes:
        txn.put(TABLES, command.table.key, _with_indexes(table, counted))


def _counted(index: PropertyIndex, uses: int, now: int) -> PropertyIndex:
    if not uses:
        return index
    score = decayed(index.score, now - index.used_at) + uses
    return msgspec.structs.replace(index, score=score, used_at=now)


class UnusedIndexes(NamedTuple):
    """The result of one step of the search for unused indexes."""

    tables: list[TableName]
    """Tables that have, or may have, an unused index."""
    following: tuple[str, str] | None
    """The last table of this step; None at the end."""


def find_unused(txn: ReadTxn, behind: tuple[str, str] | None) -> UnusedIndexes:
    """Searches some tables after `behind` for unused indexes."""
    span = TABLES.all() if behind is None else TABLES.after(TABLES.all(), behind)
    rows = txn.scan(TABLES, span, _TABLES_BATCH)
    found = [
        TableName(account, table.name)
        for (account, _), table in rows
        if any(not index.created_at or is_unused(index, txn.now) for index in table.indexes)
    ]
    return UnusedIndexes(found, rows[-1][0] if len(rows) == _TABLES_BATCH else None)


class DropUnused(Command, frozen=True):
    table: TableName


@operation
def drop_unused(txn: WriteTxn, command: DropUnused) -> None:
    """Drops the indexes of a table that have not been used for long."""
    table = txn.get(TABLES, command.table.key, EXCLUSIVE)
    if table is None:
        return
    kept: list[PropertyIndex] = []
    for index in table.indexes:
        if not index.created_at:
            # Created by a version that stored no times: the time starts now.
            kept.append(msgspec.structs.replace(index, created_at=txn.now))
        elif is_unused(index, txn.now):
            txn.put(DROPPED_INDEXES, (table.id, index.number), DroppedIndex())
        else:
            kept.append(index)
    if tuple(kept) != table.indexes:
        txn.put(TABLES, command.table.key, _with_indexes(table, kept))


class BuildIndex(Command, frozen=True):
    table: TableName
    name: str
    """Of the property."""
    rows_max: int = 250


@operation
def build_index(txn: WriteTxn, command: BuildIndex) -> bool:
    """Adds rows in one bounded step; returns whether there is more to do. Several processes may
    build the same index: each continues where the last one stopped."""
    # Changes of entities guard this record too, so that none changes meanwhile.
    table = txn.get(TABLES, command.table.key, EXCLUSIVE)
    index = None if table is None else _index_of(table, command.name)
    if table is None or index is None or index.is_ready:
        return False
    entities = _next_entities(txn, table, index, command.rows_max)
    for keys, entity in entities:
        value = indexed_value(index.name, keys, entity)
        if value is not None:
            txn.put(PROPERTY_VALUES, _place(table, index, value, keys), _ROW)
    if entities:
        changed = msgspec.structs.replace(index, built=entities[-1][0])
    else:
        changed = msgspec.structs.replace(index, built=None, is_ready=True)
    _store(txn, command.table, table, changed)
    return not changed.is_ready


def update_rows(
    txn: WriteTxn, table: Table, keys: Keys, old: Entity | None, new: Entity | None
) -> None:
    """Updates the index rows of a changed entity."""
    for index in table.indexes:
        before = None if old is None else indexed_value(index.name, keys, old)
        after = None if new is None else indexed_value(index.name, keys, new)
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
        rows = txn.scan(ENTITIES, rest, min(_READ_BATCH, rows_max - len(found)))
        if not rows:
            break
        rest = ENTITIES.after(rest, rows[-1][0])
        found += [(Keys(partition, row), entity) for (_, partition, row), entity in rows]
        found_bytes += sum([_bytes_of(entity) for _, entity in rows])
    return found


def _bytes_of(entity: Entity) -> int:
    """Returns the approximate size of an entity, which is accurate only for large ones."""
    return sum([len(value) for value in entity.properties.values if isinstance(value, str | bytes)])


def _index_of(table: Table, name: str) -> PropertyIndex | None:
    return next((index for index in table.indexes if index.name == name), None)


def _place(
    table: Table, index: PropertyIndex, value: bytes, keys: Keys
) -> tuple[bytes, int, bytes, str, str]:
    return table.id, index.number, value, keys.partition, keys.row


def _store(txn: WriteTxn, name: TableName, table: Table, index: PropertyIndex) -> None:
    others = [other for other in table.indexes if other.number != index.number]
    txn.put(TABLES, name.key, _with_indexes(table, [*others, index]))


def _with_indexes(table: Table, indexes: Iterable[PropertyIndex]) -> Table:
    ordered = tuple(sorted(indexes, key=lambda index: index.number))
    made = max([_next_number(table), *[index.number + 1 for index in ordered]])
    return msgspec.structs.replace(table, indexes=ordered, indexes_made=made)


def _next_number(table: Table) -> int:
    return max([table.indexes_made, *[index.number + 1 for index in table.indexes]])
