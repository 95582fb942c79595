"""Writers on a PostgreSQL ledger in the process of a test, without front ends."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg

from etagere.clock import SystemClock
from etagere.config import Config
from etagere.engine import wire
from etagere.engine.group_writer import Answer
from etagere.engine.interface import (
    C,
    Conflict,
    Fault,
    Refused,
    T,
    Unknown,
    WriteTxn,
    registered,
)
from etagere.engine.postgres.connecting import Database
from etagere.engine.postgres.groups import PostgresWriter
from etagere.engine.records import ENCODE
from etagere.engine.wire import Outcome
from etagere.engine.writer_client import raise_for

Operation = tuple[Callable[[WriteTxn, Any], Any], Any]
"""An operation and its command."""


def request(operation: Callable[[WriteTxn, C], T], command: C) -> wire.Request:
    return wire.Request(1, registered(operation).wire_name, memoryview(ENCODE(command)), b"test")


def outcome_of(operation: Callable[[WriteTxn, C], T], answer: Answer) -> Any:
    """Returns the result of an operation, or the exception that a front end would raise."""
    if answer.outcome is Outcome.RESULT:
        return registered(operation).decode_result(answer.payload)
    try:
        raise_for(answer.outcome, answer.payload)
    except (Refused, Conflict, Fault, Unknown) as outcome:
        return outcome


class TestWriter(PostgresWriter):
    """A writer with the database's and the machine's own clocks."""

    __test__ = False

    def __init__(self, dsn: str, schema: str) -> None:
        # On a busy machine, too, a group is not cut.
        config = Config(group_seconds_max=10.0)
        super().__init__(Database(dsn, schema), config, SystemClock())

    def group(self, *operations: Operation) -> list[Any]:
        """Runs operations as one group; returns their outcomes."""
        answers = self.run_group([request(run, command) for run, command in operations])
        assert len(answers) == len(operations)
        return [
            outcome_of(run, answer) for (run, _), answer in zip(operations, answers, strict=True)
        ]

    def write(self, operation: Callable[[WriteTxn, C], T], command: C) -> Any:
        return self.group((operation, command))[0]

    @property
    def round_trips(self) -> int:
        return self._connect().round_trips

    @property
    def backend_pid(self) -> int:
        """The process ID of the server's side of the connection."""
        return self._connect()._pgconn.backend_pid


@contextlib.contextmanager
def writers(dsn: str, schema: str, count: int) -> Iterator[Sequence[TestWriter]]:
    """Runs writers on one ledger, as several nodes do."""
    with contextlib.ExitStack() as stack:
        made = []
        for _ in range(count):
            writer = TestWriter(dsn, schema)
            stack.callback(writer.close)
            made.append(writer)
        yield made


def rows(dsn: str, schema: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True, options=f"-c search_path={schema}") as connection:
        return connection.execute(query).fetchall()
