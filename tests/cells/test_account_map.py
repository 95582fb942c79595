"""The account map as a process uses it: what it remembers, and what it does without an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from etagere.cells import account_map
from etagere.cells.account_map import ANSWER_SECONDS_MAX, AccountMap
from etagere.engine.interface import C, Fault, FaultReason, ReadTxn, T
from etagere.engine.memory import MemoryEngine
from etagere.model.cells import CellNode, NamedCellNode, RegisterCellNode, SetAccountCell
from etagere.operations.account_map import register_cell_node, set_account_cell
from tests.clocks import SharedClock


class MapEngine(MemoryEngine):
    """A ledger that can be away, or hang."""

    def __init__(self) -> None:
        super().__init__(SharedClock())
        self.reads = 0
        self.is_away = False
        self.answering = asyncio.Event()
        self.answering.set()

    async def read(self, operation: Callable[[ReadTxn, C], T], command: C) -> T:
        self.reads += 1
        await self.answering.wait()
        if self.is_away:
            raise Fault(FaultReason.UNAVAILABLE, "the database is away")
        return await super().read(operation, command)


class Fixture:
    """A map, whose time the test sets."""

    def __init__(self) -> None:
        self.engine = MapEngine()
        self.now = 1_000.0
        self.map = AccountMap(self.engine, "here", b"secret", lambda: self.now)

    async def put(self, account: str, cell: str, expected: str = "") -> None:
        await self.engine.write(set_account_cell, SetAccountCell(account, cell, expected))


def map_test(body: Callable[[Fixture], Any]) -> Callable[[], None]:
    """Turns a coroutine into a test."""

    async def run() -> None:
        fixture = Fixture()
        try:
            await asyncio.wait_for(body(fixture), 20)
        finally:
            await fixture.map.close()

    def test() -> None:
        asyncio.run(run())

    test.__name__ = body.__name__
    return test


@map_test
async def test_answers_are_remembered_for_a_while(fixture: Fixture) -> None:
    await fixture.put("mine", "there")
    for _ in range(3):
        assert await fixture.map.cell_of("mine") == "there"
        assert await fixture.map.cell_of("unknown") == ""
    assert fixture.engine.reads == 2
    await fixture.put("mine", "elsewhere", "there")
    await fixture.put("unknown", "there")
    fixture.now += ANSWER_SECONDS_MAX
    assert await fixture.map.cell_of("mine") == "elsewhere"
    assert await fixture.map.cell_of("unknown") == "there"
    await fixture.put("mine", "there", "elsewhere")
    fixture.map.expire("mine")
    assert await fixture.map.cell_of("mine") == "there"


@map_test
async def test_nodes_of_cells(fixture: Fixture) -> None:
    node = CellNode("10.0.0.1", 7_000)
    await fixture.engine.write(
        register_cell_node, RegisterCellNode("there", b"id", "one", node, b"secret")
    )
    for _ in range(2):
        assert await fixture.map.nodes_of("there") == [NamedCellNode("one", node)]
        assert await fixture.map.nodes_of("gone") == []
    assert fixture.engine.reads == 2


@map_test
async def test_names_that_no_account_has_are_not_looked_up(fixture: Fixture) -> None:
    for name in ("", "x", "UPPER", "a" * 25, "a/b", "naïve", "\0\0\0\0"):
        assert await fixture.map.cell_of(name) == ""
    assert fixture.engine.reads == 0


@map_test
async def test_concurrent_lookups_are_one(fixture: Fixture) -> None:
    await fixture.put("mine", "there")
    fixture.engine.answering.clear()
    lookups = [asyncio.create_task(fixture.map.cell_of("mine")) for _ in range(20)]
    await asyncio.sleep(0)
    lookups[0].cancel()  # a request that ends does not end the lookup
    fixture.engine.answering.set()
    assert await asyncio.gather(*lookups[1:]) == ["there"] * 19
    assert fixture.engine.reads == 1


@map_test
async def test_the_last_answer_stands_while_the_map_is_away(fixture: Fixture) -> None:
    await fixture.put("mine", "there")
    assert await fixture.map.cell_of("mine") == "there"
    fixture.engine.is_away = True
    fixture.now += 3_600.0
    for _ in range(3):
        assert await fixture.map.cell_of("mine") == "there"
        with pytest.raises(Fault, match="the account map cannot be read"):
            await fixture.map.cell_of("another")
    # It is not asked for each request.
    assert fixture.engine.reads == 2
    fixture.engine.is_away = False
    fixture.now += 1.1
    assert await fixture.map.cell_of("another") == ""
    assert await fixture.map.cell_of("mine") == "there"


@map_test
async def test_an_answer_that_may_be_outdated_stands_while_the_map_is_away(
    fixture: Fixture,
) -> None:
    """Any 503 of the other cell may mean that the account has moved."""
    await fixture.put("mine", "there")
    assert await fixture.map.cell_of("mine") == "there"
    assert await fixture.map.cell_of("none") == ""
    fixture.engine.is_away = True
    for _ in range(3):
        fixture.map.expire("mine")
        fixture.map.expire("none")
        fixture.map.expire("another")
        assert await fixture.map.cell_of("mine") == "there"
        assert await fixture.map.cell_of("none") == ""
        with pytest.raises(Fault):
            await fixture.map.cell_of("another")
    fixture.engine.is_away = False
    await fixture.put("mine", "elsewhere", "there")
    fixture.now += 1.1
    assert await fixture.map.cell_of("mine") == "elsewhere"


@map_test
async def test_a_map_that_hangs_delays_requests_only_once(fixture: Fixture) -> None:
    await fixture.put("mine", "there")
    assert await fixture.map.cell_of("mine") == "there"
    fixture.engine.answering.clear()
    fixture.now += 60.0
    assert await fixture.map.cell_of("mine") == "there"
    with pytest.MonkeyPatch.context() as patched:
        for name in ("_KNOWN_WAIT_SECONDS_MAX", "_UNKNOWN_WAIT_SECONDS_MAX"):
            patched.setattr(account_map, name, 10.0)
        # Less than either wait, so that none of them was waited for.
        async with asyncio.timeout(5.0):
            assert await fixture.map.cell_of("mine") == "there"
            with pytest.raises(Fault):
                await fixture.map.cell_of("another")


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account_map, "_ACCOUNTS_MAX", 10)

    async def run() -> None:
        fixture = Fixture()
        for number in range(30):
            await fixture.map.cell_of(f"account{number}")
            await fixture.map.cell_of("account0")  # used, so not forgotten
        assert fixture.engine.reads == 30
        await fixture.map.cell_of("account1")
        assert fixture.engine.reads == 31
        await fixture.map.close()

    asyncio.run(run())


def test_names_that_are_in_no_cell_do_not_replace_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account_map, "_ACCOUNTS_MAX", 10)

    @map_test
    async def run(fixture: Fixture) -> None:
        await fixture.put("mine", "there")
        assert await fixture.map.cell_of("mine") == "there"
        for _ in range(2):
            for number in range(100):
                assert await fixture.map.cell_of(f"unknown{number}") == ""
        assert len(fixture.map._cells._absent) == 10
        fixture.engine.is_away = True
        fixture.now += ANSWER_SECONDS_MAX
        assert await fixture.map.cell_of("mine") == "there"

    run()


def test_the_secret_is_not_shown() -> None:
    assert "secret" not in repr(AccountMap(MemoryEngine(SharedClock()), "here", b"secret"))
