"""Which cell serves the account of a request."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from etagere.engine.account_moves import ACCOUNT_MOVES
from etagere.engine.interface import C, Fault, FaultReason, ReadTxn, Refused, T, WriteTxn, operation
from etagere.engine.memory import MemoryEngine
from etagere.model.accounts import BUILT_IN, AddAccount
from etagere.model.cells import AccountMove, MoveState
from etagere.operations.account_records import ACCOUNTS
from etagere.operations.accounts import add_account
from etagere.protocol.connections.memory import MemoryBudget
from etagere.protocol.http.messages import Request, RequestBody, Response
from etagere.protocol.relay.relaying import Relay
from etagere.protocol.rest.cells import Cells
from etagere.protocol.rest.exchange import Exchange
from tests.loops import in_event_loop
from tests.protocol.flows import CompleteBodyFlow
from tests.protocol.relay.harness import FixedNodes

OWN, OTHER, THIRD = "one", "two", "three"
NAME = "account"
BUSY = "ServerBusy"


class CountingEngine(MemoryEngine):
    """An engine that counts reads."""

    reads = 0

    async def read(self, operation: Callable[[ReadTxn, C], T], command: C) -> T:
        self.reads += 1
        return await super().read(operation, command)


class FixedMap:
    """An account map with one answer; None: it cannot be read."""

    own_cell = OWN

    def __init__(self, answer: str | None) -> None:
        self.answer = answer
        self.lookups = 0
        self.expired: list[str] = []

    def expire(self, account: str) -> None:
        self.expired.append(account)

    async def cell_of(self, account: str) -> str:
        self.lookups += 1
        if self.answer is None:
            raise Fault(FaultReason.UNAVAILABLE, "the map")
        return self.answer


class CellsFixture:
    """The cells as one of them sees them."""

    def __init__(self, answer: str | None) -> None:
        self.engine = CountingEngine()
        self.map = FixedMap(answer)
        relay = Relay(FixedNodes([]), b"", MemoryBudget())
        self.cells = Cells(self.engine, self.map, {*BUILT_IN, "configured"}, relay)

    async def add(self, *, move: AccountMove | None, exists: bool) -> None:
        if exists:
            await self.engine.write(add_account, AddAccount(NAME, b"1", b"2"))
        if move is not None:
            await self.engine.write(_put_move, move)

    def exchange(self, name: str = NAME, *, is_relayed: bool = False) -> Exchange:
        headers = [(b"Host", b"localhost")]
        body = RequestBody(CompleteBodyFlow(), 0)
        request = Request("GET", f"/{name}/c".encode(), headers, {b"host": b"localhost"}, body)
        request.is_relayed = is_relayed
        return Exchange("blob", request)


@operation
def _put_move(txn: WriteTxn, move: AccountMove) -> None:
    txn.put(ACCOUNT_MOVES, (NAME,), move)
    if move.state is MoveState.MOVED:
        txn.delete(ACCOUNTS, (NAME,))


@pytest.mark.parametrize("in_map", ["", OWN, OTHER])
@pytest.mark.parametrize("state", [None, MoveState.DRAINING, MoveState.FROZEN])
@in_event_loop
async def test_the_own_ledger_decides(state: MoveState | None, in_map: str) -> None:
    fixture = CellsFixture(in_map)
    move = None if state is None else AccountMove(state, OTHER, b"id")
    await fixture.add(move=move, exists=True)
    exchange = fixture.exchange()
    assert await fixture.cells.look_up(exchange) == ""
    assert exchange.stored_account is not None
    assert (fixture.engine.reads, fixture.map.lookups) == (1, 0)


@pytest.mark.parametrize(
    ("in_map", "moved_to", "expected"),
    [
        ("", None, ""),
        (OWN, None, ""),
        (OTHER, None, OTHER),
        ("", OTHER, OTHER),
        (OWN, OTHER, OTHER),
        (OTHER, OTHER, OTHER),
        (THIRD, OTHER, THIRD),
    ],
)
@in_event_loop
async def test_accounts_that_are_not_here(in_map: str, moved_to: str | None, expected: str) -> None:
    fixture = CellsFixture(in_map)
    move = None if moved_to is None else AccountMove(MoveState.MOVED, moved_to, b"id")
    await fixture.add(move=move, exists=False)
    exchange = fixture.exchange()
    assert await fixture.cells.look_up(exchange) == expected
    assert exchange.stored_account is None
    assert await fixture.cells.find_for_smb(NAME) is None


@pytest.mark.parametrize(
    ("in_map", "expected"),
    [
        (OTHER, OTHER),
        (OWN, OTHER),  # which has recorded that the account has moved here
        ("", OTHER),
        (None, OTHER),
        (THIRD, THIRD),  # the move was cancelled, and another one has been made
    ],
)
@in_event_loop
async def test_an_account_that_is_coming_here(in_map: str | None, expected: str) -> None:
    fixture = CellsFixture(in_map)
    await fixture.add(move=AccountMove(MoveState.INCOMING, OTHER, b"id"), exists=True)
    exchange = fixture.exchange()
    assert await fixture.cells.look_up(exchange) == expected
    assert exchange.stored_account is None


@pytest.mark.parametrize("name", ["configured", *BUILT_IN, "", "UPPER", "a" * 25, "a%00b", "../x"])
@in_event_loop
async def test_accounts_that_are_in_no_ledger(name: str) -> None:
    fixture = CellsFixture(OTHER)
    assert await fixture.cells.look_up(fixture.exchange(name)) == ""
    assert (fixture.engine.reads, fixture.map.lookups) == (0, 0)


@in_event_loop
async def test_a_map_that_cannot_be_read() -> None:
    fixture = CellsFixture(None)
    with pytest.raises(Fault):
        await fixture.cells.look_up(fixture.exchange())
    assert await fixture.cells.find_for_smb(NAME) is None
    await fixture.add(move=None, exists=True)
    assert await fixture.cells.look_up(fixture.exchange()) == ""


@pytest.mark.parametrize("kind", ["relayed", "nested"])
@in_event_loop
async def test_what_is_not_relayed(kind: str) -> None:
    """A request that was relayed, and one that is part of another."""
    fixture = CellsFixture(OTHER)
    exchange = fixture.exchange(is_relayed=kind == "relayed")
    if kind == "nested":
        exchange = exchange.nested("GET", f"/{NAME}/c", {}, same_sender=True)
    assert await fixture.cells.look_up(exchange) == OTHER
    with pytest.raises(Refused) as caught:
        await fixture.cells.relayed(exchange, OTHER)
    assert caught.value.refusal.code == BUSY


@pytest.mark.parametrize("state", [None, MoveState.DRAINING, MoveState.FROZEN, MoveState.INCOMING])
@in_event_loop
async def test_logons_over_smb(state: MoveState | None) -> None:
    """Whoever knows the key of an account that moves is told so, not that the key is wrong."""
    fixture = CellsFixture("")
    move = None if state is None else AccountMove(state, OTHER, b"id")
    await fixture.add(move=move, exists=True)
    assert await fixture.cells.find_for_smb(NAME) is not None


@pytest.mark.parametrize(("status", "expired"), [(200, []), (404, []), (503, [NAME])])
@in_event_loop
async def test_a_cell_that_does_not_serve_the_account_now(status: int, expired: list[str]) -> None:
    """The account may have moved: the map is asked again."""

    class FixedRelay(Relay):
        async def relay(self, cell: str, service: str, request: Request) -> Response:
            return Response(status)

    fixture = CellsFixture(OTHER)
    fixture.cells.relay = FixedRelay(FixedNodes([]), b"", MemoryBudget())
    assert (await fixture.cells.relayed(fixture.exchange(), OTHER)).status == status
    assert fixture.map.expired == expired
