"""Faults under a writer: what it reports is never more certain than what happened."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import pq

from etagere.clock import SystemClock
from etagere.config import Config
from etagere.engine.interface import Fault, FaultReason, Unknown, WriteTxn, operation
from etagere.engine.postgres import groups
from etagere.engine.postgres.connecting import Database, connect_writer
from etagere.engine.postgres.pipeline import Pipeline
from etagere.engine.postgres.writer import LazyPostgresWriter
from etagere.model.base import Command
from tests.clusters.postgresql import PostgresServer, postgresql
from tests.engine import samples
from tests.engine.postgres.schemas import empty_schema
from tests.engine.postgres.writers import TestWriter, outcome_of, request, rows, writers
from tests.engine.samples import ITEMS, Key, PutItem
from tests.model.processes import HelperProcess
from tests.server import eventually


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A server whose settings these tests change."""
    with postgresql(tmp_path_factory.mktemp("postgresql")) as own:
        yield own


@pytest.fixture
def schema(server: PostgresServer) -> Iterator[str]:
    with empty_schema(server.dsn) as name:
        yield name


@pytest.fixture
def writer(server: PostgresServer, schema: str) -> Iterator[TestWriter]:
    with writers(server.dsn, schema, 1) as (made,):
        yield made


def administer(server: PostgresServer, statement: str) -> None:
    with psycopg.connect(server.superuser_dsn, autocommit=True) as connection:
        connection.execute(statement.encode())


def terminate(server: PostgresServer, pid: int) -> None:
    administer(server, f"SELECT pg_terminate_backend({pid}, 5000)")


def stored(server: PostgresServer, schema: str, key: str = "key") -> int | None:
    found = rows(server.dsn, schema, "SELECT key, value FROM test_items")
    values = {ITEMS.unpack(packed)[0]: ITEMS.decode(value).number for packed, value in found}
    return values.get(key)


# The connection ends


class _BreakingPipeline(Pipeline):
    """Calls a function before or after the statements of a round trip are sent."""

    round_trips_left = 0
    after_sending = False
    break_connection: Callable[[], None] = staticmethod(lambda: None)

    def receive(self) -> list[pq.abc.PGresult]:
        _BreakingPipeline.round_trips_left -= 1
        if self.round_trips_left == 0 and not self.after_sending:
            self.break_connection()
        return super().receive()

    def _flush(self, deadline: float) -> None:
        super()._flush(deadline)
        if self.round_trips_left == 0 and self.after_sending:
            self.break_connection()


