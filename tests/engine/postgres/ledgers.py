"""A ledger in PostgreSQL without a writer process: tests change its rows by SQL."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import psycopg

from etagere import postgresql
from etagere.clock import SystemClock
from etagere.engine.postgres import connecting, fence, schema
from etagere.engine.postgres.connecting import Database
from etagere.engine.postgres.engine import PostgresEngine
from etagere.engine.postgres.fence_renewal import FenceRenewal
from etagere.engine.records import Collection
from tests.engine.samples import ITEMS

FIRST_VERSION: Final = 1_000
_DIRECTORY: Final = Path("/nonexistent")
"""Of the writer's socket, which is not used."""


class RawLedger:
    """The tables of a ledger, and a connection that changes them."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._connection = connecting.connect_writer(database)
        schema.create(self._connection, database.schema)
        self._version = FIRST_VERSION

    def commit(
        self,
        changes: Mapping[str, Any],
        collection: Collection[Any, Any] = ITEMS,
        version: int | None = None,
    ) -> None:
        """Puts or deletes (None) records in one transaction."""
        self.commit_packed(
            {collection.pack((key,)): record for key, record in changes.items()},
            collection,
            version,
        )

    def commit_packed(
        self,
        changes: Mapping[bytes, Any],
        collection: Collection[Any, Any],
        version: int | None = None,
    ) -> None:
        self._version += 1
        sql = schema.statements(collection)
        keys = [schema.split(packed) for packed in changes]
        deleted = [key for key, each in zip(keys, changes.values(), strict=True) if each is None]
        put = [
            (*key, collection.encode(each))
            for key, each in zip(keys, changes.values(), strict=True)
            if each is not None
        ]
        with self._connection.transaction():
            cursor = psycopg.RawCursor(self._connection)
            if put:
                columns = [list(column) for column in zip(*put, strict=True)]
                cursor.execute(sql.put, (*columns, version or self._version))
            if deleted:
                cursor.execute(
                    sql.delete, ([key.key for key in deleted], [key.digest for key in deleted])
                )

    def execute(self, sql: str) -> list[Any]:
        cursor = self._connection.execute(sql)
        return cursor.fetchall() if cursor.description else []

    def terminate_others(self) -> int:
        """Ends all other connections to the database; returns their number."""
        (row,) = self.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND datname = current_database()"
            " AND backend_type = 'client backend'"
        )
        return int(row[0])

    def close(self) -> None:
        self._connection.close()


@contextlib.contextmanager
def raw_ledger(dsn: str, name: str) -> Iterator[RawLedger]:
    """A ledger whose fence is renewed."""
    database = Database(dsn, name)
    ledger = RawLedger(database)
    with renewing(database):
        try:
            yield ledger
        finally:
            ledger.close()


@contextlib.contextmanager
def renewing(database: Database) -> Iterator[None]:
    """Renews the fence, on new connections if one is lost."""
    renewal = FenceRenewal(database, SystemClock())
    renew_once(database, renewal)
    stop = threading.Event()

    def renew() -> None:
        while not stop.wait(fence.RENEW_SECONDS / 2):
            with contextlib.suppress(psycopg.Error):
                renew_once(database, renewal)

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def renew_once(database: Database, renewal: FenceRenewal) -> None:
    connection = postgresql.connect(database.connection_string, "fence", database.schema)
    try:
        renewal.renew(connection, 0)
    finally:
        connection.close()


@contextlib.asynccontextmanager
async def opened(database: Database) -> Any:
    """An engine that reads."""
    engine = PostgresEngine(_DIRECTORY, database)
    try:
        yield engine
    finally:
        await engine.close()
