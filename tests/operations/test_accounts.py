"""Stored accounts and the built-in development account."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from etagere.engine.interface import Conflict, Engine, Refused, WriteTxn
from etagere.engine.memory import MemoryEngine
from etagere.model.accounts import (
    BUILT_IN,
    Account,
    AddAccount,
    ListAccounts,
    RemoveAccount,
    RotateKey,
)
from etagere.operations.accounts import (
    add_account,
    get_account,
    list_accounts,
    remove_account,
    rotate_key,
)
from tests.engine.conftest import start  # noqa: F401
from tests.engine.harness import Harness, conformance

DEVELOPMENT = "devstoreaccount1"
MINE = AddAccount("mine", b"first", b"second")


async def names(engine: Engine, limit: int = 100, after: str = "") -> list[str]:
    page = await engine.read(list_accounts, ListAccounts(limit, after))
    return [entry.name for entry in page]


@conformance
async def test_add_and_remove(harness: Harness) -> None:
    engine = await harness.open()
    assert await engine.read(get_account, "mine") is None
    added = await engine.write(add_account, MINE)
    assert added.keys == (b"first", b"second")
    assert added.created == added.key1_created == added.key2_created > 0
    assert await engine.read(get_account, "mine") == added
    await harness.restart()
    engine = await harness.open()
    assert await engine.read(get_account, "mine") == added
    await engine.write(remove_account, RemoveAccount("mine"))
    assert await engine.read(get_account, "mine") is None
    with pytest.raises(Refused, match="ResourceNotFound"):
        await engine.write(remove_account, RemoveAccount("mine"))
    again = await engine.write(add_account, MINE)
    assert again.created > added.created


@conformance
async def test_replacing_a_key_keeps_the_other(harness: Harness) -> None:
    engine = await harness.open()
    added = await engine.write(add_account, MINE)
    first = await engine.write(rotate_key, RotateKey("mine", 1, b"third"))
    assert first.keys == (b"third", b"second")
    assert first.key1_created > added.key1_created
    second = await engine.write(rotate_key, RotateKey("mine", 2, b"fourth"))
    assert second.keys == (b"third", b"fourth")
    assert second.key1_created == first.key1_created
    assert second.key2_created > first.key1_created
    assert second.created == added.created
    assert await engine.read(get_account, "mine") == second


@conformance
async def test_one_of_many_adders_wins(harness: Harness) -> None:
    engine = await harness.open()
    adding = [
        engine.write(add_account, AddAccount("mine", b"%d" % number, b"other"))
        for number in range(20)
    ]
    outcomes = await asyncio.gather(*adding, return_exceptions=True)
    added = [outcome for outcome in outcomes if isinstance(outcome, Account)]
    refused = [outcome for outcome in outcomes if isinstance(outcome, Refused)]
    assert added == [await engine.read(get_account, "mine")]
    assert [error.refusal.code for error in refused] == ["AccountAlreadyExists"] * 19


@conformance
async def test_concurrent_replacements_of_both_keys(harness: Harness) -> None:
    engine = await harness.open()
    await engine.write(add_account, MINE)
    await asyncio.gather(
        engine.write(rotate_key, RotateKey("mine", 1, b"third")),
        engine.write(rotate_key, RotateKey("mine", 2, b"fourth")),
    )
    account = await engine.read(get_account, "mine")
    assert account is not None
    assert account.keys == (b"third", b"fourth")


@conformance
async def test_invalid_commands_change_nothing(harness: Harness) -> None:
    engine = await harness.open()
    added = await engine.write(add_account, MINE)
    for command, code in (
        (AddAccount("Mine", b"k", b"k"), "InvalidResourceName"),
        (AddAccount("m", b"k", b"k"), "OutOfRangeInput"),
        (AddAccount("other", b"", b"k"), "OutOfRangeInput"),
        (AddAccount("other", b"k", bytes(65)), "OutOfRangeInput"),
        (MINE, "AccountAlreadyExists"),
    ):
        with pytest.raises(Refused, match=code):
            await engine.write(add_account, command)
    for rotation, code in (
        (RotateKey("mine", 0, b"k"), "OutOfRangeInput"),
        (RotateKey("mine", 3, b"k"), "OutOfRangeInput"),
        (RotateKey("mine", 1, b""), "OutOfRangeInput"),
        (RotateKey("other", 1, b"k"), "ResourceNotFound"),
        (RotateKey("x" * 10_000, 1, b"k"), "OutOfRangeInput"),
    ):
        with pytest.raises(Refused, match=code):
            await engine.write(rotate_key, rotation)
    assert await names(engine) == [DEVELOPMENT, "mine"]
    assert await engine.read(get_account, "mine") == added


@conformance
async def test_the_development_account_cannot_be_removed(harness: Harness) -> None:
    engine = await harness.open()
    assert await engine.read(get_account, DEVELOPMENT) == BUILT_IN[DEVELOPMENT]
    with pytest.raises(Refused, match="AccountAlreadyExists"):
        await engine.write(add_account, AddAccount(DEVELOPMENT, b"k", b"k"))
    with pytest.raises(Refused, match="InsufficientAccountPermissions"):
        await engine.write(rotate_key, RotateKey(DEVELOPMENT, 1, b"k"))
    with pytest.raises(Refused, match="InsufficientAccountPermissions"):
        await engine.write(remove_account, RemoveAccount(DEVELOPMENT))
    assert await engine.read(get_account, DEVELOPMENT) == BUILT_IN[DEVELOPMENT]


@conformance
async def test_invalid_names_are_no_accounts(harness: Harness) -> None:
    engine = await harness.open()
    for name in ("", "x" * 10_000, "\udcff" * 3, "../etc"):
        assert await engine.read(get_account, name) is None


@conformance
async def test_pages_of_any_size(harness: Harness) -> None:
    engine = await harness.open()
    assert await names(engine) == [DEVELOPMENT]
    for name in ("aaa", "devstoreaccount0", "devstoreaccount2", "zzz"):
        await engine.write(add_account, AddAccount(name, b"k", b"k"))
    everything = ["aaa", "devstoreaccount0", DEVELOPMENT, "devstoreaccount2", "zzz"]
    for limit in range(1, 7):
        seen: list[str] = []
        while page := await names(engine, limit, seen[-1] if seen else ""):
            assert len(page) <= limit
            seen += page
        assert seen == everything


# Concurrent changes at each step: an unguarded decision would rest on stale data.


def interrupted(operation: Callable[[WriteTxn, Any], Account], mine: Any, other: Any) -> None:
    """Runs the same command from another caller at each step in turn; after our first read it has
    to wait."""
    engine = MemoryEngine()
    asyncio.run(engine.write(add_account, AddAccount("theirs", b"first", b"second")))
    steps = 0

    def interrupt() -> None:
        nonlocal steps
        steps += 1
        if steps > 1:
            second = engine.begin()
            with pytest.raises(Conflict):
                operation(second, other)
            second.rollback()

    ours = engine.begin(interrupt)
    operation(ours, mine)
    ours.commit()
    assert steps > 2


def test_a_name_cannot_be_added_while_it_is_being_added() -> None:
    interrupted(add_account, MINE, AddAccount("mine", b"third", b"fourth"))


def test_a_key_cannot_be_replaced_while_the_other_is() -> None:
    interrupted(rotate_key, RotateKey("theirs", 1, b"third"), RotateKey("theirs", 2, b"fourth"))
