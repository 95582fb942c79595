"""The fixture of the tests of the table operations: one table of people."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from hypothesis.strategies import SearchStrategy

from etagere.engine.interface import ReadTxn, T
from etagere.model.ids import new_id
from etagere.model.service import SignedIdentifier
from etagere.model.tables import (
    ChangeEntities,
    ChangeKind,
    CreateTable,
    DeleteTable,
    Edm,
    Entity,
    EntityChange,
    GetEntity,
    Keys,
    Properties,
    PropertyIndex,
    SetTableAccess,
    TableName,
    Value,
)
from etagere.operations.table.collections import (
    DELETED_TABLES,
    DROPPED_INDEXES,
    ENTITIES,
    PROPERTY_VALUES,
    TABLES,
)
from etagere.operations.table.entities import change_entities, get_entity
from etagere.operations.table.indexes import (
    BuildIndex,
    CountUses,
    DropUnused,
    RequestIndex,
    build_index,
    count_uses,
    drop_unused,
    find_unused,
    request_index,
)
from etagere.operations.table.queries import EntityPage, Query, query_entities
from etagere.operations.table.tables import (
    PurgeTables,
    create_table,
    delete_table,
    get_table,
    purge_tables,
    set_table_access,
)
from etagere.rules.filters import Filter, parse_filter
from etagere.rules.indexes import indexed_value
from tests.operations.blob.consistency import rows
from tests.operations.fixture import ACCOUNT, EngineFixture, Test, engine_property_test, engine_test

PEOPLE: Final = TableName(ACCOUNT, "People")
ADA: Final = Keys("Lovelace", "Ada")

_LETTERS: Final[dict[type, str]] = {
    str: Edm.STRING.value,
    bool: Edm.BOOLEAN.value,
    int: Edm.INT32.value,
    float: Edm.DOUBLE.value,
    bytes: Edm.BINARY.value,
}


def properties_of(**values: Value) -> Properties:
    """Returns properties by name, with the EDM type that matches each Python type."""
    types = "".join(_LETTERS[type(value)] for value in values.values())
    return Properties(tuple(values), types, tuple(values.values()))


def insert(keys: Keys, **values: Value) -> EntityChange:
    return EntityChange(ChangeKind.INSERT, keys, properties_of(**values))


def filter_of(text: str) -> Filter:
    parsed = parse_filter(text)
    assert isinstance(parsed, Filter), parsed
    return parsed


class TableFixture:
    """Table operations with short signatures, on one table."""

    def __init__(self, base: EngineFixture, name: TableName = PEOPLE) -> None:
        self.base = base
        self.clock = base.clock
        self.engine = base.engine
        self.read = base.read
        self.write = base.write
        self.name = name

    @classmethod
    async def created(cls, base: EngineFixture) -> TableFixture:
        table = cls(base)
        await table.create()
        return table

    def named(self, name: str) -> TableFixture:
        """Returns a fixture for another table of the same account."""
        return TableFixture(self.base, TableName(self.name.account, name))

    # Tables

    async def create(self) -> None:
        await self.write(create_table, CreateTable(self.name, new_id()))

    async def delete_table(self) -> None:
        await self.write(delete_table, DeleteTable(self.name))

    async def set_access(self, *policies: SignedIdentifier) -> None:
        await self.write(set_table_access, SetTableAccess(self.name, policies))

    async def purge_step(self, rows_max: int = 500) -> int:
        return await self.write(purge_tables, PurgeTables(rows_max))

    async def purge(self) -> None:
        while await self.purge_step():
            pass

    # Indexes

    async def request_index(self, name: str, demand: float = 1.0) -> bool:
        return await self.write(request_index, RequestIndex(self.name, name, demand))

    async def count_uses(self, uses: dict[str, int]) -> None:
        await self.write(count_uses, CountUses(self.name, uses))

    async def unused(self) -> list[TableName]:
        return (await self.read(find_unused, None)).tables

    async def drop_unused(self) -> None:
        await self.write(drop_unused, DropUnused(self.name))

    async def build_step(self, name: str, rows_max: int = 250) -> bool:
        return await self.write(build_index, BuildIndex(self.name, name, rows_max))

    async def index(self, *names: str) -> None:
        """Creates and builds an index on each property."""
        for name in names:
            await self.request_index(name)
            while await self.build_step(name):
                pass

    async def indexes(self) -> tuple[PropertyIndex, ...]:
        return (await self.read(get_table, self.name)).indexes

    async def require_index_consistency(self) -> int:
        """Checks every index against the entities; returns the number of rows."""
        return await self.read(require_index_consistency, None)

    # Entities

    async def change(self, *changes: EntityChange) -> tuple[int, ...]:
        """Runs changes as one group; returns the stamp of each."""
        return await self.write(change_entities, ChangeEntities(self.name, changes))

    async def put(self, keys: Keys, **values: Value) -> int:
        (stamp,) = await self.change(
            EntityChange(ChangeKind.INSERT_OR_REPLACE, keys, properties_of(**values))
        )
        return stamp

    async def fill(self, keys: Iterable[Keys]) -> None:
        await self.change(*map(insert, keys))

    async def delete(self, keys: Keys) -> None:
        await self.change(EntityChange(ChangeKind.DELETE, keys))

    async def get(self, keys: Keys) -> Entity:
        return (await self.read(get_entity, GetEntity(self.name, keys))).entity

    async def query(self, query: Query) -> EntityPage:
        page = await self.read(query_entities, query)
        assert page is not None
        return page

    async def contents(self) -> dict[Keys, Entity]:
        """Returns all entities in key order."""
        page = await self.query(Query(self.name, limit=1_000_000, seconds_max=60.0))
        assert page.following is None
        return dict(page.entities)

    async def orphaned_records(self) -> int:
        """Counts the records that belong to no existing table."""
        return await self.read(orphaned_records, None)


def orphaned_records(txn: ReadTxn, _: None) -> int:
    there = {table.id for table in rows(txn, TABLES).values()}
    orphaned = [key for key in rows(txn, ENTITIES) if key[0] not in there]
    indexed = [key for key in rows(txn, PROPERTY_VALUES) if key[0] not in there]
    return len(orphaned) + len(indexed) + len(rows(txn, DELETED_TABLES))


def require_index_consistency(txn: ReadTxn, _: None) -> int:
    """Checks that an index has exactly one row per entity that has its property; one that is being
    built may lack rows behind the point it has reached. Returns the number of rows."""
    there = {table.id: table for table in rows(txn, TABLES).values()}
    dropped = rows(txn, DROPPED_INDEXES)
    found = {
        key for key in rows(txn, PROPERTY_VALUES) if key[0] in there and key[:2] not in dropped
    }
    expected, needed = set(), set()
    for (table_id, partition, row), entity in rows(txn, ENTITIES).items():
        keys = Keys(partition, row)
        for index in there[table_id].indexes if table_id in there else ():
            value = indexed_value(index.name, keys, entity)
            if value is not None:
                place = (table_id, index.number, value, partition, row)
                expected.add(place)
                if index.is_ready or (index.built is not None and keys <= index.built):
                    needed.add(place)
    assert needed <= found <= expected
    return len(found)


def table_test(body: Callable[[TableFixture], Awaitable[None]]) -> Test:
    """Turns a coroutine into a test that runs with every engine."""

    async def on_engine(base: EngineFixture) -> None:
        await body(await TableFixture.created(base))

    return engine_test(EngineFixture, functools.wraps(body)(on_engine))


def table_property_test(
    examples: SearchStrategy[T], *, count: int
) -> Callable[[Callable[[TableFixture, T], Awaitable[None]]], Test]:
    """Turns a coroutine into a property test; every example has an empty table."""

    def decorate(body: Callable[[TableFixture, T], Awaitable[None]]) -> Test:
        async def on_engine(base: EngineFixture, example: T) -> None:
            table = await TableFixture.created(base)
            await body(table, example)
            await table.delete_table()

        return engine_property_test(
            EngineFixture, examples, count, functools.wraps(body)(on_engine)
        )

    return decorate
