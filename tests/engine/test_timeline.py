"""Properties of the engine's time under arbitrary changes of the machine's clocks."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from etagere.clock import TICKS_PER_SECOND
from etagere.engine.ledger import decode_timeline
from etagere.engine.records import ENCODE
from etagere.engine.timeline import (
    SLEW_PPM_MAX,
    STEP_DELAY_TICKS,
    STEP_TICKS_MAX,
    STEP_TICKS_MIN,
    Instant,
    Timeline,
    advance,
    begin,
    instant_from,
    is_advance_due,
    next_stamp,
    now_at,
    reset,
    steady_at,
    ticks_ahead,
)

HOUR = 3600 * TICKS_PER_SECOND
DAY = 24 * HOUR
MINUTE = 60 * TICKS_PER_SECOND
LOOK_TICKS = 5 * TICKS_PER_SECOND
"""The interval at which an idle engine reads the clocks."""
START = 17_000_000_000_000_000


@dataclass
class FakeClock:
    """A clock that moves only when a test moves it."""

    wall_ticks: int = START
    elapsed_ticks: int = 1000 * TICKS_PER_SECOND
    boots: int = 0

    def wall(self) -> int:
        return self.wall_ticks

    def elapsed(self) -> int:
        return self.elapsed_ticks

    def boot_id(self) -> str:
        return f"boot {self.boots}"

    def sleep(self, ticks: int) -> None:
        self.wall_ticks += ticks
        self.elapsed_ticks += ticks


@dataclass
class Machine:
    """A machine with an engine's timeline, with every invariant checked at every step."""

    clock: FakeClock = field(default_factory=FakeClock)

    def __post_init__(self) -> None:
        self.timeline = self.start(None)
        self.stamps: list[int] = []
        self.last_now, self.last_steady = self.now(), self.steady()
        self.wall_jumped = False

    def start(self, stored: Timeline | None) -> Timeline:
        """An engine stores its timeline when it starts; otherwise a second start after a reboot
        would go back to the state before the first."""
        self.stored = begin(stored, self.clock)
        return self.stored

    def now(self) -> int:
        return now_at(self.timeline, self.clock.elapsed())

    def steady(self) -> int:
        return steady_at(self.timeline, self.clock.elapsed())

    def look(self) -> None:
        assert self.now() >= self.last_now
        assert self.steady() >= self.last_steady
        self.last_now, self.last_steady = self.now(), self.steady()
        assert instant_from(self.stored, self.clock) == Instant(self.now(), self.steady())

    def sleep(self, ticks: int) -> None:
        before, steady_before = self.now(), self.steady()
        apart = self.clock.wall() - before
        self.clock.sleep(ticks)
        self._require_slewed(steady_before, ticks)
        assert self.now() - before == self.steady() - steady_before
        if not self.wall_jumped:
            remaining = self.clock.wall() - self.now()
            assert abs(remaining) <= abs(apart)
            assert remaining * apart >= 0

    def _require_slewed(self, steady_before: int, ticks: int) -> None:
        slewed = self.steady() - steady_before - ticks
        # One tick more, because of two roundings.
        assert abs(slewed) <= ticks * SLEW_PPM_MAX // 1_000_000 + 1

    def jump(self, ticks: int) -> None:
        before = self.now(), self.steady()
        self.clock.wall_ticks += ticks
        self.wall_jumped = True
        assert (self.now(), self.steady()) == before

    def commit(self, stamps: int) -> None:
        steady_before = self.steady()
        last = self.timeline.last_stamp
        for _ in range(stamps):
            last = next_stamp(last, self.clock.wall())
            assert not self.stamps or last > self.stamps[-1]
            assert last >= self.clock.wall()
            self.stamps.append(last)
        self._advance(last)
        assert self.steady() == steady_before

    def _advance(self, last_stamp: int) -> None:
        before = self.timeline
        apart = self.clock.wall() - self.now()
        self.timeline = self.stored = advance(before, self.clock, last_stamp)
        self.wall_jumped = False
        self._require_fair_step(before, apart)

    def _require_fair_step(self, before: Timeline, apart: int) -> None:
        """Checks that now steps forward to the wall clock once that has been ahead for long
        enough."""
        if self.timeline.offset == before.offset:
            return
        assert self.timeline.offset - before.offset == apart
        assert STEP_TICKS_MIN < apart <= STEP_TICKS_MAX
        assert before.ahead_since is not None
        assert self.clock.elapsed() - before.ahead_since >= STEP_DELAY_TICKS
        assert self.now() == self.clock.wall()

    def idle(self, ticks: int) -> None:
        """No writes; the engine reads the clocks now and then."""
        for at in range(0, ticks, LOOK_TICKS):
            self.clock.sleep(min(LOOK_TICKS, ticks - at))
            if is_advance_due(self.timeline, self.clock):
                self._advance(self.timeline.last_stamp)
                assert not is_advance_due(self.timeline, self.clock)
            self.look()

    def restart(self, ticks: int) -> None:
        before, steady_before = self.stored, self.steady()
        self.clock.sleep(ticks)
        apart = self.clock.wall() - self.now()
        self.timeline = self.start(self.stored)
        self.wall_jumped = False
        self._require_slewed(steady_before, ticks)
        self._require_fair_step(before, apart)

    def reboot(self, wall_jump: int) -> None:
        """Restarts the machine with another wall clock; state that was not stored may be lost."""
        stored_now = self.stored.now + self.stored.offset
        self.clock.boots += 1
        self.clock.elapsed_ticks = 5 * TICKS_PER_SECOND
        self.clock.wall_ticks += wall_jump
        self.timeline = self.start(self.stored)
        self.wall_jumped = False
        # An anchor may be 200 µs older than the last time that was used.
        assert self.now() == max(stored_now + 2_000, self.clock.wall())
        self.last_now, self.last_steady = self.now(), self.steady()


