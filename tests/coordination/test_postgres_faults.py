"""Processes that are paused, and a database that is unavailable."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from etagere.coordination.interface import CoordinatorUnavailable, PinnedSegments
from etagere.coordination.postgres import PostgresCoordinator, Timing
from etagere.postgresql import fetch_value
from tests.clusters.postgresql import PostgresServer, postgresql, without_standby
from tests.coordination.postgres import (
    PATIENT_TIMING,
    SECONDS_MAX,
    TIMING,
    eventually,
    joining,
    member,
)
from tests.server import unique

EXIT_LOST = 3
HELD = AsyncExitStack()
"""In a process of its own: what it has until it is killed."""
UNAVAILABLE_SECONDS = TIMING.lifetime_seconds + 0.5


def join_member(
    dsn: str, schema: str, timing: Timing = TIMING
) -> Callable[[], PostgresCoordinator]:
    return joining(dsn, schema, timing=timing, on_declared_dead=lambda: os._exit(EXIT_LOST))


async def hold_task_and_pin(coordinator: PostgresCoordinator) -> None:
    assert await HELD.enter_async_context(coordinator.sole_worker("sweeping")) is not None
    coordinator.pin().narrow([7])


def test_a_process_that_is_paused_too_long_is_dead_for_ever(
    postgresql_dsn: str, postgresql_schema: str
) -> None:
    """It ends when it continues, and what it had is free."""
    join = join_member(postgresql_dsn, postgresql_schema)

    async def scenario() -> None:
        mine = join()
        with member(join, hold_task_and_pin) as (pid, process_id):
            os.kill(pid, signal.SIGSTOP)
            async with mine.sole_worker("sweeping") as lock:
                assert lock is None
            # Returns when the process was declared dead.
            assert await mine.pinned() == PinnedSegments(None, frozenset())
            assert not await mine.is_alive(process_id)
            async with mine.sole_worker("sweeping") as lock:
                assert lock is not None and lock.epoch == 2
                os.kill(pid, signal.SIGCONT)
                assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == EXIT_LOST
                assert await lock.is_held()
            assert not await mine.is_alive(process_id)
        mine.close()

    asyncio.run(scenario())


def test_a_process_that_is_paused_briefly_lives(
    postgresql_dsn: str, postgresql_schema: str
) -> None:
    join = join_member(postgresql_dsn, postgresql_schema, PATIENT_TIMING)

    async def scenario() -> None:
        mine = join()
        with member(join, hold_task_and_pin) as (pid, process_id):
            os.kill(pid, signal.SIGSTOP)
            await asyncio.sleep(PATIENT_TIMING.lifetime_seconds / 4)
            os.kill(pid, signal.SIGCONT)
            assert (await mine.pinned()).segments == {7}
            assert await mine.is_alive(process_id)
        mine.close()

    asyncio.run(scenario())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A server that tests stop and start again."""
    with postgresql(tmp_path_factory.mktemp("server")) as started:
        yield started


def _stop(server: PostgresServer) -> None:
    server.stop()
    time.sleep(UNAVAILABLE_SECONDS)
    server.start()


def _crash(server: PostgresServer) -> None:
    server.kill()
    time.sleep(UNAVAILABLE_SECONDS)
    server.start()


def _hang(server: PostgresServer) -> None:
    server.pause()
    time.sleep(UNAVAILABLE_SECONDS)
    server.resume()


def _terminate(server: PostgresServer) -> None:
    with psycopg.connect(server.superuser_dsn) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )


def test_no_process_is_declared_dead_because_the_database_was_unavailable(
    server: PostgresServer,
) -> None:
    """However long, and for whatever reason."""
    lost = threading.Event()
    schema = unique("schema").replace("-", "_")
    join = joining(server.dsn, schema, on_declared_dead=lost.set)

    async def scenario() -> None:
        mine, other = join(), join()
        with member(join_member(server.dsn, schema), hold_task_and_pin) as (pid, process_id):
            async with mine.sole_worker("mopping") as lock:
                assert lock is not None
                for fault in (_terminate, _stop, _crash, _hang):
                    await asyncio.to_thread(fault, server)
                    await eventually(lambda: _answers(mine), f"an answer after {fault.__name__}")
                    assert await mine.is_alive(process_id)
                    # Returns when all processes have connected again.
                    assert (await mine.pinned()).segments == {7}
                    assert await mine.is_alive(other.process_id)
                    assert await other.is_alive(mine.process_id)
                    assert await lock.is_held()
                    async with mine.sole_worker("sweeping") as theirs:
                        assert theirs is None
            # A process that does not come back is still declared dead.
            os.kill(pid, signal.SIGKILL)
            await eventually(lambda: _is_dead(mine, process_id), "the process to be dead")
        assert not lost.is_set()
        mine.close()
        other.close()

    asyncio.run(scenario())


async def _answers(coordinator: PostgresCoordinator) -> bool:
    try:
        return await coordinator.is_alive(coordinator.process_id)
    except CoordinatorUnavailable:
        return False


