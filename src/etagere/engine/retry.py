"""The one retry loop of all engines.

Only a conflict is run again: a refusal and a fault are answers, and of an unknown
outcome nobody knows whether running it again would do it twice.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from etagere.engine.interface import Conflict, Fault, FaultReason, T


class RetryPolicy(NamedTuple):
    """How long an engine tries before it calls a conflict contention."""

    attempts_max: int = 30
    seconds_max: float = 10.0
    """No attempt begins later than this after the first; one under way is never cut short,
    because its commit may already be on its way."""
    first_wait_max: float = 0.001
    wait_max: float = 0.064


class RetryCounters:
    """What retrying has cost so far."""

    __slots__ = ("conflicts", "gave_up")

    def __init__(self) -> None:
        self.conflicts = 0
        self.gave_up = 0


async def until_settled(
    attempt: Callable[[], Awaitable[T]], policy: RetryPolicy, counters: RetryCounters
) -> T:
    """Runs an attempt until it ends in anything but a conflict, or patience ends."""
    began = time.monotonic()
    try:
        return await attempt()
    except Conflict as conflict:
        last = conflict
    # Outside the handler, so that what a later attempt raises does not drag a chain of
    # earlier conflicts along.
    deadline = began + policy.seconds_max
    attempts = 1
    while True:
        counters.conflicts += 1
        remaining = deadline - time.monotonic()
        if attempts >= policy.attempts_max or remaining <= 0:
            break
        await asyncio.sleep(min(remaining, wait_before(attempts, policy)))
        attempts += 1
        try:
            return await attempt()
        except Conflict as conflict:
            last = conflict
    counters.gave_up += 1
    raise Fault(FaultReason.CONTENTION, f"{attempts} attempts conflicted; the last: {last}")


def wait_before(retry: int, policy: RetryPolicy) -> float:
    """Seconds to wait before the retry of this number, counted from 1.

    Anything between nothing and a doubling limit: those who collided once are spread as
    widely as the limit allows, so they do not collide again in step.
    """
    # The exponent is bounded because a float's range is, and attempts may not be.
    limit = policy.first_wait_max * 2.0 ** min(retry - 1, 64)
    return random.uniform(0.0, min(limit, policy.wait_max))
