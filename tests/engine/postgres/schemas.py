"""Schemas of ledgers that tests use one after the other: to create one takes much longer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psycopg

from etagere.engine.postgres import fence, schema
from etagere.engine.records import COLLECTIONS
from tests.server import unique

_EMPTY: dict[tuple[str, int], list[str]] = {}
"""By server: those that are not used at the moment."""


@contextlib.contextmanager
def empty_schema(dsn: str) -> Iterator[str]:
    """Lends a schema with the tables of an empty ledger."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        known = _EMPTY.setdefault((connection.info.host, connection.info.port), [])
        name = known.pop() if known else _create(connection)
    yield name
    tables = ["fence", "lock_requests", "writers", *COLLECTIONS]
    deletions = [f"DELETE FROM {table}" for table in tables]  # noqa: S608
    with psycopg.connect(dsn, options=f"-c search_path={name} -c lock_timeout=10s") as connection:
        connection.execute("; ".join([*deletions, fence.INSERT_FIRST]).encode())
    known.append(name)


def _create(connection: psycopg.Connection) -> str:
    name = unique("schema").replace("-", "_")
    connection.execute(f"SET search_path = {name}".encode())
    schema.create(connection, name)
    return name
