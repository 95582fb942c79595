"""Entity groups: executed in order and atomically."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from etagere.engine.interface import Refused
from etagere.errors import Refusal
from etagere.model.tables import ChangeKind, EntityChange, Keys
from etagere.operations.table.entities import INDEX
from etagere.rules.entities import PROPERTIES_MAX
from tests.operations.table.fixture import TableFixture, insert, properties_of, table_test

FAMILY: Final = [Keys("family", f"{number:03}") for number in range(100)]


async def refusal_of(table: TableFixture, *changes: EntityChange) -> Refusal:
    with pytest.raises(Refused) as caught:
        await table.change(*changes)
    return caught.value.refusal


@table_test
async def test_every_kind_of_change_in_one_group(table: TableFixture) -> None:
    inserted, replaced, merged, upserted, made, deleted = FAMILY[:6]
    await table.change(*(insert(keys, Old=1) for keys in (replaced, merged, upserted, deleted)))
    stamps = await table.change(
        insert(inserted, New=1),
        EntityChange(ChangeKind.REPLACE, replaced, properties_of(New=2)),
        EntityChange(ChangeKind.MERGE, merged, properties_of(New=3)),
        EntityChange(ChangeKind.INSERT_OR_MERGE, upserted, properties_of(New=4)),
        EntityChange(ChangeKind.INSERT_OR_REPLACE, made, properties_of(New=5)),
        EntityChange(ChangeKind.DELETE, deleted),
    )
    found = await table.contents()
    assert {keys: entity.properties for keys, entity in found.items()} == {
        inserted: properties_of(New=1),
        replaced: properties_of(New=2),
        merged: properties_of(Old=1, New=3),
        upserted: properties_of(Old=1, New=4),
        made: properties_of(New=5),
    }
    assert stamps == (*(found[keys].stamp for keys in FAMILY[:5]), 0)


@table_test
async def test_one_refused_change_rolls_back_the_group(table: TableFixture) -> None:
    await table.fill(FAMILY[50:51])
    before = await table.contents()
    for at in (0, 1, 50, 98, 99):
        others = [keys for keys in FAMILY if keys != FAMILY[50]]
        changes = [insert(keys) for keys in others]
        changes.insert(at, insert(FAMILY[50]))
        refusal = await refusal_of(table, *changes)
        assert (refusal.code, refusal.facts[INDEX]) == ("EntityAlreadyExists", at)
        assert await table.contents() == before


@table_test
async def test_the_first_of_several_refused_changes_is_reported(table: TableFixture) -> None:
    await table.fill(FAMILY[:1])
    refusal = await refusal_of(
        table,
        EntityChange(ChangeKind.MERGE, FAMILY[0], properties_of()),
        EntityChange(ChangeKind.DELETE, FAMILY[2]),
        insert(FAMILY[0]),
    )
    assert (refusal.code, refusal.facts[INDEX]) == ("ResourceNotFound", 1)


@table_test
async def test_conditions_inside_of_a_group(table: TableFixture) -> None:
    first, second = FAMILY[:2]
    old = await table.put(first, Age=1)
    new = await table.put(first, Age=2)
    stale = EntityChange(ChangeKind.MERGE, first, properties_of(Age=3), old)
    refusal = await refusal_of(table, insert(second), stale)
    assert (refusal.code, refusal.facts[INDEX]) == ("UpdateConditionNotSatisfied", 1)
    assert list(await table.contents()) == [first]
    await table.change(insert(second), EntityChange(ChangeKind.DELETE, first, if_match=new))
    assert list(await table.contents()) == [second]


@table_test
async def test_a_hundred_at_once(table: TableFixture) -> None:
    stamps = await table.change(*map(insert, reversed(FAMILY)))
    found = await table.contents()
    assert list(found) == FAMILY
    assert stamps == tuple(found[keys].stamp for keys in reversed(FAMILY))
    assert await table.change(*(EntityChange(ChangeKind.DELETE, keys) for keys in FAMILY)) == (
        (0,) * len(FAMILY)
    )
    assert await table.contents() == {}


# Limits of a merge


@table_test
async def test_a_merge_that_would_have_too_many_properties(table: TableFixture) -> None:
    first, second = FAMILY[:2]
    await table.put(first, **{f"Old{number}": number for number in range(PROPERTIES_MAX - 1)})
    before = await table.contents()
    one_too_many = properties_of(New1=1, New2=2)
    for change in (ChangeKind.MERGE, ChangeKind.INSERT_OR_MERGE):
        asked = EntityChange(change, first, one_too_many)
        refusal = await refusal_of(table, insert(second), asked)
        assert (refusal.code, refusal.facts[INDEX]) == ("TooManyProperties", 1)
        assert await table.contents() == before
    await table.change(EntityChange(ChangeKind.MERGE, first, properties_of(New1=1, Old0=5)))
    assert len((await table.get(first)).properties.names) == PROPERTIES_MAX


@table_test
async def test_a_merge_that_would_be_too_large(table: TableFixture) -> None:
    keys = FAMILY[0]
    long = b"x" * (64 << 10)
    await table.put(keys, **{f"Old{number}": long for number in range(15)})
    refusal = await refusal_of(table, EntityChange(ChangeKind.MERGE, keys, properties_of(New=long)))
    assert refusal.code == "EntityTooLarge"
    replaced = EntityChange(ChangeKind.MERGE, keys, properties_of(Old0=b"", New=long[:-1_000]))
    await table.change(replaced)
    assert (await table.get(keys)).properties.values[-1] == long[:-1_000]


# Readers


@table_test
async def test_readers_see_a_group_as_a_whole(table: TableFixture) -> None:
    sources = FAMILY[:10]
    await table.change(*(insert(keys, Round=0) for keys in sources))
    rounds = iter(range(1, 21))

    async def write() -> None:
        for number in rounds:
            changes = (
                EntityChange(ChangeKind.MERGE, keys, properties_of(Round=number))
                for keys in sources
            )
            await table.change(*changes)

    async def read() -> None:
        for _ in range(40):
            found = await table.contents()
            assert len({entity.properties.values for entity in found.values()}) == 1
            await asyncio.sleep(0)

    await asyncio.gather(write(), read(), read())
    assert {entity.properties for entity in (await table.contents()).values()} == {
        properties_of(Round=20)
    }
