"""Processes that die, hang or cannot start: their callers get an outcome, and the rest
continues."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from etagere.bodies.collector import Collector
from etagere.config import KIB, MIB, Config
from etagere.engine import ledger, writer_client
from etagere.engine.interface import Engine
from etagere.engine.records import SCHEMA
from etagere.processes import EXIT_FINAL
from tests.bodies.objects import PutObject, download, put_object, upload
from tests.clocks import SharedWords
from tests.engine.samples import Item, PutItem, get_item, put_item
from tests.simulation.servers import (
    Ending,
    FrontEnd,
    Server,
    ending_of,
    eventually,
    front_end,
    require_clean,
    run,
    running,
    send,
    served,
    wait_until,
)

TASKS = 32
CONFIG = Config(inline_bytes_max=4 * KIB, segment_bytes_max=4 * MIB, reserve_bytes=1 * MIB)
HASTY = Config(reserve_bytes=1 * MIB, writer_answer_seconds_max=0.3)


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Suspends a process."""
    send(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        send(pid, signal.SIGCONT)


async def begin_all(engine: Engine, prefix: str) -> dict[str, asyncio.Task[Ending]]:
    """Sends many writes and does not wait for their responses."""
    names = [f"{prefix}-{number}" for number in range(TASKS)]
    begun = {
        name: asyncio.create_task(ending_of(engine.write(put_item, PutItem(name, Item(name)))))
        for name in names
    }
    await asyncio.sleep(0.05)  # they are sent in the next iteration of the event loop
    assert not any(task.done() for task in begun.values())
    return begun


async def endings(begun: dict[str, asyncio.Task[Ending]]) -> dict[str, Ending]:
    return {name: await task for name, task in begun.items()}


async def require_items(engine: Engine, present: dict[str, bool]) -> None:
    for name, there in present.items():
        assert await engine.read(get_item, name) == (Item(name) if there else None)


def test_a_writer_is_killed_with_requests_in_flight(tmp_path: Path) -> None:
    with served(tmp_path / "data", CONFIG) as server:

        async def work() -> None:
            async with front_end(server) as front:
                # It may take longer to start than the time limit for its responses.
                await eventually(
                    lambda: front.engine.write(put_item, PutItem("kept", Item("kept")))
                )
                pid = server.writer_pid
                send(pid, signal.SIGSTOP)
                begun = await begin_all(front.engine, "in-flight")
                send(pid, signal.SIGKILL)
                outcomes = await endings(begun)
                assert {ending.kind for ending in outcomes.values()} == {"unknown"}
                began = time.monotonic()
                await front.engine.write(put_item, PutItem("next", Item("next")))
                assert time.monotonic() - began < 20.0
                # It had not even read them.
                await require_items(front.engine, dict.fromkeys(outcomes, False))
                await require_items(front.engine, {"kept": True, "next": True})
                assert f"writer (pid {pid}) exited: signal 9; restarting it" in server.log()
                server.wait_for_another("writer", pid)

        run(work())
        assert server.stop() == 0
    require_clean(tmp_path / "data")


def test_a_writer_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers wait for a bounded time; afterwards the writer continues, without what it had not
    answered in time."""
    monkeypatch.setattr(writer_client, "_WATCH_SECONDS", 0.1)
    with served(tmp_path / "data", HASTY) as server:

        async def work() -> None:
            async with front_end(server) as front:
                # On a busy machine a write may exceed the short limit although nothing hangs.
                await eventually(
                    lambda: front.engine.write(put_item, PutItem("kept", Item("kept")))
                )
                pid = server.writer_pid
                with stopped(pid):
                    began = time.monotonic()
                    begun = await begin_all(front.engine, "in-flight")
                    await asyncio.sleep(0.1)
                    begun.update(await begin_all(front.engine, "sent-later"))
                    outcomes = await endings(begun)
                    assert {ending.kind for ending in outcomes.values()} == {"unknown"}
                    assert time.monotonic() - began < 20.0
                    await require_items(front.engine, {"kept": True})  # reads are not affected
                    again = await ending_of(front.engine.write(put_item, PutItem("more")))
                    assert again.kind == "unknown"
                await eventually(lambda: front.engine.write(put_item, PutItem("next")))
                assert server.writer_pid == pid
                await require_items(front.engine, dict.fromkeys([*outcomes, "more"], False))

        run(work())
        assert server.stop() == 0
    require_clean(tmp_path / "data")


def test_a_supervisor_is_killed(tmp_path: Path) -> None:
    """The writer exits too, and the directory is free for another server."""
    with served(tmp_path / "data", CONFIG) as server:

        async def put(name: str) -> None:
            async with front_end(server) as front:
                await front.engine.write(put_item, PutItem(name, Item(name)))
                await require_items(front.engine, {"before": True})

        run(put("before"))
        (writer,) = server.kill_supervisor()
        wait_until(lambda: not running(writer), "the end of the writer")
        server.start()
        assert server.writer_pid != writer
        run(put("after"))
        assert server.stop() == 0
    require_clean(tmp_path / "data")


def test_a_writer_that_cannot_start(tmp_path: Path) -> None:
    """The ledger is of a newer version: restarting would not help."""
    with served(tmp_path / "data", CONFIG) as server:
        connection = apsw.Connection(str(ledger.database_path(server.directory)))
        connection.set_busy_timeout(10_000)
        connection.execute(f"PRAGMA user_version = {SCHEMA + 1}")
        connection.close()
        server.kill("writer")
        assert server.wait_for_exit() == EXIT_FINAL
        assert f"has schema {SCHEMA + 1}; this version of etagere knows" in server.log()
        assert "writer cannot run" in server.log()


# Front ends


class Steps:
    """The progress of a front end in a test, shared with its process."""

    def __init__(self) -> None:
        self._words = SharedWords(2)

    def allow(self, step: int) -> None:
        self._words[0] = step

    def report(self, step: int) -> None:
        self._words[1] = step

    async def until_allowed(self, step: int) -> None:
        await _until(lambda: self._words[0] >= step)

    async def until_reported(self, step: int) -> None:
        await _until(lambda: self._words[1] >= step)


async def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20.0
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


FIRST, SECOND = b"1" * 100 * KIB, b"2" * 100 * KIB


async def begin_last_upload(front: FrontEnd) -> asyncio.Future[list[object]]:
    """Starts an upload whose last request is among others."""
    async with front.store.writer(len(SECOND)) as writer:
        await writer.append(SECOND)
        body = await writer.seal()
        calls: list[Coroutine[Any, Any, object]] = [
            front.engine.write(put_item, PutItem(f"small-{number}")) for number in range(TASKS)
        ]
        calls.insert(TASKS // 2, front.engine.write(put_object, PutObject("second", body)))
        return asyncio.gather(*calls)


@contextmanager
def uploading_process(server: Server, steps: Steps) -> Iterator[int]:
    """Starts a front end in its own process that uploads in two steps, and gets no response to the
    second."""

    async def work() -> None:
        await steps.until_allowed(1)
        async with front_end(server) as front:
            await upload(front.engine, front.store, "first", FIRST)  # opens a segment
            steps.report(1)
            await steps.until_allowed(2)
            begun = await begin_last_upload(front)
            await asyncio.sleep(0.3)  # long enough to have been sent
            steps.report(2)
            await begun

    pid = os.fork()
    if pid == 0:
        try:
            asyncio.run(work())
        finally:
            os._exit(1)
    try:
        yield pid
    finally:
        send(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@pytest.mark.parametrize("first", ["front end", "collector"])
def test_a_front_end_is_killed_with_requests_in_the_queue(tmp_path: Path, first: str) -> None:
    """Its last upload is atomic, even if a collector finds the owner of its segment dead before the
    writer runs the request. The first connection is mostly served first."""
    steps = Steps()

    async def connect_in_order(engine: Engine) -> None:
        if first == "collector":
            await engine.write(put_item, PutItem("connected"))
        steps.allow(1)
        await steps.until_reported(1)
        await engine.write(put_item, PutItem("connected"))

    async def work(pid: int) -> None:
        async with front_end(server) as front:
            await connect_in_order(front.engine)
            # It seals the segment, but does not clean up after itself.
            lazy = dataclasses.replace(CONFIG, sparse_dead_share=1.0)
            collector = Collector(front.engine, front.store, lazy)
            with stopped(server.writer_pid):
                steps.allow(2)
                await steps.until_reported(2)
                send(pid, signal.SIGKILL)
                wait_until(lambda: not running(pid), "the end of the front end")
                collecting = asyncio.create_task(collector.collect())
                await asyncio.sleep(0.1)  # its first request is on its way
            await collecting

    async def look() -> None:
        async with front_end(server) as front:
            assert await download(front.engine, front.store, "first") == FIRST
            assert await download(front.engine, front.store, "second") in (None, SECOND)

    with served(tmp_path / "data", CONFIG) as server:
        with uploading_process(server, steps) as pid:
            run(work(pid))
        run(look())
        server.crash_and_restart()
        run(look())
        assert server.stop() == 0
    require_clean(tmp_path / "data")
