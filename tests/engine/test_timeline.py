"""Properties of the engine's time under whatever may happen to the machine's clocks."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from etagere.clock import TICKS_PER_SECOND
from etagere.engine.timeline import SLEW_PPM_MAX, Timeline, advance, begin, next_stamp, now_at

HOUR = 3600 * TICKS_PER_SECOND
START = 17_000_000_000_000_000


@dataclass
class FakeClock:
    """A clock that stands still until it is told otherwise."""

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
    """An engine's use of its timeline, with every promise checked at every step."""

    clock: FakeClock = field(default_factory=FakeClock)

    def __post_init__(self) -> None:
        self.timeline = self.start(None)
        self.stamps: list[int] = []
        self.last_now = self.now()
        self.wall_jumped = False

    def start(self, stored: Timeline | None) -> Timeline:
        """An engine stores its timeline when it starts, else a second start after a reboot
        would go back to what the first had moved on from."""
        self.stored = begin(stored, self.clock)
        return self.stored

    def now(self) -> int:
        return now_at(self.timeline, self.clock.elapsed())

    def look(self) -> None:
        now = self.now()
        assert now >= self.last_now
        self.last_now = now

    def sleep(self, ticks: int) -> None:
        before = self.now()
        apart = self.clock.wall() - before
        self.clock.sleep(ticks)
        slewed = self.now() - before - ticks
        # One tick more: two roundings may fall on either side.
        assert abs(slewed) <= ticks * SLEW_PPM_MAX // 1_000_000 + 1
        if not self.wall_jumped:
            remaining = self.clock.wall() - self.now()
            assert abs(remaining) <= abs(apart)
            assert remaining * apart >= 0

    def jump(self, ticks: int) -> None:
        before = self.now()
        self.clock.wall_ticks += ticks
        self.wall_jumped = True
        assert self.now() == before

    def commit(self, stamps: int) -> None:
        before = self.now()
        last = self.timeline.last_stamp
        for _ in range(stamps):
            last = next_stamp(last, self.clock.wall())
            assert not self.stamps or last > self.stamps[-1]
            assert last >= self.clock.wall()
            self.stamps.append(last)
        self.timeline = self.stored = advance(self.timeline, self.clock, last)
        self.wall_jumped = False
        assert self.now() == before

    def restart(self, ticks: int) -> None:
        before = self.now()
        self.clock.sleep(ticks)
        self.timeline = self.start(self.stored)
        self.wall_jumped = False
        slewed = self.now() - before - ticks
        assert abs(slewed) <= ticks * SLEW_PPM_MAX // 1_000_000 + 1

    def reboot(self, wall_jump: int) -> None:
        """The machine comes back with another wall; what was not stored may be forgotten."""
        stored_now = self.stored.now
        self.clock.boots += 1
        self.clock.elapsed_ticks = 5 * TICKS_PER_SECOND
        self.clock.wall_ticks += wall_jump
        self.timeline = self.start(self.stored)
        self.wall_jumped = False
        # An anchor may lie 200 µs before the last moment that was made use of.
        assert self.now() == max(stored_now + 2_000, self.clock.wall())
        self.last_now = self.now()


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
    st.tuples(st.just("restart"), TICKS),
    st.tuples(st.just("reboot"), JUMPS),
)


@given(st.lists(EVENTS, max_size=40))
def test_time_keeps_its_promises(events: list[tuple[str, int]]) -> None:
    machine = Machine()
    for name, ticks in events:
        getattr(machine, name)(ticks)
        machine.look()


@given(st.lists(TICKS, max_size=20), JUMPS)
def test_readers_with_one_anchor_agree_whenever_they_look(sleeps: list[int], jump: int) -> None:
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


@given(JUMPS.filter(lambda ticks: abs(ticks) <= 10 * TICKS_PER_SECOND))
def test_a_correction_arrives_after_as_long_as_it_needs(jump: int) -> None:
    machine = Machine()
    machine.jump(jump)
    machine.commit(1)
    needed = abs(jump) * 1_000_000 // SLEW_PPM_MAX + 1_000_000 // SLEW_PPM_MAX
    machine.sleep(needed)
    assert machine.now() == machine.clock.wall()


@given(st.integers(min_value=0, max_value=2**62), st.integers(min_value=0, max_value=2**62))
def test_a_stamp_is_above_the_last_and_not_behind_the_wall(last: int, wall: int) -> None:
    stamp = next_stamp(last, wall)
    assert stamp > last
    assert stamp >= wall
    assert stamp in (wall, last + 1)


def test_a_first_start_takes_the_wall() -> None:
    clock = FakeClock()
    timeline = begin(None, clock)
    assert now_at(timeline, clock.elapsed()) == clock.wall()
    assert timeline.correction == 0


def test_a_boot_id_that_stayed_while_the_count_restarted_is_a_reboot() -> None:
    """As in a container or a restored machine whose boot id was cloned."""
    clock = FakeClock()
    stored = advance(begin(None, clock), clock, 7)
    clock.elapsed_ticks = 1
    clock.wall_ticks -= HOUR
    timeline = begin(stored, clock)
    assert now_at(timeline, clock.elapsed()) >= stored.now
    assert timeline.last_stamp == 7
