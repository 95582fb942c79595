"""Renews the fence: the procedure, and its use by front ends, which renew it only on demand.

Writer processes renew the fence periodically (`writer_renewals.py`). A front end does so only if
they have not: when no writer runs, or when the database's clock was set, which makes the fence
invalid.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Final

import psycopg

from etagere import postgresql
from etagere.clock import Clock
from etagere.engine.postgres import fence
from etagere.engine.postgres.connecting import Database
from etagere.engine.postgres.fence import Observation, Reading

ANSWER_SECONDS_MAX: Final = 3.0


class FenceRenewal:
    """Renews the fence on one connection at a time; for any process of a node."""

    def __init__(self, database: Database, clock: Clock) -> None:
        """`clock` has the clocks of this machine."""
        self._read = fence.select_sql(database.clock)
        self._clock = clock
        self._observation: Observation | None = None
        self._asked_at = 0
        self._primaries: dict[str, float] = {}
        """When this process first connected to a primary with this WAL timeline."""
        self.floor = 0
        """The latest `now` that this process has used."""

    def read(self, connection: psycopg.Connection[Any]) -> Reading:
        """Returns the fence and the database's clock."""
        self._asked_at = self._clock.elapsed()
        row = psycopg.RawCursor(connection).execute(self._read).fetchone()
        assert row is not None
        read = fence.decode_reading(*row)
        if self._observation is None or self._observation.renewals != read.fence.renewals:
            self._observation = Observation(
                read.fence.renewals, self._clock.boot_id(), self._asked_at, read.clock
            )
        return read

    def renew(self, connection: psycopg.Connection[Any], age_ticks_min: int) -> Reading:
        """Renews the fence if it is not valid or has this age. Returns the current fence, which is
        not valid if this server has only just become the primary."""
        wal_timeline = timeline_of(connection)
        read = self.read(connection)
        if read.is_valid(wal_timeline) and read.clock - read.fence.at < age_ticks_min:
            return read
        if not self._may_write(read, wal_timeline):
            return read
        row = fence.next_fence(
            read,
            wal_timeline,
            self._clock,
            self._observation,
            asked_at=self._asked_at,
            floor=self.floor,
        )
        psycopg.RawCursor(connection).execute(fence.RENEW, fence.parameters(row))
        # Another process may have been faster.
        return self.read(connection)

    def _may_write(self, read: Reading, wal_timeline: str) -> bool:
        """Returns whether a former primary can no longer answer with a valid fence."""
        connected_at = self._primaries.setdefault(wal_timeline, time.monotonic())
        if read.fence.wal_timeline == wal_timeline or read.fence.time is None:
            return True
        return time.monotonic() - connected_at >= fence.NEW_PRIMARY_SECONDS


def timeline_of(connection: psycopg.Connection[Any]) -> str:
    """Returns the WAL timeline of the server."""
    row = connection.execute(f"SELECT {fence.WAL_TIMELINE}").fetchone()
    assert row is not None
    return str(row[0])


class FenceConnection:
    """A connection for renewals, which is opened when it is needed."""

    def __init__(
        self, database: Database, answer_seconds_max: float = postgresql.ANSWER_SECONDS_MAX
    ) -> None:
        self._database = database
        self._answer_seconds_max = answer_seconds_max
        self._connection: psycopg.Connection[Any] | None = None

    def open(self) -> psycopg.Connection[Any]:
        """Returns the connection; connects if there is none. Raises `psycopg.Error`."""
        if self._connection is None or self._connection.closed:
            self._connection = postgresql.connect(
                self._database.connection_string,
                "etagere fence",
                self._database.schema,
                answer_seconds_max=self._answer_seconds_max,
            )
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class OnDemandFenceRenewer:
    """Renews the fence in the thread of the caller, with a connection of its own."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._renewal = FenceRenewal(database, clock)
        self._lock = threading.Lock()
        self._connection = FenceConnection(database, ANSWER_SECONDS_MAX)
        self._closed = False

    def note_time(self, now: int) -> None:
        """Notes a time that was used: it will not run backwards."""
        self._renewal.floor = max(self._renewal.floor, now)

    def renew(self) -> str:
        """Renews the fence unless another thread or process has. Returns what prevented it, ''
        if nothing did."""
        with self._lock:
            if self._closed:
                return "the engine is closed"
            try:
                reading = self._renewal.renew(self._connection.open(), fence.OLD_TICKS)
            except psycopg.Error as error:
                self._connection.close()
                return postgresql.describe(error)
            if not reading.is_old:
                self._connection.close()  # it will hardly be needed again
            return ""

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._connection.close()
