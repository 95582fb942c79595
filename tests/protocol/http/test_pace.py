"""Minimum transfer rates of clients."""

from __future__ import annotations

import pytest

from etagere.protocol.http.limits import Limits
from etagere.protocol.http.pace import Pace

LIMITS = Limits()


def seconds_until_cut(bytes_per_minute: int, *, interval_seconds: int) -> float | None:
    """Returns when a client is disconnected that sends at this rate in bursts; None if it is not
    within an hour."""
    pace, total = Pace(), 0
    for second in range(1, 3600):
        if second % interval_seconds == 0:
            total += bytes_per_minute * interval_seconds // 60
        pace.measure(1.0, total, LIMITS.body_bytes_per_second_min)
        if pace.behind_seconds >= LIMITS.behind_seconds_max:
            return second
    return None


@pytest.mark.parametrize(("interval_seconds"), [1, 10, 30])
def test_clients_at_different_rates(interval_seconds: int) -> None:
    for slow in (0, 600, 6_000, 30_000):
        cut = seconds_until_cut(slow, interval_seconds=interval_seconds)
        assert cut is not None
        assert 60 <= cut <= 150
    for fast in (62_000, 600_000):
        assert seconds_until_cut(fast, interval_seconds=interval_seconds) is None


def test_fast_bursts_earn_no_credit() -> None:
    pace = Pace()
    pace.measure(1.0, 100_000_000, 1000)
    for _ in range(30):
        pace.measure(1.0, 100_000_000, 1000)
    assert pace.behind_seconds == 30


def test_a_client_may_catch_up() -> None:
    pace = Pace()
    pace.measure(50.0, 0, 1000)
    pace.measure(1.0, 40_000, 1000)
    assert pace.behind_seconds == 11
