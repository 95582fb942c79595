"""Long work on the event loop, in time slices, so that other requests run in between.

A thread would not help: the interpreter runs one thread at a time, and a thread that releases it,
as every read of the ledger does, waits for the switch interval of the other thread. A request does
so dozens of times.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

_SLICE_SECONDS = 0.0005


class TimeSlice:
    """A time slice of the event loop, after which other requests run."""

    __slots__ = ("_began", "_seconds_max")

    def __init__(self, seconds_max: float = _SLICE_SECONDS) -> None:
        self._seconds_max = seconds_max
        self.restart()

    def restart(self) -> None:
        """Begins a new time slice: other requests have just run."""
        self._began = time.perf_counter()

    async def yield_if_over(self) -> None:
        """Lets other requests run if the time slice is over. Call it now and then; it costs almost
        nothing otherwise."""
        if time.perf_counter() - self._began > self._seconds_max:
            await asyncio.sleep(0)
            self.restart()


async def run_in_slices(work: Generator[None, None, T]) -> T:
    """Runs work that yields now and then, in time slices; returns its result."""
    time_slice = TimeSlice()
    while True:
        try:
            next(work)
        except StopIteration as ended:
            result: T = ended.value
            return result
        await time_slice.yield_if_over()


def run_at_once(work: Generator[None, None, T]) -> T:
    """Runs short work of the same form without pausing; returns its result."""
    while True:
        try:
            next(work)
        except StopIteration as ended:
            result: T = ended.value
            return result
