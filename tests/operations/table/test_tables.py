"""Tables: create, list, delete and purge."""

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
from tests.operations.fixture import ACCOUNT, code_of
from tests.operations.table.fixture import ADA, PEOPLE, TableFixture, table_test

READERS = SignedIdentifier("readers", AccessPolicy(permission="r"))


@table_test
async def test_names_are_case_insensitive_and_case_preserving(table: TableFixture) -> None:
    for name in ("People", "people", "PEOPLE", "pEoPlE"):
        assert await code_of(table.named(name).create()) == "TableAlreadyExists"
        found = await table.read(get_table, TableName(ACCOUNT, name))
        assert found.name == "People"
    await table.named("pEOPLE").put(ADA, Age=36)
    assert list(await table.contents()) == [ADA]
    await table.named("PEOPLE").delete_table()
    await table.named("pEoPlE").create()
    assert (await table.read(get_table, PEOPLE)).name == "pEoPlE"


@table_test
async def test_accounts_share_no_names(table: TableFixture) -> None:
    await table.put(ADA)
    other = TableFixture(table.base, TableName("other", PEOPLE.name))
    assert await code_of(other.contents()) == "TableNotFound"
    await other.create()
    assert await other.contents() == {}
    await other.delete_table()
    assert list(await table.contents()) == [ADA]


@table_test
async def test_a_recreated_table_is_empty(table: TableFixture) -> None:
    """Whether the old entities were removed, are being removed, or still exist."""
    for number in range(5):
        await table.fill(Keys("p", f"{row:02}") for row in range(10 * number, 10 * number + 10))
        await table.set_access(READERS)
        await table.delete_table()
        await table.create()
        assert await table.contents() == {}
        found = await table.read(get_table, PEOPLE)
        assert found.policies == ()
        if number % 2:
            await table.purge_step(3)
        assert await table.contents() == {}
    await table.put(ADA)
    await table.purge()
    assert list(await table.contents()) == [ADA]
    assert await table.orphaned_records() == 0


@table_test
async def test_a_missing_table(table: TableFixture) -> None:
    nobody = table.named("Nobody")
    calls = (
        nobody.put(ADA),
        nobody.delete(ADA),
        nobody.contents(),
        nobody.get(ADA),
        nobody.set_access(),
        nobody.read(get_table, nobody.name),
        nobody.read(get_entity, GetEntity(nobody.name, ADA)),
        nobody.read(query_entities, Query(nobody.name, 1)),
    )
    for call in calls:
        assert await code_of(call) == "TableNotFound"
    assert await code_of(nobody.delete_table()) == "ResourceNotFound"
    assert await code_of(table.get(ADA)) == "ResourceNotFound"


@table_test
async def test_policies(table: TableFixture) -> None:
    async def policies(account: str, name: str) -> tuple[SignedIdentifier, ...]:
        return await table.read(policies_of, (account, name))

    assert await policies(ACCOUNT, "people") == ()
    await table.set_access(READERS, SignedIdentifier("none", AccessPolicy()))
    for name in ("people", "People"):
        assert [policy.id for policy in await policies(ACCOUNT, name)] == ["readers", "none"]
    await table.set_access()
    assert await policies(ACCOUNT, "people") == ()
    for name in ("nobody", "", "$batch", "x" * 5_000, "\udcff", "a\x00b"):
        assert await policies(ACCOUNT, name) == ()


@table_test
async def test_set_access_changes_nothing_else(table: TableFixture) -> None:
    stamp = await table.put(ADA, Age=36)
    await table.set_access(READERS)
    assert (await table.get(ADA)).stamp == stamp


# Lists


@table_test
async def test_lists_are_in_the_order_of_names_in_lower_case(table: TableFixture) -> None:
    names = ["Zebra", "apple", "Banana", "aPricot", "cherry1", "Cherry", "people2"]
    for name in names:
        await table.named(name).create()
    await TableFixture(table.base, TableName("other", "Elsewhere")).create()
    expected = sorted([*names, "People"], key=str.lower)
    for limit in range(1, len(expected) + 2):
        found: list[str] = []
        start = ""
        while True:
            command = ListTables(ACCOUNT, limit + 1, start)
            page = (await table.read(list_tables, command)).tables
            found += [table.name for table in page[:limit]]
            if len(page) <= limit:
                break
            start = page[limit].name.lower()
        assert found == expected


@table_test
async def test_a_list_continues_after_a_deleted_table(table: TableFixture) -> None:
    for name in ("Ant", "Bee", "Cow"):
        await table.named(name).create()
    await table.named("Bee").delete_table()
    page = (await table.read(list_tables, ListTables(ACCOUNT, 10, "bee"))).tables
    assert [table.name for table in page] == ["Cow", "People"]


# Purging


@table_test
async def test_purging_is_done_in_bounded_steps(table: TableFixture) -> None:
    assert not await table.read(may_purge, None)
    kept = table.named("Kept")
    await kept.create()
    await kept.fill(Keys("p", str(row)) for row in range(3))
    for _ in range(2):
        await table.fill(Keys("p", str(row)) for row in range(25))
        await table.delete_table()
        await table.create()
    assert await table.orphaned_records() == 2 * 25 + 2
    assert await table.read(may_purge, None)
    left, steps = await table.orphaned_records(), 0
    while await table.purge_step(10):
        steps += 1
        now_left = await table.orphaned_records()
        assert 0 < left - now_left <= 10 + 1
        left = now_left
    assert (left, steps) == (0, 6)
    assert not await table.read(may_purge, None)
    assert len(await kept.contents()) == 3


@table_test
async def test_a_table_of_exactly_one_step_is_purged(table: TableFixture) -> None:
    await table.fill(Keys("p", str(row)) for row in range(10))
    await table.delete_table()
    assert [await table.purge_step(10) for _ in range(3)] == [11, 1, 0]
    assert await table.orphaned_records() == 0


@table_test
async def test_nothing_is_written_into_a_deleted_table(table: TableFixture) -> None:
    await table.delete_table()
    for change in ChangeKind:
        assert await code_of(table.change(EntityChange(change, ADA))) == "TableNotFound"
    await table.purge()
    assert await table.orphaned_records() == 0
