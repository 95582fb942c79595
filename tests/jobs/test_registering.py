"""The jobs that keep the account map complete."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from etagere.cells.account_map import AccountMap
from etagere.coordination.interface import Coordinator
from etagere.engine.account_moves import ACCOUNT_MOVES
from etagere.engine.interface import WriteTxn, operation
from etagere.engine.memory import MemoryEngine
from etagere.jobs import registering
from etagere.jobs.registering import Registration
from etagere.jobs.supervision import RoundFailed
from etagere.model.accounts import AddAccount
from etagere.model.cells import (
    AccountMove,
    CellNode,
    ListMappedAccounts,
    MappedAccount,
    MoveState,
    RegisterCellNode,
    SetAccountCell,
)
from etagere.operations.account_map import (
    list_cell_nodes,
    list_mapped_accounts,
    register_cell_node,
    set_account_cell,
)
from etagere.operations.accounts import add_account
from tests.clocks import SharedClock

NODE = RegisterCellNode("here", b"id", "node", CellNode("10.0.0.1", 7_000), b"secret")


@operation
def receive_account(txn: WriteTxn, account: str) -> None:
    txn.put(ACCOUNT_MOVES, (account,), AccountMove(MoveState.INCOMING, "there", b"m"))


class Draining:
    """What the job needs of a coordinator."""

    is_draining = False


class Fixture:
    """The ledger of a cell, and another one with the map."""

    def __init__(self, node: RegisterCellNode = NODE) -> None:
        self.engine = MemoryEngine(SharedClock())
        self.map_engine = MemoryEngine(SharedClock())
        self.coordinator = Draining()
        self.registration = Registration(
            self.engine,
            cast(Coordinator, self.coordinator),
            AccountMap(self.map_engine, "here", b"secret"),
            self.map_engine.write,
            node,
        )

    async def nodes(self) -> list[str]:
        return [entry.name for entry in await self.map_engine.read(list_cell_nodes, "here")]

    async def accounts(self) -> list[MappedAccount]:
        return await self.map_engine.read(list_mapped_accounts, ListMappedAccounts(100))


def run(body: Callable[[Fixture], Awaitable[None]], fixture: Fixture | None = None) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(body(fixture or Fixture()), 20)

    asyncio.run(bounded())


def test_a_node_is_in_the_map_unless_it_is_drained() -> None:
    async def body(fixture: Fixture) -> None:
        for is_draining, nodes in ((False, ["node"]), (True, []), (False, ["node"])):
            fixture.coordinator.is_draining = is_draining
            for _ in range(2):
                await fixture.registration.register_node()
                assert await fixture.nodes() == nodes

    run(body)


def test_a_node_whose_cell_has_another_ledger() -> None:
    async def body(fixture: Fixture) -> None:
        other = RegisterCellNode("here", b"other", "another", NODE.node, b"secret")
        await fixture.map_engine.write(register_cell_node, other)
        with pytest.raises(RoundFailed, match="does not accept the node") as failed:
            await fixture.registration.register_node()
        assert "secret" not in str(failed.value)
        assert await fixture.nodes() == ["another"]

    run(body)


def test_accounts_that_are_missing_in_the_map(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registering, "_PAGE", 2)

    async def body(fixture: Fixture) -> None:
        names = ["five", "four", "one", "three", "two"]
        for name in names:
            await fixture.engine.write(add_account, AddAccount(name, b"1", b"2"))
        # Its data has arrived, but the other cell still serves it.
        await fixture.engine.write(receive_account, "three")
        await fixture.registration.register_accounts()
        expected = [MappedAccount(name, "here") for name in names if name != "three"]
        assert await fixture.accounts() == expected
        moved = SetAccountCell("one", "there", "here")
        await fixture.map_engine.write(set_account_cell, moved)
        with pytest.raises(RoundFailed, match=r"other cells .* \(1 in all\): one in there"):
            await fixture.registration.register_accounts()

    run(body)
