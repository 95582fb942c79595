"""Writers that cannot open the ledger: they leave nothing behind, and do not wait for long."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from etagere.clock import SystemClock
from etagere.config import Config
from etagere.engine.interface import Fault, FaultReason
from etagere.engine.postgres import schema
from etagere.engine.postgres.connecting import Database
from etagere.engine.postgres.groups import PostgresWriter
from etagere.engine.postgres.opening import prepare_ledger
from etagere.engine.postgres.writer import LazyPostgresWriter
from etagere.engine.postgres.writer_renewals import WriterRenewals
from tests.clusters.postgresql import PostgresServer, postgresql
from tests.engine import samples
from tests.engine.postgres.schemas import empty_schema
from tests.engine.postgres.writers import outcome_of, request, rows
from tests.engine.samples import Key
from tests.server import eventually

_SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'etagere%'"
_SLOTS = "SELECT count(*) FROM writers WHERE owner IS NOT NULL"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A server of its own, whose settings and sessions these tests change and count."""
    with postgresql(tmp_path_factory.mktemp("postgresql")) as own:
        yield own


@pytest.fixture
def database(server: PostgresServer) -> Iterator[Database]:
    with empty_schema(server.dsn) as name:
        yield Database(server.dsn, name)


def count_up(writer: LazyPostgresWriter) -> object:
    (answer,) = writer.run_group([request(samples.count_up, Key("key"))])
    return outcome_of(samples.count_up, answer)


def is_unavailable(outcome: object) -> bool:
    return isinstance(outcome, Fault) and outcome.reason is FaultReason.UNAVAILABLE


def renewing_threads() -> int:
    return sum(thread.name == "fence" for thread in threading.enumerate())


@pytest.mark.parametrize(
    "failing",
    [(WriterRenewals, "renew"), (PostgresWriter, "_connect")],
    ids=["renewal", "connection"],
)
def test_a_writer_that_cannot_open_the_ledger_leaves_nothing_behind(
    database: Database, monkeypatch: pytest.MonkeyPatch, failing: tuple[type, str]
) -> None:
    """Otherwise the connections of the attempts would be those that the last one needs."""

    def fail(*_: object) -> None:
        raise Fault(FaultReason.UNAVAILABLE, "too many connections")

    def count(query: str) -> int:
        (row,) = rows(database.connection_string, database.schema, query)
        return int(row[0])

    monkeypatch.setattr(*failing, fail)
    writer = LazyPostgresWriter(database, Config(), SystemClock())
    for _ in range(3):
        assert is_unavailable(count_up(writer))
    assert renewing_threads() == 0
    eventually(lambda: count(_SESSIONS) == 0, "the sessions to end")
    assert count(_SLOTS) == 0
    monkeypatch.undo()
    assert count_up(writer) == 1
    assert count(_SLOTS) == 1
    writer.close()


# While no standby answers


@contextlib.contextmanager
def waiting_commits(server: PostgresServer) -> Iterator[None]:
    """Lets every COMMIT wait for a standby that does not exist."""
    with psycopg.connect(server.superuser_dsn, autocommit=True) as connection:
        # Otherwise these commands would wait themselves.
        connection.execute("SET synchronous_commit = local")
        connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        connection.execute("SELECT pg_reload_conf()")
        ended = threading.Event()
        waiting = threading.Thread(target=_commit, args=(server, ended))
        waiting.start()
        try:
            query = "SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            eventually(lambda: connection.execute(query).fetchone() is not None, "a wait")
            yield
        finally:
            connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
            connection.execute("SELECT pg_reload_conf()")
            ended.set()
            waiting.join()


def _commit(server: PostgresServer, ended: threading.Event) -> None:
    """PostgreSQL takes a moment to follow its new settings."""
    with psycopg.connect(server.superuser_dsn, autocommit=True) as connection:
        while not ended.wait(0.01):
            connection.execute("SELECT pg_logical_emit_message(true, 'test', '')")


def test_a_ledger_is_opened_while_commits_wait(server: PostgresServer, database: Database) -> None:
    """A node starts, and answers reads. Its writer answers that it cannot write."""
    with ThreadPoolExecutor() as threads, waiting_commits(server):
        for _ in range(2):
            threads.submit(prepare_ledger, database, create=True).result(5.0)
        opening = threads.submit(LazyPostgresWriter, database, Config(), SystemClock())
        writer = opening.result(15.0)
        assert is_unavailable(threads.submit(count_up, writer).result(15.0))
    eventually(lambda: count_up(writer) == 1, "the writer to open the ledger")
    writer.close()


def test_a_table_is_added_while_commits_wait(
    server: PostgresServer, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is given up after a while, and others that do the same do not wait for it longer."""
    monkeypatch.setattr(schema, "ANSWER_SECONDS_MAX", 1.0)
    with psycopg.connect(server.dsn, options=f"-c search_path={database.schema}") as connection:
        connection.execute(f"DROP TABLE {samples.ITEMS.name}".encode())
    with ThreadPoolExecutor() as threads, waiting_commits(server):
        for _ in range(2):
            preparing = threads.submit(prepare_ledger, database, create=True)
            assert is_unavailable(preparing.exception(5.0))
    eventually(lambda: prepare_ledger(database, create=True) != "", "the table")
    rows(database.connection_string, database.schema, f"SELECT FROM {samples.ITEMS.name}")
