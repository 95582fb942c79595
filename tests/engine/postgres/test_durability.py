"""Commits are durable, whatever the settings of the database's user say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from etagere import postgresql
from etagere.engine.postgres.connecting import Database, connect_writer
from tests.clusters.postgresql import PostgresServer
from tests.server import unique

SETTINGS = [
    ("off", "on"),
    ("local", "on"),
    ("remote_write", "on"),
    ("on", "on"),
    ("remote_apply", "remote_apply"),
]


@pytest.fixture(scope="module")
def role(postgresql_server: PostgresServer) -> Iterator[str]:
    """A role of the same database, whose settings tests change."""
    name = unique("role").replace("-", "_")
    with psycopg.connect(postgresql_server.superuser_dsn, autocommit=True) as administrator:
        administrator.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'x'".encode())
        yield name
        administrator.execute(f"DROP ROLE {name}".encode())


def _used(dsn: str) -> set[str]:
    """Returns the setting of each kind of connection that writes."""
    with connect_writer(Database(dsn)) as groups, postgresql.connect(dsn, "test") as other:
        return {
            postgresql.fetch_value(connection, "SHOW synchronous_commit")
            for connection in (groups, other)
        }


@pytest.mark.parametrize(("given", "used"), SETTINGS)
def test_a_connection_string_cannot_make_commits_less_durable(
    postgresql_dsn: str, given: str, used: str
) -> None:
    assert _used(f"{postgresql_dsn}?options=-c%20synchronous_commit%3D{given}") == {used}


@pytest.mark.parametrize(("given", "used"), SETTINGS)
def test_a_role_cannot_make_commits_less_durable(
    postgresql_server: PostgresServer, role: str, given: str, used: str
) -> None:
    dsn = psycopg.conninfo.make_conninfo(postgresql_server.dsn, user=role, password="x")
    with _setting_of(postgresql_server, role, given):
        assert _used(dsn) == {used}


@contextmanager
def _setting_of(server: PostgresServer, role: str, value: str) -> Iterator[None]:
    with psycopg.connect(server.superuser_dsn, autocommit=True) as administrator:
        administrator.execute(f"ALTER ROLE {role} SET synchronous_commit = {value}".encode())
        yield
