"""Groups: carried out in order and as a whole, or not at all."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from etagere.engine.interface import Refused
from etagere.errors import Refusal
from etagere.model.tables import ChangeKind, EntityChange, Keys
from etagere.operations.table.entities import INDEX
from etagere.rules.entities import PROPERTIES_MAX
from tests.operations.table.cabinet import Cabinet, at_a_cabinet, insert, known

FAMILY: Final = [Keys("family", f"{number:03}") for number in range(100)]


async def refusal_of(cabinet: Cabinet, *changes: EntityChange) -> Refusal:
    with pytest.raises(Refused) as caught:
        await cabinet.change(*changes)
    return caught.value.refusal


@at_a_cabinet
async def test_every_kind_of_change_in_one_group(cabinet: Cabinet) -> None:
    inserted, replaced, merged, upserted, made, deleted = FAMILY[:6]
    await cabinet.change(*(insert(keys, Old=1) for keys in (replaced, merged, upserted, deleted)))
    stamps = await cabinet.change(
        insert(inserted, New=1),
        EntityChange(ChangeKind.REPLACE, replaced, known(New=2)),
        EntityChange(ChangeKind.MERGE, merged, known(New=3)),
        EntityChange(ChangeKind.INSERT_OR_MERGE, upserted, known(New=4)),
        EntityChange(ChangeKind.INSERT_OR_REPLACE, made, known(New=5)),
        EntityChange(ChangeKind.DELETE, deleted),
    )
    found = await cabinet.contents()
    assert {keys: entity.properties for keys, entity in found.items()} == {
        inserted: known(New=1),
        replaced: known(New=2),
        merged: known(Old=1, New=3),
        upserted: known(Old=1, New=4),
        made: known(New=5),
    }
    assert stamps == (*(found[keys].stamp for keys in FAMILY[:5]), 0)


@at_a_cabinet
async def test_the_first_that_is_refused_refuses_all_and_is_named(cabinet: Cabinet) -> None:
    await cabinet.fill(FAMILY[50:51])
    before = await cabinet.contents()
    for at in (0, 1, 50, 98, 99):
        others = [keys for keys in FAMILY if keys != FAMILY[50]]
        changes = [insert(keys) for keys in others]
        changes.insert(at, insert(FAMILY[50]))
        refusal = await refusal_of(cabinet, *changes)
        assert (refusal.code, refusal.facts[INDEX]) == ("EntityAlreadyExists", at)
        assert await cabinet.contents() == before


@at_a_cabinet
async def test_of_several_that_would_be_refused_the_first_is_named(cabinet: Cabinet) -> None:
    await cabinet.fill(FAMILY[:1])
    refusal = await refusal_of(
        cabinet,
        EntityChange(ChangeKind.MERGE, FAMILY[0], known()),
        EntityChange(ChangeKind.DELETE, FAMILY[2]),
        insert(FAMILY[0]),
    )
    assert (refusal.code, refusal.facts[INDEX]) == ("ResourceNotFound", 1)


@at_a_cabinet
async def test_conditions_inside_of_a_group(cabinet: Cabinet) -> None:
    first, second = FAMILY[:2]
    old = await cabinet.put(first, Age=1)
    new = await cabinet.put(first, Age=2)
    stale = EntityChange(ChangeKind.MERGE, first, known(Age=3), old)
    refusal = await refusal_of(cabinet, insert(second), stale)
    assert (refusal.code, refusal.facts[INDEX]) == ("UpdateConditionNotSatisfied", 1)
    assert list(await cabinet.contents()) == [first]
    await cabinet.change(insert(second), EntityChange(ChangeKind.DELETE, first, if_match=new))
    assert list(await cabinet.contents()) == [second]


@at_a_cabinet
async def test_a_hundred_at_once(cabinet: Cabinet) -> None:
    stamps = await cabinet.change(*map(insert, reversed(FAMILY)))
    found = await cabinet.contents()
    assert list(found) == FAMILY
    assert stamps == tuple(found[keys].stamp for keys in reversed(FAMILY))
    assert await cabinet.change(*(EntityChange(ChangeKind.DELETE, keys) for keys in FAMILY)) == (
        (0,) * len(FAMILY)
    )
    assert await cabinet.contents() == {}


# What a merge may come to


@at_a_cabinet
async def test_a_merge_that_would_have_too_many_properties(cabinet: Cabinet) -> None:
    first, second = FAMILY[:2]
    await cabinet.put(first, **{f"Old{number}": number for number in range(PROPERTIES_MAX - 1)})
    before = await cabinet.contents()
    one_too_many = known(New1=1, New2=2)
    for change in (ChangeKind.MERGE, ChangeKind.INSERT_OR_MERGE):
        asked = EntityChange(change, first, one_too_many)
        refusal = await refusal_of(cabinet, insert(second), asked)
        assert (refusal.code, refusal.facts[INDEX]) == ("TooManyProperties", 1)
        assert await cabinet.contents() == before
    await cabinet.change(EntityChange(ChangeKind.MERGE, first, known(New1=1, Old0=5)))
    assert len((await cabinet.get(first)).properties.names) == PROPERTIES_MAX


@at_a_cabinet
async def test_a_merge_that_would_be_too_large(cabinet: Cabinet) -> None:
    keys = FAMILY[0]
    long = b"x" * (64 << 10)
    await cabinet.put(keys, **{f"Old{number}": long for number in range(15)})
    refusal = await refusal_of(cabinet, EntityChange(ChangeKind.MERGE, keys, known(New=long)))
    assert refusal.code == "EntityTooLarge"
    replaced = EntityChange(ChangeKind.MERGE, keys, known(Old0=b"", New=long[:-1_000]))
    await cabinet.change(replaced)
    assert (await cabinet.get(keys)).properties.values[-1] == long[:-1_000]


# Readers


@at_a_cabinet
async def test_readers_see_a_group_as_a_whole(cabinet: Cabinet) -> None:
    sources = FAMILY[:10]
    await cabinet.change(*(insert(keys, Round=0) for keys in sources))
    rounds = iter(range(1, 21))

    async def write() -> None:
        for number in rounds:
            changes = (
                EntityChange(ChangeKind.MERGE, keys, known(Round=number)) for keys in sources
            )
            await cabinet.change(*changes)

    async def read() -> None:
        for _ in range(40):
            found = await cabinet.contents()
            assert len({entity.properties.values for entity in found.values()}) == 1
            await asyncio.sleep(0)

    await asyncio.gather(write(), read(), read())
    assert {entity.properties for entity in (await cabinet.contents()).values()} == {
        known(Round=20)
    }
