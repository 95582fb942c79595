"""Tables: made, listed and deleted; what is left of them is removed later."""

from __future__ import annotations

from etagere.model.service import AccessPolicy, SignedIdentifier
from etagere.model.tables import ChangeKind, EntityChange, GetEntity, Keys, TableName
from etagere.operations.table.entities import get_entity
from etagere.operations.table.queries import Query, query_entities
from etagere.operations.table.tables import (
    ListTables,
    get_table,
    list_tables,
    may_purge,
    policies_of,
)
from tests.operations.blob.shelf import ACCOUNT, code_of
from tests.operations.table.cabinet import ADA, PEOPLE, Cabinet, at_a_cabinet

READERS = SignedIdentifier("readers", AccessPolicy(permission="r"))


@at_a_cabinet
async def test_a_name_is_taken_in_any_case_and_kept_as_it_was_written(cabinet: Cabinet) -> None:
    for name in ("People", "people", "PEOPLE", "pEoPlE"):
        assert await code_of(cabinet.called(name).create()) == "TableAlreadyExists"
        table = await cabinet.shelf.read(get_table, TableName(ACCOUNT, name))
        assert table.name == "People"
    await cabinet.called("pEOPLE").put(ADA, Age=36)
    assert list(await cabinet.contents()) == [ADA]
    await cabinet.called("PEOPLE").delete_table()
    await cabinet.called("pEoPlE").create()
    assert (await cabinet.shelf.read(get_table, PEOPLE)).name == "pEoPlE"


@at_a_cabinet
async def test_accounts_share_no_names(cabinet: Cabinet) -> None:
    await cabinet.put(ADA)
    other = Cabinet(cabinet.shelf, TableName("other", PEOPLE.name))
    assert await code_of(other.contents()) == "TableNotFound"
    await other.create()
    assert await other.contents() == {}
    await other.delete_table()
    assert list(await cabinet.contents()) == [ADA]


@at_a_cabinet
async def test_made_again_at_once_it_is_empty(cabinet: Cabinet) -> None:
    """Whether what it held was removed, is being removed, or is still there."""
    for number in range(5):
        await cabinet.fill(Keys("p", f"{row:02}") for row in range(10 * number, 10 * number + 10))
        await cabinet.set_access(READERS)
        await cabinet.delete_table()
        await cabinet.create()
        assert await cabinet.contents() == {}
        table = await cabinet.shelf.read(get_table, PEOPLE)
        assert table.policies == ()
        if number % 2:
            await cabinet.purge_step(3)
        assert await cabinet.contents() == {}
    await cabinet.put(ADA)
    await cabinet.purge()
    assert list(await cabinet.contents()) == [ADA]
    assert await cabinet.left_behind() == 0


@at_a_cabinet
async def test_what_is_not_there(cabinet: Cabinet) -> None:
    nobody = cabinet.called("Nobody")
    calls = (
        nobody.put(ADA),
        nobody.delete(ADA),
        nobody.contents(),
        nobody.get(ADA),
        nobody.set_access(),
        nobody.shelf.read(get_table, nobody.name),
        nobody.shelf.read(get_entity, GetEntity(nobody.name, ADA)),
        nobody.shelf.read(query_entities, Query(nobody.name, 1)),
    )
    for call in calls:
        assert await code_of(call) == "TableNotFound"
    assert await code_of(nobody.delete_table()) == "ResourceNotFound"
    assert await code_of(cabinet.get(ADA)) == "ResourceNotFound"


@at_a_cabinet
async def test_policies(cabinet: Cabinet) -> None:
    async def policies(account: str, name: str) -> tuple[SignedIdentifier, ...]:
        return await cabinet.shelf.read(policies_of, (account, name))

    assert await policies(ACCOUNT, "people") == ()
    await cabinet.set_access(READERS, SignedIdentifier("none", AccessPolicy()))
    for name in ("people", "People"):
        assert [policy.id for policy in await policies(ACCOUNT, name)] == ["readers", "none"]
    await cabinet.set_access()
    assert await policies(ACCOUNT, "people") == ()
    for name in ("nobody", "", "$batch", "x" * 5_000, "\udcff", "a\x00b"):
        assert await policies(ACCOUNT, name) == ()


@at_a_cabinet
async def test_changing_who_may_changes_nothing_else(cabinet: Cabinet) -> None:
    stamp = await cabinet.put(ADA, Age=36)
    await cabinet.set_access(READERS)
    assert (await cabinet.get(ADA)).stamp == stamp


# Lists


@at_a_cabinet
async def test_lists_are_in_the_order_of_names_in_lower_case(cabinet: Cabinet) -> None:
    names = ["Zebra", "apple", "Banana", "aPricot", "cherry1", "Cherry", "people2"]
    for name in names:
        await cabinet.called(name).create()
    await Cabinet(cabinet.shelf, TableName("other", "Elsewhere")).create()
    expected = sorted([*names, "People"], key=str.lower)
    for limit in range(1, len(expected) + 2):
        found: list[str] = []
        start = ""
        while True:
            command = ListTables(ACCOUNT, limit + 1, start)
            page = (await cabinet.shelf.read(list_tables, command)).tables
            found += [table.name for table in page[:limit]]
            if len(page) <= limit:
                break
            start = page[limit].name.lower()
        assert found == expected


@at_a_cabinet
async def test_a_list_goes_on_where_it_was_though_the_name_is_gone(cabinet: Cabinet) -> None:
    for name in ("Ant", "Bee", "Cow"):
        await cabinet.called(name).create()
    await cabinet.called("Bee").delete_table()
    page = (await cabinet.shelf.read(list_tables, ListTables(ACCOUNT, 10, "bee"))).tables
    assert [table.name for table in page] == ["Cow", "People"]


# What is removed later


@at_a_cabinet
async def test_purging_is_done_in_bounded_steps(cabinet: Cabinet) -> None:
    assert not await cabinet.shelf.read(may_purge, None)
    kept = cabinet.called("Kept")
    await kept.create()
    await kept.fill(Keys("p", str(row)) for row in range(3))
    for _ in range(2):
        await cabinet.fill(Keys("p", str(row)) for row in range(25))
        await cabinet.delete_table()
        await cabinet.create()
    assert await cabinet.left_behind() == 2 * 25 + 2
    assert await cabinet.shelf.read(may_purge, None)
    left, steps = await cabinet.left_behind(), 0
    while await cabinet.purge_step(10):
        steps += 1
        now_left = await cabinet.left_behind()
        assert 0 < left - now_left <= 10 + 1
        left = now_left
    assert (left, steps) == (0, 6)
    assert not await cabinet.shelf.read(may_purge, None)
    assert len(await kept.contents()) == 3


@at_a_cabinet
async def test_a_table_of_exactly_one_step_is_forgotten_too(cabinet: Cabinet) -> None:
    await cabinet.fill(Keys("p", str(row)) for row in range(10))
    await cabinet.delete_table()
    assert [await cabinet.purge_step(10) for _ in range(3)] == [11, 1, 0]
    assert await cabinet.left_behind() == 0


@at_a_cabinet
async def test_nothing_is_written_into_a_table_that_is_gone(cabinet: Cabinet) -> None:
    await cabinet.delete_table()
    for change in ChangeKind:
        assert await code_of(cabinet.change(EntityChange(change, ADA))) == "TableNotFound"
    await cabinet.purge()
    assert await cabinet.left_behind() == 0