@pytest.mark.parametrize("after_sending", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("round_trip", [1, 2, 3], ids=["lock", "scan", "commit"])
def test_a_connection_that_ends_within_a_group(
    server: PostgresServer,
    schema: str,
    monkeypatch: pytest.MonkeyPatch,
    round_trip: int,
    after_sending: bool,
) -> None:
    """At every round trip of a group with a scan. Before the COMMIT nothing has happened, and the
    group runs again."""
    monkeypatch.setattr(groups, "Pipeline", _BreakingPipeline)
    with writers(server.dsn, schema, 1) as (made,):
        for number in range(1, 6):
            broken: list[int] = []

            def break_connection(broken: list[int] = broken) -> None:
                if not broken:
                    broken.append(made.backend_pid)
                    terminate(server, broken[0])

            made.write(samples.put_item, PutItem(f"taken {number}"))
            before = stored(server, schema) or 0
            monkeypatch.setattr(
                _BreakingPipeline, "break_connection", staticmethod(break_connection)
            )
            monkeypatch.setattr(_BreakingPipeline, "after_sending", after_sending)
            monkeypatch.setattr(_BreakingPipeline, "round_trips_left", round_trip)
            outcomes = made.group((samples.count_up, Key("key")), (take_one, Key("taken")))
            assert broken
            after = stored(server, schema) or 0
            if isinstance(outcomes[0], Unknown):
                assert round_trip == 3
                assert all(isinstance(each, Unknown) for each in outcomes)
                assert after in (before, before + 1)
            else:
                assert outcomes == [before + 1, f"taken {number}"]
                assert after == before + 1
            made.write(samples.delete_item, Key(f"taken {number}"))


@operation
def take_one(txn: WriteTxn, command: Key) -> str:
    """Deletes the first item whose key begins with a prefix."""
    (((key,), _),) = txn.scan(ITEMS, ITEMS.under((), command.key), 1, claim=True)
    txn.delete(ITEMS, (key,))
    return key


def test_an_idle_connection_that_was_closed_is_replaced(
    server: PostgresServer, writer: TestWriter
) -> None:
    for number in range(1, 4):
        assert writer.write(samples.count_up, Key("key")) == number
        terminate(server, writer.backend_pid)


def test_a_server_that_is_gone_and_comes_back(
    server: PostgresServer, writer: TestWriter, schema: str
) -> None:
    assert writer.write(samples.count_up, Key("key")) == 1
    server.stop()
    try:
        began = time.monotonic()
        outcome = writer.write(samples.count_up, Key("key"))
        assert time.monotonic() - began < 10
        assert isinstance(outcome, Fault)
        assert outcome.reason is FaultReason.UNAVAILABLE
        assert "password" not in str(outcome)
    finally:
        server.start()
    eventually(lambda: writer.write(samples.count_up, Key("key")) == 2, "the writer to reconnect")
    assert stored(server, schema) == 2


def test_a_server_that_hangs_after_it_has_accepted_a_connection(
    server: PostgresServer, writer: TestWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert writer.write(samples.count_up, Key("key")) == 1
    monkeypatch.setattr(groups, "_ANSWER_SECONDS_MAX", 0.3, raising=False)
    resuming = threading.Timer(10, server.resume)

    def connect_and_hang(*arguments: Any) -> psycopg.Connection[Any]:
        connection = connect_writer(*arguments)
        server.pause()
        return connection

    monkeypatch.setattr(groups, "connect_writer", connect_and_hang)
    terminate(server, writer.backend_pid)
    resuming.start()
    try:
        outcome = writer.write(samples.count_up, Key("key"))
        assert isinstance(outcome, Fault)
        assert outcome.reason is FaultReason.UNAVAILABLE
        assert resuming.is_alive()
    finally:
        resuming.cancel()
        server.resume()
        monkeypatch.undo()
    eventually(lambda: writer.write(samples.count_up, Key("key")) == 2, "the writer to reconnect")


def test_a_writer_that_starts_without_a_database(server: PostgresServer, schema: str) -> None:
    group = [request(samples.count_up, Key("key"))]
    server.stop()
    try:
        writer = LazyPostgresWriter(Database(server.dsn, schema), Config(), SystemClock())
        outcome = outcome_of(samples.count_up, writer.run_group(group)[0])
        assert isinstance(outcome, Fault)
        assert outcome.reason is FaultReason.UNAVAILABLE
    finally:
        server.start()
    assert outcome_of(samples.count_up, writer.run_group(group)[0]) == 1
    writer.close()


# A COMMIT that waits for a standby


@contextlib.contextmanager
def waiting_commits(server: PostgresServer) -> Iterator[None]:
    """Lets every COMMIT wait for a standby that does not exist."""
    administer(server, "ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    administer(server, "SELECT pg_reload_conf()")
    try:
        yield
    finally:
        # Not in ALTER SYSTEM itself, which would wait.
        with psycopg.connect(server.superuser_dsn, autocommit=True) as connection:
            connection.execute("SET synchronous_commit = local")
            connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
            connection.execute("SELECT pg_reload_conf()")


_WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


@pytest.mark.parametrize("ending", ["terminate", "cancel", "timeout"])
def test_a_commit_that_is_not_replicated_has_an_unknown_outcome(
    server: PostgresServer, schema: str, ending: str
) -> None:
    """PostgreSQL reports success with a warning if the wait is cancelled."""
    with writers(server.dsn, schema, 1) as (made,):
        assert made.write(samples.count_up, Key("key")) == 1
        pid = made.backend_pid
        made._connect()._answer_seconds_max = 2.0 if ending == "timeout" else 20.0
        outcomes: list[object] = []

        def write() -> None:
            # PostgreSQL takes a moment to follow its new settings.
            while not outcomes or isinstance(outcomes[-1], int):
                outcomes.append(made.write(samples.count_up, Key("key")))

        with waiting_commits(server):
            run = threading.Thread(target=write)
            run.start()
            eventually(lambda: (pid,) in rows(server.dsn, schema, _WAITING), "the commit to wait")
            if ending != "timeout":
                administer(server, f"SELECT pg_{ending}_backend({pid})")
            run.join(20)
        assert not run.is_alive()
        assert isinstance(outcomes[-1], Unknown)
        eventually(lambda: made.write(samples.count_up, Key("other")) >= 1, "the writer to go on")
        assert (stored(server, schema) or 0) - len(outcomes) in (0, 1)


# Writers that are killed or paused


class Session:
    """A writer in a process of its own."""

    def __init__(self, dsn: str, schema: str) -> None:
        self._writer = TestWriter(dsn, schema)

    async def count(self, key: str) -> object:
        return self._writer.write(samples.count_up, Key(key))

    async def count_slowly(self, key: str) -> object:
        return self._writer.write(count_and_stop, StopAfter(key))


class StopAfter(Command, frozen=True):
    key: str


_STOPPED: list[bool] = []


@operation
def count_and_stop(txn: WriteTxn, command: StopAfter) -> int:
    """Stops its own process once, while it holds a lock. The scan makes it run in the
    transaction."""
    txn.scan(ITEMS, ITEMS.all(), 1)
    number = samples.count_up(txn, Key(command.key))
    if not _STOPPED:
        _STOPPED.append(True)
        os.kill(os.getpid(), signal.SIGSTOP)
    return number


def _until_stopped(pid: int) -> None:
    def is_stopped() -> bool:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        return "\nState:\tT" in status

    eventually(is_stopped, "the writer to stop")


def test_a_killed_writer_leaves_nothing_of_its_group(server: PostgresServer, schema: str) -> None:
    with HelperProcess(lambda: Session(server.dsn, schema)) as doomed:
        assert doomed.call("count", "key") == 1
        doomed.send("count_slowly", "key")
        _until_stopped(doomed.pid)
        doomed.kill()
        with writers(server.dsn, schema, 1) as (other,):
            eventually(
                lambda: other.write(samples.count_up, Key("key")) == 2, "the lock to be released"
            )
    assert stored(server, schema) == 2


def test_a_paused_writer_delays_others_for_seconds_and_changes_nothing_later(
    server: PostgresServer, schema: str
) -> None:
    with (
        HelperProcess(lambda: Session(server.dsn, schema)) as paused,
        writers(server.dsn, schema, 1) as (other,),
    ):
        assert paused.call("count", "key") == 1
        paused.send("count_slowly", "key")
        _until_stopped(paused.pid)
        # Other records are not affected.
        assert other.write(samples.count_up, Key("free")) == 1
        eventually(lambda: other.write(samples.count_up, Key("key")) == 2, "the lock")
        os.kill(paused.pid, signal.SIGCONT)
        # It runs its operation again, since nothing of the first run was committed.
        assert paused.receive() == 3
        assert stored(server, schema) == 3


def test_a_writer_whose_slot_was_taken_takes_another(
    server: PostgresServer, writer: TestWriter, schema: str
) -> None:
    before = writer.write(samples.stamp_record, Key("key")).stamp
    with psycopg.connect(server.dsn, options=f"-c search_path={schema}") as connection:
        # From then on the writer, which renews its reservation all the time, cannot change it.
        taken = "UPDATE writers SET owner = 'another' RETURNING reserved_until"
        until = connection.execute(taken).fetchone()
    eventually(lambda: writer._renewals.stamps.slot == 1, "another slot")
    after = writer.write(samples.stamp_record, Key("key")).stamp
    assert after > before
    assert after % 1_000 == 1
    assert rows(server.dsn, schema, "SELECT reserved_until FROM writers WHERE slot = 0") == [until]
