"""Tables: made, shown, listed and deleted."""

from __future__ import annotations

import msgspec

from etagere.engine.interface import EXCLUSIVE, SHARED, ReadTxn, Refused, WriteTxn, operation
from etagere.errors import Refusal
from etagere.model.base import Command
from etagere.model.service import SignedIdentifier
from etagere.model.tables import (
    CreateTable,
    DeletedTable,
    DeleteTable,
    SetTableAccess,
    Table,
    TableName,
)
from etagere.operations.account_records import ACCOUNTS
from etagere.operations.table.collections import DELETED_TABLES, ENTITIES, PROPERTY_VALUES, TABLES
from etagere.rules.entities import check_table_name


@operation
def create_table(txn: WriteTxn, command: CreateTable) -> None:
    # Nobody removes the account meanwhile, be it stored or not.
    txn.get(ACCOUNTS, (command.table.account,), SHARED)
    if txn.get(TABLES, command.table.key, EXCLUSIVE) is not None:
        raise Refused(Refusal("TableAlreadyExists"))
    txn.put(TABLES, command.table.key, Table(command.id, command.table.name))


@operation(reclaims=True)
def delete_table(txn: WriteTxn, command: DeleteTable) -> None:
    """The name is free at once; the entities are removed in bounded steps."""
    table = txn.get(TABLES, command.table.key, EXCLUSIVE)
    if table is None:
        raise Refused(Refusal("ResourceNotFound"))
    txn.delete(TABLES, command.table.key)
    txn.put(DELETED_TABLES, (table.id,), DeletedTable())


@operation
def set_table_access(txn: WriteTxn, command: SetTableAccess) -> None:
    """In force for the next request, whoever it comes to."""
    table = find_guarded(txn, command.table, exclusive=True)
    changed = msgspec.structs.replace(table, policies=command.policies)
    txn.put(TABLES, command.table.key, changed)


def get_table(txn: ReadTxn, name: TableName) -> Table:
    return find(txn, name)


class ListTables(Command, frozen=True):
    account: str
    limit: int
    start: str = ""
    """The first name to look at, in lower case."""


def list_tables(txn: ReadTxn, command: ListTables) -> list[Table]:
    """In the order of their names in lower case."""
    span = TABLES.under((command.account,))
    if command.start:
        span = TABLES.starting(span, (command.account, command.start))
    return [table for _, table in txn.scan(TABLES, span, command.limit)]


def policies_of(txn: ReadTxn, place: tuple[str, str]) -> tuple[SignedIdentifier, ...]:
    """The stored policies of a table, by account and name, whatever that may be."""
    account, name = place
    if check_table_name(name) is not None:
        return ()
    table = txn.get(TABLES, (account, name.lower()))
    return table.policies if table is not None else ()


def find(txn: ReadTxn, name: TableName) -> Table:
    table = txn.get(TABLES, name.key)
    if table is None:
        raise Refused(Refusal("TableNotFound"))
    return table


def find_guarded(txn: WriteTxn, name: TableName, *, exclusive: bool = False) -> Table:
    """Shared for whoever changes what is in it, exclusive for whoever changes itself."""
    table = txn.get(TABLES, name.key, EXCLUSIVE if exclusive else SHARED)
    if table is None:
        raise Refused(Refusal("TableNotFound"))
    return table


# What is removed later


class PurgeTables(Command, frozen=True):
    rows_max: int = 500


def may_purge(txn: ReadTxn, _: None) -> bool:
    """Whether there is something to remove, so that nothing is written when there is not."""
    return bool(txn.scan(DELETED_TABLES, DELETED_TABLES.all(), 1))


@operation(reclaims=True)
def purge_tables(txn: WriteTxn, command: PurgeTables) -> int:
    """One bounded step of removing the entities of deleted tables and what is indexed of them;
    returns how many rows that were (0: nothing is left to remove)."""
    for (table_id,), _ in txn.scan(DELETED_TABLES, DELETED_TABLES.all(), 1, claim=True):
        rows = txn.scan(ENTITIES, ENTITIES.under((table_id,)), command.rows_max)
        room = command.rows_max - len(rows)
        indexed = txn.scan(PROPERTY_VALUES, PROPERTY_VALUES.under((table_id,)), room)
        for key, _ in rows:
            txn.delete(ENTITIES, key)
        for place, _ in indexed:
            txn.delete(PROPERTY_VALUES, place)
        if len(indexed) < room:
            txn.delete(DELETED_TABLES, (table_id,))
        return len(rows) + len(indexed) + 1
    return 0
