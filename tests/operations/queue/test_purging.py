"""The job that purges expired messages and deleted queues, as a front end runs it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from etagere.coordination.local import sole_worker
from etagere.jobs.purging import TASK, purge
from etagere.jobs.supervision import Job
from etagere.operations.queue.messages import may_purge
from tests.operations.queue.fixture import LONG, QueueFixture, queue_test

INTERVAL_SECONDS = 0.001


def keep_purging(queue: QueueFixture) -> asyncio.Task[None]:
    base = queue.base
    job = Job("purging", lambda: purge(base.engine, base.store.coordinator), INTERVAL_SECONDS)
    return asyncio.create_task(job.run())


@contextlib.asynccontextmanager
async def purging(queue: QueueFixture) -> AsyncIterator[None]:
    """Runs the job until there is nothing to do."""
    job = keep_purging(queue)
    yield
    while await queue.read(may_purge, None):
        await asyncio.sleep(INTERVAL_SECONDS)
    job.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await job


@queue_test
async def test_expired_messages_are_removed(queue: QueueFixture) -> None:
    for number in range(130):
        await queue.put(LONG if number % 10 == 0 else "short", lives=1)
    await queue.put("kept", lives=2)
    assert not await queue.read(may_purge, None)
    queue.wait(1)
    assert await queue.read(may_purge, None)
    async with purging(queue):
        pass
    assert await queue.texts() == ["kept"]
    assert await queue.count() == 1
    await queue.require_consistent()


@queue_test
async def test_messages_of_deleted_queues_are_removed(queue: QueueFixture) -> None:
    for empty in (queue.clear, queue.delete_queue):
        for number in range(130):
            await queue.put(LONG if number % 10 == 0 else "short")
        assert not await queue.read(may_purge, None)
        async with purging(queue):
            await empty()
        assert await queue.message_records() == {}


@queue_test
async def test_one_process_at_a_time(queue: QueueFixture) -> None:
    await queue.put("short", lives=1)
    queue.wait(1)
    base = queue.base
    with sole_worker(base.directory, TASK) as is_sole:
        assert is_sole
        job = keep_purging(queue)
        await asyncio.sleep(50 * INTERVAL_SECONDS)
        assert await base.read(may_purge, None)
        job.cancel()
    async with purging(queue):
        pass
    assert await queue.message_records() == {}
