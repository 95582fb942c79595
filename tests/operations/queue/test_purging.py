"""The job that removes what nothing shows any more, as it runs in a front end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from etagere.jobs.purging import keep_purging
from etagere.operations.queue.messages import may_purge
from tests.operations.queue.desk import LONG, Desk, on_a_desk

INTERVAL_SECONDS = 0.001


@contextlib.asynccontextmanager
async def purging(desk: Desk) -> AsyncIterator[None]:
    """Until there is nothing to do."""
    job = asyncio.create_task(keep_purging(desk.shelf.engine, INTERVAL_SECONDS))
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
