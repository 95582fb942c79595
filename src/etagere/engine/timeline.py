"""The engine's kinds of time, as pure functions of a record and the clocks.

`stamp` numbers changes: never reused in the store, and increasing whatever the wall clock does.

`steady_now` measures durations, such as those of leases. When the wall clock is corrected, it
neither runs backwards nor stops nor jumps, but drifts towards it by at most 500 ppm.

`now` is the date, for times that clients see or set (visibility and expiry of messages). It is
the steady time, except that it follows a wall clock that has been ahead for a while, as after a
machine was paused, in one step.

An engine stores its timeline when it starts and with every commit, so that all of them survive a
restart, and every process on the machine computes the same times from the stored timeline.
"""

from __future__ import annotations

from typing import Final

import msgspec

from etagere.clock import TICKS_PER_SECOND, Clock
from etagere.model.base import Record

SLEW_PPM_MAX = 500
_MILLION = 1_000_000
_TICKS_PER_SLEWED_TICK = _MILLION // SLEW_PPM_MAX

STEP_TICKS_MIN: Final = 1 * TICKS_PER_SECOND
"""If `now` is behind by less than this, it catches up gradually, in half an hour at most."""
STEP_TICKS_MAX: Final = 7 * 24 * 3600 * TICKS_PER_SECOND
"""If the wall clock is further ahead, it is more likely wrong than right after a pause of the
machine; following it would make all messages expire."""
STEP_DELAY_TICKS: Final = 45 * TICKS_PER_SECOND
"""How long the wall clock must have been ahead before `now` steps to it. Setting the clock by
mistake and setting it back has no effect, and a message that was hidden for the usual 30 s before
the clock was set stays hidden for that time. Including the seconds until an idle engine notices,
`now` catches up within a minute."""
AHEAD_TICKS_MAX: Final = 24 * 3600 * TICKS_PER_SECOND
"""Stored times that are further ahead of the wall clock are implausible. Smaller differences may
come from a clock that was set to local time or to a wrong time zone, and do little harm."""


class Timeline(Record, frozen=True):
    """A reference point: `elapsed` ticks after boot `boot_id` the steady time was `now`."""

    boot_id: str
    elapsed: int
    now: int
    correction: int
    """How far the wall clock was ahead at the reference point, in ticks; negative if behind."""
    last_stamp: int
    offset: int = 0
    """How far `now` is ahead of the steady time, in ticks: the sum of all steps so far."""
    ahead_since: int | None = None
    """When the wall clock was first seen so far ahead that a step is due if it stays there, in
    ticks after boot."""


def steady_at(timeline: Timeline, elapsed: int) -> int:
    """Returns the steady time `elapsed` ticks after boot: the time that has passed, plus as much of
    the correction as the maximum slew allows."""
    passed = elapsed - timeline.elapsed
    slew_max = passed * SLEW_PPM_MAX // _MILLION
    return timeline.now + passed + max(-slew_max, min(slew_max, timeline.correction))


def now_at(timeline: Timeline, elapsed: int) -> int:
    """Returns the date `elapsed` ticks after boot."""
    return steady_at(timeline, elapsed) + timeline.offset


def next_stamp(last_stamp: int, wall: int) -> int:
    return max(wall, last_stamp + 1)


def begin(stored: Timeline | None, clock: Clock) -> Timeline:
    """Returns the timeline of an engine that starts. Within one boot it continues; after another
    boot it starts at the wall clock, but never before the stored time."""
    elapsed, wall, boot_id = clock.elapsed(), clock.wall(), clock.boot_id()
    if stored is None:
        return Timeline(boot_id, elapsed, wall, 0, 0)
    if _continues(stored, boot_id, elapsed):
        return advance(stored, clock, stored.last_stamp)
    # The reference point is up to one slewed tick before the last time that was used.
    now = max(stored.now + stored.offset + _TICKS_PER_SLEWED_TICK, wall)
    steady = now - stored.offset
    return Timeline(boot_id, elapsed, steady, wall - now, stored.last_stamp, stored.offset)


def _continues(stored: Timeline, boot_id: str, elapsed: int) -> bool:
    return stored.boot_id == boot_id and elapsed >= stored.elapsed


def advance(timeline: Timeline, clock: Clock, last_stamp: int) -> Timeline:
    """Returns the timeline with a new reference point, and takes a step that is due. The point is
    the last moment at which a whole tick was slewed: frequent calls must not round the slew
    away."""
    elapsed = clock.elapsed()
    correction = clock.wall() - now_at(timeline, elapsed)
    anchor = elapsed - (elapsed - timeline.elapsed) % _TICKS_PER_SLEWED_TICK
    steady = steady_at(timeline, anchor)
    offset, ahead_since = timeline.offset, timeline.ahead_since
    if not STEP_TICKS_MIN < correction <= STEP_TICKS_MAX:
        ahead_since = None
    elif ahead_since is None:
        ahead_since = elapsed
    elif elapsed - ahead_since >= STEP_DELAY_TICKS:
        offset, correction, ahead_since = offset + correction, 0, None
    return Timeline(timeline.boot_id, anchor, steady, correction, last_stamp, offset, ahead_since)


def is_advance_due(timeline: Timeline, clock: Clock) -> bool:
    """Returns whether the timeline must be stored although nothing has changed: the wall clock has
    moved ahead or is no longer ahead, or a step is due."""
    elapsed = clock.elapsed()
    is_ahead = STEP_TICKS_MIN < clock.wall() - now_at(timeline, elapsed) <= STEP_TICKS_MAX
    if timeline.ahead_since is None:
        return is_ahead
    return not is_ahead or elapsed - timeline.ahead_since >= STEP_DELAY_TICKS


class Instant(msgspec.Struct, frozen=True, gc=False):
    """One instant, as date and as steady time."""

    now: int
    steady_now: int


def instant_from(stored: Timeline, clock: Clock) -> Instant:
    """Returns the current time by a stored timeline, which may be one of an earlier boot until the
    engine that is starting has stored its own."""
    elapsed = clock.elapsed()
    if not _continues(stored, clock.boot_id(), elapsed):
        stored = begin(stored, clock)
    steady = steady_at(stored, elapsed)
    return Instant(steady + stored.offset, steady)


def ticks_ahead(stored: Timeline, clock: Clock) -> int:
    """Returns how far the stored times or stamps are ahead of the wall clock."""
    return max(instant_from(stored, clock).now, stored.last_stamp) - clock.wall()


def reset(stored: Timeline, clock: Clock, last_stamp: int) -> Timeline:
    """Returns a timeline whose `now` is that of the wall clock, wherever it was. The steady time
    continues, so leases last as long as they were granted for."""
    elapsed, wall, boot_id = clock.elapsed(), clock.wall(), clock.boot_id()
    steady = instant_from(stored, clock).steady_now
    return Timeline(boot_id, elapsed, steady, 0, last_stamp, wall - steady)
