"""The retry loop of all engines.

Only conflicts are retried. Refusals and faults are final, and an operation with an unknown outcome
might be carried out twice.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from etagere.engine.interface import Conflict, Fault, FaultReason, T


class RetryPolicy(NamedTuple):
    """How often and how long an engine retries conflicts before it reports contention."""

    attempts_max: int = 30
    seconds_max: float = 10.0
    """No attempt begins later than this after the first. An attempt under way is never cancelled,
    because its commit may already have been sent."""
    first_wait_max: float = 0.001
    wait_max: float = 0.064


class RetryCounters:
    """Statistics of a retry loop."""

    __slots__ = ("conflicts", "gave_up")

    def __init__(self) -> None:
        self.conflicts = 0
        self.gave_up = 0


async def retry_on_conflict(
    attempt: Callable[[], Awaitable[T]], policy: RetryPolicy, counters: RetryCounters
) -> T:
    """Runs an attempt until it ends in anything but a conflict, or the policy is exhausted."""
    began = time.monotonic()
    try:
        return await attempt()
    except Conflict as conflict:
        last = conflict
    # Outside the handler, so that the exception of a later attempt is not chained to earlier
    # conflicts.
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
    """Returns the seconds to wait before a retry, counted from 1: exponential backoff with full
    jitter, so that operations that conflicted once do not conflict again in step."""
    # The exponent is bounded, because the range of a float is, and the attempts may not be.
    limit = policy.first_wait_max * 2.0 ** min(retry - 1, 64)
    return random.uniform(0.0, min(limit, policy.wait_max))
