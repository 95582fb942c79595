"""The engine's two kinds of time, as pure functions of a record and the clocks.

`stamp` names changes: unique in the store for ever and increasing, whatever the wall
clock does. `now` measures waiting (leases, visibility, expiry): it neither runs
backwards nor freezes nor jumps when the wall clock is corrected, but drifts towards it
by at most 500 ppm. An engine stores its timeline when it starts and with every commit, so
that both survive a restart, and every process on the machine computes the same `now` from
the stored one.
"""

from __future__ import annotations

from etagere.clock import Clock
from etagere.model.base import Record

SLEW_PPM_MAX = 500
_MILLION = 1_000_000
_TICKS_PER_SLEWED_TICK = _MILLION // SLEW_PPM_MAX


class Timeline(Record, frozen=True):
    """An anchor: at `elapsed` ticks after boot `boot_id` it was `now`."""

    boot_id: str
    elapsed: int
    now: int
    correction: int
    """Ticks by which the wall clock was ahead (or behind, if negative) at the anchor."""
    last_stamp: int


def now_at(timeline: Timeline, elapsed: int) -> int:
    """The time `elapsed` ticks after boot: real time passed, plus as much of the correction
    as may be slewed in until then."""
    passed = elapsed - timeline.elapsed
    slew_max = passed * SLEW_PPM_MAX // _MILLION
    return timeline.now + passed + max(-slew_max, min(slew_max, timeline.correction))


def next_stamp(last_stamp: int, wall: int) -> int:
    return max(wall, last_stamp + 1)


def begin(stored: Timeline | None, clock: Clock) -> Timeline:
    """The timeline of an engine that starts: continued within one boot, else taken up from
    the wall clock, though never before what was stored."""
    elapsed, wall, boot_id = clock.elapsed(), clock.wall(), clock.boot_id()
    if stored is None:
        return Timeline(boot_id, elapsed, wall, 0, 0)
    if stored.boot_id == boot_id and elapsed >= stored.elapsed:
        return advance(stored, clock, stored.last_stamp)
    # An anchor lies up to one slewed tick before the last moment that was made use of.
    now = max(stored.now + _TICKS_PER_SLEWED_TICK, wall)
    return Timeline(boot_id, elapsed, now, wall - now, stored.last_stamp)


def advance(timeline: Timeline, clock: Clock, last_stamp: int) -> Timeline:
    """The same timeline, anchored at this moment, or rather at the last one at which a whole
    tick was slewed: frequent anchors must not round the slew away."""
    elapsed = clock.elapsed()
    correction = clock.wall() - now_at(timeline, elapsed)
    anchor = elapsed - (elapsed - timeline.elapsed) % _TICKS_PER_SLEWED_TICK
    now = now_at(timeline, anchor)
    return Timeline(timeline.boot_id, anchor, now, correction, last_stamp)


def now_from(stored: Timeline, clock: Clock) -> int:
    """The time by a stored timeline, which may be one of an earlier boot until the engine that
    is starting has stored its own."""
    elapsed = clock.elapsed()
    if stored.boot_id != clock.boot_id() or elapsed < stored.elapsed:
        return begin(stored, clock).now
    return now_at(stored, elapsed)
