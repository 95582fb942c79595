"""Writes that carry their account: the writer checks in their transaction whether it is frozen."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from etagere.engine import wire
from etagere.engine.account_moves import ACCOUNT_MOVES
from etagere.engine.interface import Fault, Refused, registered
from etagere.engine.postgres import copying, fence
from etagere.engine.postgres.connecting import Database, connect_writer
from etagere.engine.postgres.engine import PostgresEngine
from etagere.engine.postgres.running_transactions import (
    StillRunning,
    wait_for_running_transactions,
)
from etagere.engine.postgres.transaction import GroupTransaction
from etagere.engine.records import ENCODE
from etagere.engine.wire import Outcome
from etagere.model.accounts import AddAccount
from etagere.model.cells import BeginMove, CancelMove, FreezeAccount
from etagere.operations.account_moves import begin_move, cancel_move, freeze_account
from etagere.operations.accounts import add_account
from etagere.telemetry.context import ACCOUNT
from tests.engine import postgres_harness
from tests.engine.postgres.writers import TestWriter

FROZEN, SERVED, MOVE = "frozen", "served", b"m" * 16


@pytest.fixture
def writers(postgresql_dsn: str, ledger_schema: str) -> Iterator[tuple[TestWriter, TestWriter]]:
    """The writers of two nodes."""
    one, other = (
        TestWriter(postgresql_dsn, ledger_schema),
        TestWriter(postgresql_dsn, ledger_schema),
    )
    yield one, other
    one.close()
    other.close()


def add(name: str, account: str = "") -> wire.Request:
    """Returns a request to add an account, which stands for any write to `account`."""
    command = memoryview(ENCODE(AddAccount(name, b"1", b"2")))
    return wire.Request(0, registered(add_account).wire_name, command, account=account.encode())


def freeze(writer: TestWriter) -> None:
    writer.write(add_account, AddAccount(FROZEN, b"1", b"2"))
    writer.write(begin_move, BeginMove(FROZEN, "west", MOVE))
    writer.write(freeze_account, FreezeAccount(FROZEN, MOVE))


def outcomes(writer: TestWriter, *requests: wire.Request) -> list[Outcome]:
    return [answer.outcome for answer in writer.run_group(requests)]


def test_only_writes_to_a_frozen_account_are_refused(
    writers: tuple[TestWriter, TestWriter],
) -> None:
    one, other = writers
    # The other writer has cached that the account is not moving.
    assert outcomes(other, add("first", FROZEN)) == [Outcome.RESULT]
    freeze(one)
    for number, writer in enumerate(writers):
        names = [f"account{number}{place}" for place in range(3)]
        group = [add(names[0], FROZEN), add(names[1], SERVED), add(names[2])]
        results = [Outcome.REFUSED, Outcome.RESULT, Outcome.RESULT]
        assert outcomes(writer, *group) == results
    assert one.write(cancel_move, CancelMove(FROZEN, MOVE))
    assert outcomes(other, add("last", FROZEN)) == [Outcome.RESULT]


def test_the_check_costs_no_round_trip(writers: tuple[TestWriter, TestWriter]) -> None:
    one, _ = writers

    def round_trips(*requests: wire.Request) -> int:
        before = one.round_trips
        assert set(outcomes(one, *requests)) == {Outcome.RESULT}
        return one.round_trips - before

    round_trips(add("first", SERVED))
    assert round_trips(add("second", SERVED)) == round_trips(add("third"))


def test_it_waits_for_a_group_that_is_about_to_commit(
    writers: tuple[TestWriter, TestWriter],
    postgresql_dsn: str,
    ledger_schema: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, other = writers
    database = Database(postgresql_dsn, ledger_schema)
    one.write(add_account, AddAccount(FROZEN, b"1", b"2"))
    one.write(begin_move, BeginMove(FROZEN, "west", MOVE))
    commit, has_read, may_commit = GroupTransaction.commit, threading.Event(), threading.Event()

    def commit_later(transaction: GroupTransaction, version: int) -> None:
        if threading.current_thread() is late:
            has_read.set()
            assert may_commit.wait(4.0)  # PostgreSQL ends the transaction after five seconds
        commit(transaction, version)

    monkeypatch.setattr(GroupTransaction, "commit", commit_later)
    ended: list[Outcome] = []
    late = threading.Thread(target=lambda: ended.extend(outcomes(other, add("late", FROZEN))))
    late.start()
    assert has_read.wait(4.0)
    one.write(freeze_account, FreezeAccount(FROZEN, MOVE))
    with pytest.raises(StillRunning):
        wait_for_running_transactions(database, 0.1)
    may_commit.set()
    wait_for_running_transactions(database, 10.0)
    late.join(10.0)
    assert ended == [Outcome.RESULT]
    assert outcomes(other, add("later", FROZEN)) == [Outcome.REFUSED]


@contextlib.contextmanager
def reading_of_moves(database: Database) -> Iterator[psycopg.Connection]:
    """A transaction that has looked at the moves, like that of a writer on another node."""
    with connect_writer(database) as connection, connection.transaction():
        connection.execute("SELECT count(*) FROM account_moves")
        yield connection


@pytest.fixture
def database(
    writers: tuple[TestWriter, TestWriter], ledger_schema: str, postgresql_dsn: str
) -> Database:
    freeze(writers[0])
    return Database(postgresql_dsn, ledger_schema)


def test_it_waits_for_a_writer_that_has_looked(database: Database) -> None:
    with reading_of_moves(database):
        with pytest.raises(StillRunning, match="1 transactions"):
            wait_for_running_transactions(database, 0.1)
        waiting = threading.Thread(target=wait_for_running_transactions, args=(database, 10.0))
        waiting.start()
        with reading_of_moves(database):
            waiting.join(0.2)
            assert waiting.is_alive()
    waiting.join(10.0)
    assert not waiting.is_alive()


def test_it_waits_for_no_transaction_that_began_later_nor_for_readers(database: Database) -> None:
    with (
        connect_writer(database) as connection,
        connection.transaction(),
        copying.open_snapshot(database) as snapshot,
    ):
        # It will see what is stored now.
        connection.execute("SELECT 1")
        assert list(snapshot.rows(ACCOUNT_MOVES))
        wait_for_running_transactions(database, 0.0)


def test_a_former_primary_is_not_believed(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_for_running_transactions(database, 0.0)
    monkeypatch.setattr(fence, "WAL_TIMELINE", "'another'")
    with pytest.raises(Fault, match="no longer be the primary"):
        wait_for_running_transactions(database, 0.0)


def test_writes_carry_their_account_if_accounts_may_move(tmp_path: Path) -> None:
    asyncio.run(_write_with_and_without_accounts(tmp_path))


async def _write_with_and_without_accounts(directory: Path) -> None:
    harness = await postgres_harness.start(directory)
    engine = await harness.open()
    in_cells = PostgresEngine(directory, harness.database, accounts_may_move=True)

    async def write(through: PostgresEngine, account: str, name: str) -> None:
        ACCOUNT.set(account)
        await through.write(add_account, AddAccount(name, b"1", b"2"))

    try:
        await engine.write(add_account, AddAccount(FROZEN, b"1", b"2"))
        await engine.write(begin_move, BeginMove(FROZEN, "west", MOVE))
        await engine.write(freeze_account, FreezeAccount(FROZEN, MOVE))
        await asyncio.create_task(write(engine, FROZEN, "first"))
        await asyncio.create_task(write(in_cells, SERVED, "second"))
        await asyncio.create_task(write(in_cells, "", "third"))
        with pytest.raises(Refused, match="ServerBusy"):
            await asyncio.create_task(write(in_cells, FROZEN, "fourth"))
    finally:
        await in_cells.close()
        await harness.close()
