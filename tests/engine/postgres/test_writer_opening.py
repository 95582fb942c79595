"""Writers that cannot open the ledger: they leave nothing behind, and do not wait for long."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from etagere.clock import SystemClock
from etagere.config import Config
from etagere.engine.interface import Fault, FaultReason
from etagere.engine.postgres.connecting import Database
from etagere.engine.postgres.groups import PostgresWriter
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
    with empty_schema(server.dsn) as schema:
        yield Database(server.dsn, schema)


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
