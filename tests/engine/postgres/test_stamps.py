"""Stamps: unique without a common counter."""

from __future__ import annotations

import itertools
import random

import pytest

from etagere.engine.postgres.stamps import SLOTS_MAX, NotReserved, StampSource, next_stamp

_FOREVER = 1 << 62


@pytest.mark.parametrize(
    ("time", "last", "slot", "expected"),
    [
        (0, 0, 0, 1_000),  # above the last one
        (0, 0, 7, 7),
        (1, 0, 0, 1_000),
        (1_000, 0, 0, 1_000),
        (1_001, 0, 0, 2_000),
        (1_001, 0, 1, 1_001),
        (1_001, 0, 999, 1_999),
        (1_000, 5_500, 0, 6_000),
        (1_000, 5_500, 501, 5_501),
        (1_000, 5_500, 500, 6_500),
        (1_000, 5_500, 499, 6_499),
    ],
)
def test_the_next_stamp(time: int, last: int, slot: int, expected: int) -> None:
    assert next_stamp(time, last, slot) == expected


def test_the_next_stamp_is_the_first_possible() -> None:
    random.seed(1)
    for _ in range(2_000):
        time, last = random.randrange(10_000), random.randrange(10_000)
        slot = random.randrange(SLOTS_MAX)
        stamp = next_stamp(time, last, slot)
        assert stamp >= time
        assert stamp > last
        assert stamp % SLOTS_MAX == slot
        assert stamp - SLOTS_MAX < max(time, last + 1)


def test_writers_never_issue_the_same_stamp() -> None:
    random.seed(2)
    sources = [StampSource(slot, 0, _FOREVER) for slot in (0, 1, 500, 999)]
    issued: list[int] = []
    for time in range(0, 400_000, 37):
        source = random.choice(sources)
        above = random.choice([0, 0, max(issued, default=0)])
        stamp = source.issue(time, above)
        assert stamp > above
        issued.append(stamp)
    assert len(set(issued)) == len(issued)
    for source in sources:
        mine = [stamp for stamp in issued if stamp % SLOTS_MAX == source.slot]
        assert all(earlier < later for earlier, later in itertools.pairwise(mine))


def test_nothing_is_issued_above_the_reservation() -> None:
    source = StampSource(3, 0, 10_000)
    assert source.issue(9_000) == 9_003
    with pytest.raises(NotReserved) as lacking:
        source.issue(10_000)
    assert lacking.value.until == 10_003
    source.reserved_until = 10_003
    assert source.issue(10_000) == 10_003


def test_a_successor_starts_above_the_reservation_of_its_predecessor() -> None:
    predecessor = StampSource(3, 0, 100_000)
    successor = StampSource(3, 100_000, 200_000)
    assert successor.issue(50_000) > 100_000
    with pytest.raises(NotReserved):
        predecessor.issue(50_000, above=successor.last)


def test_slots_are_limited() -> None:
    with pytest.raises(ValueError, match="slot 1000"):
        StampSource(SLOTS_MAX, 0, 0)
