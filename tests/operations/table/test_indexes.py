"""Indexes on properties: how they are made, kept, removed, used and wished for."""

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
from tests.operations.table.cabinet import Cabinet, at_a_cabinet, insert, known
from tests.operations.table.test_queries import asking, counted, keys_of


def shape(index: PropertyIndex) -> PropertyIndex:
    """An index without the times at which it was made and used."""
    return msgspec.structs.replace(index, created_at=0, used_at=0, score=0.0)


# How they are made


@at_a_cabinet
async def test_a_build_goes_on_where_it_stopped(cabinet: Cabinet) -> None:
    everybody = [Keys(partition, str(row)) for partition in "ab" for row in range(5)]
    await cabinet.change(*(insert(keys, A=1) for keys in everybody))
    assert await cabinet.want("A")
    assert await cabinet.require_agreement() == 0
    for step in range(5):
        assert await cabinet.build_step("A", 2)
        (index,) = await cabinet.indexes()
        assert shape(index) == PropertyIndex(0, "A", everybody[2 * step + 1])
        assert await cabinet.require_agreement() == 2 * step + 2
    assert not await cabinet.build_step("A", 2)
    assert [*map(shape, await cabinet.indexes())] == [PropertyIndex(0, "A", is_ready=True)]
    assert not await cabinet.build_step("A", 2)
    assert not await cabinet.want("A")
    assert await cabinet.require_agreement() == 10


@at_a_cabinet
async def test_changes_between_the_steps(cabinet: Cabinet) -> None:
    await cabinet.change(*(insert(Keys("p", str(row)), A=row) for row in range(6)))
    await cabinet.want("A")
    await cabinet.build_step("A", 3)
    for row in ("1", "4"):
        await cabinet.put(Keys("p", row), A="other")
    for row in ("0", "2", "5"):
        await cabinet.delete(Keys("p", row))
    for row in ("00", "7"):
        await cabinet.put(Keys("p", row), A=7)
    assert await cabinet.require_agreement() == 4
    await cabinet.index("A")
    assert await cabinet.require_agreement() == 5
    for text, expected in (("A eq 'other'", "1 4"), ("A eq 7", "00 7"), ("A eq 3", "3")):
        page = await cabinet.query(asking(text))
        assert [keys.row for keys in keys_of(page)] == expected.split()


@at_a_cabinet
async def test_a_step_looks_at_few_large_entities(cabinet: Cabinet) -> None:
    large = {f"P{number}": "x" * 30_000 for number in range(10)}
    for row in range(60):
        await cabinet.put(Keys("p", f"{row:02}"), A=1, **large)
    await cabinet.want("A")
    await cabinet.build_step("A")
    assert 0 < await cabinet.require_agreement() < 60
    await cabinet.index("A")
    assert await cabinet.require_agreement() == 60


@at_a_cabinet
async def test_rows_follow_their_entity(cabinet: Cabinet) -> None:
    keys = Keys("p", "r")
    await cabinet.index("A", "B")

    async def found(text: str) -> int:
        await cabinet.require_agreement()
        return len((await cabinet.query(asking(text))).entities)

    await cabinet.change(insert(keys, A=1, B="x"))
    assert await found("A eq 1") == await found("B eq 'x'") == 1
    await cabinet.change(EntityChange(ChangeKind.MERGE, keys, known(A="1")))
    assert await found("A eq 1") == 0
    assert await found("A eq '1'") == await found("B eq 'x'") == 1
    await cabinet.change(EntityChange(ChangeKind.REPLACE, keys, known(A="1")))
    assert await found("B eq 'x'") == 0
    assert await cabinet.require_agreement() == 1
    await cabinet.delete(keys)
    assert await found("A eq '1'") == 0
    assert await cabinet.require_agreement() == 0


@at_a_cabinet
async def test_refused_groups_leave_no_row(cabinet: Cabinet) -> None:
    await cabinet.index("A")
    await cabinet.change(insert(Keys("p", "0"), A=0))
    with pytest.raises(Refused, match="EntityAlreadyExists"):
        await cabinet.change(insert(Keys("p", "1"), A=1), insert(Keys("p", "0"), A=2))
    assert await cabinet.require_agreement() == 1


@at_a_cabinet
async def test_no_more_than_there_may_be(cabinet: Cabinet) -> None:
    names = [f"P{number}" for number in range(INDEXES_MAX)]
    for name in names:
        assert await cabinet.want(name)
        assert await cabinet.want(name)
    assert not await cabinet.want("Other")
    assert [index.name for index in await cabinet.indexes()] == names
    assert not await cabinet.build_step("Other")


