"""The retry loop: what it retries, its bounds, and its counters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from etagere.engine.interface import Conflict, Fault, FaultReason, Refused, Unknown
from etagere.engine.retry import RetryCounters, RetryPolicy, retry_on_conflict, wait_before
from etagere.errors import Refusal

AT_ONCE = RetryPolicy(attempts_max=5, seconds_max=60.0, first_wait_max=0.0, wait_max=0.0)


class Attempts:
    """A sequence of outcomes, one per attempt; the last one repeats."""

    def __init__(self, endings: Sequence[int | Exception]) -> None:
        self.endings = endings
        self.made = 0

    async def __call__(self) -> int:
        ending = self.endings[min(self.made, len(self.endings) - 1)]
        self.made += 1
        if isinstance(ending, Exception):
            raise ending
        return ending


def settle(attempts: Attempts, policy: RetryPolicy, counters: RetryCounters) -> int:
    return asyncio.run(asyncio.wait_for(retry_on_conflict(attempts, policy, counters), timeout=30))


def test_without_a_conflict_nothing_is_counted() -> None:
    attempts, counters = Attempts([7]), RetryCounters()
    assert settle(attempts, AT_ONCE, counters) == 7
    assert (attempts.made, counters.conflicts, counters.gave_up) == (1, 0, 0)


def test_a_conflict_is_retried() -> None:
    attempts, counters = Attempts([Conflict(), Conflict(), 7]), RetryCounters()
    assert settle(attempts, AT_ONCE, counters) == 7
    assert (attempts.made, counters.conflicts, counters.gave_up) == (3, 2, 0)


def test_attempts_are_bounded() -> None:
    attempts, counters = Attempts([Conflict()]), RetryCounters()
    with pytest.raises(Fault) as fault:
        settle(attempts, AT_ONCE, counters)
    assert fault.value.reason is FaultReason.CONTENTION
    assert (attempts.made, counters.conflicts, counters.gave_up) == (5, 5, 1)


def test_seconds_are_bounded() -> None:
    policy = RetryPolicy(attempts_max=10**9, seconds_max=0.05, first_wait_max=0.001, wait_max=0.01)
    attempts, counters = Attempts([Conflict()]), RetryCounters()
    with pytest.raises(Fault) as fault:
        settle(attempts, policy, counters)
    assert fault.value.reason is FaultReason.CONTENTION
    assert attempts.made == counters.conflicts
    assert counters.gave_up == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: Refused(Refusal("ConditionNotMet")),
        lambda: Fault(FaultReason.FAILED, "x"),
        lambda: Unknown("x"),
    ],
)
@pytest.mark.parametrize("conflicts", [0, 2])
def test_final_outcomes_are_not_retried(make: Callable[[], Exception], conflicts: int) -> None:
    settled = make()
    attempts = Attempts([*[Conflict()] * conflicts, settled])
    with pytest.raises(type(settled)) as raised:
        settle(attempts, AT_ONCE, RetryCounters())
    assert raised.value is settled
    assert raised.value.__context__ is None
    assert attempts.made == conflicts + 1


def test_waiting_can_be_cancelled() -> None:
    policy = RetryPolicy(attempts_max=10, seconds_max=600.0, first_wait_max=600.0, wait_max=600.0)
    attempts, counters = Attempts([Conflict()]), RetryCounters()

    async def cancel() -> None:
        running = asyncio.create_task(retry_on_conflict(attempts, policy, counters))
        while not counters.conflicts:
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(asyncio.wait_for(cancel(), timeout=30))
    assert counters.gave_up == 0


def test_waits_have_jitter_and_a_doubling_limit() -> None:
    policy = RetryPolicy(first_wait_max=0.001, wait_max=0.064)
    for retry in (1, 2, 3, 7, 8, 1000, 10**6):
        limit = min(0.064, 0.001 * 2.0 ** (retry - 1)) if retry < 100 else 0.064
        waits = [wait_before(retry, policy) for _ in range(400)]
        assert 0 <= min(waits) < limit / 10
        assert limit * 9 / 10 < max(waits) <= limit
