"""The fence: keeps reads linearizable over a failover, and carries the engine's time.

A former primary of a PostgreSQL cluster may answer queries after another server has been promoted,
until it notices. There is one row, which some node renews about every 0.7 s. With synchronous
replication the new row becomes visible only when a standby has it, so on a former primary it grows
old. Whatever was read is valid only if the row was still fresh, by the clock of the same server,
after the last query; otherwise the answer and the connection are thrown away. A new primary is
recognized by its WAL timeline: its fence is renewed only after a wait longer than the validity, so
its first write comes after the last valid read of the former one.

The row also holds the reference point of the engine's time (`timeline.py`). Between two renewals
`now` follows the database's clock. If that clock jumped or stood still, the fence is not valid, and
the node that renews it continues the time by the clock of its own machine.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
from psycopg import pq

from etagere.clock import TICKS_PER_SECOND, Clock
from etagere.engine import timeline
from etagere.engine.postgres.binary import to_int
from etagere.engine.records import ENCODE
from etagere.engine.timeline import Instant, Timeline

CLOCK: Final = "(extract(epoch FROM clock_timestamp()) * 10000000)::bigint"
"""The database's clock in ticks since 1970."""
WAL_TIMELINE: Final = "substring(pg_walfile_name(pg_current_wal_lsn()) for 8)"

VALID_TICKS: Final = 3 * TICKS_PER_SECOND
"""How old the fence may be. Less than the time after which a cluster promotes another server."""
RENEW_SECONDS: Final = 0.7
RENEW_TICKS: Final = 7 * TICKS_PER_SECOND // 10
OLD_TICKS: Final = VALID_TICKS // 2
"""A fence that is older is renewed by whoever notices it."""
NEW_PRIMARY_SECONDS: Final = 3.6
"""How long a new primary is not written to, since nodes connected to it: 1.2 times the validity."""

CREATE_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS fence (id int PRIMARY KEY CHECK (id = 1), at bigint NOT NULL,"
    " renewals bigint NOT NULL, wal_timeline text NOT NULL, time bytea NOT NULL)"
)


INSERT_FIRST: Final = (
    "INSERT INTO fence SELECT 1, 0, 0, '', ''::bytea"
    " WHERE NOT EXISTS (SELECT FROM fence) ON CONFLICT DO NOTHING"
)
"""Inserts the row if there is none. It is not valid yet."""


def select_sql(clock: str) -> str:
    """Returns the query for the columns of `Reading`."""
    return f"SELECT {clock}, at, renewals, wal_timeline, time FROM fence"  # noqa: S608


def require_valid_sql(clock: str) -> str:
    """Returns the query that fails with `DIVISION_BY_ZERO` unless the fence is valid for a server
    with the WAL timeline $1, so that it can be sent in one pipeline with the COMMIT."""
    return (
        f"SELECT 1 / (CASE WHEN {clock} - at BETWEEN 0 AND {VALID_TICKS}"  # noqa: S608
        " AND wal_timeline = $1::text THEN 1 ELSE 0 END) FROM fence"
    )


DIVISION_BY_ZERO: Final = "22012"


class StaleFence(Exception):
    """The fence is not valid: the server may no longer be the primary, and nothing that it answered
    may be used."""


RENEW: Final = (
    "UPDATE fence SET at = $1::bigint, renewals = renewals + 1, wal_timeline = $2::text,"
    " time = $3::bytea WHERE renewals = $4::bigint"
)

_decode_timeline = msgspec.msgpack.Decoder(Timeline).decode


class Fence(NamedTuple):
    """The row."""

    at: int
    """The database's clock at the reference point of the time."""
    renewals: int
    wal_timeline: str
    time: Timeline | None
    """None in a new ledger. Its `boot_id` and `elapsed` are those of the machine that renewed it
    last."""


class Reading(NamedTuple):
    """The row, and the database's clock when it was read."""

    clock: int
    fence: Fence

    def is_valid(self, wal_timeline: str) -> bool:
        """Returns whether what was read before, on a server with this WAL timeline, is valid."""
        fence = self.fence
        return 0 <= self.clock - fence.at <= VALID_TICKS and fence.wal_timeline == wal_timeline

    @property
    def is_old(self) -> bool:
        """Whether the fence should have been renewed already."""
        return not 0 <= self.clock - self.fence.at <= OLD_TICKS

    @property
    def instant(self) -> Instant:
        """The engine's time, for a valid reading."""
        _, (at, _, _, time) = self
        assert time is not None
        steady = timeline.steady_at(time, time.elapsed + self.clock - at)
        return Instant(steady + time.offset, steady)


