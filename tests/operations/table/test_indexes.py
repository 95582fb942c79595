"""Indexes on properties: how they are made, kept, removed, used and wished for."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from etagere.engine.interface import Refused
from etagere.engine.records import ENCODE
from etagere.model.service import AccessPolicy, SignedIdentifier
from etagere.model.tables import Change, EntityChange, Keys, PropertyIndex, Table
from etagere.operations.table.collections import TABLES
from etagere.operations.table.queries import EntityPage
from etagere.rules.indexes import INDEXES_MAX
from tests.operations.table.cabinet import Cabinet, at_a_cabinet, insert, known
from tests.operations.table.test_queries import asking, counted, keys_of

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
        assert index == PropertyIndex(0, "A", everybody[2 * step + 1])
        assert await cabinet.require_agreement() == 2 * step + 2
    assert not await cabinet.build_step("A", 2)
    assert await cabinet.indexes() == (PropertyIndex(0, "A", is_ready=True),)
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
    await cabinet.change(EntityChange(Change.MERGE, keys, known(A="1")))
    assert await found("A eq 1") == 0
    assert await found("A eq '1'") == await found("B eq 'x'") == 1
    await cabinet.change(EntityChange(Change.REPLACE, keys, known(A="1")))
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
    assert await cabinet.indexes() == (PropertyIndex(0, "A", is_ready=True),)


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
        assert page.wish is None
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
    for text, wish in (
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
        assert page.wish == wish, text
    # One that is not ready must be gone on with.
    await cabinet.want("Number")
    assert (await cost(cabinet, "Number eq 5"))[0].wish == "Number"
    await cabinet.index("Number")
    assert (await cost(cabinet, "Number eq 5"))[0].wish is None
    for name in ("X", "Y", "Z"):
        await cabinet.want(name)
    assert (await cost(cabinet, "RowKey eq 'none'"))[0].wish is None
    assert (await cost(cabinet, "X eq 'none'"))[0].wish == "X"
