"""Inserting many records into a ledger in PostgreSQL that is in use, in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, Self

import psycopg

from etagere.config import MIB
from etagere.engine.postgres import fence, schema
from etagere.engine.postgres.binary import encode_copy_rows
from etagere.engine.postgres.connecting import Database, connect_writer, errors_as_outcomes
from etagere.engine.postgres.fence_renewal import timeline_of
from etagere.engine.records import Collection

_SESSION: Final = (
    "SET lock_timeout = '10s'",
    "SET idle_in_transaction_session_timeout = '10min'",
)
_BUFFER_BYTES: Final = 4 * MIB


class BulkInsert:
    """Inserts records that become visible together. Raises `Fault`; `Conflict` if one of them
    exists."""

    def __init__(self, database: Database, version: int) -> None:
        """The records get this version: a stamp that no other change has."""
        self._version = version
        self._clock = database.clock
        self._buffers: dict[Collection[Any, Any], list[tuple[bytes, bytes]]] = {}
        self._buffered_bytes = 0
        self._thread = ThreadPoolExecutor(1, "bulk insert")
        self._sending: Future[None] | None = None
        self.count = 0
        with errors_as_outcomes():
            self._connection = connect_writer(database)
            for statement in _SESSION:
                self._connection.execute(statement)
            self._wal_timeline = timeline_of(self._connection)
            self._connection.execute("BEGIN")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Discards the records, unless they were committed."""
        self._thread.shutdown()
        self._connection.close()

    def add(self, collection: Collection[Any, Any], key: bytes, value: bytes) -> None:
        """Adds an encoded record."""
        self._buffers.setdefault(collection, []).append((key, value))
        self._buffered_bytes += len(key) + len(value)
        self.count += 1
        if self._buffered_bytes >= _BUFFER_BYTES:
            self._flush()

    def _flush(self) -> None:
        """Sends the buffered records in another thread, while the caller continues."""
        self._wait()
        self._sending = self._thread.submit(self._send, self._buffers)
        self._buffers, self._buffered_bytes = {}, 0

    def _wait(self) -> None:
        """Waits until all flushed records have been sent."""
        if self._sending is not None:
            sending, self._sending = self._sending, None
            sending.result()

    def _send(self, buffers: Mapping[Collection[Any, Any], Sequence[tuple[bytes, bytes]]]) -> None:
        for collection, rows in buffers.items():
            self._copy(collection, rows)

    def _copy(self, collection: Collection[Any, Any], rows: Sequence[tuple[bytes, bytes]]) -> None:
        split = schema.split
        data = encode_copy_rows([(split(key), value) for key, value in rows], self._version)
        with (
            errors_as_outcomes(),
            self._connection.cursor() as cursor,
            cursor.copy(schema.copy_in(collection)) as copy,
        ):
            copy.write(data)

    def lock(self, collection: Collection[Any, Any], keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Keeps records from being changed before the commit. Returns those that exist."""
        self._wait()
        stored = [schema.split(key) for key in keys]
        versions: list[int | None] = [None] * len(keys)
        parameters = ([each.key for each in stored], [each.digest for each in stored], versions)
        with errors_as_outcomes():
            cursor = psycopg.RawCursor(self._connection)
            cursor.execute(schema.statements(collection).known_for_share, parameters, binary=True)
            return {keys[ordinal - 1]: value for ordinal, _, value in cursor}

    def commit(self) -> None:
        """Makes all records visible. Raises `Unknown` if the outcome of the commit is unknown."""
        self._flush()
        self._wait()
        with errors_as_outcomes():
            cursor = psycopg.RawCursor(self._connection)
            cursor.execute(fence.require_valid_sql(self._clock), (self._wal_timeline,))
        with errors_as_outcomes(commit_sent=True):
            self._connection.execute("COMMIT")
