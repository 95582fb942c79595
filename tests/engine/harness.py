"""The interface that the conformance suite needs of an engine: open, restart, set the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from etagere.engine.interface import Engine
from etagere.engine.memory import MemoryEngine
from etagere.engine.retry import RetryCounters
from tests.clocks import SharedClock


class Harness(Protocol):
    """One store under test."""

    @property
    def name(self) -> str: ...

    @property
    def clock(self) -> SharedClock: ...

    @property
    def reading_seconds_max(self) -> float:
        """How much may pass, by the clock of a test, while the engine reads its clocks."""
        ...

    @property
    def unknown_seconds_max(self) -> float:
        """How far `now` may be ahead after a restart, if nothing tells how much time has passed."""
        ...

    async def open(self) -> Engine:
        """Opens a handle on the store, as another front end would. The harness closes it."""
        ...

    async def restart(self) -> None:
        """Stops the engine and starts it on the same data. Earlier handles become invalid."""
        ...

    async def close(self) -> None: ...


Start = Callable[[Path], Awaitable[Harness]]
Body = Callable[[Harness], Awaitable[None]]


class MemoryHarness:
    """All handles are the one engine."""

    name = "memory"
    reading_seconds_max = 0.1
    unknown_seconds_max = 0.001

    def __init__(self) -> None:
        self.clock = SharedClock()
        self._engine = MemoryEngine(self.clock)

    async def open(self) -> Engine:
        return self._engine

    async def restart(self) -> None:
        self._engine = self._engine.restarted()

    async def close(self) -> None:
        await self._engine.close()


async def start_memory(_directory: Path) -> Harness:
    return MemoryHarness()


async def with_harness(start: Start, directory: Path, body: Body) -> None:
    """Runs a coroutine with a new store."""
    harness = await start(directory)
    try:
        await body(harness)
    finally:
        await harness.close()


def conformance(body: Body) -> Callable[[Start, Path], None]:
    """Turns a coroutine into a test that runs with every engine."""

    # Not functools.wraps: pytest would follow __wrapped__ and request the body's arguments.
    def test(start: Start, tmp_path: Path) -> None:
        asyncio.run(asyncio.wait_for(with_harness(start, tmp_path, body), timeout=60))

    test.__name__ = getattr(body, "__name__", "test")
    test.__doc__ = body.__doc__
    return test


def retries_of(engine: Engine) -> RetryCounters:
    """Returns the counters of the retry loop, which are not in the public interface."""
    counters = getattr(engine, "retries", None)
    assert isinstance(counters, RetryCounters)
    return counters
