"""A connection on the event loop that validates one batch of records at a time.

It uses libpq directly: the asynchronous connection of psycopg costs several times as much for each
statement as the rest of a read.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol

import psycopg
from psycopg import pq

from etagere.engine.interface import Fault, FaultReason
from etagere.engine.postgres import connecting, fence, validation_statement
from etagere.engine.postgres.connecting import Database
from etagere.engine.postgres.optimistic import Validation
from etagere.engine.postgres.record_cache import CachedRecord, RecordCache, decode_cached
from etagere.engine.postgres.validation_statement import Collections, KeyGroups
from etagere.engine.records import Collection, RecordKey
from etagere.engine.timeline import Instant

_BINARY: Final = pq.Format.BINARY
STATEMENTS_MAX: Final = 32
"""The sets of collections that have a statement of their own. Batches with other sets use one
statement for all collections that were ever validated."""
CONNECT_SECONDS_MAX: Final = 10.0


class Batch:
    """Records to validate, for reads that wait."""

    __slots__ = ("deadline", "entries", "waiters")

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        """When the reads fail, by the clock of the event loop."""
        self.entries: dict[RecordKey, CachedRecord] = {}
        """What is cached; after the validation, what is current."""
        self.waiters: list[asyncio.Future[Validation]] = []

    def answer(self, validation: Validation) -> None:
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(validation)

    def fail(self, fault: Fault) -> None:
        for waiter in self.waiters:
            if not waiter.done():
                # A new one for each, since each gets a traceback.
                waiter.set_exception(Fault(fault.reason, fault.detail))


class ConnectionEvents(Protocol):
    """Called when something has happened on a connection."""

    def on_done(self, connection: ValidationConnection) -> None:
        """The batch was answered."""

    def on_stale(self, connection: ValidationConnection) -> None:
        """The batch was not answered, because the fence was not valid: the server may no longer be
        the primary, or nobody has renewed the fence."""

    def on_lost(self, connection: ValidationConnection, reason: str) -> None:
        """The connection was closed, perhaps with a batch that was not answered."""


class _Statement(NamedTuple):
    """A prepared statement for some collections."""

    name: bytes
    collections: Collections


class ValidationConnection:
    """One connection, once it is established, and the batch that is under way on it."""

    def __init__(
        self,
        connection: psycopg.AsyncConnection[Any],
        wal_timeline: str,
        database: Database,
        cache: RecordCache,
        events: ConnectionEvents,
    ) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self._wal_timeline = wal_timeline
        self._clock = database.clock
        self._cache = cache
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._socket = self._pgconn.socket
        self._statements: dict[frozenset[Collection[Any, Any]], _Statement] = {}
        self._widest: frozenset[Collection[Any, Any]] = frozenset()
        self._fence: fence.Fence | None = None
        self._is_stale = False
        self._groups: KeyGroups | None = None
        self._statement: _Statement | None = None
        self._is_preparing = False
        self._result: pq.abc.PGresult | None = None
        self.batch: Batch | None = None
        self.misses = 0
        """The records of the last batch that were not as cached."""
        self.sent_at = 0.0
        self.instant = Instant(0, 0)
        """The time of the last validation."""
        self.is_fence_old = False
        """Whether the fence should have been renewed by then."""
        self._pgconn.nonblocking = 1
        self._loop.add_reader(self._socket, self._on_readable)

    @classmethod
    async def connect(
        cls,
        database: Database,
        cache: RecordCache,
        events: ConnectionEvents,
    ) -> ValidationConnection:
        """Raises `psycopg.Error` or `TimeoutError`."""
        async with asyncio.timeout(CONNECT_SECONDS_MAX):
            connection = await psycopg.AsyncConnection.connect(
                **connecting.reader_parameters(database), autocommit=True
            )
            try:
                cursor = await connection.execute(f"SELECT {fence.WAL_TIMELINE}")
                row = await cursor.fetchone()
            except BaseException:
                connection.pgconn.finish()
                raise
        return cls(connection, row[0] if row else "", database, cache, events)

    def send(self, batch: Batch) -> None:
        self.batch = batch
        self.sent_at = self._loop.time()
        groups = self._groups = KeyGroups(batch.entries)
        wanted = groups.collections
        statement = self._statements.get(wanted)
        try:
            if statement is None:
                statement = self._prepare(wanted)
            self._statement = statement
            if not self._is_preparing:
                self._query()
            self._flush()
        except psycopg.Error as error:
            self._lose(connecting.describe(error))

    def _prepare(self, wanted: frozenset[Collection[Any, Any]]) -> _Statement:
        """Returns a statement for at least these collections; begins to prepare it if it is new."""
        self._widest |= wanted
        if len(self._statements) >= STATEMENTS_MAX:
            wanted = self._widest
            known = self._statements.get(wanted)
            if known is not None:
                return known
        collections = tuple(sorted(wanted, key=lambda each: each.name))
        statement = _Statement(b"v%d" % len(self._statements), collections)
        self._statements[wanted] = statement
        self._is_preparing = True
        sql = validation_statement.sql(collections, self._clock)
        self._pgconn.send_prepare(statement.name, sql.encode())
        return statement

    def _query(self) -> None:
        assert self._statement is not None
        assert self._groups is not None
        name, collections = self._statement
        parameters = self._groups.parameters(collections)
        self._pgconn.send_query_prepared(name, parameters, [_BINARY] * len(parameters), _BINARY)

    def _flush(self) -> None:
        if self._pgconn.flush():
            self._loop.add_writer(self._socket, self._on_writable)

    def _on_writable(self) -> None:
        try:
            if not self._pgconn.flush():
                self._loop.remove_writer(self._socket)
        except psycopg.Error as error:
            self._lose(connecting.describe(error))

    def _on_readable(self) -> None:
        pgconn = self._pgconn
        try:
            pgconn.consume_input()
            while self.batch is not None and not pgconn.is_busy():
                result = pgconn.get_result()
                if result is not None:
                    self._result = result
                    continue
                result, self._result = self._result, None
                if result is None:
                    self._lose("the connection was closed")
                else:
                    self._received(result)
        except psycopg.Error as error:
            self._lose(connecting.describe(error))

    def _received(self, result: pq.abc.PGresult) -> None:
        if result.status == pq.ExecStatus.COMMAND_OK and self._is_preparing:
            self._is_preparing = False
            self._query()
            self._flush()
        elif result.status == pq.ExecStatus.TUPLES_OK:
            self._answer(result)
        else:
            self._fail(result)

    def _answer(self, result: pq.abc.PGresult) -> None:
        batch, groups, statement = self.batch, self._groups, self._statement
        assert batch is not None
        assert groups is not None
        assert statement is not None
        reading = validation_statement.fence_reading(result, self._fence)
        self._fence = reading.fence
        if not reading.is_valid(self._wal_timeline):
            if self._is_stale:
                self._lose("the server may no longer be the primary")
            else:
                self._is_stale = True
                self._events.on_stale(self)
            return
        self._is_stale = False
        self.misses = result.ntuples - 1
        if self.misses:
            entries, cache = batch.entries, self._cache
            for record_key, version, value in validation_statement.changed_rows(
                result, groups, statement.collections
            ):
                try:
                    entry = decode_cached(record_key[0], version, value)
                except ValueError:
                    # The reads that need it find out in a transaction.
                    del entries[record_key]
                    continue
                entries[record_key] = entry
                cache.put(record_key, entry)
        self.batch = None
        self.instant = reading.instant
        self.is_fence_old = reading.is_old
        batch.answer(Validation(batch.entries, self.instant))
        self._events.on_done(self)

    def _fail(self, result: pq.abc.PGresult) -> None:
        state = result.error_field(pq.DiagnosticField.SQLSTATE)
        message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"no message"
        outcome = connecting.outcome_of(
            None if state is None else state.decode(), message.decode(errors="replace")
        )
        if isinstance(outcome, Fault) and outcome.reason is FaultReason.FAILED:
            batch, self.batch = self.batch, None
            assert batch is not None
            batch.fail(outcome)
        self._lose(message.decode(errors="replace"))

    def give_up(self, reason: str) -> None:
        """Closes a connection whose server does not answer."""
        self._lose(reason)

    def _lose(self, reason: str) -> None:
        if self._socket >= 0:
            self.close()
            self._events.on_lost(self, reason)

    def close(self) -> None:
        """Closes the socket, without a request to cancel."""
        if self._socket >= 0:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket = -1
            with suppress(psycopg.Error):
                self._pgconn.finish()
