"""Changes of one entity: the result by existence of the entity and ETag in the request."""

from __future__ import annotations

import asyncio
from typing import Final

from etagere.engine.interface import Refused
from etagere.model.tables import ChangeKind, Entity, EntityChange, Keys, Properties
from etagere.rules.entities import ANY, NEVER
from tests.operations.fixture import code_of
from tests.operations.table.fixture import ADA, TableFixture, insert, properties_of, table_test

OLD: Final = properties_of(Name="Ada", Age=36)
NEW: Final = properties_of(Age=37, Born=1815.5)
MERGED: Final = properties_of(Name="Ada", Age=37, Born=1815.5)

GONE: Final = "ResourceNotFound"
STALE: Final = "UpdateConditionNotSatisfied"
TAKEN: Final = "EntityAlreadyExists"

# The properties afterwards or the error code: if the entity existed, and if it did not.
Outcome = Properties | str | None
OUTCOMES: Final[dict[tuple[ChangeKind, str], tuple[Outcome, Outcome]]] = {
    (ChangeKind.INSERT, "none"): (TAKEN, NEW),
    (ChangeKind.REPLACE, "none"): (NEW, GONE),
    (ChangeKind.REPLACE, "any"): (NEW, GONE),
    (ChangeKind.REPLACE, "right"): (NEW, GONE),
    (ChangeKind.REPLACE, "stale"): (STALE, GONE),
    (ChangeKind.REPLACE, "never"): (STALE, GONE),
    (ChangeKind.MERGE, "none"): (MERGED, GONE),
    (ChangeKind.MERGE, "any"): (MERGED, GONE),
    (ChangeKind.MERGE, "right"): (MERGED, GONE),
    (ChangeKind.MERGE, "stale"): (STALE, GONE),
    (ChangeKind.MERGE, "never"): (STALE, GONE),
    (ChangeKind.INSERT_OR_REPLACE, "none"): (NEW, NEW),
    (ChangeKind.INSERT_OR_MERGE, "none"): (MERGED, NEW),
    (ChangeKind.DELETE, "none"): (None, GONE),
    (ChangeKind.DELETE, "any"): (None, GONE),
    (ChangeKind.DELETE, "right"): (None, GONE),
    (ChangeKind.DELETE, "stale"): (STALE, GONE),
    (ChangeKind.DELETE, "never"): (STALE, GONE),
}


@table_test
async def test_outcomes(table: TableFixture) -> None:
    for there in (True, False):
        for change, seen in OUTCOMES:
            await _outcome(table, change, seen, there=there)
            if ADA in await table.contents():
                await table.delete(ADA)


async def _outcome(table: TableFixture, change: ChangeKind, seen: str, *, there: bool) -> None:
    before = await table.put(ADA, Name="Ada", Age=35)
    right = await table.put(ADA, Name="Ada", Age=36)
    if not there:
        await table.delete(ADA)
    if_match = {"none": None, "any": ANY, "right": right, "stale": before, "never": NEVER}[seen]
    expected = OUTCOMES[change, seen][0 if there else 1]
    asked = EntityChange(
        change, ADA, NEW if change is not ChangeKind.DELETE else properties_of(), if_match
    )
    if isinstance(expected, str):
        assert await code_of(table.change(asked)) == expected, (change, seen, there)
        assert await table.contents() == ({ADA: Entity(right, OLD)} if there else {})
        return
    (stamp,) = await table.change(asked)
    if expected is None:
        assert stamp == 0
        assert await table.contents() == {}
    else:
        assert stamp > right
        assert await table.contents() == {ADA: Entity(stamp, expected)}


@table_test
async def test_stamps_within_one_tick_differ(table: TableFixture) -> None:
    """The ETag of an older version never matches the current one."""
    table.clock.freeze()
    stamps = [await table.put(ADA, Number=number) for number in range(20)]
    assert stamps == sorted(set(stamps))
    for stamp in stamps[:-1]:
        change = EntityChange(ChangeKind.MERGE, ADA, properties_of(), stamp)
        assert await code_of(table.change(change)) == STALE
    await table.change(EntityChange(ChangeKind.MERGE, ADA, properties_of(), stamps[-1]))


@table_test
async def test_a_recreated_entity_has_another_etag(table: TableFixture) -> None:
    table.clock.freeze()
    (first,) = await table.change(insert(ADA, Age=36))
    await table.delete(ADA)
    (second,) = await table.change(insert(ADA, Age=36))
    assert second != first
    stale = EntityChange(ChangeKind.DELETE, ADA, if_match=first)
    assert await code_of(table.change(stale)) == STALE


@table_test
async def test_stamps_do_not_go_back_with_the_clock(table: TableFixture) -> None:
    first = await table.put(ADA)
    table.clock.wall_offset -= 10**12
    assert await table.put(ADA) > first


@table_test
async def test_an_empty_merge_changes_only_the_etag(table: TableFixture) -> None:
    before = await table.put(ADA, Name="Ada", Age=36)
    (stamp,) = await table.change(EntityChange(ChangeKind.MERGE, ADA, properties_of()))
    assert stamp > before
    assert await table.get(ADA) == Entity(stamp, OLD)


@table_test
async def test_a_merge_may_change_the_type_of_a_property(table: TableFixture) -> None:
    await table.put(ADA, Age=36, Name="Ada")
    await table.change(EntityChange(ChangeKind.MERGE, ADA, properties_of(Age="thirty-six")))
    assert (await table.get(ADA)).properties == properties_of(Age="thirty-six", Name="Ada")


@table_test
async def test_keys_are_compared_exactly(table: TableFixture) -> None:
    texts = ["", " ", "a", "A", "a ", "é", "e\u0301", "a'b", "\U0001f984", "\ufffd", "x" * 1_024]
    all_keys = [Keys(partition, row) for partition in texts for row in texts]
    for number, keys in enumerate(all_keys):
        await table.change(insert(keys, Number=number))
    for number, keys in enumerate(all_keys):
        assert (await table.get(keys)).properties == properties_of(Number=number)
    assert list(await table.contents()) == sorted(all_keys)


@table_test
async def test_one_of_many_conditional_updates_wins(table: TableFixture) -> None:
    stamp = await table.put(ADA, Winner="nobody")
    racers = [
        table.change(
            EntityChange(ChangeKind.REPLACE, ADA, properties_of(Winner=f"racer {number}"), stamp)
        )
        for number in range(20)
    ]
    outcomes = await asyncio.gather(*racers, return_exceptions=True)
    won = [
        number for number, result in enumerate(outcomes) if not isinstance(result, BaseException)
    ]
    lost = [result for result in outcomes if isinstance(result, Refused)]
    assert (len(won), {result.refusal.code for result in lost}) == (1, {STALE})
    assert (await table.get(ADA)).properties == properties_of(Winner=f"racer {won[0]}")


@table_test
async def test_one_of_many_inserts_wins(table: TableFixture) -> None:
    racers = [table.change(insert(ADA, Winner=number)) for number in range(20)]
    outcomes = await asyncio.gather(*racers, return_exceptions=True)
    won = [
        number for number, result in enumerate(outcomes) if not isinstance(result, BaseException)
    ]
    assert len(won) == 1
    assert (await table.get(ADA)).properties == properties_of(Winner=won[0])
