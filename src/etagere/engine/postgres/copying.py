"""Copying the ledger out of PostgreSQL: into an SQLite database, which is checked like any other,
or into a data directory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import pq

from etagere.clock import Clock, SystemClock
from etagere.config import Config
from etagere.engine import ledger
from etagere.engine.interface import Fault, FaultReason
from etagere.engine.loading import require_known, with_last_stamp
from etagere.engine.postgres import fence, schema
from etagere.engine.postgres.binary import bigint_array, bytea_array, to_int
from etagere.engine.postgres.connecting import READER_NAME, Database, connect_writer, describe
from etagere.engine.postgres.fence import Reading
from etagere.engine.postgres.fence_renewal import OnDemandFenceRenewer, timeline_of
from etagere.engine.postgres.opening import NoLedger
from etagere.engine.records import COLLECTIONS, Collection, Layout, Span
from etagere.engine.timeline import Timeline

_SNAPSHOT: Final = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"
_NO_TIMEOUTS: Final = (
    # The copy of another table may begin late.
    "SET LOCAL idle_in_transaction_session_timeout = 0",
    # What stores the records of a table may be slower than the server sends them.
    "SET LOCAL tcp_user_timeout = 0",
)
_AS_READER: Final = f"SET LOCAL application_name = '{READER_NAME}'"
_PAGE_ROWS: Final = {Layout.SMALL: 2_000, Layout.LARGE: 200}
_SPANS_PER_QUERY: Final = 1_000
_LAST_STAMP: Final = "SELECT coalesce(max(reserved_until), 0) FROM writers"


class SnapshotReader:
    """Reads the records of the ledger in one snapshot, collection by collection."""

    def __init__(self, connection: psycopg.Connection[Any], database: Database) -> None:
        self._connection = connection
        self._database = database
        self._tables = schema.present_tables(connection, database.schema)
        self._cursors = 0
        self.last_version = 0
        """The greatest version of the records that `find` and `pages` have returned."""

    def require_known(self) -> None:
        """Raises `SchemaTooNew` or `UnknownTable` if there are records that this version does not
        know."""
        schema.require_known_version(self._connection)
        require_known(self._tables - schema.OTHER_TABLES)

    def require_primary(self) -> None:
        """Raises `Fault` if the server may have been replaced as the primary before the
        snapshot."""
        if not self._read_fence().is_valid(timeline_of(self._connection)):
            raise Fault(FaultReason.UNAVAILABLE, "the server may no longer be the primary")

    def _read_fence(self) -> Reading:
        cursor = psycopg.RawCursor(self._connection)
        row = cursor.execute(fence.select_sql(self._database.clock)).fetchone()
        assert row is not None
        return fence.decode_reading(*row)

    def rows(self, collection: Collection[Any, Any]) -> Iterator[tuple[bytes, bytes]]:
        """Yields the encoded records of a collection."""
        if collection.name not in self._tables:
            return  # the ledger of an older version
        # The name is that of a collection.
        query = (
            f"COPY (SELECT key || rest, value FROM {collection.name}"  # noqa: S608
            " WHERE value IS NOT NULL ORDER BY key, digest) TO STDOUT (FORMAT binary)"
        )
        with self._connection.cursor() as cursor, cursor.copy(query.encode()) as copy:
            copy.set_types(["bytea", "bytea"])
            yield from copy.rows()

    def find(self, collection: Collection[Any, Any], keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Returns the encoded records of those keys that exist."""
        if not keys or collection.name not in self._tables:
            return {}
        stored = [schema.split(key) for key in keys]
        result = self._query(
            schema.statements(collection).known,
            bytea_array([each.key for each in stored]),
            bytea_array([each.digest for each in stored]),
            bigint_array([None] * len(keys)),
        )
        value = result.get_value
        rows = range(result.ntuples)
        self._note_versions([to_int(value(row, 1)) for row in rows])
        return {keys[to_int(value(row, 0)) - 1]: value(row, 2) or b"" for row in rows}

    def pages(
        self, collection: Collection[Any, Any], spans: Sequence[Span]
    ) -> Iterator[list[tuple[bytes, bytes]]]:
        """Yields the encoded records in these spans, whose bounds are short, in pages. Other
        records may be looked up between pages."""
        if collection.name not in self._tables:
            return
        fetch = f"FETCH {_PAGE_ROWS[collection.layout]} FROM"
        query = (
            "SELECT t.key || t.rest, t.version, t.value"  # noqa: S608
            " FROM unnest($1::bytea[], $2::bytea[]) AS span (start, stop), LATERAL"
            f" (SELECT key, rest, version, value FROM {collection.name} WHERE key >= span.start"
            " AND key < span.stop AND value IS NOT NULL ORDER BY key, digest) AS t"
        )
        for at in range(0, len(spans), _SPANS_PER_QUERY):
            some = spans[at : at + _SPANS_PER_QUERY]
            self._cursors += 1
            name = f"pages_{self._cursors}"
            self._query(
                f"DECLARE {name} NO SCROLL CURSOR FOR {query}",
                bytea_array([span.start for span in some]),
                bytea_array([span.stop for span in some]),
            )
            while rows := self._fetched(self._query(f"{fetch} {name}")):
                yield rows
            self._query(f"CLOSE {name}")

    def _fetched(self, result: pq.abc.PGresult) -> list[tuple[bytes, bytes]]:
        value = result.get_value
        rows = range(result.ntuples)
        self._note_versions([to_int(value(row, 1)) for row in rows])
        return [(value(row, 0) or b"", value(row, 2) or b"") for row in rows]

    def _query(self, sql: str, *parameters: bytes) -> pq.abc.PGresult:
        """Runs a statement with parameters and results in binary format. psycopg would convert each
        value by itself."""
        formats = [pq.Format.BINARY] * len(parameters)
        result = self._connection.pgconn.exec_params(
            sql.encode(), parameters, None, formats, pq.Format.BINARY
        )
        if result.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
            raise psycopg.errors.error_from_result(result)
        return result

    def _note_versions(self, versions: list[int]) -> None:
        self.last_version = max(self.last_version, *versions, 0)

    def timeline(self, clock: Clock) -> Timeline:
        """Returns the time of the ledger, as this machine, whose clock is given, continues it. Its
        last stamp is one that no writer has exceeded."""
        read = self._read_fence()
        time = fence.next_fence(read, timeline_of(self._connection), clock, None).time
        assert time is not None
        last = self._connection.execute(_LAST_STAMP).fetchone()
        assert last is not None
        return with_last_stamp(time, last[0])


