"""The SQLite engine of a front end.

Reads query the database directly, in a snapshot, without waiting for anything. Writes are sent to
the writer process, which answers when they are durable.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw

from etagere.clock import Clock, SystemClock
from etagere.config import Config
from etagere.engine import ledger, timeline
from etagere.engine.interface import (
    FILTERED_SCAN_BYTES_MAX,
    C,
    Conflict,
    Counted,
    Fault,
    FaultReason,
    FilteredRows,
    ReadClass,
    ReadTxn,
    Refused,
    Steps,
    T,
    WriteTxn,
)
from etagere.engine.records import Collection, K, R, Span
from etagere.engine.retry import retry_on_conflict
from etagere.engine.scheduling import FairScheduler, default_class
from etagere.engine.writer_client import WriterClient
from etagere.metrics.snapshots import Snapshot
from etagere.telemetry.formats import describe_exception

logger = logging.getLogger(__name__)

# Reads run on the event loop without yielding to it. After this many in a row one yields, so that
# many readers cannot keep writes from being sent and answered.
_READS_PER_TURN = 4
_THREADS_MAX = 3
_STEPPING_MAX = 4
# How long a read in steps runs before it yields to the event loop; one step may exceed this.
_STEPPING_TURN_SECONDS = 0.001


class ReadTransaction:
    """A snapshot of the database."""

    __slots__ = ("_began", "_clock", "_cursor", "_instant", "_seconds_max")

    def __init__(self, cursor: apsw.Cursor, clock: Clock, seconds_max: float) -> None:
        self._cursor = cursor
        self._clock = clock
        self._instant: timeline.Instant | None = None
        self._began = time.monotonic()
        self._seconds_max = seconds_max

    @property
    def now(self) -> int:
        return (self._instant or self._read_timeline()).now

    @property
    def steady_now(self) -> int:
        return (self._instant or self._read_timeline()).steady_now

    def _read_timeline(self) -> timeline.Instant:
        ((stored,),) = self._cursor.execute(ledger.READ_TIMELINE)
        self._instant = timeline.instant_from(ledger.decode_timeline(stored), self._clock)
        return self._instant

    @property
    def is_overdue(self) -> bool:
        return time.monotonic() - self._began >= self._seconds_max

    def get(self, collection: Collection[K, R], key: K) -> R | None:
        return ledger.get(self._cursor, collection, key)

    def get_all(self, collection: Collection[K, R], keys: Sequence[K]) -> list[R | None]:
        return ledger.get_all(self._cursor, collection, keys)

    def scan(
        self, collection: Collection[K, R], span: Span, limit: int, *, reverse: bool = False
    ) -> list[tuple[K, R]]:
        return ledger.scan(self._cursor, collection, span, limit, reverse)

    def scan_filtered(
        self,
        collection: Collection[K, R],
        span: Span,
        limit: int,
        passes: Callable[[R], bool],
        bytes_max: int = FILTERED_SCAN_BYTES_MAX,
    ) -> FilteredRows[K, R]:
        return ledger.scan_filtered(self._cursor, collection, span, limit, passes, bytes_max)

    def get_filtered(
        self, collection: Collection[K, R], keys: Sequence[K], passes: Callable[[R], bool]
    ) -> FilteredRows[K, R]:
        return ledger.get_filtered(self._cursor, collection, keys, passes)

    def count(self, collection: Collection[K, R], span: Span, limit: int) -> Counted:
        return ledger.count(self._cursor, collection, span, limit)


class Reader:
    """A connection to the database that runs one read at a time, each in a snapshot."""

    def __init__(self, directory: Path, config: Config, clock: Clock) -> None:
        self._directory = directory
        self._config = config
        self._clock = clock
        self._open()

    def _open(self) -> None:
        self._connection = ledger.open_for_reading(self._directory, self._config)
        self._cursor = self._connection.cursor()

    def read(self, operation: Callable[[ReadTxn, C], T], command: C) -> T:
        execute = self._cursor.execute
        try:
            execute("BEGIN")
            result = operation(self._transaction(), command)
            execute("COMMIT")
            return result
        except (Refused, Conflict, Fault):
            self._end()
            raise
        except Exception as error:
            raise self._failed(error, operation) from error

    def read_in_steps(self, operation: Callable[[ReadTxn, C], Steps[T]], command: C) -> Steps[T]:
        execute = self._cursor.execute
        try:
            execute("BEGIN")
            result = yield from operation(self._transaction(), command)
            execute("COMMIT")
            return result
        except (Refused, Conflict, Fault):
            self._end()
            raise
        except Exception as error:
            raise self._failed(error, operation) from error
        finally:
            self._end()  # if the generator was closed early

    def _failed(self, error: Exception, operation: Callable[..., object]) -> Conflict | Fault:
        """Ends the transaction; returns the exception for the caller."""
        if isinstance(error, apsw.BusyError):
            self._end()
            return Conflict(str(error))
        if isinstance(error, apsw.Error):
            self._reopen()
            return ledger.fault_of(error)
        self._end()
        logger.error("operation %s failed", operation.__qualname__, exc_info=error)
        return Fault(FaultReason.FAILED, describe_exception(error))

    def _transaction(self) -> ReadTransaction:
        return ReadTransaction(self._cursor, self._clock, self._config.snapshot_seconds_max)

    def _end(self) -> None:
        if self._connection.in_transaction:
            self._cursor.execute("ROLLBACK")

    def _reopen(self) -> None:
        """Opens a new connection after an I/O error or a corrupt page."""
        self._connection.close(True)
        self._open()

    def close(self) -> None:
        self._connection.close(True)


class SqliteEngine:
    """The ledger in a directory, as one front end uses it; belongs to one event loop."""

    def __init__(
        self, directory: Path, config: Config | None = None, clock: Clock | None = None
    ) -> None:
        self._directory = directory
        self._config = config or Config()
        self._clock = clock or SystemClock()
        self._writer = WriterClient(directory, self._config)
        self._policy = self._writer.policy
        self.retries = self._writer.retries
        self._reads = 0
        self._reader = self._new_reader()
        self._read = self._reader.read
        self._threads = ThreadPoolExecutor(_THREADS_MAX, "reader")
        self._scheduler = FairScheduler(_THREADS_MAX)
        self._idle_readers: list[Reader] = []
        self._stepping_scheduler = FairScheduler(_STEPPING_MAX)
        self._stepping_readers: list[Reader] = []

    async def read(self, operation: Callable[[ReadTxn, C], T], command: C) -> T:
        self._reads += 1
        if not self._reads % _READS_PER_TURN:
            await asyncio.sleep(0)
        try:
            return self._read(operation, command)
        except Conflict:
            self.retries.conflicts += 1

        async def again() -> T:
            return self._read(operation, command)

        return await retry_on_conflict(again, self._policy, self.retries)

    async def read_in_thread(
        self, operation: Callable[[ReadTxn, C], T], command: C, read_class: ReadClass | None = None
    ) -> T:
        read_class = read_class or default_class(operation)

        async def attempt() -> T:
            loop = asyncio.get_running_loop()
            async with self._scheduler.slot(read_class):
                return await loop.run_in_executor(
                    self._threads, self._read_with_reader, operation, command
                )

        return await retry_on_conflict(attempt, self._policy, self.retries)

    def _read_with_reader(self, operation: Callable[[ReadTxn, C], T], command: C) -> T:
        reader = self._idle_readers.pop() if self._idle_readers else self._new_reader()
        try:
            return reader.read(operation, command)
        finally:
            self._idle_readers.append(reader)

    async def read_in_steps(
        self,
        operation: Callable[[ReadTxn, C], Steps[T]],
        command: C,
        read_class: ReadClass | None = None,
    ) -> T:
        read_class = read_class or default_class(operation)

        async def attempt() -> T:
            async with self._stepping_scheduler.slot(read_class):
                idle = self._stepping_readers
                reader = idle.pop() if idle else self._new_stepping_reader()
                try:
                    return await _run_steps(reader.read_in_steps(operation, command))
                finally:
                    idle.append(reader)

        return await retry_on_conflict(attempt, self._policy, self.retries)

    def _new_stepping_reader(self) -> Reader:
        config = replace(self._config, page_cache_bytes=self._config.stepping_cache_bytes)
        return Reader(self._directory, config, self._clock)

    def _new_reader(self) -> Reader:
        return Reader(self._directory, self._config, self._clock)

    def write(self, operation: Callable[[WriteTxn, C], T], command: C) -> Coroutine[Any, Any, T]:
        return self._writer.write(operation, command)

    def report(self, snapshot: Snapshot) -> None:
        """Adds what it has counted."""
        self._writer.report(snapshot)

    async def close(self) -> None:
        self._writer.close()
        self._threads.shutdown()
        for reader in (self._reader, *self._idle_readers, *self._stepping_readers):
            reader.close()


async def _run_steps(steps: Steps[T]) -> T:
    began = time.perf_counter()
    with contextlib.closing(steps):
        while True:
            try:
                next(steps)
            except StopIteration as ended:
                result: T = ended.value
                return result
            if time.perf_counter() - began > _STEPPING_TURN_SECONDS:
                await asyncio.sleep(0)
                began = time.perf_counter()
