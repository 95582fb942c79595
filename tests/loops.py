"""Tests that are coroutines, and how they wait."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, Final, ParamSpec

P = ParamSpec("P")
SECONDS_MAX: Final = 20.0


def in_event_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Runs a test in an event loop of its own."""

    @functools.wraps(test)
    def run(*arguments: P.args, **named: P.kwargs) -> None:
        asyncio.run(test(*arguments, **named))

    return run


async def until(condition: Callable[[], bool], seconds_max: float = SECONDS_MAX) -> None:
    """Waits until a condition holds."""
    async with asyncio.timeout(seconds_max):
        while not condition():
            await asyncio.sleep(0.002)
