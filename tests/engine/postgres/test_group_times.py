"""The time of a group: estimates, and whether they can be used."""

from __future__ import annotations

import random

import pytest

from etagere.clock import TICKS_PER_MILLISECOND, TICKS_PER_SECOND
from etagere.engine.postgres.fence import Fence, Reading
from etagere.engine.postgres.group_times import ClockEstimate, GroupTimes
from etagere.engine.postgres.stamps import StampSource
from etagere.engine.timeline import Timeline

START = 17_000_000_000_000_000
MILLISECOND = TICKS_PER_MILLISECOND


def reading(ticks: int, renewals: int = 1) -> Reading:
    return Reading(START + ticks, Fence(START, renewals, "01", Timeline("a", 0, START, 0, 0)))


def times(estimate: Reading, estimated_at: int = 0, floor: int = 0) -> GroupTimes:
    return GroupTimes(estimate, estimated_at, floor, StampSource(7, 0, 1 << 62))


def test_an_estimate_is_never_too_early() -> None:
    """However long queries and their results take."""
    random.seed(1)
    estimate = ClockEstimate(reading(500), 100)
    elapsed = 1_000
    for _ in range(500):
        asked_at = elapsed
        read_at = asked_at + random.randrange(5_000)
        elapsed = read_at + random.randrange(5_000)
        estimate.note(reading(read_at), asked_at, was_wrong=False)
        assert estimate.at(elapsed).clock - START >= elapsed
    # The best of many is near.
    assert estimate.at(elapsed).clock - START - elapsed < 500


def test_an_estimate_follows_clocks_that_drift_apart() -> None:
    estimate = ClockEstimate(reading(0), 0)
    for second in range(1, 100):
        elapsed = second * TICKS_PER_SECOND
        drifted = elapsed + elapsed // 10_000
        estimate.note(reading(drifted), elapsed, was_wrong=False)
        error = estimate.at(elapsed).clock - START - drifted
        assert abs(error) <= 3 * TICKS_PER_SECOND // 10_000


def test_an_estimate_that_was_wrong_is_forgotten() -> None:
    estimate = ClockEstimate(reading(0), 0)
    estimate.note(reading(3600 * TICKS_PER_SECOND), 10, was_wrong=True)
    assert estimate.at(10).clock == START + 3600 * TICKS_PER_SECOND


@pytest.mark.parametrize(
    ("clock", "elapsed", "renewals", "was_wrong"),
    [
        (100, 100, 1, False),
        (0, 100, 1, False),
        (MILLISECOND + 100, 100, 1, False),
        (MILLISECOND + 101, 100, 1, True),  # faster than time can have passed
        (50 * MILLISECOND, 50 * MILLISECOND, 1, False),
        (-1, 100, 1, True),  # the estimate was later than the time of the transaction
        (100, 100, 2, True),  # the fence has been renewed, and the time may have been corrected
    ],
)
def test_whether_an_estimate_can_be_used(
    clock: int, elapsed: int, renewals: int, was_wrong: bool
) -> None:
    group = times(reading(TICKS_PER_SECOND))
    group.update(reading(TICKS_PER_SECOND + clock, renewals), elapsed)
    assert group.estimate_was_wrong is was_wrong
    assert group.instant().now == START + TICKS_PER_SECOND + clock
    # Further readings are not compared with it.
    group.update(reading(2 * TICKS_PER_SECOND), elapsed)
    assert group.estimate_was_wrong is was_wrong


def test_the_time_is_not_before_one_that_was_used() -> None:
    group = times(reading(0), floor=START + 30)
    assert (group.instant().now, group.instant().steady_now) == (START + 30, START + 30)
    group.update(reading(10), 10)
    assert group.instant().now == START + 30
    group.update(reading(40), 40)
    assert group.instant().now == START + 40


def test_stamps_are_not_before_the_time() -> None:
    group = times(reading(0), floor=START + 5_000)
    assert group.next_stamp(0) == START + 5_007
    assert group.next_stamp(START + 9_000) == START + 9_007
