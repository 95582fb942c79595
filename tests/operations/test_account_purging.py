"""What a cell keeps and removes of accounts that have moved."""

from __future__ import annotations

import pytest

from etagere.clock import TICKS_PER_SECOND
from etagere.engine.account_moves import ACCOUNT_MOVES, UNFINISHED_MOVES
from etagere.engine.interface import Engine, ReadTxn, Refused, WriteTxn, operation
from etagere.model.accounts import AddAccount
from etagere.model.base import Command
from etagere.model.cells import (
    AccountMove,
    EndMove,
    ExpectAccount,
    FinishMove,
    MoveState,
    PurgeAccount,
    PurgeMovedAccounts,
    UnfinishedMove,
)
from etagere.model.containers import ContainerName, CreateContainer
from etagere.model.delegation import IssueDelegationKey, UserName
from etagere.model.ids import new_id
from etagere.model.queues import CreateQueue, QueueName
from etagere.model.tables import CreateTable, TableName
from etagere.operations.account_data import BY_ACCOUNT, INDEXES_BY_TIME, RESOURCES
from etagere.operations.account_moves import (
    end_move,
    expect_account,
    finish_move,
    locate_account,
)
from etagere.operations.account_purging import (
    may_purge,
    purge_account,
    purge_moved_accounts,
)
from etagere.operations.accounts import add_account
from etagere.operations.blob.containers import create_container
from etagere.operations.delegation import issue_delegation_key
from etagere.operations.queue.queues import create_queue
from etagere.operations.table.tables import create_table
from tests.engine.conftest import start  # noqa: F401
from tests.engine.harness import Harness, conformance

MINE, OTHER, MOVE = "mine", "other", b"m" * 16
PURGE = PurgeAccount(MINE, MOVE, rows_max=2)


class SetState(Command, frozen=True):
    state: MoveState


@operation
def set_state(txn: WriteTxn, command: SetState) -> None:
    txn.put(ACCOUNT_MOVES, (MINE,), AccountMove(command.state, "west", MOVE))
    txn.put(UNFINISHED_MOVES, (MINE,), UnfinishedMove())


def tell_now(txn: ReadTxn, _: None) -> int:
    return txn.now


def count_records(txn: ReadTxn, account: str) -> dict[str, int]:
    """Counts the records whose keys contain the name of an account."""
    named = [*BY_ACCOUNT, *[each.collection for each in RESOURCES]]
    timed = [index.rows for index in INDEXES_BY_TIME.values()]
    return {
        each.name: found
        for each in (*named, *timed)
        if (found := sum(account in key for key, _ in txn.scan(each, each.all(), 100)))
    }


async def fill(engine: Engine, account: str) -> None:
    await engine.write(add_account, AddAccount(account, b"1", b"2"))
    for name in ("first", "second", "third"):
        container = ContainerName(account, name)
        await engine.write(create_container, CreateContainer(container, new_id()))
    await engine.write(create_queue, CreateQueue(QueueName(account, "queue"), new_id()))
    await engine.write(create_table, CreateTable(TableName(account, "Table"), new_id()))
    user = UserName(account, "1" * 36, "2" * 36)
    expiry = await engine.read(tell_now, None) + TICKS_PER_SECOND
    key = IssueDelegationKey(user, (), None, expiry, b"s" * 32)
    await engine.write(issue_delegation_key, key)


async def purged(engine: Engine) -> int:
    """Purges the account; returns in how many steps."""
    steps = 0
    while await engine.write(purge_account, PURGE):
        steps += 1
    return steps


@conformance
async def test_an_account_that_has_moved_is_purged_and_may_return(harness: Harness) -> None:
    engine = await harness.open()
    for account in (MINE, OTHER):
        await fill(engine, account)
    others = await engine.read(count_records, OTHER)
    assert await purged(engine) == 0
    await engine.write(set_state, SetState(MoveState.FROZEN))
    assert await purged(engine) == 0
    await engine.write(set_state, SetState(MoveState.MOVED))
    assert await engine.write(purge_account, PurgeAccount(MINE, b"n" * 16)) == 0
    with pytest.raises(Refused, match="AccountAlreadyExists"):
        await engine.write(expect_account, ExpectAccount(MINE))
    assert await purged(engine) > 2
    # `end_move` has removed the account itself before.
    assert await engine.read(count_records, MINE) == {"accounts": 1}
    assert await engine.read(count_records, OTHER) == others
    assert (await engine.read(locate_account, MINE)).move == AccountMove(
        MoveState.MOVED, "west", MOVE, is_purged=True
    )


@conformance
async def test_a_name_that_has_moved_is_free_after_the_purge(harness: Harness) -> None:
    engine = await harness.open()
    for operation_, command in (
        (expect_account, ExpectAccount(MINE)),
        (add_account, AddAccount(MINE, b"1", b"2")),
    ):
        await engine.write(set_state, SetState(MoveState.MOVED))
        with pytest.raises(Refused, match="ServerBusy"):
            await engine.write(operation_, command)  # type: ignore[arg-type]
        await purged(engine)
        assert await engine.write(operation_, command)  # type: ignore[arg-type]
        assert (await engine.read(locate_account, MINE)).move is None


@conformance
async def test_an_account_whose_move_was_cancelled_is_removed(harness: Harness) -> None:
    engine = await harness.open()
    await fill(engine, MINE)
    await engine.write(set_state, SetState(MoveState.INCOMING))
    await purged(engine)
    assert await engine.read(locate_account, MINE) == (None, None)
    assert await engine.read(count_records, MINE) == {}


@conformance
async def test_moved_accounts_are_purged_after_a_while(harness: Harness) -> None:
    engine = await harness.open()
    await fill(engine, MINE)
    assert not await engine.read(may_purge, None)
    await engine.write(set_state, SetState(MoveState.FROZEN))
    await engine.write(end_move, EndMove(MINE, MOVE))
    await engine.write(finish_move, FinishMove(MINE, MOVE, keep_seconds=60))
    assert await engine.read(may_purge, None)
    assert await engine.write(purge_moved_accounts, PurgeMovedAccounts()) == 0
    harness.clock.freeze()
    harness.clock.advance(61 * TICKS_PER_SECOND)
    while await engine.write(purge_moved_accounts, PurgeMovedAccounts(rows_max=2)):
        pass
    assert not await engine.read(may_purge, None)
    assert await engine.read(count_records, MINE) == {}
