"""Long work on the event loop, which gives way to other requests every so often.

A thread would not do. The interpreter runs one thread at a time, and a thread that releases it, as
every read of the ledger does, waits until the other has had its turn. A request does so dozens of
times.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

_TURN_SECONDS = 0.0005


class Turn:
    """Says when it is others' turn."""

    __slots__ = ("_began", "_seconds_max")

    def __init__(self, seconds_max: float = _TURN_SECONDS) -> None:
        self._seconds_max = seconds_max
        self.begin()

    def begin(self) -> None:
        """Others just had theirs."""
        self._began = time.perf_counter()

    async def give_way(self) -> None:
        """To be called every now and then; costs almost nothing while the turn lasts."""
        if time.perf_counter() - self._began > self._seconds_max:
            await asyncio.sleep(0)
            self.begin()


async def in_turns(work: Generator[None, None, T]) -> T:
    """The result of work that yields every now and then, so that others have their turn."""
    turn = Turn()
    while True:
        try:
            next(work)
        except StopIteration as ended:
            result: T = ended.value
            return result
        await turn.give_way()


def at_once(work: Generator[None, None, T]) -> T:
    """The result of the same work without giving way, where it is short."""
    while True:
        try:
            next(work)
        except StopIteration as ended:
            result: T = ended.value
            return result
