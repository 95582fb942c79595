"""The job that removes what nothing shows any more, as it runs in a front end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from etagere.coordination.local import sole_worker
from etagere.jobs.purging import TASK, purge
from etagere.jobs.supervision import Job
from etagere.operations.queue.messages import may_purge
from tests.operations.queue.desk import LONG, Desk, on_a_desk

INTERVAL_SECONDS = 0.001


def keep_purging(desk: Desk) -> asyncio.Task[None]:
    shelf = desk.shelf
    job = Job("purging", lambda: purge(shelf.engine, shelf.store.coordinator), INTERVAL_SECONDS)
    return asyncio.create_task(job.run())


@contextlib.asynccontextmanager
async def purging(desk: Desk) -> AsyncIterator[None]:
    """Until there is nothing to do."""
    job = keep_purging(desk)
    yield
    while await desk.shelf.read(may_purge, None):
        await asyncio.sleep(INTERVAL_SECONDS)
    job.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await job


@on_a_desk
async def test_what_is_over_is_removed(desk: Desk) -> None:
    for number in range(130):
        await desk.put(LONG if number % 10 == 0 else "short", lives=1)
    await desk.put("kept", lives=2)
    assert not await desk.shelf.read(may_purge, None)
    desk.wait(1)
    assert await desk.shelf.read(may_purge, None)
    async with purging(desk):
        pass
    assert await desk.texts() == ["kept"]
    assert await desk.count() == 1
    await desk.require_consistent()


@on_a_desk
async def test_what_no_queue_has_is_removed(desk: Desk) -> None:
    for empty in (desk.clear, desk.delete_queue):
        for number in range(130):
            await desk.put(LONG if number % 10 == 0 else "short")
        assert not await desk.shelf.read(may_purge, None)
        async with purging(desk):
            await empty()
        assert await desk.left_behind() == {}


@on_a_desk
async def test_one_process_at_a_time(desk: Desk) -> None:
    await desk.put("short", lives=1)
    desk.wait(1)
    shelf = desk.shelf
    with sole_worker(shelf.directory, TASK) as is_sole:
        assert is_sole
        job = keep_purging(desk)
        await asyncio.sleep(50 * INTERVAL_SECONDS)
        assert await shelf.read(may_purge, None)
        job.cancel()
    async with purging(desk):
        pass
    assert await desk.left_behind() == {}
