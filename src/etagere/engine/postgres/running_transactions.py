"""Waiting for the transactions that were running at some moment.

In PostgreSQL a transaction keeps a lock on every table that it has read until it ends, and a
statement takes its snapshot after it has locked its tables. So a transaction that has no lock on
the table of moves once an account is frozen will see that the account is frozen.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final

import psycopg

from etagere.engine.account_moves import ACCOUNT_MOVES
from etagere.engine.interface import Fault, FaultReason
from etagere.engine.postgres import fence
from etagere.engine.postgres.connecting import (
    READER_NAME,
    Database,
    connect_reader,
    errors_as_outcomes,
)
from etagere.engine.postgres.fence_renewal import timeline_of

_PAUSE_SECONDS: Final = 0.02
_HOLDERS: Final = (
    # Sessions that only read may hold their locks for hours, and are not waited for.
    "SELECT DISTINCT locks.virtualtransaction FROM pg_catalog.pg_locks AS locks"
    " LEFT JOIN pg_catalog.pg_stat_activity AS sessions USING (pid)"
    " WHERE locks.locktype = 'relation' AND locks.relation = $1::regclass"
    " AND locks.database = (SELECT oid FROM pg_catalog.pg_database"
    " WHERE datname = current_database())"
    " AND locks.pid <> pg_backend_pid() AND sessions.application_name IS DISTINCT FROM $2"
)


class StillRunning(Exception):
    """Transactions did not end in time."""


def wait_for_running_transactions(database: Database, seconds_max: float) -> None:
    """Waits until every write has ended that may not have seen the latest state of moves. From then
    on no write commits in an account that was frozen before. Raises `StillRunning` or `Fault`."""
    deadline = time.monotonic() + seconds_max
    with connect_reader(database) as connection, errors_as_outcomes():
        cursor = psycopg.RawCursor(connection)
        waiting_for = _holders(cursor)
        while waiting_for:
            if time.monotonic() > deadline:
                raise StillRunning(
                    f"{len(waiting_for)} transactions did not end within {seconds_max:g} s"
                )
            time.sleep(_PAUSE_SECONDS)
            waiting_for &= _holders(cursor)
        _require_primary(cursor, database, timeline_of(connection))


def _holders(cursor: psycopg.RawCursor[Any]) -> set[str]:
    """Returns the transactions that have locked the table of moves."""
    rows: Iterable[tuple[str]] = cursor.execute(_HOLDERS, (ACCOUNT_MOVES.name, READER_NAME))
    return {transaction for (transaction,) in rows}


def _require_primary(cursor: psycopg.RawCursor[Any], database: Database, wal_timeline: str) -> None:
    """Raises `Fault` if the server may be a former primary, whose locks mean nothing."""
    row = cursor.execute(fence.select_sql(database.clock)).fetchone()
    assert row is not None
    if not fence.decode_reading(*row).is_valid(wal_timeline):
        raise Fault(FaultReason.UNAVAILABLE, "the server may no longer be the primary")
