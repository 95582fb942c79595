"""A ledger in PostgreSQL with its writer process, and a database clock that tests control."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psycopg

from etagere.clock import TICKS_PER_SECOND
from etagere.config import Config
from etagere.engine.postgres import fence
from etagere.engine.postgres.connecting import Database
from etagere.engine.postgres.engine import PostgresEngine
from etagere.engine.postgres.fence_renewal import FenceRenewal
from etagere.engine.postgres.writer import writer_main
from etagere.engine.writer import listen
from tests.clocks import SharedClock
from tests.clusters.postgresql import shared_postgresql
from tests.clusters.sharing import run_name
from tests.engine.postgres.schemas import empty_schema

_CLOCK: Final = f"(SELECT CASE WHEN frozen THEN 0 ELSE {fence.CLOCK} END + wall FROM test_clock)"  # noqa: S608


class DatabaseClock(SharedClock):
    """A clock that is also the database's: changes are stored in a table.

    The two cannot change at one moment. A renewal of the fence in between would see a machine on
    which time has passed and a database on which none has, and `now` would miss the change. So
    there is a lock for changes and renewals."""

    def __init__(self, connection: psycopg.Connection, lock: Path) -> None:
        self._connection: psycopg.Connection | None = None
        self._lock = lock
        super().__init__()
        connection.execute("CREATE TABLE IF NOT EXISTS test_clock (frozen boolean, wall bigint)")
        connection.execute("DELETE FROM test_clock")
        connection.execute("INSERT INTO test_clock VALUES (false, 0)")
        self._connection = connection

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Excludes other threads and processes."""
        # Each holder opens the file, since a descriptor would share the lock.
        with self._lock.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                # Closing is not enough if the process was forked in the meantime.
                fcntl.flock(file, fcntl.LOCK_UN)

    @property
    def wall_offset(self) -> int:
        return super().wall_offset

    @wall_offset.setter
    def wall_offset(self, ticks: int) -> None:
        with self.locked():
            self._words[self._WALL_OFFSET] = ticks
            self._store()

    def freeze(self) -> None:
        with self.locked():
            super().freeze()
            self._store()

    def advance(self, ticks: int) -> None:
        with self.locked():
            super().advance(ticks)
            self._store()

    def _store(self) -> None:
        if self._connection is not None:
            frozen = bool(self._words[self._FROZEN])
            wall = self.wall() if frozen else self.wall_offset
            self._connection.execute("UPDATE test_clock SET frozen = %s, wall = %s", (frozen, wall))


_renew = FenceRenewal.renew


def _renew_between_changes(
    self: FenceRenewal, connection: psycopg.Connection[Any], age_ticks_min: int
) -> fence.Reading:
    clock = self._clock
    with clock.locked() if isinstance(clock, DatabaseClock) else contextlib.nullcontext():
        return _renew(self, connection, age_ticks_min)


# For good: harnesses overlap, and processes are forked from this one.
FenceRenewal.renew = _renew_between_changes  # type: ignore[method-assign]


class PostgresHarness:
    """A writer in a process of its own, and handles on the ledger in this one."""

    name = "postgresql"
    # Another process reads the clock of the database and that of its machine, one after the other,
    # while a test that steps the clock goes on.
    reading_seconds_max = 1.5
    # Other processes may have used a time as long as the fence was valid.
    unknown_seconds_max = fence.VALID_TICKS / TICKS_PER_SECOND + 0.01

    def __init__(self, directory: Path, dsn: str, config: Config | None = None) -> None:
        self.directory = directory
        self.config = config or Config()
        self._lent = contextlib.ExitStack()
        schema = self._lent.enter_context(empty_schema(dsn))
        self.database = Database(dsn, schema, _CLOCK)
        self._connection = psycopg.connect(
            dsn, autocommit=True, options=f"-c search_path={schema} -c synchronous_commit=off"
        )
        self.clock = DatabaseClock(self._connection, directory / "clock.lock")
        self.writer_pid = 0
        self._engines: list[PostgresEngine] = []

    def start(self) -> None:
        """Starts the writer."""
        self._listener = listen(self.directory)
        read_end, self._lifeline = os.pipe()
        self.writer_pid = os.fork()
        if self.writer_pid == 0:
            status = 1
            try:
                os.close(self._lifeline)
                writer_main(self.database, self._listener, self.config, self.clock)(read_end)
                status = 0
            finally:
                os._exit(status)
        os.close(read_end)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stops the writer and returns its exit status."""
        if not self.writer_pid:
            return 0
        os.kill(self.writer_pid, number)
        _, status = os.waitpid(self.writer_pid, 0)
        self.writer_pid = 0
        os.close(self._lifeline)
        self._listener.close()
        return os.waitstatus_to_exitcode(status)

    async def open(self) -> PostgresEngine:
        engine = PostgresEngine(self.directory, self.database, self.config, self.clock)
        self._engines.append(engine)
        return engine

    async def restart(self) -> None:
        """Stops everything and starts it again over the same data."""
        await self._close_engines()
        await asyncio.to_thread(self.stop)
        self.start()

    async def close(self) -> None:
        await self._close_engines()
        await asyncio.to_thread(self.stop)
        self._connection.close()
        self._lent.close()

    async def _close_engines(self) -> None:
        engines, self._engines = self._engines, []
        for engine in engines:
            await engine.close()


async def start(directory: Path, config: Config | None = None) -> PostgresHarness:
    harness = PostgresHarness(directory, shared_postgresql(run_name()).dsn, config)
    harness.start()
    return harness
