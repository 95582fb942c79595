"""A writer that was paused does not carry out what its front ends have given up."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest

from etagere.config import Config
from etagere.engine import writer_client
from etagere.engine.direct import write_directly
from etagere.engine.interface import Conflict, Fault, FaultReason, Unknown, WriteTxn, operation
from etagere.engine.postgres.engine import PostgresEngine
from etagere.engine.postgres.groups import PostgresWriter
from etagere.engine.wire import Outcome
from tests.engine import samples
from tests.engine.postgres.writers import outcome_of, writers
from tests.engine.postgres_harness import PostgresHarness
from tests.engine.samples import ITEMS, Item, Key, PutItem
from tests.engine.test_deadlines import CountSlowly, count_slowly, expiring
from tests.server import eventually

CONFIG = Config(writer_answer_seconds_max=3.0)
_STOPPED: list[bool] = []


@operation
def put_and_stop(txn: WriteTxn, command: PutItem) -> Item:
    """Stops its process once, while it holds a lock. The scan makes it run in the transaction."""
    txn.scan(ITEMS, ITEMS.all(), 1)
    item = samples.put_item(txn, command)
    if not _STOPPED:
        _STOPPED.append(True)
        os.kill(os.getpid(), signal.SIGSTOP)
    return item


@asynccontextmanager
async def served(
    directory: Path, dsn: str
) -> AsyncIterator[tuple[PostgresHarness, PostgresEngine]]:
    harness = PostgresHarness(directory, dsn, CONFIG)
    harness.start()
    try:
        engine = await harness.open()
        await engine.write(samples.put_item, PutItem("key", Item("first")))
        yield harness, engine
    finally:
        await harness.close()


@pytest.mark.parametrize("put", [samples.put_item, put_and_stop], ids=["queued", "begun"])
def test_a_write_whose_outcome_is_unknown_does_not_overwrite_a_later_one(
    tmp_path: Path,
    postgresql_dsn: str,
    monkeypatch: pytest.MonkeyPatch,
    put: Callable[[WriteTxn, PutItem], Item],
) -> None:
    """Whether the paused writer has not read the request yet, or has begun to run it."""
    monkeypatch.setattr(writer_client, "_WATCH_SECONDS", 0.1)

    async def run() -> None:
        async with served(tmp_path, postgresql_dsn) as (harness, engine):
            if put is samples.put_item:
                os.kill(harness.writer_pid, signal.SIGSTOP)
            try:
                with pytest.raises(Unknown):
                    await engine.write(put, PutItem("key", Item("given up")))
                await asyncio.to_thread(write_on_another_node, harness, "later")
            finally:
                os.kill(harness.writer_pid, signal.SIGCONT)
            await engine.write(samples.put_item, PutItem("another"))
            assert await engine.read(samples.get_item, "key") == Item("later")

    asyncio.run(run())


def write_on_another_node(harness: PostgresHarness, text: str) -> None:
    writer = PostgresWriter(harness.database, Config(), harness.clock)

    def is_written() -> bool:
        try:
            write_directly(writer, samples.put_item, PutItem("key", Item(text)))
        except Conflict:
            return False
        return True

    try:
        eventually(is_written, "PostgreSQL to release the locks of the paused writer")
    finally:
        writer.close()


@pytest.mark.parametrize("scans", [False, True], ids=["predicted", "direct"])
def test_a_group_is_rolled_back_if_a_deadline_has_passed(
    postgresql_dsn: str, ledger_schema: str, scans: bool
) -> None:
    """The other operations run in the next group."""
    with writers(postgresql_dsn, ledger_schema, 1) as (writer,):
        other = expiring(samples.count_up, Key("other"), 60.0)
        late = expiring(count_slowly, CountSlowly("late", 0.3, scans), 0.2)
        assert writer.run_group([other, late]) == []
        assert [answer.outcome for answer in writer.run_group([other])] == [Outcome.RESULT]
        assert writer.group(*[(samples.count_up, Key(key)) for key in ("other", "late")]) == [2, 1]


def test_operations_that_run_one_by_one_are_not_late_either(
    postgresql_dsn: str, ledger_schema: str
) -> None:
    with writers(postgresql_dsn, ledger_schema, 2) as (other, writer):
        other.write(samples.put_item, PutItem("damaged"))
        with psycopg.connect(
            postgresql_dsn, options=f"-c search_path={ledger_schema}"
        ) as connection:
            connection.execute("UPDATE test_items SET value = '\\xc1', version = version + 1")
        group = [
            expiring(samples.count_up, Key("damaged"), 60.0),
            expiring(samples.count_up, Key("late"), 0.0),
            expiring(samples.count_up, Key("other"), 60.0),
        ]
        answers = writer.run_group(group)
        damaged, expired, counted = [outcome_of(samples.count_up, answer) for answer in answers]
        assert isinstance(damaged, Fault)
        assert damaged.reason is FaultReason.FAILED
        assert isinstance(expired, Fault)
        assert expired.reason is FaultReason.UNAVAILABLE
        assert counted == 1
        assert writer.write(samples.count_up, Key("late")) == 1
