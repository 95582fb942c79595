"""Loading a whole ledger into PostgreSQL, all or nothing.

The tables are filled in a schema of another name, which no node uses. The last step gives it its
name, in one transaction. A row in it is locked meanwhile, so that two loads do not interfere.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import sql

from etagere.engine.interface import Conflict, Fault, FaultReason
from etagere.engine.loading import Rows
from etagere.engine.postgres import schema, stamps
from etagere.engine.postgres.connecting import Database, connect_writer, errors_as_outcomes
from etagere.engine.postgres.fence_renewal import timeline_of
from etagere.engine.postgres.opening import INCOMING_SUFFIX
from etagere.engine.records import ENCODE, Collection
from etagere.engine.timeline import Timeline

_SESSION: Final = (
    "SET lock_timeout = '10s'",
    "SET idle_in_transaction_session_timeout = 0",
)
_CREATE: Final = (
    "CREATE TABLE IF NOT EXISTS load (id int PRIMARY KEY CHECK (id = 1), store_id bytea NOT NULL,"
    " bodies text NOT NULL)"
)
_INSERT: Final = "INSERT INTO load VALUES (1, %s, %s) ON CONFLICT DO NOTHING RETURNING id"
_LOCK: Final = "SELECT store_id, bodies FROM load FOR UPDATE NOWAIT"
_SET_TIME: Final = "UPDATE fence SET at = 0, wal_timeline = $1::text, time = $2::bytea"
_INSERT_SLOTS: Final = (
    "INSERT INTO writers SELECT slot, NULL, $1::bigint"  # noqa: S608
    f" FROM generate_series(0, {stamps.SLOTS_MAX - 1}) AS slot"
)
"""All slots, free: whichever a writer takes, its stamps are greater than $1."""


class LedgerExists(Exception):
    """The database has a ledger."""


class LoadUnderWay(Exception):
    """Another process is loading a ledger into the database."""


class Incoming(NamedTuple):
    """The ledger that is being loaded, by this process or by one that was interrupted."""

    store_id: bytes
    bodies: str
    """Where its bodies are, as it is shown."""
    is_new: bool


class PostgresLoad:
    """A ledger that is being loaded. Raises `Fault` if the database fails."""

    def __init__(self, database: Database) -> None:
        self._schema = database.schema
        self._database = database._replace(schema=f"{database.schema}{INCOMING_SUFFIX}")
        with _faults():
            self._holder = _connected(self._database)
            self._loader = _connected(self._database)
        self._version = 1

    def begin(self, store_id: bytes, bodies: str) -> Incoming:
        """Begins a load, or takes over an interrupted one. Raises `LedgerExists` or
        `LoadUnderWay`."""
        with _faults():
            if self._has_ledger():
                raise LedgerExists
            name = sql.Identifier(self._database.schema)
            self._loader.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(name))
            self._loader.execute(_CREATE)
            is_new = self._loader.execute(_INSERT, (store_id, bodies)).fetchone() is not None
            self._holder.execute("BEGIN")
            try:
                found = self._holder.execute(_LOCK).fetchone()
            except psycopg.errors.LockNotAvailable:
                raise LoadUnderWay from None
            if found is None:
                raise LoadUnderWay  # it has just ended
            return Incoming(found[0], found[1], is_new)

    def _has_ledger(self) -> bool:
        row = self._loader.execute(
            "SELECT to_regclass(%s) IS NOT NULL", (f"{self._schema}.schema_version",)
        ).fetchone()
        return row is not None and bool(row[0])

    def abandon(self) -> None:
        """Removes a load that has stored nothing yet."""
        with _faults():
            name = sql.Identifier(self._database.schema)
            self._holder.execute("DROP TABLE load")
            self._holder.execute(sql.SQL("DROP SCHEMA {}").format(name))
            self._holder.execute("COMMIT")

    def prepare(self, last_stamp: int) -> None:
        """Creates empty tables. The records will have this version."""
        self._version = max(last_stamp, schema.PLACEHOLDER_VERSION + 1)
        with _faults():
            for table in schema.present_tables(self._loader, self._database.schema) - {"load"}:
                self._loader.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(table)))
            schema.create(self._loader, self._database.schema)

    def load(self, collection: Collection[Any, Any], rows: Rows) -> None:
        """Adds records, in one transaction."""
        version, split, copy_in = self._version, schema.split, schema.copy_in(collection)
        with _faults(), self._loader.cursor() as cursor, cursor.copy(copy_in) as copy:
            copy.set_types(["bytea", "bytea", "bytea", "int8", "bytea"])
            for key, value in rows:
                copy.write_row((*split(key), version, value))

    def finish(self, time: Timeline) -> None:
        """Stores the time, from which the ledger continues, and makes it the ledger of the
        database. Raises `LedgerExists` if there is one by now, and `Unknown`."""
        with _faults():
            cursor = psycopg.RawCursor(self._loader)
            cursor.execute(_SET_TIME, (timeline_of(self._loader), ENCODE(time)))
            cursor.execute(_INSERT_SLOTS, (time.last_stamp,))
            if self._has_ledger():
                raise LedgerExists
            self._holder.execute("DROP TABLE load")
            loaded, name = sql.Identifier(self._database.schema), sql.Identifier(self._schema)
            # An empty schema may exist. One that contains anything makes this fail.
            self._holder.execute(sql.SQL("DROP SCHEMA IF EXISTS {}").format(name))
            self._holder.execute(sql.SQL("ALTER SCHEMA {} RENAME TO {}").format(loaded, name))
        with _faults(commit_sent=True):
            self._holder.execute("COMMIT")

    def close(self) -> None:
        self._holder.close()
        self._loader.close()


def _connected(database: Database) -> psycopg.Connection[Any]:
    connection = connect_writer(database)
    for statement in _SESSION:
        connection.execute(statement)
    return connection


@contextlib.contextmanager
def _faults(*, commit_sent: bool = False) -> Iterator[None]:
    """Raises `Fault` or `Unknown` for exceptions of psycopg. A conflict counts as a fault."""
    try:
        with errors_as_outcomes(commit_sent=commit_sent):
            yield
    except Conflict as conflict:
        raise Fault(FaultReason.FAILED, str(conflict)) from None
