"""Operations on tables."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from etagere.engine.interface import EXCLUSIVE, ReadTxn, Refused, WriteTxn, operation
from etagere.engine.records import Collection, Span
from etagere.errors import Refusal
from etagere.model.base import Command
from etagere.model.tables import (
    CreateTable,
    DeletedTable,
    DeleteTable,
    SetTableAccess,
    Table,
    TableName,
)
from etagere.operations.named import NamedResources, policies_reader
from etagere.operations.removal import RemovalStep
from etagere.operations.table.collections import (
    DELETED_TABLES,
    DROPPED_INDEXES,
    ENTITIES,
    PROPERTY_VALUES,
    TABLES,
)
from etagere.rules.entities import check_table_name

_NAMED: Final = NamedResources(TABLES, "TableNotFound")
find = _NAMED.find
find_guarded = _NAMED.find_guarded
policies_of = policies_reader(TABLES, check_table_name, str.lower)


@operation
def create_table(txn: WriteTxn, command: CreateTable) -> None:
    if _NAMED.find_for_creation(txn, command.table) is not None:
        raise Refused(Refusal("TableAlreadyExists"))
    txn.put(TABLES, command.table.key, Table(command.id, command.table.name))


@operation(reclaims=True)
def delete_table(txn: WriteTxn, command: DeleteTable) -> None:
    """Deletes a table. Its name is free at once; the entities are removed in bounded steps."""
    table = txn.get(TABLES, command.table.key, EXCLUSIVE)
    if table is None:
        raise Refused(Refusal("ResourceNotFound"))
    txn.delete(TABLES, command.table.key)
    txn.put(DELETED_TABLES, (table.id,), DeletedTable())


@operation
def set_table_access(txn: WriteTxn, command: SetTableAccess) -> None:
    """Sets the stored access policies, effective for the next request to any process."""
    table = find_guarded(txn, command.table, exclusive=True)
    changed = msgspec.structs.replace(table, policies=command.policies)
    txn.put(TABLES, command.table.key, changed)


def get_table(txn: ReadTxn, name: TableName) -> Table:
    return find(txn, name)


class ListTables(Command, frozen=True):
    account: str
    limit: int
    start: str = ""
    """The first name of the page, in lower case."""


class TablePage(NamedTuple):
    tables: list[Table]
    following: str = ""
    """The first name of the next page, in lower case; empty if there is none."""


def list_tables(txn: ReadTxn, command: ListTables) -> TablePage:
    """Returns a page of tables, in the order of their names in lower case."""
    return query_tables(txn, TableQuery(command))


class TableQuery(NamedTuple):
    """A query of tables. It is not sent to another process, so it may contain a function."""

    listed: ListTables
    matches: Callable[[Table], bool] | None = None
    terms: int = 1
    """The number of comparisons per table."""
    seconds_max: float = 0.2
    """The time after which the page ends, full or not."""


_QUERIED_TERMS_MAX: Final = 50_000
_QUERIED_ROWS_MAX: Final = 1_000


def query_tables(txn: ReadTxn, query: TableQuery) -> TablePage:
    account, limit, start = query.listed.account, query.listed.limit, query.listed.start
    span = TABLES.under((account,))
    if start:
        span = TABLES.starting(span, (account, start))
    # A duration, not a date.
    ends_at = time.monotonic() + query.seconds_max
    step = max(1, min(_QUERIED_ROWS_MAX, _QUERIED_TERMS_MAX // max(1, query.terms)))
    if query.matches is None:
        step = min(step, limit + 1)
    found: list[Table] = []
    while True:
        rows = txn.scan(TABLES, span, step)
        found += [table for _, table in rows if query.matches is None or query.matches(table)]
        if len(found) > limit:
            return TablePage(found[:limit], found[limit].name.lower())
        if len(rows) < step:
            return TablePage(found)
        span = TABLES.after(span, rows[-1][0])
        if time.monotonic() > ends_at:
            following = txn.scan(TABLES, span, 1)
            return TablePage(found, following[0][0][1] if following else "")


# Removal


class PurgeTables(Command, frozen=True):
    rows_max: int = 500


def may_purge(txn: ReadTxn, _: None) -> bool:
    """Returns whether there is something to remove, so that nothing is written if there is not."""
    return bool(
        txn.scan(DELETED_TABLES, DELETED_TABLES.all(), 1)
        or txn.scan(DROPPED_INDEXES, DROPPED_INDEXES.all(), 1)
    )


@operation(reclaims=True)
def purge_tables(txn: WriteTxn, command: PurgeTables) -> int:
    """Removes entities of deleted tables with their index rows, and rows of dropped indexes, in one
    bounded step; returns how many rows (0: nothing is left to remove)."""
    step = RemovalStep(command.rows_max)
    for (table_id,), _ in txn.scan(DELETED_TABLES, DELETED_TABLES.all(), 1, claim=True):
        removed = _remove_all(txn, step, ENTITIES, ENTITIES.under((table_id,)))
        removed += _remove_all(txn, step, PROPERTY_VALUES, PROPERTY_VALUES.under((table_id,)))
        if not step.is_over:
            txn.delete(DELETED_TABLES, (table_id,))
        return removed + 1
    for index, _ in txn.scan(DROPPED_INDEXES, DROPPED_INDEXES.all(), 1, claim=True):
        removed = _remove_all(txn, step, PROPERTY_VALUES, PROPERTY_VALUES.under(index))
        if not step.is_over:
            txn.delete(DROPPED_INDEXES, index)
        return removed + 1
    return 0


def _remove_all(
    txn: WriteTxn, step: RemovalStep, collection: Collection[Any, Any], span: Span
) -> int:
    removed = 0
    for key, _ in step.rows(txn, collection, span):
        txn.delete(collection, key)
        removed += 1
    return removed