@at_a_cabinet
async def test_a_purge_leaves_no_row(cabinet: Cabinet) -> None:
    for row in range(10):
        await cabinet.put(Keys("p", str(row)), A=row)
    await cabinet.index("A", "RowKey")
    await cabinet.delete_table()
    # Who goes on building what is gone does nothing, be there a namesake or not.
    assert not await cabinet.build_step("A")
    assert not await cabinet.want("A")
    await cabinet.create()
    assert not await cabinet.build_step("A")
    assert await cabinet.indexes() == ()
    assert await cabinet.left_behind() == 31
    # Ten entities and twenty rows, and that the table was deleted.
    steps = [await cabinet.purge_step(4) for _ in range(9)]
    assert steps == [5, 5, 5, 5, 5, 5, 5, 3, 0]
    assert await cabinet.left_behind() == 0


@at_a_cabinet
async def test_who_changes_access_keeps_the_indexes(cabinet: Cabinet) -> None:
    await cabinet.index("A")
    await cabinet.set_access(SignedIdentifier("readers", AccessPolicy(permission="r")))
    assert [*map(shape, await cabinet.indexes())] == [PropertyIndex(0, "A", is_ready=True)]


@at_a_cabinet
async def test_several_build_and_change_at_once(cabinet: Cabinet) -> None:
    for row in range(40):
        await cabinet.put(Keys("p", f"{row:02}"), A=row)

    async def build() -> None:
        await cabinet.want("A")
        while await cabinet.build_step("A", 3):
            pass

    async def change(first: int) -> None:
        for row in range(first, 60, 3):
            await cabinet.put(Keys("p", f"{row:02}"), A=-row)
            if row % 2:
                await cabinet.delete(Keys("p", f"{row:02}"))

    await asyncio.gather(build(), build(), *(change(first) for first in range(3)))
    await cabinet.index("A")
    assert await cabinet.require_agreement() == len(await cabinet.contents()) == 30


def test_a_table_that_was_stored_without_indexes_is_read() -> None:
    stored = ENCODE((1, bytes(16), "People", ()))
    assert TABLES.decode(stored) == Table(bytes(16), "People")


# When they are used, and wished for

MANY: Final = [Keys(str(group), f"{row:02}") for group in range(60) for row in range(100)]


async def filled_with_many(cabinet: Cabinet) -> None:
    """In `Number` each has its own, in `Half` half of them have the same."""
    for first in range(0, len(MANY), 100):
        share = list(enumerate(MANY[first : first + 100], first))
        await cabinet.change(*(insert(keys, Number=n, Half=n % 2) for n, keys in share))


async def cost(cabinet: Cabinet, text: str, **options: Any) -> tuple[EntityPage, int]:
    page, seen = await cabinet.shelf.read(counted, asking(text, **options))
    assert page is not None
    return page, seen


@at_a_cabinet
async def test_what_is_found_by_an_index_costs_what_it_is(cabinet: Cabinet) -> None:
    await filled_with_many(cabinet)
    _, seen = await cost(cabinet, "Number eq 5000")
    assert seen == len(MANY)
    await cabinet.index("Number", "Half")
    for text, count in (
        ("Number eq 5000", 1),
        ("Number eq 5000 and Half eq 0", 1),
        ("Number ge 5000 and Number lt 5100", 100),
        ("Number eq 1 or Number eq 5000", 2),
        ("Number eq -1", 0),
        ("Half eq 2", 0),
        ("Half eq 0 and PartitionKey eq '3'", 50),
    ):
        page, seen = await cost(cabinet, text)
        assert len(page.entities) == count
        # Each is looked up and looked at; both ends of a range are in it.
        assert seen <= 2 * count + 2
        assert page.missing_index is None
    # Brief, though much would have to be looked at without.
    page, _ = await cost(cabinet, "Number eq 5000", rows_max=256)
    assert page is not None
    # More than a few: some are scanned first, in case that the page is full soon.
    page, seen = await cost(cabinet, "Number ge 3000 and Number lt 3300")
    assert len(page.entities) == 300
    assert seen < 2_500
    page, seen = await cost(cabinet, "Half eq 0", limit=10)
    assert len(page.entities) == 10
    assert seen < 200


