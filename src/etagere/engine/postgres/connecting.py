"""Connections of the engine to PostgreSQL: session settings, and what errors mean.

A write whose COMMIT was sent must not be cancelled: a COMMIT that waits for a standby would then be
reported as successful, with a warning, though no standby has it. So writers set no statement
timeout except while they take locks, and give up by closing the socket.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import psycopg

from etagere import postgresql
from etagere.engine.interface import Conflict, Fault, FaultReason, Unknown
from etagere.engine.postgres import fence
from etagere.postgresql import BoundedConnection

LOCK_TIMEOUT_MILLISECONDS: Final = 100
"""How long a group of writes waits for a lock of another node."""
NO_HEARTBEAT: Final = "this process waits for a connection for its heartbeats"
"""Why a process opens no connections for reads: those for heartbeats come first."""
READ_TIMEOUT_SECONDS: Final = 30
WRITER_NAME: Final = "etagere"
"""The application name of sessions that may write."""
READER_NAME: Final = "etagere reader"
"""The application name of sessions that only read."""

_SESSION: Final = {
    # Keys are always looked up in the index. A plan that was made while a table was nearly empty
    # would scan it, and stay.
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
    "bytea_output": "hex",
    "default_transaction_isolation": "read\\ committed",
    # Both free the locks of a node that was paused. The second does so if an answer exceeds the
    # buffers of the sockets: the session is not idle then. It has no effect on UNIX sockets.
    "idle_in_transaction_session_timeout": "5s",
    "tcp_user_timeout": "5s",
}
_WRITER_SESSION: Final = {
    **_SESSION,
    "lock_timeout": f"{LOCK_TIMEOUT_MILLISECONDS}ms",
    "statement_timeout": "0",
}
_READER_SESSION: Final = {**_SESSION, "statement_timeout": f"{READ_TIMEOUT_SECONDS}s"}


class Database(NamedTuple):
    """The PostgreSQL database of a ledger."""

    connection_string: str
    """A libpq connection string or URI. It may name several hosts."""
    schema: str = postgresql.SCHEMA
    clock: str = fence.CLOCK
    """The SQL expression for the database's clock in ticks. Tests replace it."""

    def __repr__(self) -> str:
        return f"Database(schema={self.schema!r})"  # the connection string may have a password


def writer_parameters(database: Database) -> dict[str, Any]:
    """Returns the connection parameters of a process that writes."""
    return _parameters(database, WRITER_NAME, _WRITER_SESSION)


def reader_parameters(database: Database) -> dict[str, Any]:
    """Returns the connection parameters of a process that only reads."""
    return _parameters(database, READER_NAME, _READER_SESSION)


def _parameters(
    database: Database, application_name: str, session: dict[str, str]
) -> dict[str, Any]:
    parameters = postgresql.connection_parameters(
        database.connection_string, application_name, database.schema
    )
    settings = [f"-c {name}={value}" for name, value in session.items()]
    # The last of several values counts, and those of a connection string are not for this.
    return {**parameters, "options": " ".join([parameters["options"], *settings])}


def connect_writer(
    database: Database, answer_seconds_max: float | None = None
) -> psycopg.Connection[Any]:
    """Connects to the primary, for transactions that are durable. Raises `Fault`. No answer to the
    methods of the connection takes longer than the limit, if there is one."""
    connection = _connect(writer_parameters(database))
    try:
        postgresql.require_durable_commits(connection)
    except psycopg.Error as error:
        connection.close()
        raise Fault(FaultReason.UNAVAILABLE, describe(error)) from None
    connection.answer_seconds_max = answer_seconds_max
    return connection


def connect_reader(database: Database) -> psycopg.Connection[Any]:
    """Connects to the primary. Raises `Fault`."""
    connection = _connect(reader_parameters(database))
    connection.answer_seconds_max = None
    return connection


def _connect(parameters: dict[str, Any]) -> BoundedConnection:
    try:
        return postgresql.connect_bounded(parameters)
    except psycopg.Error as error:
        raise Fault(FaultReason.UNAVAILABLE, describe(error)) from None


QUERY_CANCELED: Final = "57014"
"""Also after statement_timeout."""
_CONFLICTS: Final = frozenset(
    {
        "40001",  # serialization_failure
        "40P01",  # deadlock_detected
        "55P03",  # lock_not_available, also after lock_timeout
        "23505",  # unique_violation: a placeholder of another node
    }
)
_REASONS: Final = {
    "53100": FaultReason.DISK_FULL,
    fence.DIVISION_BY_ZERO: FaultReason.UNAVAILABLE,  # the fence was not valid
    "25006": FaultReason.UNAVAILABLE,  # read_only_sql_transaction: a former primary
    "25P03": FaultReason.UNAVAILABLE,  # idle_in_transaction_session_timeout
    QUERY_CANCELED: FaultReason.UNAVAILABLE,
    # By class:
    "08": FaultReason.UNAVAILABLE,  # connection exceptions
    "28": FaultReason.UNAVAILABLE,  # invalid authorization
    "3D": FaultReason.UNAVAILABLE,  # invalid catalog name
    "53": FaultReason.UNAVAILABLE,  # insufficient resources
    "57": FaultReason.UNAVAILABLE,  # operator intervention
}

_FATAL: Final = ("FATAL", "PANIC")


def outcome_of(
    sqlstate: str | None, detail: str, *, severity: str = "", commit_sent: bool = False
) -> Conflict | Fault | Unknown:
    """Returns the outcome that an error stands for.

    `sqlstate` is None if the connection was lost. `commit_sent`: whether the COMMIT was on its way
    before the error. A server that reports an ERROR then has not committed; when it ends the
    connection, it may have.
    """
    if commit_sent and (sqlstate is None or severity in _FATAL):
        return Unknown(detail)
    if sqlstate is None:
        return Fault(FaultReason.UNAVAILABLE, detail)
    if sqlstate in _CONFLICTS:
        return Conflict(detail)
    reason = _REASONS.get(sqlstate) or _REASONS.get(sqlstate[:2]) or FaultReason.FAILED
    return Fault(reason, f"{detail} ({sqlstate})")


def outcome_of_error(
    error: psycopg.Error, *, commit_sent: bool = False
) -> Conflict | Fault | Unknown:
    """Returns the outcome that an exception of psycopg stands for."""
    return outcome_of(
        error.sqlstate,
        describe(error),
        severity=error.diag.severity_nonlocalized or "",
        commit_sent=commit_sent,
    )


@contextlib.contextmanager
def errors_as_outcomes(*, commit_sent: bool = False) -> Iterator[None]:
    """Raises the outcomes that exceptions of psycopg stand for, instead of these."""
    try:
        yield
    except psycopg.Error as error:
        raise outcome_of_error(error, commit_sent=commit_sent) from None


def describe(error: psycopg.Error) -> str:
    """Returns the message of an error, without its details, which may contain keys of records."""
    return error.diag.message_primary or postgresql.describe(error)
