"""Coordinators over PostgreSQL for tests, whose processes expire soon."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from etagere.coordination.interface import Coordinator
from etagere.coordination.postgres import PostgresCoordinator, Timing

TIMING: Final = Timing(heartbeat_seconds=0.1, lifetime_seconds=1.5, gap_seconds_max=1.0)
PATIENT_TIMING: Final = Timing(heartbeat_seconds=0.1, lifetime_seconds=6.0, gap_seconds_max=3.0)
"""For tests that require a process to be alive a while after its last heartbeat: they may be
delayed themselves."""
SECONDS_MAX: Final = 30.0

Join = Callable[[], Coordinator]
"""Adds a process of the same store, from the point of view of the coordinator."""


def joining(
    dsn: str, schema: str, *, timing: Timing = TIMING, **options: Any
) -> Callable[[], PostgresCoordinator]:
    """Returns what adds a process to a cluster."""
    # A process that was declared dead would end, and this one runs other tests. The coordinator
    # logs it, and all its requests fail.
    options.setdefault("on_declared_dead", lambda: None)
    return lambda: PostgresCoordinator(dsn, schema=schema, timing=timing, **options)


async def eventually(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """Waits until a condition holds."""
    deadline = time.monotonic() + SECONDS_MAX
    while not await condition():
        assert time.monotonic() < deadline, f"timed out waiting for {what}"
        await asyncio.sleep(0.02)


@contextmanager
def member(
    join: Callable[[], PostgresCoordinator],
    work: Callable[[PostgresCoordinator], Awaitable[None]] | None = None,
) -> Iterator[tuple[int, bytes]]:
    """Runs a process that joins, does some work and then waits; yields its pid and its id."""
    receiving, sending = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            asyncio.run(_run(join, work, sending))
        finally:
            os._exit(99)
    os.close(sending)
    try:
        yield pid, os.read(receiving, 16)
    finally:
        os.close(receiving)
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


async def _run(
    join: Callable[[], PostgresCoordinator],
    work: Callable[[PostgresCoordinator], Awaitable[None]] | None,
    sending: int,
) -> None:
    coordinator = join()
    if work is not None:
        await work(coordinator)
    os.write(sending, coordinator.process_id)
    await asyncio.sleep(60)