async def _is_dead(coordinator: PostgresCoordinator, process_id: bytes) -> bool:
    return not await coordinator.is_alive(process_id)


def test_requests_fail_while_the_database_is_unavailable(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etagere.coordination.postgres.session.REQUEST_SECONDS_MAX", 0.2)
    join = joining(server.dsn, unique("schema").replace("-", "_"))
    coordinator = join()

    async def scenario() -> None:
        async with coordinator.sole_worker("sweeping") as lock:
            assert lock is not None
            await asyncio.to_thread(server.stop)
            for request in (coordinator.is_alive(b"x" * 16), coordinator.pinned(), lock.is_held()):
                with pytest.raises(CoordinatorUnavailable):
                    await request
            with pytest.raises(CoordinatorUnavailable):
                async with coordinator.sole_worker("mopping"):
                    pass
            # Readers do not wait for the database.
            with coordinator.pin() as pin:
                pin.narrow([1])
        # The task could not be released; it is when the database is back.
        await asyncio.to_thread(server.start)
        other = join()

        async def can_take() -> bool:
            async with other.sole_worker("sweeping") as taken:
                return taken is not None

        await eventually(can_take, "the task to be released")
        other.close()

    asyncio.run(scenario())
    coordinator.close()


def test_connections_do_not_accumulate_while_no_standby_answers(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A heartbeat that waits for a standby keeps the lock of its row, also when its connection was
    closed. Those that follow do not wait for this lock for ever."""
    monkeypatch.setattr("etagere.coordination.postgres.coordinator.ANSWER_SECONDS_MAX", 0.45)
    join = joining(server.dsn, unique("schema").replace("-", "_"), name="beating")
    members = [join() for _ in range(2)]
    most = 0
    with without_standby(server) as administrator:
        ends = time.monotonic() + 6
        while time.monotonic() < ends:
            most = max(most, fetch_value(administrator, _COUNT_BEATING))
            time.sleep(0.1)

    async def scenario() -> None:
        for each in members:
            await eventually(lambda: _answers(members[0]), "an answer")
            assert await members[0].is_alive(each.process_id)

    asyncio.run(scenario())
    # Of each process: a heartbeat that waits for the standby, one that waits for its lock, and one
    # that is just ending.
    assert most <= 3 * len(members)
    for each in members:
        each.close()


_COUNT_BEATING = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'etagere beating'"


def test_a_coordinator_is_closed_while_the_database_is_unavailable(server: PostgresServer) -> None:
    coordinator = joining(server.dsn, unique("schema").replace("-", "_"))()
    server.stop()
    began = time.monotonic()
    coordinator.close()
    assert time.monotonic() - began < 20
    with pytest.raises(CoordinatorUnavailable):
        asyncio.run(coordinator.is_alive(coordinator.process_id))
    server.start()


@pytest.mark.parametrize("hours", [1, -1])
def test_the_clock_of_the_database_is_set(
    postgresql_dsn: str, postgresql_schema: str, hours: int
) -> None:
    """What it wrote before seems to be an hour old, or in the future. Only a process that is not
    alive is declared dead, and not later than usual."""
    join = joining(postgresql_dsn, postgresql_schema, timing=PATIENT_TIMING)
    mine = join()
    with member(join) as (pid, process_id), psycopg.connect(postgresql_dsn) as connection:
        os.kill(pid, signal.SIGSTOP)
        connection.execute(f"SET search_path = {postgresql_schema}".encode())
        moved = timedelta(hours=hours)
        connection.execute("UPDATE cluster_processes SET expires = expires - %s", (moved,))
        connection.execute("UPDATE cluster_sweeps SET at = at - %s", (moved,))
        connection.commit()
        began = time.monotonic()

        async def scenario() -> None:
            await asyncio.sleep(0.5)
            assert await mine.is_alive(process_id)
            assert await mine.is_alive(mine.process_id)
            await eventually(lambda: _is_dead(mine, process_id), "the process to be dead")
            assert time.monotonic() - began > PATIENT_TIMING.lifetime_seconds - 0.5
            assert await mine.is_alive(mine.process_id)

        asyncio.run(scenario())
    mine.close()


def test_many_processes_join_a_new_cluster_at_once(
    postgresql_dsn: str, postgresql_schema: str
) -> None:
    join = joining(postgresql_dsn, postgresql_schema)
    with ThreadPoolExecutor(8) as threads:
        members = list(threads.map(lambda _: join(), range(8)))

    async def scenario() -> None:
        for each in members:
            assert await members[0].is_alive(each.process_id)

    asyncio.run(scenario())
    for each in members:
        each.close()


def test_a_task_is_released_if_its_worker_was_cancelled(
    postgresql_dsn: str, postgresql_schema: str
) -> None:
    """Even while it waited for the task."""
    join = joining(postgresql_dsn, postgresql_schema)
    mine, other = join(), join()

    async def work() -> None:
        async with mine.sole_worker("sweeping"):
            await asyncio.sleep(60)

    async def can_take() -> bool:
        async with other.sole_worker("sweeping") as lock:
            return lock is not None

    async def scenario() -> None:
        for pause in (0.0, 0.0, 0.001, 0.002, 0.005):
            task = asyncio.create_task(work())
            await asyncio.sleep(pause)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await eventually(can_take, "the task to be released")

    asyncio.run(scenario())
    mine.close()
    other.close()


def test_a_task_that_is_taken_after_its_worker_gave_up_is_released(
    postgresql_dsn: str, postgresql_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server goes on with a request whose connection was closed."""
    monkeypatch.setattr("etagere.coordination.postgres.coordinator.ANSWER_SECONDS_MAX", 0.4)
    monkeypatch.setattr("etagere.coordination.postgres.session.REQUEST_SECONDS_MAX", 0.1)
    join = joining(postgresql_dsn, postgresql_schema)
    mine, other = join(), join()

    async def can_take() -> bool:
        async with other.sole_worker("sweeping") as lock:
            return lock is not None

    async def scenario(connection: psycopg.Connection[Any]) -> None:
        with pytest.raises(CoordinatorUnavailable):
            async with mine.sole_worker("sweeping"):
                pass
        # Waits until the request has ended.
        await asyncio.to_thread(connection.execute, "DROP TRIGGER wait ON cluster_tasks")
        (epoch,) = connection.execute("SELECT max(epoch) FROM cluster_tasks").fetchone() or (0,)
        assert epoch, "the task was taken"
        await eventually(can_take, "the task to be released")

    options = f"-c search_path={postgresql_schema}"
    with psycopg.connect(postgresql_dsn, autocommit=True, options=options) as connection:
        connection.execute(_CREATE_WAIT)
        connection.execute(
            "CREATE TRIGGER wait BEFORE INSERT ON cluster_tasks EXECUTE FUNCTION wait()"
        )
        asyncio.run(scenario(connection))
    mine.close()
    other.close()


_CREATE_WAIT = """
    CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql
    AS 'BEGIN PERFORM pg_sleep(1); RETURN NULL; END'
"""


def test_the_clocks_of_machines_differ(postgresql_dsn: str, postgresql_schema: str) -> None:
    """By hours, in both directions, and one of them runs at half the speed."""
    hour = 3_600 * 10**9
    behind = joining(
        postgresql_dsn, postgresql_schema, clock=lambda: time.monotonic_ns() // 2 + hour
    )()
    ahead = joining(
        postgresql_dsn, postgresql_schema, clock=lambda: time.monotonic_ns() + 9 * hour
    )()

    async def scenario() -> None:
        for reader, collector in ((behind, ahead), (ahead, behind)):
            with reader.pin():
                retired_at = collector.timestamp()
                for _ in range(3):
                    assert (await collector.pinned()).keeps(1, retired_at)
            await collector.pinned()
            # Readers that come later do not keep it, although there is always one.
            with reader.pin():
                assert not (await collector.pinned()).keeps(1, retired_at)

    asyncio.run(scenario())
    behind.close()
    ahead.close()


def test_readers_of_several_processes_lose_nothing(
    postgresql_dsn: str, postgresql_schema: str
) -> None:
    """Readers pin and read all the time, while a collector retires and removes."""
    join = joining(postgresql_dsn, postgresql_schema)
    processes = [join() for _ in range(3)]
    collector = processes[0]
    live, removed, retired_at = set(range(10)), set[int](), dict[int, int]()
    began = time.monotonic()
    reads = 0

    def is_over() -> bool:
        passed = time.monotonic() - began
        return passed > 4 and ((reads > 20 and len(removed) > 5) or passed > SECONDS_MAX)

    async def read(coordinator: PostgresCoordinator) -> None:
        nonlocal reads
        while not is_over():
            with coordinator.pin() as pin:
                await asyncio.sleep(random.uniform(0, 0.02))
                plan = random.sample(sorted(live), 3)  # the snapshot
                await asyncio.sleep(random.uniform(0, 0.02))
                pin.narrow(plan)
                for segment in plan:
                    await asyncio.sleep(random.uniform(0, 0.2))
                    assert segment not in removed
                    pin.release(segment)
            reads += 1

    async def collect() -> None:
        number = 10
        while not is_over():
            segment = random.choice(sorted(live))
            live.remove(segment)
            live.add(number)
            number += 1
            retired_at[segment] = collector.timestamp()
            pinned = await collector.pinned()
            for retired in [one for one in retired_at if not pinned.keeps(one, retired_at[one])]:
                del retired_at[retired]
                removed.add(retired)

    async def scenario() -> None:
        readers = [read(process) for process in processes for _ in range(4)]
        await asyncio.gather(collect(), *readers)
        assert reads > 20 and len(removed) > 5
        assert (await collector.pinned()) == PinnedSegments(None, frozenset())

    asyncio.run(scenario())
    for process in processes:
        process.close()