TICKS = st.one_of(
    st.sampled_from([0, 1, 1999, 2000, TICKS_PER_SECOND, HOUR, 24 * HOUR]),
    st.integers(min_value=0, max_value=HOUR),
)
JUMPS = st.one_of(
    st.sampled_from([-HOUR, -1, 0, 1, HOUR]), st.integers(min_value=-24 * HOUR, max_value=24 * HOUR)
)
EVENTS = st.one_of(
    st.tuples(st.just("sleep"), TICKS),
    st.tuples(st.just("jump"), JUMPS),
    st.tuples(st.just("commit"), st.integers(min_value=0, max_value=3)),
    st.tuples(st.just("idle"), st.integers(min_value=0, max_value=3 * MINUTE)),
    st.tuples(st.just("restart"), TICKS),
    st.tuples(st.just("reboot"), JUMPS),
)


@settings(deadline=None)  # slow examples are no failure
@given(st.lists(EVENTS, max_size=40))
def test_invariants_of_time(events: list[tuple[str, int]]) -> None:
    machine = Machine()
    for name, ticks in events:
        getattr(machine, name)(ticks)
        machine.look()


@settings(deadline=None)  # slow examples are no failure
@given(st.lists(TICKS, max_size=20), JUMPS)
def test_readers_with_the_same_anchor_agree(sleeps: list[int], jump: int) -> None:
    clock = FakeClock()
    timeline = advance(begin(None, clock), FakeClock(clock.wall_ticks + jump, clock.elapsed()), 0)
    total = 0
    last = now_at(timeline, clock.elapsed())
    for ticks in sleeps:
        clock.sleep(ticks)
        total += ticks
        now = now_at(timeline, clock.elapsed())
        assert now - last >= ticks - ticks * SLEW_PPM_MAX // 1_000_000 - 1
        last = now
    assert last == now_at(timeline, 1000 * TICKS_PER_SECOND + total)


@settings(deadline=None)  # slow examples are no failure
@given(JUMPS.filter(lambda ticks: -10 * TICKS_PER_SECOND <= ticks <= STEP_TICKS_MIN))
def test_duration_of_a_correction(jump: int) -> None:
    machine = Machine()
    machine.jump(jump)
    machine.commit(1)
    needed = abs(jump) * 1_000_000 // SLEW_PPM_MAX + 1_000_000 // SLEW_PPM_MAX
    machine.sleep(needed)
    assert machine.now() == machine.clock.wall()


@settings(deadline=None)  # slow examples are no failure
@given(st.integers(min_value=0, max_value=2**62), st.integers(min_value=0, max_value=2**62))
def test_a_stamp_is_above_the_last_and_not_behind_the_wall_clock(last: int, wall: int) -> None:
    stamp = next_stamp(last, wall)
    assert stamp > last
    assert stamp >= wall
    assert stamp in (wall, last + 1)


