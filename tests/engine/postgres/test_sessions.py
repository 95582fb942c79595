"""Sessions of the engine: what a server does about processes that are paused or gone."""

from __future__ import annotations

import time

import psycopg
from psycopg import conninfo

from etagere import postgresql
from etagere.engine.postgres.connecting import Database, connect_reader, connect_writer
from etagere.engine.postgres.copying import open_snapshot
from etagere.postgresql import fetch_value
from tests.clusters.postgresql import PostgresServer
from tests.engine.postgres.ledgers import raw_ledger
from tests.server import eventually

LARGE_ANSWER = "SELECT repeat('x', 1 << 20) FROM generate_series(1, 64)"
"""More than fits into the buffers of sockets."""


def _is_free(dsn: str, schema: str) -> bool:
    with connect_writer(Database(dsn, schema)) as connection:
        try:
            connection.execute("SELECT FROM fence FOR UPDATE NOWAIT")
        except psycopg.errors.LockNotAvailable:
            return False
        return True


def test_locks_of_a_process_that_does_not_read_its_answer_are_released(
    postgresql_dsn: str, ledger_schema: str
) -> None:
    """The session is not idle, so that the limit on idle ones does not apply."""
    with connect_writer(Database(postgresql_dsn, ledger_schema)) as paused:
        paused.execute("BEGIN")
        paused.execute("SELECT FROM fence FOR UPDATE")
        assert not _is_free(postgresql_dsn, ledger_schema)
        paused.pgconn.send_query(LARGE_ANSWER.encode())
        eventually(lambda: _is_free(postgresql_dsn, ledger_schema), "the lock to be free", 20)
        paused.pgconn.finish()


def test_a_snapshot_waits_for_its_reader(postgresql_dsn: str, ledger_schema: str) -> None:
    """What copies a ledger may store its records more slowly than the server sends them."""
    database = Database(postgresql_dsn, ledger_schema)
    with raw_ledger(postgresql_dsn, ledger_schema), open_snapshot(database) as snapshot:
        copy = snapshot._connection.cursor().copy(f"COPY ({LARGE_ANSWER}) TO STDOUT".encode())
        with copy as answer:
            time.sleep(8)
            assert sum(1 for _ in answer.rows()) == 64


def test_sessions_over_unix_sockets(postgresql_server: PostgresServer) -> None:
    """The settings for TCP have no effect there."""
    dsn = conninfo.make_conninfo(postgresql_server.superuser_dsn, user="etagere", dbname="etagere")
    with (
        connect_writer(Database(dsn)) as writer,
        connect_reader(Database(dsn)) as reader,
        postgresql.connect(dsn, "test") as other,
    ):
        for connection in (writer, reader, other):
            assert fetch_value(connection, "SELECT inet_client_addr()") is None


def test_the_server_notices_machines_that_have_failed(postgresql_dsn: str) -> None:
    with (
        connect_writer(Database(postgresql_dsn)) as writer,
        connect_reader(Database(postgresql_dsn)) as reader,
        postgresql.connect(postgresql_dsn, "test") as other,
    ):
        for connection in (writer, reader, other):
            assert fetch_value(connection, "SHOW tcp_keepalives_idle") == "5"