@contextlib.contextmanager
def open_snapshot(database: Database) -> Iterator[SnapshotReader]:
    """Opens a snapshot. Raises `NoLedger` or `Fault`."""
    source = connect_writer(database)
    try:
        with source, source.transaction():
            source.execute(_SNAPSHOT)
            for statement in _NO_TIMEOUTS:
                source.execute(statement)
            source.execute(_AS_READER)
            if not schema.has_tables(source):
                raise NoLedger
            yield SnapshotReader(source, database)
    except psycopg.Error as error:
        raise Fault(FaultReason.UNAVAILABLE, describe(error)) from None


@contextlib.contextmanager
def open_current_snapshot(
    database: Database, clock: Clock | None = None
) -> Iterator[SnapshotReader]:
    """Opens a snapshot that is not one of a former primary. Renews the fence for this, because
    perhaps no node runs that does. `clock` has the clocks of this machine. Raises `NoLedger` or
    `Fault`."""
    renewer = OnDemandFenceRenewer(database, clock or SystemClock())
    try:
        problem = renewer.renew()
    finally:
        renewer.close()
    if problem:
        raise Fault(FaultReason.UNAVAILABLE, problem)
    # Each connection may be to another host of the connection string.
    with open_snapshot(database) as snapshot:
        snapshot.require_primary()
        yield snapshot


def copy_ledger(database: Database, directory: Path, config: Config, clock: Clock) -> None:
    """Makes a ledger in an empty directory with the records of one snapshot. Raises `NoLedger`
    or `Fault`."""
    ledger.create(directory, config, clock)
    target = ledger.open_for_writing(directory, config)
    try:
        with open_snapshot(database) as source:
            for collection in COLLECTIONS.values():
                with target:
                    target.executemany(ledger.statements(collection).put, source.rows(collection))
    finally:
        target.close()
