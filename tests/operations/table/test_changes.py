"""Changes of one entity: what comes of each, by what is there and what the caller has seen."""

from __future__ import annotations

import asyncio
from typing import Final

from etagere.engine.interface import Refused
from etagere.model.tables import ChangeKind, Entity, EntityChange, Keys, Properties
from etagere.rules.entities import ANY, NEVER
from tests.operations.blob.shelf import code_of
from tests.operations.table.cabinet import ADA, Cabinet, at_a_cabinet, insert, known

OLD: Final = known(Name="Ada", Age=36)
NEW: Final = known(Age=37, Born=1815.5)
MERGED: Final = known(Name="Ada", Age=37, Born=1815.5)

GONE: Final = "ResourceNotFound"
STALE: Final = "UpdateConditionNotSatisfied"
TAKEN: Final = "EntityAlreadyExists"

# What there is afterwards, or the code of the refusal: if it was there, and if it was not.
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


@at_a_cabinet
async def test_outcomes(cabinet: Cabinet) -> None:
    for there in (True, False):
        for change, seen in OUTCOMES:
            await _outcome(cabinet, change, seen, there=there)
            if ADA in await cabinet.contents():
                await cabinet.delete(ADA)


async def _outcome(cabinet: Cabinet, change: ChangeKind, seen: str, *, there: bool) -> None:
    before = await cabinet.put(ADA, Name="Ada", Age=35)
    right = await cabinet.put(ADA, Name="Ada", Age=36)
    if not there:
        await cabinet.delete(ADA)
    if_match = {"none": None, "any": ANY, "right": right, "stale": before, "never": NEVER}[seen]
    expected = OUTCOMES[change, seen][0 if there else 1]
    asked = EntityChange(change, ADA, NEW if change is not ChangeKind.DELETE else known(), if_match)
    if isinstance(expected, str):
        assert await code_of(cabinet.change(asked)) == expected, (change, seen, there)
        assert await cabinet.contents() == ({ADA: Entity(right, OLD)} if there else {})
        return
    (stamp,) = await cabinet.change(asked)
    if expected is None:
        assert stamp == 0
        assert await cabinet.contents() == {}
    else:
        assert stamp > right
        assert await cabinet.contents() == {ADA: Entity(stamp, expected)}


@at_a_cabinet
async def test_stamps_of_one_tick_differ(cabinet: Cabinet) -> None:
    """Those who have seen an older version never pass for those who have seen the last."""
    cabinet.shelf.clock.freeze()
    stamps = [await cabinet.put(ADA, Number=number) for number in range(20)]
    assert stamps == sorted(set(stamps))
    for stamp in stamps[:-1]:
        change = EntityChange(ChangeKind.MERGE, ADA, known(), stamp)
        assert await code_of(cabinet.change(change)) == STALE
    await cabinet.change(EntityChange(ChangeKind.MERGE, ADA, known(), stamps[-1]))


@at_a_cabinet
async def test_an_entity_made_again_is_another_version(cabinet: Cabinet) -> None:
    cabinet.shelf.clock.freeze()
    (first,) = await cabinet.change(insert(ADA, Age=36))
    await cabinet.delete(ADA)
    (second,) = await cabinet.change(insert(ADA, Age=36))
    assert second != first
    stale = EntityChange(ChangeKind.DELETE, ADA, if_match=first)
    assert await code_of(cabinet.change(stale)) == STALE


@at_a_cabinet
async def test_stamps_do_not_go_back_with_the_clock(cabinet: Cabinet) -> None:
    first = await cabinet.put(ADA)
    cabinet.shelf.clock.wall_offset -= 10**12
    assert await cabinet.put(ADA) > first


@at_a_cabinet
async def test_merging_nothing_changes_nothing_but_the_version(cabinet: Cabinet) -> None:
    before = await cabinet.put(ADA, Name="Ada", Age=36)
    (stamp,) = await cabinet.change(EntityChange(ChangeKind.MERGE, ADA, known()))
    assert stamp > before
    assert await cabinet.get(ADA) == Entity(stamp, OLD)


@at_a_cabinet
async def test_a_merge_may_change_the_type_of_a_property(cabinet: Cabinet) -> None:
    await cabinet.put(ADA, Age=36, Name="Ada")
    await cabinet.change(EntityChange(ChangeKind.MERGE, ADA, known(Age="thirty-six")))
    assert (await cabinet.get(ADA)).properties == known(Age="thirty-six", Name="Ada")


@at_a_cabinet
async def test_keys_are_told_apart_to_the_last_character(cabinet: Cabinet) -> None:
    texts = ["", " ", "a", "A", "a ", "é", "e\u0301", "a'b", "\U0001f984", "\ufffd", "x" * 1_024]
    everybody = [Keys(partition, row) for partition in texts for row in texts]
    for number, keys in enumerate(everybody):
        await cabinet.change(insert(keys, Number=number))
    for number, keys in enumerate(everybody):
        assert (await cabinet.get(keys)).properties == known(Number=number)
    assert list(await cabinet.contents()) == sorted(everybody)


@at_a_cabinet
async def test_of_many_who_have_seen_the_same_one_wins(cabinet: Cabinet) -> None:
    stamp = await cabinet.put(ADA, Winner="nobody")
    racers = [
        cabinet.change(
            EntityChange(ChangeKind.REPLACE, ADA, known(Winner=f"racer {number}"), stamp)
        )
        for number in range(20)
    ]
    outcomes = await asyncio.gather(*racers, return_exceptions=True)
    won = [number for number, told in enumerate(outcomes) if not isinstance(told, BaseException)]
    lost = [told for told in outcomes if isinstance(told, Refused)]
    assert (len(won), {told.refusal.code for told in lost}) == (1, {STALE})
    assert (await cabinet.get(ADA)).properties == known(Winner=f"racer {won[0]}")


@at_a_cabinet
async def test_of_many_who_insert_the_same_one_wins(cabinet: Cabinet) -> None:
    racers = [cabinet.change(insert(ADA, Winner=number)) for number in range(20)]
    outcomes = await asyncio.gather(*racers, return_exceptions=True)
    won = [number for number, told in enumerate(outcomes) if not isinstance(told, BaseException)]
    assert len(won) == 1
    assert (await cabinet.get(ADA)).properties == known(Winner=won[0])
