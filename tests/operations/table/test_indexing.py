"""The job that builds what queries wished for."""

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
from tests.operations.table.cabinet import Cabinet, at_a_cabinet, insert

PROMPT = Backoff(first_seconds=0.01)


class Faulty:
    """An engine that counts what is written, and fails when it is told to."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.asked: Counter[Any] = Counter()
        self.fails_at = 0
        """At this step of building."""

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


async def _filled(cabinet: Cabinet) -> None:
    for group in range(6):
        keys = [Keys(str(group), f"{row:02}") for row in range(100)]
        await cabinet.change(*(insert(one, A=int(one.row), B="x") for one in keys))


async def _until_ready(cabinet: Cabinet, *names: str) -> None:
    async with asyncio.timeout(20):
        while {index.name for index in await cabinet.indexes() if index.is_ready} != set(names):
            await asyncio.sleep(0.001)


@at_a_cabinet
async def test_what_is_noted_is_built_once(cabinet: Cabinet) -> None:
    await _filled(cabinet)
    engine = Faulty(cabinet.shelf.engine)
    indexing = Indexing(engine)
    for _ in range(3):
        indexing.request(cabinet.name, "A")
        indexing.request(cabinet.name, "B")
    async with running(indexing):
        await _until_ready(cabinet, "A", "B")
    assert await cabinet.require_agreement() == 1_200
    assert engine.asked[request_index] == 2
    # Two steps of 250, one of what is left, and one that finds nothing more.
    assert engine.asked[build_index] == 2 * 4


@at_a_cabinet
async def test_what_failed_is_gone_on_with_when_it_is_noted_again(cabinet: Cabinet) -> None:
    await _filled(cabinet)
    engine = Faulty(cabinet.shelf.engine)
    engine.fails_at = 2
    indexing = Indexing(engine)
    async with running(indexing):
        indexing.request(cabinet.name, "A")
        # Of one that comes later it is seen that the first has ended.
        indexing.request(cabinet.name, "B")
        await _until_ready(cabinet, "B")
        assert not (await cabinet.indexes())[0].is_ready
        indexing.request(cabinet.name, "A")
        await _until_ready(cabinet, "A", "B")
    assert await cabinet.require_agreement() == 1_200


@at_a_cabinet
async def test_a_table_that_is_gone_stops_nothing(cabinet: Cabinet) -> None:
    await _filled(cabinet)
    indexing = Indexing(cabinet.shelf.engine)
    indexing.request(TableName(cabinet.name.account, "Gone"), "A")
    indexing.request(cabinet.name, "A")
    async with running(indexing):
        await _until_ready(cabinet, "A")


@at_a_cabinet
async def test_uses_are_counted_together(cabinet: Cabinet) -> None:
    await cabinet.index("A", "B")
    engine = Faulty(cabinet.shelf.engine)
    indexing = Indexing(engine)
    for _ in range(100):
        indexing.count_use(cabinet.name, "A")
    indexing.count_use(TableName(cabinet.name.account, "Gone"), "A")
    for _ in range(2):
        await indexing.store_uses()
        assert [round(index.score) for index in await cabinet.indexes()] == [100, 0]
    assert engine.asked[count_uses] == 2


@at_a_cabinet
async def test_what_is_not_used_is_dropped_in_time(cabinet: Cabinet) -> None:
    cabinet.shelf.clock.freeze()
    await cabinet.index("A")
    for number in range(450):
        await cabinet.called(f"Another{number}").create()
    engine = Faulty(cabinet.shelf.engine)
    indexing = Indexing(engine)
    await indexing.drop_unused()
    assert not engine.asked[drop_unused]
    cabinet.shelf.clock.advance(2 * UNUSED_TICKS_MAX)
    await indexing.drop_unused()
    assert await cabinet.indexes() == ()


@at_a_cabinet
async def test_who_is_not_lacked_enough_causes_no_write(cabinet: Cabinet) -> None:
    names = [f"P{number}" for number in range(INDEXES_MAX)]
    await cabinet.index(*names)
    engine = Faulty(cabinet.shelf.engine)
    indexing = Indexing(engine)
    async with running(indexing):
        for _ in range(20):
            indexing.request(cabinet.name, "Other")
            await asyncio.sleep(0.001)
    assert not engine.asked


@at_a_cabinet
async def test_what_is_lacked_often_takes_the_place_of_what_is_not_used(cabinet: Cabinet) -> None:
    cabinet.shelf.clock.freeze()
    names = [f"P{number}" for number in range(INDEXES_MAX)]
    await cabinet.index(*names)
    cabinet.shelf.clock.advance(2 * REPLACEABLE_AFTER_TICKS)
    indexing = Indexing(cabinet.shelf.engine)
    async with running(indexing):
        for _ in range(5):
            indexing.request(cabinet.name, "Other")
        await _until_ready(cabinet, "Other", *names[1:])
    await cabinet.purge()
    assert await cabinet.require_agreement() == 0
