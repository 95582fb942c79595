"""A table of people: for tests of the table operations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from hypothesis.strategies import SearchStrategy

from etagere.engine.interface import ReadTxn, T
from etagere.model.ids import new_id
from etagere.model.service import SignedIdentifier
from etagere.model.tables import (
    Change,
    ChangeEntities,
    CreateTable,
    DeleteTable,
    Edm,
    Entity,
    EntityChange,
    GetEntity,
    Keys,
    Properties,
    SetTableAccess,
    TableName,
    Value,
)
from etagere.operations.table.collections import DELETED_TABLES, ENTITIES, TABLES
from etagere.operations.table.entities import change_entities, get_entity
from etagere.operations.table.queries import EntityPage, Query, query_entities
from etagere.operations.table.tables import (
    PurgeTables,
    create_table,
    delete_table,
    purge_tables,
    set_table_access,
)
from etagere.rules.filters import Filter, parse_filter
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
    return EntityChange(Change.INSERT, keys, known(**values))


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

    # Entities

    async def change(self, *changes: EntityChange) -> tuple[int, ...]:
        """As one group; the stamp of each."""
        return await self.shelf.write(change_entities, ChangeEntities(self.name, changes))

    async def put(self, keys: Keys, **values: Value) -> int:
        (stamp,) = await self.change(EntityChange(Change.INSERT_OR_REPLACE, keys, known(**values)))
        return stamp

    async def fill(self, keys: Iterable[Keys]) -> None:
        await self.change(*map(insert, keys))

    async def delete(self, keys: Keys) -> None:
        await self.change(EntityChange(Change.DELETE, keys))

    async def get(self, keys: Keys) -> Entity:
        return (await self.shelf.read(get_entity, GetEntity(self.name, keys))).entity

    async def query(self, query: Query) -> EntityPage:
        page = await self.shelf.read(query_entities, query)
        assert page is not None
        return page

    async def contents(self) -> dict[Keys, Entity]:
        """All that there is, in its order."""
        page = await self.query(Query(self.name, limit=1_000_000))
        assert page.following is None
        return dict(page.entities)

    async def left_behind(self) -> int:
        """How many records there are that belong to no table which there is."""
        return await self.shelf.read(_left_behind, None)


def _left_behind(txn: ReadTxn, _: None) -> int:
    there = {table.id for table in rows(txn, TABLES).values()}
    homeless = [key for key in rows(txn, ENTITIES) if key[0] not in there]
    return len(homeless) + len(rows(txn, DELETED_TABLES))


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
