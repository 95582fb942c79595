"""The fence: when it is valid, and the time that is computed from it."""

from __future__ import annotations

import pytest

from etagere.clock import TICKS_PER_MILLISECOND, TICKS_PER_SECOND
from etagere.engine.postgres import fence
from etagere.engine.postgres.fence import VALID_TICKS, Fence, Observation, Reading
from etagere.engine.timeline import SLEW_PPM_MAX

HOUR = 3600 * TICKS_PER_SECOND
START = 17_000_000_000_000_000


class Host:
    """The clocks of a machine. Its wall clock must not be used."""

    def __init__(self, boot_id: str, elapsed: int) -> None:
        self._boot_id = boot_id
        self.ticks = elapsed

    def wall(self) -> int:
        raise AssertionError("the wall clock of a node does not count")

    def elapsed(self) -> int:
        return self.ticks

    def boot_id(self) -> str:
        return self._boot_id


def first(host: Host, clock: int = START) -> Fence:
    """Returns the first row of a new ledger."""
    return fence.next_fence(Reading(clock, Fence(0, 0, "", None)), "01", host, None)


@pytest.mark.parametrize(
    ("age", "timeline", "is_valid"),
    [
        (0, "01", True),
        (VALID_TICKS, "01", True),
        (VALID_TICKS + 1, "01", False),
        (-1, "01", False),
        (0, "02", False),
    ],
)
def test_validity(age: int, timeline: str, is_valid: bool) -> None:
    row = first(Host("a", 0))
    assert Reading(row.at + age, row).is_valid(timeline) is is_valid


def test_a_new_ledger_begins_at_the_clock_of_the_database() -> None:
    row = first(Host("a", 5))
    assert row.renewals == 1
    for clock in (START, START + 123):
        instant = Reading(clock, row).instant
        assert (instant.now, instant.steady_now) == (clock, clock)


def test_a_stored_row_is_read_back() -> None:
    row = first(Host("a", 5))
    at, timeline, time, renewals = fence.parameters(row)
    assert renewals == row.renewals - 1
    assert fence.decode_reading(START, at, row.renewals, timeline, time) == Reading(START, row)
    assert fence.decode_reading(START, 0, 0, "", b"") == Reading(START, Fence(0, 0, "", None))


@pytest.mark.parametrize("next_host", [Host("a", 0), Host("b", 999)])
def test_time_follows_the_clock_of_the_database(next_host: Host) -> None:
    """Whoever renews the fence, and however exactly machines measure."""
    row = first(Host("a", 0))
    for step in range(1, 50):
        clock = START + step * TICKS_PER_SECOND
        next_host.ticks += TICKS_PER_SECOND + step  # not exact
        before = Reading(clock, row)
        row = fence.next_fence(before, "01", next_host, None)
        assert Reading(clock, row).instant == before.instant
        assert before.instant.now == clock


@pytest.mark.parametrize("jump", [HOUR, -HOUR, -1, VALID_TICKS])
def test_the_machine_that_renewed_it_continues_the_time_after_a_jump(jump: int) -> None:
    host = Host("a", 0)
    row = first(host)
    host.ticks += TICKS_PER_SECOND
    jumped = Reading(START + TICKS_PER_SECOND + jump, row)
    assert not jumped.is_valid("01") or jump == -1
    after = Reading(jumped.clock, fence.next_fence(jumped, "01", host, None))
    assert after.is_valid("01")
    assert abs(after.instant.steady_now - START - TICKS_PER_SECOND) <= (
        1 if jump == -1 else TICKS_PER_SECOND * SLEW_PPM_MAX // 1_000_000
    )


