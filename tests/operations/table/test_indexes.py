"""Property indexes: building, maintenance, removal, use and demand."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
import pytest

from etagere.clock import TICKS_PER_SECOND
from etagere.engine.interface import Refused, WriteTxn, operation
from etagere.engine.records import ENCODE
from etagere.model.service import AccessPolicy, SignedIdentifier
from etagere.model.tables import ChangeKind, EntityChange, Keys, PropertyIndex, Table, TableName
from etagere.operations.table.collections import TABLES
from etagere.operations.table.queries import EntityPage
from etagere.rules.indexes import INDEXES_MAX, UNUSED_TICKS_MAX
from tests.operations.table.fixture import TableFixture, insert, properties_of, table_test
from tests.operations.table.test_queries import asking, counted, keys_of


def shape(index: PropertyIndex) -> PropertyIndex:
    """Returns an index without its times of creation and use."""
    return msgspec.structs.replace(index, created_at=0, used_at=0, score=0.0)


# Building


@table_test
async def test_a_build_resumes_where_it_stopped(table: TableFixture) -> None:
    all_keys = [Keys(partition, str(row)) for partition in "ab" for row in range(5)]
    await table.change(*(insert(keys, A=1) for keys in all_keys))
    assert await table.request_index("A")
    assert await table.require_index_consistency() == 0
    for step in range(5):
        assert await table.build_step("A", 2)
        (index,) = await table.indexes()
        assert shape(index) == PropertyIndex(0, "A", all_keys[2 * step + 1])
        assert await table.require_index_consistency() == 2 * step + 2
    assert not await table.build_step("A", 2)
    assert [*map(shape, await table.indexes())] == [PropertyIndex(0, "A", is_ready=True)]
    assert not await table.build_step("A", 2)
    assert not await table.request_index("A")
    assert await table.require_index_consistency() == 10


@table_test
async def test_changes_between_the_steps(table: TableFixture) -> None:
    await table.change(*(insert(Keys("p", str(row)), A=row) for row in range(6)))
    await table.request_index("A")
    await table.build_step("A", 3)
    for row in ("1", "4"):
        await table.put(Keys("p", row), A="other")
    for row in ("0", "2", "5"):
        await table.delete(Keys("p", row))
    for row in ("00", "7"):
        await table.put(Keys("p", row), A=7)
    assert await table.require_index_consistency() == 4
    await table.index("A")
    assert await table.require_index_consistency() == 5
    for text, expected in (("A eq 'other'", "1 4"), ("A eq 7", "00 7"), ("A eq 3", "3")):
        page = await table.query(asking(text))
        assert [keys.row for keys in keys_of(page)] == expected.split()


@table_test
async def test_a_step_reads_few_large_entities(table: TableFixture) -> None:
    large = {f"P{number}": "x" * 30_000 for number in range(10)}
    for row in range(60):
        await table.put(Keys("p", f"{row:02}"), A=1, **large)
    await table.request_index("A")
    await table.build_step("A")
    assert 0 < await table.require_index_consistency() < 60
    await table.index("A")
    assert await table.require_index_consistency() == 60


@table_test
async def test_rows_follow_their_entity(table: TableFixture) -> None:
    keys = Keys("p", "r")
    await table.index("A", "B")

    async def found(text: str) -> int:
        await table.require_index_consistency()
        return len((await table.query(asking(text))).entities)

    await table.change(insert(keys, A=1, B="x"))
    assert await found("A eq 1") == await found("B eq 'x'") == 1
    await table.change(EntityChange(ChangeKind.MERGE, keys, properties_of(A="1")))
    assert await found("A eq 1") == 0
    assert await found("A eq '1'") == await found("B eq 'x'") == 1
    await table.change(EntityChange(ChangeKind.REPLACE, keys, properties_of(A="1")))
    assert await found("B eq 'x'") == 0
    assert await table.require_index_consistency() == 1
    await table.delete(keys)
    assert await found("A eq '1'") == 0
    assert await table.require_index_consistency() == 0


@table_test
async def test_refused_groups_leave_no_row(table: TableFixture) -> None:
    await table.index("A")
    await table.change(insert(Keys("p", "0"), A=0))
    with pytest.raises(Refused, match="EntityAlreadyExists"):
        await table.change(insert(Keys("p", "1"), A=1), insert(Keys("p", "0"), A=2))
    assert await table.require_index_consistency() == 1


@table_test
async def test_the_number_of_indexes_is_limited(table: TableFixture) -> None:
    names = [f"P{number}" for number in range(INDEXES_MAX)]
    for name in names:
        assert await table.request_index(name)
        assert await table.request_index(name)
    assert not await table.request_index("Other")
    assert [index.name for index in await table.indexes()] == names
    assert not await table.build_step("Other")


@table_test
async def test_a_purge_leaves_no_row(table: TableFixture) -> None:
    for row in range(10):
        await table.put(Keys("p", str(row)), A=row)
    await table.index("A", "RowKey")
    await table.delete_table()
    # Building an index of a deleted table does nothing, even if a table of the same name exists.
    assert not await table.build_step("A")
    assert not await table.request_index("A")
    await table.create()
    assert not await table.build_step("A")
    assert await table.indexes() == ()
    assert await table.orphaned_records() == 31
    # Ten entities, twenty index rows and the record of the deleted table.
    steps = [await table.purge_step(4) for _ in range(9)]
    assert steps == [5, 5, 5, 5, 5, 5, 5, 3, 0]
    assert await table.orphaned_records() == 0


@table_test
async def test_set_access_keeps_the_indexes(table: TableFixture) -> None:
    await table.index("A")
    await table.set_access(SignedIdentifier("readers", AccessPolicy(permission="r")))
    assert [*map(shape, await table.indexes())] == [PropertyIndex(0, "A", is_ready=True)]


@table_test
async def test_concurrent_builds_and_changes(table: TableFixture) -> None:
    for row in range(40):
        await table.put(Keys("p", f"{row:02}"), A=row)

    async def build() -> None:
        await table.request_index("A")
        while await table.build_step("A", 3):
            pass

    async def change(first: int) -> None:
        for row in range(first, 60, 3):
            await table.put(Keys("p", f"{row:02}"), A=-row)
            if row % 2:
                await table.delete(Keys("p", f"{row:02}"))

    await asyncio.gather(build(), build(), *(change(first) for first in range(3)))
    await table.index("A")
    assert await table.require_index_consistency() == len(await table.contents()) == 30


def test_tables_of_older_versions_have_no_indexes() -> None:
    stored = ENCODE((1, bytes(16), "People", ()))
    assert TABLES.decode(stored) == Table(bytes(16), "People")


# Use and demand

MANY: Final = [Keys(str(group), f"{row:02}") for group in range(60) for row in range(100)]


async def filled_with_many(table: TableFixture) -> None:
    """Fills the table: `Number` is unique per entity, `Half` has one value in half of them."""
    for first in range(0, len(MANY), 100):
        share = list(enumerate(MANY[first : first + 100], first))
        await table.change(*(insert(keys, Number=n, Half=n % 2) for n, keys in share))


async def cost(table: TableFixture, text: str, **options: Any) -> tuple[EntityPage, int]:
    page, seen = await table.read(counted, asking(text, **options))
    assert page is not None
    return page, seen


@table_test
async def test_cost_of_an_indexed_query_follows_its_results(table: TableFixture) -> None:
    await filled_with_many(table)
    _, seen = await cost(table, "Number eq 5000")
    assert seen == len(MANY)
    await table.index("Number", "Half")
    for text, count in (
        ("Number eq 5000", 1),
        ("Number eq 5000 and Half eq 0", 1),
        ("Number ge 5000 and Number lt 5100", 100),
        ("Number eq 1 or Number eq 5000", 2),
        ("Number eq -1", 0),
        ("Half eq 2", 0),
        ("Half eq 0 and PartitionKey eq '3'", 50),
    ):
        page, seen = await cost(table, text)
        assert len(page.entities) == count
        # One index row and one entity per result; both ends of a range are inclusive.
        assert seen <= 2 * count + 2
        assert page.missing_index is None
    # Cheap, although the scan would read much.
    page, _ = await cost(table, "Number eq 5000", rows_max=256)
    assert page is not None
    # Many results: the scan starts first, in case the page fills soon.
    page, seen = await cost(table, "Number ge 3000 and Number lt 3300")
    assert len(page.entities) == 300
    assert seen < 2_500
    page, seen = await cost(table, "Half eq 0", limit=10)
    assert len(page.entities) == 10
    assert seen < 200


@table_test
async def test_requested_indexes(table: TableFixture) -> None:
    await filled_with_many(table)
    for text, missing_index in (
        ("Number eq 5", "Number"),
        ("Half eq 1 and Number eq 5", "Half"),
        ("Half ge 1 and Number eq 5", "Number"),
        ("RowKey eq '05' and Half eq 7", "RowKey"),
        # No index could help, or none is needed.
        ("Number ne 5 and Half ne 0 and Half ne 1", None),
        ("not (Number ge 0)", None),
        ("Number eq NaN", None),
        ("Half eq 1", None),
        ("Number ge 0", None),
        ("Number ge 5700", None),
        ("Number ge 5950", "Number"),
        ("PartitionKey eq '3' and Number eq 301", None),
        ("", None),
    ):
        page, _ = await cost(table, text)
        assert page.missing_index == missing_index, text
    # An index that is not ready must be continued.
    await table.request_index("Number")
    assert (await cost(table, "Number eq 5"))[0].missing_index == "Number"
    await table.index("Number")
    assert (await cost(table, "Number eq 5"))[0].missing_index is None
    # An index finds nothing for a property that no entity has.
    for text in ("Absent eq 1", "Absent eq 1 and Missing ge 'x'"):
        assert (await cost(table, text))[0].missing_index is None
    assert (await cost(table, "Absent eq 1 and RowKey eq '05'"))[0].missing_index == "RowKey"


@table_test
async def test_an_index_is_requested_for_a_rare_property(table: TableFixture) -> None:
    await filled_with_many(table)
    assert (await cost(table, "Rare eq 1"))[0].missing_index is None
    await table.put(MANY[3_000], Rare=1)
    assert (await cost(table, "Rare eq 1"))[0].missing_index == "Rare"
    assert (await cost(table, "Rare eq 2"))[0].missing_index is None


# Eviction

_MINUTE: Final = 60 * TICKS_PER_SECOND


async def _full(table: TableFixture) -> list[str]:
    table.clock.freeze()
    names = [f"P{number}" for number in range(INDEXES_MAX)]
    await table.put(Keys("p", "r"), Other=1, **dict.fromkeys(names, 1))
    await table.index(*names)
    return names


@table_test
async def test_the_least_used_index_is_replaced(table: TableFixture) -> None:
    names = await _full(table)
    await table.count_uses(dict.fromkeys(names, 10) | {"P2": 1})
    # Not before it had time to be used.
    assert not await table.request_index("Other", 5)
    table.clock.advance(2 * _MINUTE)
    assert not await table.request_index("Other", 1)
    assert await table.request_index("Other", 5)
    assert {index.name for index in await table.indexes()} == {"P0", "P1", "P3", "Other"}
    # The others are used more often than this one is requested.
    table.clock.advance(2 * _MINUTE)
    await table.count_uses({"Other": 100})
    for demand in (5, 19):
        assert not await table.request_index("P2", demand)
    for _ in range(50):
        await table.count_uses(dict.fromkeys(names, 10))
    assert not await table.request_index("P2", 1e9)


@table_test
async def test_a_dropped_index_leaves_no_rows_and_its_number_is_not_reused(
    table: TableFixture,
) -> None:
    await _full(table)
    for row in range(20):
        await table.put(Keys("p", f"{row:02}"), P0=row, Other=row)
    table.clock.advance(2 * _MINUTE)
    assert await table.request_index("Other", 5)
    # Changes before the rows are removed leave them alone.
    await table.put(Keys("p", "00"), P0=-1, Other=-1)
    await table.delete(Keys("p", "01"))
    await table.index("Other")
    assert [index.number for index in await table.indexes()] == [1, 2, 3, 4]
    steps = [await table.purge_step(8) for _ in range(4)]
    assert steps == [9, 9, 6, 0]
    assert await table.require_index_consistency() == 19 + 1 + 3
    page = await table.query(asking("Other eq -1"))
    assert keys_of(page) == [Keys("p", "00")]


@table_test
async def test_unused_indexes_are_dropped(table: TableFixture) -> None:
    names = await _full(table)
    assert not await table.unused()
    table.clock.advance(UNUSED_TICKS_MAX - _MINUTE)
    await table.count_uses({"P1": 1})
    table.clock.advance(2 * _MINUTE)
    assert await table.unused() == [table.name]
    await table.drop_unused()
    assert [index.name for index in await table.indexes()] == ["P1"]
    assert not await table.unused()
    await table.purge()
    assert await table.require_index_consistency() == 1
    # There is room for others again.
    assert await table.request_index("P0")
    assert len(names) == INDEXES_MAX


@table_test
async def test_indexes_without_stored_times_are_kept_at_first(table: TableFixture) -> None:
    table.clock.freeze()
    await table.index("A")
    await table.write(forget_times, table.name)
    assert await table.unused() == [table.name]
    await table.drop_unused()
    assert not await table.unused()
    assert [index.name for index in await table.indexes()] == ["A"]
    table.clock.advance(UNUSED_TICKS_MAX + _MINUTE)
    await table.drop_unused()
    assert await table.indexes() == ()


@operation
def forget_times(txn: WriteTxn, name: TableName) -> None:
    table = txn.get(TABLES, name.key)
    assert table is not None
    old = tuple([shape(index) for index in table.indexes])
    txn.put(TABLES, name.key, msgspec.structs.replace(table, indexes=old, indexes_made=0))
