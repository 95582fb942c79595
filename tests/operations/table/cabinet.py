"""A table of people: for tests of the table operations."""

from __future__ import annotations

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
from tests.operations.blob.accounts import rows
from tests.operations.blob.shelf import ACCOUNT, Shelf, Test, on_a_shelf, on_a_shelf_for_any

PEOPLE: Final = TableName(ACCOUNT, "People")
ADA: Final = Keys("Lovelace", "Ada")

_LETTERS: Final[dict[type, str]] = {
    str: Edm.STRING.value,
    bool: Edm.BOOLEAN.value,
    int: Edm.INT32.value,
    float: Edm.DOUBLE.value,
    bytes: Edm.BINARY.value,
}


def known(**values: Value) -> Properties:
    """Properties by their names, each of the type that its value has in Python."""
    types = "".join(_LETTERS[type(value)] for value in values.values())
    return Properties(tuple(values), types, tuple(values.values()))


def insert(keys: Keys, **values: Value) -> EntityChange:
    return EntityChange(ChangeKind.INSERT, keys, known(**values))


def filter_of(text: str) -> Filter:
    parsed = parse_filter(text)
    assert isinstance(parsed, Filter), parsed
    return parsed


class Cabinet:
    """What a test does with a table, in a few words each."""

    def __init__(self, shelf: Shelf, name: TableName = PEOPLE) -> None:
        self.shelf = shelf
        self.name = name

    @classmethod
    async def at(cls, shelf: Shelf) -> Cabinet:
        cabinet = cls(shelf)
        await cabinet.create()
        return cabinet

    def called(self, name: str) -> Cabinet:
        """Another table of the same account."""
        return Cabinet(self.shelf, TableName(self.name.account, name))

    # Tables

    async def create(self) -> None:
        await self.shelf.write(create_table, CreateTable(self.name, new_id()))

    async def delete_table(self) -> None:
        await self.shelf.write(delete_table, DeleteTable(self.name))

    async def set_access(self, *policies: SignedIdentifier) -> None:
        await self.shelf.write(set_table_access, SetTableAccess(self.name, policies))

    async def purge_step(self, rows_max: int = 500) -> int:
        return await self.shelf.write(purge_tables, PurgeTables(rows_max))

    async def purge(self) -> None:
        while await self.purge_step():
            pass

    # Indexes

    async def want(self, name: str, demand: float = 1.0) -> bool:
        return await self.shelf.write(request_index, RequestIndex(self.name, name, demand))

    async def count_uses(self, uses: dict[str, int]) -> None:
        await self.shelf.write(count_uses, CountUses(self.name, uses))

    async def unused(self) -> list[TableName]:
        return (await self.shelf.read(find_unused, None)).tables

    async def drop_unused(self) -> None:
        await self.shelf.write(drop_unused, DropUnused(self.name))

    async def build_step(self, name: str, rows_max: int = 250) -> bool:
        return await self.shelf.write(build_index, BuildIndex(self.name, name, rows_max))

    async def index(self, *names: str) -> None:
        """Makes an index on each, and builds it."""
        for name in names:
            await self.want(name)
            while await self.build_step(name):
                pass

    async def indexes(self) -> tuple[PropertyIndex, ...]:
        return (await self.shelf.read(get_table, self.name)).indexes

    async def require_agreement(self) -> int:
        """Of all that is indexed; returns how many rows that is."""
        return await self.shelf.read(require_agreement, None)

    # Entities

    async def change(self, *changes: EntityChange) -> tuple[int, ...]:
        """As one group; the stamp of each."""
        return await self.shelf.write(change_entities, ChangeEntities(self.name, changes))

    async def put(self, keys: Keys, **values: Value) -> int:
        (stamp,) = await self.change(
            EntityChange(ChangeKind.INSERT_OR_REPLACE, keys, known(**values))
        )
        return stamp

    async def fill(self, keys: Iterable[Keys]) -> None:
        await self.change(*map(insert, keys))

    async def delete(self, keys: Keys) -> None:
        await self.change(EntityChange(ChangeKind.DELETE, keys))

    async def get(self, keys: Keys) -> Entity:
        return (await self.shelf.read(get_entity, GetEntity(self.name, keys))).entity

    async def query(self, query: Query) -> EntityPage:
        page = await self.shelf.read(query_entities, query)
        assert page is not None
        return page

    async def contents(self) -> dict[Keys, Entity]:
        """All that there is, in its order."""
        page = await self.query(Query(self.name, limit=1_000_000, seconds_max=60.0))
        assert page.following is None
        return dict(page.entities)

    async def left_behind(self) -> int:
        """How many records there are that belong to no table which there is."""
        return await self.shelf.read(left_behind, None)


def left_behind(txn: ReadTxn, _: None) -> int:
    there = {table.id for table in rows(txn, TABLES).values()}
    homeless = [key for key in rows(txn, ENTITIES) if key[0] not in there]
    indexed = [key for key in rows(txn, PROPERTY_VALUES) if key[0] not in there]
    return len(homeless) + len(indexed) + len(rows(txn, DELETED_TABLES))


def require_agreement(txn: ReadTxn, _: None) -> int:
    """An index has a row for each entity that has something to be found by, and no other; one that
    is being built may lack those of entities that are to come."""
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


# How a coroutine becomes a test


def at_a_cabinet(body: Callable[[Cabinet], Awaitable[None]]) -> Test:
    """Makes a coroutine a plain test that is run against every engine."""

    async def on_shelf(shelf: Shelf) -> None:
        await body(await Cabinet.at(shelf))

    on_shelf.__name__ = getattr(body, "__name__", "test")
    on_shelf.__doc__ = body.__doc__
    return on_a_shelf(on_shelf)


def at_a_cabinet_for_any(
    examples: SearchStrategy[T], *, count: int
) -> Callable[[Callable[[Cabinet, T], Awaitable[None]]], Test]:
    """The same for a coroutine of an example as well; each has a table without entities."""

    def decorate(body: Callable[[Cabinet, T], Awaitable[None]]) -> Test:
        async def on_shelf(shelf: Shelf, example: T) -> None:
            cabinet = await Cabinet.at(shelf)
            await body(cabinet, example)
            await cabinet.delete_table()

        on_shelf.__name__ = getattr(body, "__name__", "test")
        on_shelf.__doc__ = body.__doc__
        return on_a_shelf_for_any(examples, count=count)(on_shelf)

    return decorate
