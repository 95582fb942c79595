"""Connections to PostgreSQL: what the ledger and the coordinator of a cluster have in common.

Importing this module imports psycopg, which only servers of a cluster need.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, LiteralString

import psycopg
from psycopg import conninfo, errors

SCHEMA: Final = "etagere"
"""The schema of a cell unless another is chosen."""
CONNECT_SECONDS_MAX: Final = 2
"""Per host. The smallest value that libpq accepts."""
ANSWER_SECONDS_MAX: Final = 5.0
"""How long a server may take to answer, unless the caller sets another limit."""
_SYNC_WAIT: Final = "SyncRepWaitForLSN"
"""The function of PostgreSQL in which a COMMIT waits for its standby. Unlike the text of its
warning, the name is the same in all languages."""
_REQUIRE_DURABLE_COMMITS: Final = """
    SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')
"""
_LOCK_WAIT_SHARE: Final = 2 / 3
"""The part of the time for an answer that a statement may wait for a lock."""
_IDLE_IN_TRANSACTION_SECONDS_MAX: Final = 5
_ERROR_CHARACTERS_MAX: Final = 200
_SCHEMA_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_TCP_OPTIONS: Final = {
    # The network fails without a notice when a machine does.
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
_SERVER_KEEPALIVES: Final = (
    " -c tcp_keepalives_idle=5 -c tcp_keepalives_interval=2 -c tcp_keepalives_count=3"
)
"""So that the server closes the connections of a machine that has failed. They have no effect on
UNIX sockets."""
_NONE: Final[Mapping[str, Any]] = MappingProxyType({})
_PASSWORDS: Final = (
    (re.compile(r"(\w+://[^\s:/@]*):[^\s@]*@"), r"\1:…@"),
    (re.compile(r"(password\s*=\s*)('[^']*'|\S+)", re.IGNORECASE), r"\1…"),
)


class NotReplicated(psycopg.OperationalError):
    """A COMMIT ended before a synchronous standby had confirmed it: it may be lost."""


class BadConnectionString(psycopg.ProgrammingError):
    """The connection string cannot be parsed. The message shows nothing of it."""


def connection_parameters(dsn: str, application_name: str, schema: str = SCHEMA) -> dict[str, Any]:
    """Returns the parameters of `connect` for a connection string: to the primary, whichever of the
    hosts that is, with tables from a schema."""
    if _SCHEMA_NAME.fullmatch(schema) is None:
        raise ValueError("a schema has a name of lower-case letters, digits and underscores")
    try:
        given = conninfo.conninfo_to_dict(dsn)
    except psycopg.Error:
        # The error shows a part of the string, which may be the password.
        raise BadConnectionString("the connection string is not valid") from None
    # Compiling takes longer than any of our queries. Warnings tell what was not replicated.
    options = (
        f"{given.get('options') or ''} -c jit=off -c client_min_messages=warning"
        f" -c search_path={schema}{_SERVER_KEEPALIVES}"
    )
    return {
        "connect_timeout": CONNECT_SECONDS_MAX,
        "target_session_attrs": "read-write",
        **_TCP_OPTIONS,
        **_with_hosts_in_random_order(given),
        "application_name": application_name,
        "options": options.strip(),
    }


def _with_hosts_in_random_order(given: dict[str, Any]) -> dict[str, Any]:
    """Shuffles the hosts, so that one that hangs does not delay every connection."""
    hosts = str(given.get("host") or "").split(",")
    ports = str(given.get("port") or "").split(",")
    if len(hosts) < 2:
        return given
    paired = list(zip(hosts, ports if len(ports) > 1 else ports * len(hosts), strict=False))
    random.shuffle(paired)
    shuffled = {**given, "host": ",".join(host for host, _ in paired)}
    if len(ports) > 1:
        shuffled["port"] = ",".join(port for _, port in paired)
    return shuffled


def is_replication_warning(notice: errors.Diagnostic) -> bool:
    """Returns whether a notice says that a COMMIT was not replicated, though it succeeded."""
    return notice.source_function == _SYNC_WAIT


class BoundedConnection(psycopg.Connection[Any]):
    """A blocking connection on which no answer takes longer than a limit. It is closed then,
    without a request to cancel: PostgreSQL reports success for a COMMIT that was cancelled while it
    waited for a standby."""

    answer_seconds_max: float | None = ANSWER_SECONDS_MAX
    """None: there is no limit."""
    was_not_replicated: bool = False

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        limit = self.answer_seconds_max if timeout is None else timeout
        try:
            answer = super().wait(gen, interval, limit)
        except errors._WaitTimeout:
            self.pgconn.finish()
            raise psycopg.OperationalError(
                f"the database did not answer within {limit or 0:g} s"
            ) from None
        if self.was_not_replicated:
            self.pgconn.finish()
            raise NotReplicated("a commit was not replicated")
        return answer


def require_durable_commits(connection: psycopg.Connection[Any]) -> None:
    """Makes every COMMIT of a session wait until it is on the disk of the server and of a
    synchronous standby, whatever the connection string, the role or the server's settings say. The
    stronger `remote_apply` is kept."""
    connection.execute(_REQUIRE_DURABLE_COMMITS)


def connect(
    dsn: str,
    application_name: str,
    schema: str = SCHEMA,
    *,
    answer_seconds_max: float = ANSWER_SECONDS_MAX,
) -> BoundedConnection:
    """Connects, in autocommit mode. Waits for locks end before the time for an answer does."""
    parameters = connection_parameters(dsn, application_name, schema)
    parameters["options"] += _limits_on_locks(answer_seconds_max)
    connection = connect_bounded(parameters)
    connection.answer_seconds_max = answer_seconds_max
    try:
        require_durable_commits(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def connect_bounded(parameters: Mapping[str, Any]) -> BoundedConnection:
    """Connects, in autocommit mode. The methods of the connection raise `NotReplicated` after a
    COMMIT that no standby has confirmed."""
    connection = BoundedConnection.connect(**parameters, autocommit=True)

    def note(notice: errors.Diagnostic) -> None:
        if is_replication_warning(notice):
            connection.was_not_replicated = True

    connection.add_notice_handler(note)
    return connection


def _limits_on_locks(answer_seconds_max: float) -> str:
    """Returns settings which end what a server still does for a connection that was closed.

    A COMMIT that waits for a standby keeps its locks, and does not notice that its client is gone.
    Without a limit, every further attempt would leave another server process behind, which waits
    for these locks. The wait for the standby itself has no limit.
    """
    lock_milliseconds = int(answer_seconds_max * _LOCK_WAIT_SHARE * 1000)
    return (
        f" -c lock_timeout={lock_milliseconds}ms"
        f" -c idle_in_transaction_session_timeout={_IDLE_IN_TRANSACTION_SECONDS_MAX}s"
    )


def fetch_value(
    connection: psycopg.Connection[Any], query: LiteralString, parameters: Mapping[str, Any] = _NONE
) -> Any:
    """Returns the first column of a query that returns one row."""
    row = connection.execute(query, parameters).fetchone()
    assert row is not None, query
    return row[0]


def describe(error: BaseException) -> str:
    """Returns one line about an error of a database, of bounded length and without passwords."""
    text = " ".join(str(error).split())
    for pattern, replacement in _PASSWORDS:
        text = pattern.sub(replacement, text)
    return text[:_ERROR_CHARACTERS_MAX] or type(error).__name__
