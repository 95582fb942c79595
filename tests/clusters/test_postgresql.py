"""The PostgreSQL server of the tests: kills, pauses, and what remains after them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.clusters.guard import processes_in
from tests.clusters.postgresql import PostgresServer, postgresql, shared_postgresql
from tests.server import ROOT, environment, eventually

_HOLDER = """
import sys
from pathlib import Path
from tests.clusters.postgresql import postgresql, shared_postgresql
if sys.argv[1] == "shared":
    print(shared_postgresql(sys.argv[2]).directory, flush=True)
    sys.stdin.read()
else:
    with postgresql(Path(sys.argv[2])) as server:
        print(server.directory, flush=True)
        sys.stdin.read()
"""


def insert(server: PostgresServer, number: int) -> None:
    with psycopg.connect(server.dsn) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS numbers (number integer)")
        connection.execute("INSERT INTO numbers VALUES (%s)", (number,))


def test_committed_rows_survive_kills_and_restarts(tmp_path: Path) -> None:
    with postgresql(tmp_path) as server:
        insert(server, 1)
        server.kill()
        with pytest.raises(psycopg.OperationalError):
            insert(server, 2)
        server.start()
        insert(server, 3)
        server.restart()
        with psycopg.connect(server.dsn) as connection:
            assert connection.execute("SELECT number FROM numbers").fetchall() == [(1,), (3,)]
            assert connection.execute("SHOW fsync").fetchone() == ("on",)
        directory = server.directory
    assert not directory.exists()
    assert not processes_in(directory)


def test_a_paused_server_answers_when_it_is_resumed(tmp_path: Path) -> None:
    with postgresql(tmp_path) as server:
        server.pause()
        with pytest.raises(psycopg.OperationalError, match="timeout"):
            psycopg.connect(server.dsn, connect_timeout=2)
        server.resume()
        insert(server, 1)


def test_a_schema_for_each_test(postgresql_dsn: str, postgresql_schema: str) -> None:
    with psycopg.connect(postgresql_dsn) as connection:
        connection.execute(f"CREATE SCHEMA {postgresql_schema}")


@pytest.mark.parametrize("kind", ["private", "shared"])
def test_nothing_remains_after_the_tests_are_killed(kind: str, tmp_path: Path) -> None:
    argument = str(tmp_path) if kind == "private" else f"test-{os.getpid()}"
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER, kind, argument],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**environment(), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
    ) as holder:
        assert holder.stdout is not None
        directory = Path(holder.stdout.readline().strip())
        assert processes_in(directory)
        if kind == "shared":
            assert shared_postgresql(argument).directory == directory
            (directory / "users" / str(os.getpid())).unlink()
        holder.send_signal(signal.SIGKILL)
    eventually(lambda: not directory.exists(), "the directory to be removed")
    assert not processes_in(directory)
