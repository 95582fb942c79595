"""Coordinators while the primary of a PostgreSQL cluster changes, with the timing of production."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time

import pytest

from etagere.coordination.interface import CoordinatorUnavailable
from etagere.coordination.postgres import PostgresCoordinator
from tests.clusters.patroni import patroni_cluster
from tests.coordination.postgres import eventually, member

pytestmark = pytest.mark.long


def test_no_process_is_declared_dead_because_the_primary_changed() -> None:
    """Although changes take longer than the lifetime of a process without heartbeats, and a former
    primary answers again."""
    lost = threading.Event()
    with patroni_cluster(ttl_seconds=8) as cluster:
        dsn = cluster.dsn
        members = [PostgresCoordinator(dsn, on_declared_dead=lost.set) for _ in range(3)]
        mine, other, _ = members

        async def all_answer() -> bool:
            try:
                return (await mine.pinned()).segments == {1, 2}
            except CoordinatorUnavailable:
                return False

        async def scenario() -> None:
            other.pin().narrow([1, 2])
            async with mine.sole_worker("sweeping") as lock:
                assert lock is not None
                await asyncio.to_thread(cluster.switch_over)
                await eventually(all_answer, "answers after a switchover")
                await asyncio.to_thread(cluster.await_healthy)
                changes = [cluster.kill_node, cluster.kill_postgresql, cluster.pause_node]
                for change in changes:
                    before = await asyncio.to_thread(cluster.await_primary)
                    await asyncio.to_thread(change, before)
                    await asyncio.to_thread(cluster.await_primary, other_than=before)
                    if change == cluster.kill_node:
                        cluster.start_node(before)
                    cluster.resume_node(before)
                    began = time.monotonic()
                    await eventually(all_answer, f"answers after {change.__name__}")
                    print(f"{change.__name__}: answers {time.monotonic() - began:.1f} s later")
                    for each in members:
                        assert await mine.is_alive(each.process_id)
                    assert await lock.is_held()
                    await asyncio.to_thread(cluster.await_healthy)
            with member(lambda: PostgresCoordinator(dsn)) as (pid, process_id):
                assert await mine.is_alive(process_id)
                os.kill(pid, signal.SIGKILL)
                began = time.monotonic()

                async def is_dead() -> bool:
                    return not await mine.is_alive(process_id)

                await eventually(is_dead, "a killed process to be dead")
                assert 8 < time.monotonic() - began < 13
            assert not lost.is_set()

        asyncio.run(scenario())
        for each in members:
            each.close()
