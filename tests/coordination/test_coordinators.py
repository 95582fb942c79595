"""The contract of coordinators, for each implementation: liveness, sole workers and pins."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from etagere.coordination.interface import Coordinator, PinnedSegments
from etagere.coordination.local import LocalCoordinator
from tests.coordination.postgres import Join, joining


@pytest.fixture(params=["local", "postgres"])
def join(request: pytest.FixtureRequest, tmp_path: Path) -> Join:
    if request.param == "local":
        return lambda: LocalCoordinator(tmp_path)
    dsn = request.getfixturevalue("postgresql_dsn")
    return joining(dsn, request.getfixturevalue("postgresql_schema"))


@pytest.fixture
def pair(join: Join) -> Iterator[tuple[Coordinator, Coordinator]]:
    mine, other = join(), join()
    yield mine, other
    mine.close()
    other.close()


Pair = tuple[Coordinator, Coordinator]


def test_a_process_is_alive_until_it_leaves(join: Join) -> None:
    async def scenario() -> None:
        mine, other = join(), join()
        assert mine.process_id != other.process_id
        assert await mine.is_alive(mine.process_id)
        assert await mine.is_alive(other.process_id)
        other.close()
        assert not await mine.is_alive(other.process_id)
        assert not await mine.is_alive(b"\x01" * 16)
        mine.close()

    asyncio.run(scenario())


def test_a_killed_process_leaves_nothing_behind(join: Join) -> None:
    """Neither its liveness, nor its tasks, nor its pins."""
    receiving, sending = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            asyncio.run(_work_for_ever(join(), sending))
        finally:
            os._exit(1)
    process_id = os.read(receiving, 16)

    async def scenario() -> None:
        mine = join()
        assert await mine.is_alive(process_id)
        assert (await mine.pinned()).segments == {7}
        async with mine.sole_worker("sweeping") as lock:
            assert lock is None
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert await mine.pinned() == PinnedSegments(None, frozenset())
        assert not await mine.is_alive(process_id)
        async with mine.sole_worker("sweeping") as lock:
            assert lock is not None and await lock.is_held()
        mine.close()

    asyncio.run(scenario())
    os.close(receiving)
    os.close(sending)


async def _work_for_ever(coordinator: Coordinator, writer: int) -> None:
    async with coordinator.sole_worker("sweeping"):
        coordinator.pin().narrow([7])
        os.write(writer, coordinator.process_id)
        time.sleep(60)


def test_a_task_has_one_worker(pair: Pair) -> None:
    mine, other = pair

    async def scenario() -> None:
        async with mine.sole_worker("sweeping") as first, other.sole_worker("sweeping") as second:
            assert first is not None and await first.is_held() and second is None
            async with mine.sole_worker("sweeping") as nested:
                assert nested is None
            async with other.sole_worker("mopping") as third:
                assert third is not None
        async with other.sole_worker("sweeping") as again:
            assert again is not None and await again.is_held()
            assert again.epoch > first.epoch or again.epoch == first.epoch == 0

    asyncio.run(scenario())


def test_pins_are_seen_by_others(pair: Pair) -> None:
    reader, collector = pair

    async def scenario() -> None:
        before = collector.timestamp()
        assert await collector.pinned() == PinnedSegments(None, frozenset())
        with reader.pin() as pin:
            retired_at = collector.timestamp()
            pinned = await collector.pinned()
            assert pinned.keeps(1, retired_at) and not pinned.keeps(1, before)
            pin.narrow([1, 2])
            pinned = await collector.pinned()
            assert pinned.keeps(1, retired_at) and not pinned.keeps(3, retired_at)
            pin.release(1)
            assert not (await collector.pinned()).keeps(1, retired_at)
        assert await collector.pinned() == PinnedSegments(None, frozenset())
        pin.close()
        with reader.pin():
            assert not (await collector.pinned()).keeps(1, retired_at)

    asyncio.run(scenario())


def test_own_pins_count_too(pair: Pair) -> None:
    collector, _ = pair

    async def scenario() -> None:
        with collector.pin() as pin:
            pin.narrow([3])
            assert await collector.pinned() == PinnedSegments(None, frozenset([3]))
        with collector.pin():
            assert (await collector.pinned()).keeps(3, collector.timestamp())

    asyncio.run(scenario())
