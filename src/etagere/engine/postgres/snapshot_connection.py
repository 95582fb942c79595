"""Connections for snapshots of the ledger: read-only transactions of PostgreSQL.

A transaction begins together with its first queries, and its COMMIT is sent without waiting for the
answer, so an operation with one scan costs one round trip.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from psycopg import pq

from etagere.engine.postgres import connecting, fence
from etagere.engine.postgres.connecting import Database
from etagere.engine.postgres.fence import StaleFence
from etagere.engine.postgres.pipeline import Pipeline
from etagere.engine.timeline import Instant

ANSWER_SECONDS_MAX: Final = 5.0
"""A server that has not answered by then is considered to hang."""
_BEGIN: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


Result = pq.abc.PGresult


class Query(NamedTuple):
    """A query with parameters in binary format."""

    sql: str
    parameters: tuple[bytes, ...]


class SnapshotConnection:
    """A connection on which one thread at a time runs read transactions."""

    def __init__(self, database: Database) -> None:
        """Connects. Raises `Fault` or `PipelineFailed`."""
        connection = connecting.connect_reader(database)
        self._pipeline = Pipeline(connection, ANSWER_SECONDS_MAX)
        self._read_fence = fence.select_sql(database.clock)
        self._instant: Instant | None = None
        """The time of the snapshot; None: no transaction has begun."""
        self.idle_since = 0.0
        self._pipeline.send(f"SELECT {fence.WAL_TIMELINE}")
        try:
            (row,) = self._pipeline.receive()
        except BaseException:
            self.close()
            raise
        self._wal_timeline = (row.get_value(0, 0) or b"").decode()

    @property
    def instant(self) -> Instant:
        if self._instant is None:
            self._begin()
            return self._check_fence(self._pipeline.receive()[-1])
        return self._instant

    def query(self, queries: Sequence[Query]) -> list[Result]:
        """Runs queries in one round trip. Raises `PipelineFailed` or `StaleFence`."""
        pipeline = self._pipeline
        is_first = self._instant is None
        if is_first:
            self._begin()
        for query in queries:
            pipeline.send(query.sql, query.parameters)
        results = pipeline.receive()
        if is_first:
            self._check_fence(results[1])
            del results[:2]
        return results

    def _begin(self) -> None:
        self._pipeline.send(_BEGIN)
        self._pipeline.send(self._read_fence)

    def _check_fence(self, result: Result) -> Instant:
        """Checks the fence, and returns the time of the snapshot. Once is enough: the fence tells
        whether the server was the primary when the snapshot was taken, and what happens while the
        snapshot is read does not matter."""
        reading = fence.decode_result(result)
        if not reading.is_valid(self._wal_timeline):
            raise StaleFence("the server may no longer be the primary")
        self._instant = reading.instant
        return self._instant

    def end(self) -> None:
        """Ends the transaction, if one has begun. Raises `PipelineFailed`."""
        if self._instant is not None:
            self._instant = None
            self._pipeline.send("COMMIT")
            self._pipeline.send_without_waiting()

    def close(self) -> None:
        self._pipeline.close()
