"""The steps of the move of an account, as the two cells record them."""

from __future__ import annotations

import pytest

from etagere.engine.account_moves import ACCOUNT_MOVES, UNFINISHED_MOVES, require_writable
from etagere.engine.interface import Refused, WriteTxn, operation
from etagere.model.accounts import AddAccount, ListAccounts, RemoveAccount, RotateKey
from etagere.model.cells import (
    AccountMove,
    BeginMove,
    CancelMove,
    EndMove,
    FinishMove,
    FreezeAccount,
    MoveState,
    UnfinishedMove,
)
from etagere.model.delegation import RevokeDelegationKeys
from etagere.operations.account_moves import (
    begin_move,
    cancel_move,
    end_move,
    finish_move,
    freeze_account,
    get_move,
    list_account_moves,
    list_draining,
    list_unfinished,
    locate_account,
)
from etagere.operations.accounts import add_account, remove_account, rotate_key
from etagere.operations.delegation import revoke_delegation_keys
from tests.engine.harness import Harness, conformance

ACCOUNT, CELL, MOVE = "moving", "west", b"m" * 16
BEGIN, FREEZE = BeginMove(ACCOUNT, CELL, MOVE), FreezeAccount(ACCOUNT, MOVE)
END, CANCEL = EndMove(ACCOUNT, MOVE), CancelMove(ACCOUNT, MOVE)


@operation
def write_to_account(txn: WriteTxn, account: str) -> None:
    require_writable(txn, account)


@operation
def receive_account(txn: WriteTxn, account: str) -> None:
    txn.put(ACCOUNT_MOVES, (account,), AccountMove(MoveState.INCOMING, "east", MOVE))
    txn.put(UNFINISHED_MOVES, (account,), UnfinishedMove())


@conformance
async def test_the_steps_in_the_source(harness: Harness) -> None:
    engine = await harness.open()
    with pytest.raises(Refused, match="ResourceNotFound"):
        await engine.write(begin_move, BEGIN)
    await engine.write(add_account, AddAccount(ACCOUNT, b"1", b"2"))
    assert await engine.read(list_draining, None) == []

    assert (await engine.write(begin_move, BEGIN)).state is MoveState.DRAINING
    # A move that was interrupted goes on under its id.
    again = await engine.write(begin_move, BeginMove(ACCOUNT, CELL, b"n" * 16))
    assert again == AccountMove(MoveState.DRAINING, CELL, MOVE)
    with pytest.raises(Refused, match="ServerBusy"):
        await engine.write(begin_move, BeginMove(ACCOUNT, "south", MOVE))
    assert await engine.read(list_draining, None) == [FREEZE]
    moves = await engine.read(list_account_moves, ListAccounts(10))
    assert moves == {ACCOUNT: AccountMove(MoveState.DRAINING, CELL, MOVE)}
    assert await engine.read(list_account_moves, ListAccounts(10, ACCOUNT)) == {}
    await engine.write(write_to_account, ACCOUNT)
    with pytest.raises(Refused, match="ServerBusy"):
        await engine.write(remove_account, RemoveAccount(ACCOUNT))
    assert await engine.write(end_move, END) == again  # not yet

    await engine.write(freeze_account, FreezeAccount(ACCOUNT, b"n" * 16))
    assert await engine.read(list_draining, None) == [FREEZE]
    await engine.write(freeze_account, FREEZE)
    assert await engine.read(get_move, ACCOUNT) == AccountMove(MoveState.FROZEN, CELL, MOVE)
    assert await engine.read(list_draining, None) == []
    with pytest.raises(Refused, match="ServerBusy"):
        await engine.write(write_to_account, ACCOUNT)
    # The other cell may have a copy of its keys.
    with pytest.raises(Refused, match="ServerBusy"):
        await engine.write(rotate_key, RotateKey(ACCOUNT, 1, b"3"))
    with pytest.raises(Refused, match="ServerBusy"):
        await engine.write(revoke_delegation_keys, RevokeDelegationKeys(ACCOUNT))
    await engine.write(write_to_account, "another")

    replaced = await engine.write(end_move, EndMove(ACCOUNT, b"n" * 16))
    assert replaced == AccountMove(MoveState.FROZEN, CELL, MOVE)
    moved = AccountMove(MoveState.MOVED, CELL, MOVE)
    for _ in range(2):
        assert await engine.write(end_move, END) == moved
    assert await engine.read(locate_account, ACCOUNT) == (None, moved)
    assert not await engine.write(cancel_move, CANCEL)
    with pytest.raises(Refused, match="ServerBusy"):
        await engine.write(write_to_account, ACCOUNT)

    for move_id, left in ((b"n" * 16, {ACCOUNT: moved}), (MOVE, {})):
        await engine.write(finish_move, FinishMove(ACCOUNT, move_id))
        assert await engine.read(list_unfinished, None) == left
    assert await engine.read(get_move, ACCOUNT) == moved


@conformance
async def test_a_cancelled_move_leaves_nothing(harness: Harness) -> None:
    engine = await harness.open()
    await engine.write(add_account, AddAccount(ACCOUNT, b"1", b"2"))
    for freezes in (False, True):
        await engine.write(begin_move, BEGIN)
        if freezes:
            await engine.write(freeze_account, FREEZE)
        assert not await engine.write(cancel_move, CancelMove(ACCOUNT, b"n" * 16))
        assert await engine.write(cancel_move, CANCEL)
        assert await engine.read(get_move, ACCOUNT) is None
        assert await engine.write(end_move, END) is None
        assert await engine.read(list_unfinished, None) == {}
        # The process that serves files may be late.
        await engine.write(freeze_account, FREEZE)
        await engine.write(write_to_account, ACCOUNT)
    assert await engine.write(cancel_move, CANCEL)


@conformance
async def test_the_target_serves_an_account_once_it_has_arrived(harness: Harness) -> None:
    engine = await harness.open()
    await engine.write(add_account, AddAccount(ACCOUNT, b"1", b"2"))
    await engine.write(receive_account, ACCOUNT)
    with pytest.raises(Refused, match="ServerBusy"):
        await engine.write(write_to_account, ACCOUNT)
    assert not await engine.write(cancel_move, CANCEL)
    await engine.write(finish_move, FinishMove(ACCOUNT, MOVE))  # only in the source
    assert list(await engine.read(list_unfinished, None)) == [ACCOUNT]
    await engine.write(end_move, END)
    assert await engine.read(get_move, ACCOUNT) is None
    assert await engine.read(list_unfinished, None) == {}
    await engine.write(write_to_account, ACCOUNT)