def decode_reading(clock: int, at: int, renewals: int, wal_timeline: str, time: bytes) -> Reading:
    """Returns the reading from the columns of the query `select_sql`."""
    return Reading(
        clock, Fence(at, renewals, wal_timeline, _decode_timeline(time) if time else None)
    )


def decode_result(result: pq.abc.PGresult) -> Reading:
    """Returns the reading from a result in binary format whose first columns are those of the query
    `select_sql`."""
    clock, at, renewals = [to_int(result.get_value(0, column)) for column in range(3)]
    wal_timeline, time = result.get_value(0, 3), result.get_value(0, 4)
    assert wal_timeline is not None
    assert time is not None
    return decode_reading(clock, at, renewals, wal_timeline.decode(), time)


class Observation(NamedTuple):
    """The first time that a process read a row: when it sent the query, by the clock of its
    machine, and the database's clock in the result."""

    renewals: int
    boot_id: str
    elapsed: int
    clock: int


class _DatabaseClock(NamedTuple):
    """The database's wall clock with the elapsed time of this machine."""

    wall_ticks: int
    elapsed_ticks: int
    boot: str

    def wall(self) -> int:
        return self.wall_ticks

    def elapsed(self) -> int:
        return self.elapsed_ticks

    def boot_id(self) -> str:
        return self.boot


def next_fence(
    read: Reading,
    wal_timeline: str,
    host: Clock,
    observation: Observation | None,
    *,
    asked_at: int | None = None,
    floor: int = 0,
) -> Fence:
    """Returns the row that follows one that was just read.

    `host` has the clocks of this machine, of which only the elapsed time counts; `asked_at` is what
    that was before the row was read. `observation` was made by this process, perhaps of an earlier
    row. `now` will not be less than `floor`, and not run backwards on a new primary.
    """
    clock = _DatabaseClock(read.clock, host.elapsed(), host.boot_id())
    stored = _rebased(clock, read, observation)
    time = timeline.begin(stored, clock)
    now = timeline.now_at(time, clock.elapsed_ticks)
    is_continued = stored is not None and stored.boot_id == clock.boot
    if not is_continued or read.fence.wal_timeline != wal_timeline:
        floor = max(floor, _latest_use(read.fence))
    if now < floor:
        time = msgspec.structs.replace(time, now=time.now + floor - now)
    at = read.clock - (clock.elapsed_ticks - time.elapsed)
    if asked_at is not None:
        # The database's clock was read between the sending of the query and its result. With the
        # former here and the latter above, too much rather than too little time passes.
        time = _shifted(time, asked_at - clock.elapsed_ticks)
    return Fence(at, read.fence.renewals + 1, wal_timeline, time)


def _latest_use(fence: Fence) -> int:
    """Returns the latest `now` that a process can have used while a row was valid. The clock of a
    new primary may be behind, and a process that has just started does not know what was used."""
    time = fence.time
    return 0 if time is None else timeline.now_at(time, time.elapsed + VALID_TICKS)


def _shifted(time: Timeline, ticks: int) -> Timeline:
    """Returns the time with its reference point later in elapsed time."""
    ahead_since = None if time.ahead_since is None else time.ahead_since + ticks
    return msgspec.structs.replace(time, elapsed=time.elapsed + ticks, ahead_since=ahead_since)


def _rebased(
    clock: _DatabaseClock, read: Reading, observation: Observation | None
) -> Timeline | None:
    """Returns the stored time with its reference point in elapsed time of this machine. If it is
    not known how much time has passed since, the stored time is returned as it is, of another
    boot."""
    fence, time = read.fence, read.fence.time
    if time is None:
        return None
    if 0 <= read.clock - fence.at <= VALID_TICKS:
        elapsed = clock.elapsed_ticks - (read.clock - fence.at)
    elif time.boot_id == clock.boot:
        return time
    elif (
        observation is not None
        and observation.renewals == fence.renewals
        and observation.boot_id == clock.boot
    ):
        elapsed = observation.elapsed - max(0, min(VALID_TICKS, observation.clock - fence.at))
    else:
        return time
    return msgspec.structs.replace(_shifted(time, elapsed - time.elapsed), boot_id=clock.boot)


def parameters(fence: Fence) -> tuple[int, str, bytes, int]:
    """Returns the parameters of `RENEW`."""
    return fence.at, fence.wal_timeline, ENCODE(fence.time), fence.renewals - 1