def test_another_machine_continues_the_time_after_a_jump_if_it_saw_the_row_before() -> None:
    row = first(Host("a", 0))
    other = Host("b", 777)
    seen = Observation(row.renewals, "b", 777, START + TICKS_PER_MILLISECOND)
    other.ticks += 10 * TICKS_PER_SECOND
    jumped = Reading(START + HOUR, row)
    after = Reading(jumped.clock, fence.next_fence(jumped, "01", other, seen))
    passed = after.instant.steady_now - START
    assert passed == 10 * TICKS_PER_SECOND + TICKS_PER_MILLISECOND


def _renewed_elsewhere(read: Reading) -> Reading:
    """Returns a reading after another machine has renewed the row."""
    return Reading(read.clock, fence.next_fence(read, "01", Host("b", 1), None))


def test_after_a_long_time_without_nodes_the_clock_is_followed_but_not_backwards() -> None:
    row = first(Host("a", 0))
    later = _renewed_elsewhere(Reading(START + HOUR, row))
    assert later.instant.now == START + HOUR
    earlier = _renewed_elsewhere(Reading(START - HOUR, row))
    last = Reading(START + VALID_TICKS, row).instant.now
    assert last <= earlier.instant.now <= last + TICKS_PER_MILLISECOND


@pytest.mark.parametrize("behind", [0, TICKS_PER_SECOND, VALID_TICKS, HOUR])
@pytest.mark.parametrize("boot_id", ["a", "b"], ids=["same", "other"])
def test_the_clock_of_a_new_primary_may_be_behind(behind: int, boot_id: str) -> None:
    """The process that renews the fence may have started after the last use of the former one."""
    row = first(Host("a", 0))
    last = Reading(START + VALID_TICKS, row).instant
    host = Host(boot_id, int(fence.NEW_PRIMARY_SECONDS * TICKS_PER_SECOND))
    waited = START + int(fence.NEW_PRIMARY_SECONDS * TICKS_PER_SECOND)
    promoted = Reading(waited - behind, row)
    after = Reading(promoted.clock, fence.next_fence(promoted, "02", host, None))
    assert after.is_valid("02")
    assert after.instant.now >= last.now
    assert after.instant.steady_now >= last.steady_now
    assert after.instant.now - waited <= TICKS_PER_MILLISECOND, "not ahead of the time either"


def test_the_time_does_not_run_behind_what_was_used() -> None:
    host = Host("a", 0)
    row = first(host)
    used = START + 5 * TICKS_PER_MILLISECOND
    read = Reading(START + TICKS_PER_MILLISECOND, row)
    after = Reading(read.clock, fence.next_fence(read, "01", host, None, floor=used))
    assert after.instant.now == used


def test_a_step_of_the_time_is_taken_by_any_machine_that_renews_it() -> None:
    """The database's clock is an hour ahead for a minute, as after a pause of its machine."""
    host, other = Host("a", 0), Host("b", 12_345)
    row = first(host)
    clock = START + HOUR
    for second in range(60):
        host.ticks += TICKS_PER_SECOND
        other.ticks += TICKS_PER_SECOND
        clock += TICKS_PER_SECOND
        renewing = (host, other)[second % 2] if second else host
        row = fence.next_fence(Reading(clock, row), "01", renewing, None)
    instant = Reading(clock, row).instant
    assert abs(instant.now - clock) < TICKS_PER_SECOND
    assert abs(instant.steady_now - START - 60 * TICKS_PER_SECOND) < TICKS_PER_SECOND // 10


def test_the_time_is_not_set_back_after_a_jump() -> None:
    """The clock may have been read at any time between the query and its result."""
    host = Host("a", 0)
    host.ticks = 700
    row = fence.next_fence(Reading(START, Fence(0, 0, "", None)), "01", host, None, asked_at=100)
    seen = Reading(START + 5_000, row)
    host.ticks = 700 + 5_000
    jumped = Reading(seen.clock - HOUR, row)
    after = Reading(
        jumped.clock, fence.next_fence(jumped, "01", host, None, asked_at=host.ticks - 700)
    )
    assert seen.instant.now <= after.instant.now <= seen.instant.now + 700
