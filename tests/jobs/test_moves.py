"""The job that ends moves of accounts whose command has ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from etagere.cells.account_map import AccountMap
from etagere.coordination.local import LocalCoordinator
from etagere.engine.account_moves import ACCOUNT_MOVES, UNFINISHED_MOVES
from etagere.engine.interface import Fault, FaultReason, WriteTxn, operation
from etagere.engine.memory import MemoryEngine
from etagere.jobs.moves import MoveRecovery, task_of
from etagere.model.accounts import AddAccount
from etagere.model.cells import (
    AccountCell,
    AccountMove,
    BeginMove,
    EndMove,
    FreezeAccount,
    MoveState,
    RecordMove,
    SetAccountCell,
    UnfinishedMove,
)
from etagere.operations.account_map import get_account_entry, record_move, set_account_cell
from etagere.operations.account_moves import (
    begin_move,
    end_move,
    freeze_account,
    get_move,
    list_unfinished,
    locate_account,
)
from etagere.operations.accounts import add_account
from tests.clocks import SharedClock
from tests.loops import in_event_loop

ACCOUNT, MOVE = "moving", b"m" * 16
HERE, THERE, THIRD = "here", "there", "third"


@operation
def receive_account(txn: WriteTxn, account: str) -> None:
    txn.put(ACCOUNT_MOVES, (account,), AccountMove(MoveState.INCOMING, THERE, MOVE))
    txn.put(UNFINISHED_MOVES, (account,), UnfinishedMove())


class Fixture:
    """The ledger of a cell, another one with the map, and two processes."""

    def __init__(self, directory: Path) -> None:
        self.engine = MemoryEngine(SharedClock())
        self.map_engine = MemoryEngine(SharedClock())
        self.command = LocalCoordinator(directory)
        self.recovery = MoveRecovery(
            self.engine,
            LocalCoordinator(directory),
            AccountMap(self.map_engine, HERE, b"secret"),
            self.map_engine.write,
        )

    async def move_until(self, state: MoveState, account: str = ACCOUNT) -> None:
        await self.engine.write(add_account, AddAccount(account, b"1", b"2"))
        await self.map_engine.write(set_account_cell, SetAccountCell(account, HERE))
        await self.engine.write(begin_move, BeginMove(account, THERE, MOVE))
        if state is not MoveState.DRAINING:
            await self.engine.write(freeze_account, FreezeAccount(account, MOVE))
        if state is MoveState.MOVED:
            await self.engine.write(end_move, EndMove(account, MOVE))

    async def entry(self) -> AccountCell | None:
        return await self.map_engine.read(get_account_entry, ACCOUNT)

    async def unfinished(self) -> list[str]:
        return list(await self.engine.read(list_unfinished, None))


@pytest.fixture
def fixture(tmp_path: Path) -> Fixture:
    return Fixture(tmp_path)


@pytest.mark.parametrize("state", [MoveState.DRAINING, MoveState.FROZEN])
@in_event_loop
async def test_a_move_that_can_be_cancelled(fixture: Fixture, state: MoveState) -> None:
    await fixture.move_until(state)
    async with fixture.command.sole_worker(task_of(ACCOUNT)) as lock:
        assert lock is not None
        await fixture.recovery.run()
        moving = await fixture.engine.read(get_move, ACCOUNT)
        assert moving == AccountMove(state, THERE, MOVE)
    await fixture.recovery.run()
    assert await fixture.engine.read(get_move, ACCOUNT) is None
    assert await fixture.unfinished() == []
    assert await fixture.entry() == AccountCell(HERE)


@in_event_loop
async def test_a_move_that_is_decided(fixture: Fixture) -> None:
    await fixture.move_until(MoveState.MOVED)
    async with fixture.command.sole_worker(task_of(ACCOUNT)) as lock:
        assert lock is not None
        await fixture.recovery.run()
        assert await fixture.entry() == AccountCell(HERE)
    await fixture.recovery.run()
    assert await fixture.entry() == AccountCell(THERE, MOVE)
    assert await fixture.unfinished() == []
    # The record stays: the account may be looked up here for ever.
    moved = await fixture.engine.read(get_move, ACCOUNT)
    assert moved == AccountMove(MoveState.MOVED, THERE, MOVE)


@in_event_loop
async def test_an_account_that_has_moved_on(fixture: Fixture) -> None:
    await fixture.move_until(MoveState.MOVED)
    later = AccountCell(THIRD, b"later")
    command = RecordMove(ACCOUNT, later, AccountCell(HERE))
    assert await fixture.map_engine.write(record_move, command)
    await fixture.recovery.run()
    assert await fixture.entry() == later
    assert await fixture.unfinished() == []


@in_event_loop
async def test_a_map_that_changes_meanwhile(
    fixture: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The account has returned to this cell between the two reads and the write."""
    await fixture.move_until(MoveState.MOVED)
    returned = AccountCell(HERE, b"returned")
    write = fixture.map_engine.write

    async def write_late(operation: object, command: RecordMove) -> bool:
        await write(record_move, RecordMove(ACCOUNT, returned, AccountCell(HERE)))
        return await write(record_move, command)

    monkeypatch.setattr(fixture.recovery, "_write", write_late)
    await fixture.recovery.run()
    assert await fixture.entry() == returned


@in_event_loop
async def test_the_target_waits_for_the_decision_of_the_source(fixture: Fixture) -> None:
    await fixture.engine.write(add_account, AddAccount(ACCOUNT, b"1", b"2"))
    await fixture.engine.write(receive_account, ACCOUNT)
    # An earlier move to this cell, as in a map that was restored from a backup.
    for known, entry in (
        (None, AccountCell(THERE)),
        (AccountCell(THERE), AccountCell(HERE)),
        (AccountCell(HERE), AccountCell(HERE, b"earlier")),
    ):
        await fixture.map_engine.write(record_move, RecordMove(ACCOUNT, entry, known))
        await fixture.recovery.run()
        move = (await fixture.engine.read(locate_account, ACCOUNT)).move
        assert move is not None and move.state is MoveState.INCOMING
    decided = RecordMove(ACCOUNT, AccountCell(HERE, MOVE), AccountCell(HERE, b"earlier"))
    assert await fixture.map_engine.write(record_move, decided)
    await fixture.recovery.run()
    account, move = await fixture.engine.read(locate_account, ACCOUNT)
    assert account is not None and move is None
    assert await fixture.unfinished() == []


@in_event_loop
async def test_moves_are_cancelled_while_the_map_is_unavailable(
    fixture: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fixture.move_until(MoveState.MOVED)
    await fixture.move_until(MoveState.FROZEN, "zeta")

    async def unavailable(*_: object) -> None:
        raise Fault(FaultReason.UNAVAILABLE, "no map")

    monkeypatch.setattr(fixture.map_engine, "read", unavailable)
    with pytest.raises(Fault, match="no map"):
        await fixture.recovery.run()
    assert await fixture.unfinished() == [ACCOUNT]
