"""Statements that are sent together and answered in one round trip.

libpq directly, without the cursors of psycopg: parameters and results are bytes in the binary
format, statements are prepared when they are first used, in the same round trip, and it is certain
whether a COMMIT has been sent. No query is ever cancelled.
"""

from __future__ import annotations

import itertools
import select
import time
from collections.abc import Sequence
from typing import Any, Final

import psycopg
from psycopg import pq
from psycopg.pq import DiagnosticField, ExecStatus

from etagere import postgresql
from etagere.engine.interface import Conflict, Fault, Unknown
from etagere.engine.postgres.connecting import outcome_of

ANSWER_SECONDS_MAX: Final = 15.0
"""A connection that does not answer in this time is closed."""
_ENDED: Final = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)
_BINARY: Final = pq.Format.BINARY


class PipelineFailed(Exception):
    """A round trip failed, and with it the transaction."""

    def __init__(self, outcome: Conflict | Fault | Unknown, sqlstate: str | None = None) -> None:
        """`sqlstate`: that of the error, None if the connection was lost."""
        super().__init__(str(outcome))
        self.outcome = outcome
        self.sqlstate = sqlstate


class Pipeline:
    """A connection in pipeline mode."""

    def __init__(
        self, connection: psycopg.Connection[Any], answer_seconds_max: float = ANSWER_SECONDS_MAX
    ) -> None:
        self._connection = connection
        connection.add_notice_handler(self._on_notice)
        self._pgconn = connection.pgconn
        self._pgconn.nonblocking = 1
        self._pgconn.enter_pipeline_mode()
        self._answer_seconds_max = answer_seconds_max
        self._names: dict[str, bytes] = {}
        self._numbers = itertools.count()
        self._preparing: list[str | None] = []
        """For each command that was sent: the statement that it prepares, or None."""
        self._unreceived: list[list[str | None]] = []
        """As `_preparing`, for each round trip whose results have not been received."""
        self._commit_sent = False
        self._was_not_replicated = False
        self._poll = select.poll()
        self.round_trips = 0

    @property
    def is_open(self) -> bool:
        return self._pgconn.status == pq.ConnStatus.OK

    @property
    def in_transaction(self) -> bool:
        return self._pgconn.transaction_status != pq.TransactionStatus.IDLE

    def _on_notice(self, notice: psycopg.errors.Diagnostic) -> None:
        if postgresql.is_replication_warning(notice):
            self._was_not_replicated = True

    def send(self, sql: str, parameters: Sequence[bytes | None] = ()) -> None:
        """Adds a statement to the next round trip."""
        name = self._names.get(sql)
        try:
            if name is None:
                name = b"s%d" % next(self._numbers)
                self._names[sql] = name
                self._pgconn.send_prepare(name, sql.encode())
                self._preparing.append(sql)
            formats = [_BINARY] * len(parameters)
            self._pgconn.send_query_prepared(name, parameters, formats, _BINARY)
            self._preparing.append(None)
        except psycopg.Error as error:
            raise self._connection_lost(str(error)) from None

    def require_connected(self) -> None:
        """Raises `PipelineFailed` if the server has ended the connection while it was idle.
        Otherwise this would be noticed only after a COMMIT was sent."""
        try:
            while self._is_readable():
                self._pgconn.consume_input()
                self._pgconn.is_busy()  # parses what has arrived
        except (psycopg.Error, OSError) as error:
            raise self._connection_lost(str(error)) from None

    def _is_readable(self) -> bool:
        self._poll.register(self._pgconn.socket, select.POLLIN)
        return bool(self._poll.poll(0))

    def send_commit(self) -> None:
        self.send("COMMIT")
        self._commit_sent = True

    def send_without_waiting(self) -> None:
        """Sends everything without waiting for the results. The next round trip raises what fails.
        Not for a COMMIT of changes."""
        try:
            self._pgconn.pipeline_sync()
            self._flush(time.monotonic() + self._answer_seconds_max)
        except (psycopg.Error, OSError, TimeoutError) as error:
            raise self._connection_lost(str(error)) from None
        self._unreceived.append(self._preparing)
        self._preparing = []

    def receive(self) -> list[pq.abc.PGresult]:
        """Sends everything and returns the results of the statements. Raises `PipelineFailed` with
        the outcome of the first that failed; then the transaction has to be rolled back, or the
        connection is closed."""
        self.round_trips += 1
        deadline = time.monotonic() + self._answer_seconds_max
        try:
            self._pgconn.pipeline_sync()
            self._flush(deadline)
            while self._unreceived:
                self._results(self._unreceived.pop(0), deadline)
            return self._results(self._preparing, deadline)
        except (psycopg.Error, OSError, TimeoutError) as error:
            raise self._connection_lost(str(error)) from None
        finally:
            self._preparing.clear()
            self._commit_sent = False

    def _flush(self, deadline: float) -> None:
        pgconn = self._pgconn
        while pgconn.flush():
            # What is answered meanwhile must be read, or the server would stop reading.
            if self._wait(select.POLLIN | select.POLLOUT, deadline) & select.POLLIN:
                pgconn.consume_input()

    def _wait(self, events: int, deadline: float) -> int:
        self._poll.register(self._pgconn.socket, events)
        ready = self._poll.poll(max(0.0, deadline - time.monotonic()) * 1_000)
        if not ready:
            raise TimeoutError(f"no answer within {self._answer_seconds_max:g} s")
        return ready[0][1]

    def _next(self, deadline: float) -> pq.abc.PGresult | None:
        pgconn = self._pgconn
        while pgconn.is_busy():
            self._wait(select.POLLIN, deadline)
            pgconn.consume_input()
        return pgconn.get_result()

    def _results(self, sent: list[str | None], deadline: float) -> list[pq.abc.PGresult]:
        results: list[pq.abc.PGresult] = []
        failed: pq.abc.PGresult | None = None
        for preparing in sent:
            result = self._next(deadline)
            if result is None:
                raise psycopg.OperationalError("the server ended the connection")
            if result.status in _ENDED:
                if preparing is None:
                    results.append(result)
            else:
                if result.status == ExecStatus.FATAL_ERROR and failed is None:
                    failed = result
                if preparing is not None:
                    del self._names[preparing]
            while self._next(deadline) is not None:
                pass
        commit_sent = self._commit_sent
        if failed is None or not _is_fatal(failed):
            ended = self._next(deadline)
            if ended is None or ended.status != ExecStatus.PIPELINE_SYNC:
                raise psycopg.OperationalError("the server ended the connection")
        if failed is not None:
            raise self._failure(failed, commit_sent)
        if self._was_not_replicated and commit_sent:
            raise self._connection_lost("the commit was not replicated")
        return results

    def _failure(self, result: pq.abc.PGresult, commit_sent: bool) -> PipelineFailed:
        sqlstate = (result.error_field(DiagnosticField.SQLSTATE) or b"").decode() or None
        message = result.error_field(DiagnosticField.MESSAGE_PRIMARY) or b""
        if _is_fatal(result):
            self.close()
        outcome = outcome_of(
            sqlstate,
            message.decode("utf-8", "replace"),
            severity=_severity(result),
            commit_sent=commit_sent,
        )
        return PipelineFailed(outcome, sqlstate)

    def _connection_lost(self, detail: str) -> PipelineFailed:
        """Closes the connection; what was under way may have happened if it was a COMMIT."""
        self.close()
        detail = " ".join(detail.split())
        return PipelineFailed(outcome_of(None, detail, commit_sent=self._commit_sent))

    def close(self) -> None:
        """Closes the socket; what the server is doing goes on."""
        self._pgconn.finish()


def _severity(result: pq.abc.PGresult) -> str:
    return (result.error_field(DiagnosticField.SEVERITY_NONLOCALIZED) or b"").decode()


def _is_fatal(result: pq.abc.PGresult) -> bool:
    return _severity(result) in ("FATAL", "PANIC")
