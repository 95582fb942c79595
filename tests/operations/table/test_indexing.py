"""The job that builds the indexes that queries request."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from etagere.engine.interface import (
    C,
    Engine,
    Fault,
    FaultReason,
    ReadClass,
    ReadTxn,
    Steps,
    T,
    WriteTxn,
)
from etagere.jobs.indexing import Indexing
from etagere.jobs.supervision import Backoff, Job
from etagere.model.tables import Keys, TableName
from etagere.operations.table.indexes import build_index, count_uses, drop_unused, request_index
from etagere.rules.indexes import INDEXES_MAX, REPLACEABLE_AFTER_TICKS, UNUSED_TICKS_MAX
from tests.operations.table.fixture import TableFixture, insert, table_test

PROMPT = Backoff(first_seconds=0.01)


class FailingEngine:
    """An engine that counts its writes, and fails on demand."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.asked: Counter[Any] = Counter()
        self.fails_at = 0
        """The build step that fails."""

    async def read(self, operation: Callable[[ReadTxn, C], T], command: C) -> T:
        return await self._engine.read(operation, command)

    async def read_in_thread(
        self, operation: Callable[[ReadTxn, C], T], command: C, read_class: ReadClass | None = None
    ) -> T:
        return await self._engine.read_in_thread(operation, command, read_class)

    async def read_in_steps(
        self,
        operation: Callable[[ReadTxn, C], Steps[T]],
        command: C,
        read_class: ReadClass | None = None,
    ) -> T:
        return await self._engine.read_in_steps(operation, command, read_class)

    async def write(self, operation: Callable[[WriteTxn, C], T], command: C) -> T:
        self.asked[operation] += 1
        if operation is build_index and self.asked[operation] == self.fails_at:
            raise Fault(FaultReason.DISK_FULL, "for a test")
        return await self._engine.write(operation, command)

    async def close(self) -> None:
        await self._engine.close()


@asynccontextmanager
async def running(indexing: Indexing) -> AsyncIterator[None]:
    task = asyncio.create_task(Job("indexing", indexing.build_next, 0, PROMPT).run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _filled(table: TableFixture) -> None:
    for group in range(6):
        keys = [Keys(str(group), f"{row:02}") for row in range(100)]
        await table.change(*(insert(one, A=int(one.row), B="x") for one in keys))


async def _until_ready(table: TableFixture, *names: str) -> None:
    async with asyncio.timeout(20):
        while {index.name for index in await table.indexes() if index.is_ready} != set(names):
            await asyncio.sleep(0.001)


@table_test
async def test_a_requested_index_is_built_once(table: TableFixture) -> None:
    await _filled(table)
    engine = FailingEngine(table.engine)
    indexing = Indexing(engine)
    for _ in range(3):
        indexing.request(table.name, "A")
        indexing.request(table.name, "B")
    async with running(indexing):
        await _until_ready(table, "A", "B")
    assert await table.require_index_consistency() == 1_200
    assert engine.asked[request_index] == 2
    # Two steps of 250 entities, one of the rest, and one that finds nothing more.
    assert engine.asked[build_index] == 2 * 4


@table_test
async def test_a_failed_build_resumes_at_the_next_request(table: TableFixture) -> None:
    await _filled(table)
    engine = FailingEngine(table.engine)
    engine.fails_at = 2
    indexing = Indexing(engine)
    async with running(indexing):
        indexing.request(table.name, "A")
        # A later request shows that the first has ended.
        indexing.request(table.name, "B")
        await _until_ready(table, "B")
        assert not (await table.indexes())[0].is_ready
        indexing.request(table.name, "A")
        await _until_ready(table, "A", "B")
    assert await table.require_index_consistency() == 1_200


@table_test
async def test_a_deleted_table_does_not_stop_the_job(table: TableFixture) -> None:
    await _filled(table)
    indexing = Indexing(table.engine)
    indexing.request(TableName(table.name.account, "Gone"), "A")
    indexing.request(table.name, "A")
    async with running(indexing):
        await _until_ready(table, "A")


@table_test
async def test_uses_are_counted_in_batches(table: TableFixture) -> None:
    await table.index("A", "B")
    engine = FailingEngine(table.engine)
    indexing = Indexing(engine)
    for _ in range(100):
        indexing.count_use(table.name, "A")
    indexing.count_use(TableName(table.name.account, "Gone"), "A")
    for _ in range(2):
        await indexing.store_uses()
        assert [round(index.score) for index in await table.indexes()] == [100, 0]
    assert engine.asked[count_uses] == 2


@table_test
async def test_unused_indexes_are_dropped_periodically(table: TableFixture) -> None:
    table.clock.freeze()
    await table.index("A")
    for number in range(450):
        await table.named(f"Another{number}").create()
    engine = FailingEngine(table.engine)
    indexing = Indexing(engine)
    await indexing.drop_unused()
    assert not engine.asked[drop_unused]
    table.clock.advance(2 * UNUSED_TICKS_MAX)
    await indexing.drop_unused()
    assert await table.indexes() == ()


@table_test
async def test_rare_requests_cause_no_write(table: TableFixture) -> None:
    names = [f"P{number}" for number in range(INDEXES_MAX)]
    await table.index(*names)
    engine = FailingEngine(table.engine)
    indexing = Indexing(engine)
    async with running(indexing):
        for _ in range(20):
            indexing.request(table.name, "Other")
            await asyncio.sleep(0.001)
    assert not engine.asked


@table_test
async def test_frequent_requests_replace_an_unused_index(
    table: TableFixture,
) -> None:
    table.clock.freeze()
    names = [f"P{number}" for number in range(INDEXES_MAX)]
    await table.index(*names)
    table.clock.advance(2 * REPLACEABLE_AFTER_TICKS)
    indexing = Indexing(table.engine)
    async with running(indexing):
        for _ in range(5):
            indexing.request(table.name, "Other")
        await _until_ready(table, "Other", *names[1:])
    await table.purge()
    assert await table.require_index_consistency() == 0
