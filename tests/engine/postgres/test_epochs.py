"""Writes that carry an epoch: the writer compares it in their transaction."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from etagere.clock import SystemClock
from etagere.config import Config
from etagere.engine import wire
from etagere.engine.direct import write_directly
from etagere.engine.interface import registered
from etagere.engine.postgres.connecting import Database
from etagere.engine.postgres.groups import PostgresWriter
from etagere.engine.records import ENCODE
from etagere.engine.tasks import take_task
from etagere.engine.wire import Outcome
from etagere.model.accounts import AddAccount
from etagere.model.cluster import FILE_TASK, TakeTask, TaskHolder
from etagere.operations.accounts import add_account


@pytest.fixture
def writers(
    postgresql_dsn: str, ledger_schema: str
) -> Iterator[tuple[PostgresWriter, PostgresWriter]]:
    """The writers of two nodes."""
    database = Database(postgresql_dsn, ledger_schema)
    one, other = (PostgresWriter(database, Config(), SystemClock()) for _ in range(2))
    yield one, other
    one.close()
    other.close()


def add(name: str, epoch: int) -> wire.Request:
    command = memoryview(ENCODE(AddAccount(name, b"1", b"2")))
    return wire.Request(0, registered(add_account).wire_name, command, b"", epoch)


def test_a_former_holder_changes_nothing(writers: tuple[PostgresWriter, PostgresWriter]) -> None:
    one, other = writers
    write_directly(one, take_task, TakeTask(FILE_TASK, TaskHolder(1, "one")))
    assert [answer.outcome for answer in one.run_group([add("first", 1)])] == [Outcome.RESULT]
    write_directly(other, take_task, TakeTask(FILE_TASK, TaskHolder(2, "two")))
    # The first writer has cached the epoch that it had. Others in its group are not affected.
    group = [add("second", 1), add("third", 0), add("fourth", 2)]
    assert [answer.outcome for answer in one.run_group(group)] == [
        Outcome.REFUSED,
        Outcome.RESULT,
        Outcome.RESULT,
    ]
    assert [answer.outcome for answer in other.run_group([add("second", 2)])] == [Outcome.RESULT]