@at_a_cabinet
async def test_wishes(cabinet: Cabinet) -> None:
    await filled_with_many(cabinet)
    for text, missing_index in (
        ("Number eq 5", "Number"),
        ("Half eq 1 and Number eq 5", "Half"),
        ("Half ge 1 and Number eq 5", "Number"),
        ("RowKey eq '05' and Half eq 7", "RowKey"),
        # Nothing that an index could help with, or something that needs none.
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
        page, _ = await cost(cabinet, text)
        assert page.missing_index == missing_index, text
    # One that is not ready must be gone on with.
    await cabinet.want("Number")
    assert (await cost(cabinet, "Number eq 5"))[0].missing_index == "Number"
    await cabinet.index("Number")
    assert (await cost(cabinet, "Number eq 5"))[0].missing_index is None
    # Of what no entity has, nothing is found by an index either.
    for text in ("Absent eq 1", "Absent eq 1 and Missing ge 'x'"):
        assert (await cost(cabinet, text))[0].missing_index is None
    assert (await cost(cabinet, "Absent eq 1 and RowKey eq '05'"))[0].missing_index == "RowKey"


@at_a_cabinet
async def test_what_few_have_is_wished_for_where_it_was_found(cabinet: Cabinet) -> None:
    await filled_with_many(cabinet)
    assert (await cost(cabinet, "Rare eq 1"))[0].missing_index is None
    await cabinet.put(MANY[3_000], Rare=1)
    assert (await cost(cabinet, "Rare eq 1"))[0].missing_index == "Rare"
    assert (await cost(cabinet, "Rare eq 2"))[0].missing_index is None


# Which of them are kept

_MINUTE: Final = 60 * TICKS_PER_SECOND


async def _full(cabinet: Cabinet) -> list[str]:
    cabinet.shelf.clock.freeze()
    names = [f"P{number}" for number in range(INDEXES_MAX)]
    await cabinet.put(Keys("p", "r"), Other=1, **dict.fromkeys(names, 1))
    await cabinet.index(*names)
    return names


@at_a_cabinet
async def test_the_least_used_gives_way_to_what_is_lacked_more(cabinet: Cabinet) -> None:
    names = await _full(cabinet)
    await cabinet.count_uses(dict.fromkeys(names, 10) | {"P2": 1})
    # Not before it had the time to be used.
    assert not await cabinet.want("Other", 5)
    cabinet.shelf.clock.advance(2 * _MINUTE)
    assert not await cabinet.want("Other", 1)
    assert await cabinet.want("Other", 5)
    assert {index.name for index in await cabinet.indexes()} == {"P0", "P1", "P3", "Other"}
    # The others are used more than this is lacked.
    cabinet.shelf.clock.advance(2 * _MINUTE)
    await cabinet.count_uses({"Other": 100})
    for demand in (5, 19):
        assert not await cabinet.want("P2", demand)
    for _ in range(50):
        await cabinet.count_uses(dict.fromkeys(names, 10))
    assert not await cabinet.want("P2", 1e9)


@at_a_cabinet
async def test_a_dropped_index_leaves_no_row_and_its_number_to_nobody(cabinet: Cabinet) -> None:
    await _full(cabinet)
    for row in range(20):
        await cabinet.put(Keys("p", f"{row:02}"), P0=row, Other=row)
    cabinet.shelf.clock.advance(2 * _MINUTE)
    assert await cabinet.want("Other", 5)
    # What happens before its rows are removed does not touch them.
    await cabinet.put(Keys("p", "00"), P0=-1, Other=-1)
    await cabinet.delete(Keys("p", "01"))
    await cabinet.index("Other")
    assert [index.number for index in await cabinet.indexes()] == [1, 2, 3, 4]
    steps = [await cabinet.purge_step(8) for _ in range(4)]
    assert steps == [9, 9, 6, 0]
    assert await cabinet.require_agreement() == 19 + 1 + 3
    page = await cabinet.query(asking("Other eq -1"))
    assert keys_of(page) == [Keys("p", "00")]


@at_a_cabinet
async def test_what_is_not_used_is_dropped(cabinet: Cabinet) -> None:
    names = await _full(cabinet)
    assert not await cabinet.unused()
    cabinet.shelf.clock.advance(UNUSED_TICKS_MAX - _MINUTE)
    await cabinet.count_uses({"P1": 1})
    cabinet.shelf.clock.advance(2 * _MINUTE)
    assert await cabinet.unused() == [cabinet.name]
    await cabinet.drop_unused()
    assert [index.name for index in await cabinet.indexes()] == ["P1"]
    assert not await cabinet.unused()
    await cabinet.purge()
    assert await cabinet.require_agreement() == 1
    # There is room for others again.
    assert await cabinet.want("P0")
    assert len(names) == INDEXES_MAX


@at_a_cabinet
async def test_what_was_made_before_times_were_stored_is_kept_at_first(cabinet: Cabinet) -> None:
    cabinet.shelf.clock.freeze()
    await cabinet.index("A")
    await cabinet.shelf.write(forget_times, cabinet.name)
    assert await cabinet.unused() == [cabinet.name]
    await cabinet.drop_unused()
    assert not await cabinet.unused()
    assert [index.name for index in await cabinet.indexes()] == ["A"]
    cabinet.shelf.clock.advance(UNUSED_TICKS_MAX + _MINUTE)
    await cabinet.drop_unused()
    assert await cabinet.indexes() == ()


@operation
def forget_times(txn: WriteTxn, name: TableName) -> None:
    table = txn.get(TABLES, name.key)
    assert table is not None
    old = tuple([shape(index) for index in table.indexes])
    txn.put(TABLES, name.key, msgspec.structs.replace(table, indexes=old, indexes_made=0))