def test_the_first_start_takes_the_wall_clock() -> None:
    clock = FakeClock()
    timeline = begin(None, clock)
    assert now_at(timeline, clock.elapsed()) == clock.wall()
    assert timeline.correction == 0


def test_a_lower_elapsed_time_with_the_same_boot_id_is_a_reboot() -> None:
    """As in a container or a restored machine with a cloned boot ID."""
    clock = FakeClock()
    stored = advance(begin(None, clock), clock, 7)
    clock.elapsed_ticks = 1
    clock.wall_ticks -= HOUR
    timeline = begin(stored, clock)
    assert now_at(timeline, clock.elapsed()) >= stored.now
    assert timeline.last_stamp == 7


@settings(deadline=None)  # slow examples are no failure
@given(st.integers(min_value=STEP_TICKS_MIN + 1, max_value=STEP_TICKS_MAX), TICKS)
def test_now_catches_up_within_a_minute_and_the_steady_time_does_not(ahead: int, idle: int) -> None:
    """As after a pause of the machine, while its own clock stood still."""
    machine = Machine()
    machine.idle(idle % HOUR)
    machine.jump(ahead)
    steady = machine.steady()
    machine.idle(MINUTE)
    assert abs(machine.clock.wall() - machine.now()) <= STEP_TICKS_MIN
    machine._require_slewed(steady, MINUTE)


@settings(deadline=None)  # slow examples are no failure
@given(st.integers(min_value=1, max_value=STEP_TICKS_MAX), st.integers(0, STEP_DELAY_TICKS // 2))
def test_a_wall_clock_that_is_corrected_soon_has_no_effect(ahead: int, ticks: int) -> None:
    machine = Machine()
    machine.jump(ahead)
    machine.idle(ticks)
    machine.jump(-ahead)
    machine.idle(3 * MINUTE)
    assert machine.timeline.offset == 0
    assert abs(machine.clock.wall() - machine.now()) < TICKS_PER_SECOND


@settings(deadline=None)  # slow examples are no failure
@given(st.integers(min_value=1, max_value=3650))
def test_a_wall_clock_that_is_set_back_or_far_ahead_is_not_followed(days: int) -> None:
    for jump in (-days * DAY, STEP_TICKS_MAX + days * DAY):
        machine = Machine()
        machine.jump(jump)
        before = machine.now()
        machine.idle(10 * MINUTE)
        passed = machine.now() - before
        assert abs(passed - 10 * MINUTE) <= 10 * MINUTE * SLEW_PPM_MAX // 1_000_000 + 1


def test_a_deadline_of_a_minute_on_the_steady_time_is_kept_over_a_step() -> None:
    machine = Machine()
    machine.jump(8 * HOUR)
    machine.idle(30 * TICKS_PER_SECOND)
    deadline = machine.steady() + MINUTE
    machine.idle(59 * TICKS_PER_SECOND)
    assert machine.timeline.offset
    assert machine.steady() < deadline
    machine.idle(2 * TICKS_PER_SECOND)
    assert machine.steady() >= deadline


@settings(deadline=None)  # slow examples are no failure
@given(st.integers(min_value=-STEP_TICKS_MAX, max_value=3650 * DAY), st.booleans())
def test_a_reset_takes_the_wall_clock_and_keeps_the_steady_time(ahead: int, reboots: bool) -> None:
    machine = Machine()
    machine.jump(ahead)
    machine.reboot(0)
    machine.commit(1)
    machine.jump(-ahead)
    if reboots:
        machine.reboot(0)
    steady = machine.steady()
    assert ticks_ahead(machine.stored, machine.clock) >= ahead
    timeline = reset(machine.stored, machine.clock, last_stamp=7)
    assert instant_from(timeline, machine.clock) == Instant(machine.clock.wall(), steady)
    assert timeline.last_stamp == 7


def test_a_timeline_of_an_older_version_is_read() -> None:
    fields = msgspec.msgpack.decode(ENCODE(Timeline("boot", 5, 6, 7, 8)))
    timeline = decode_timeline(msgspec.msgpack.encode(fields[:-2]))
    assert timeline == Timeline("boot", 5, 6, 7, 8, 0, None)
    assert now_at(timeline, 5) == steady_at(timeline, 5) == 6
