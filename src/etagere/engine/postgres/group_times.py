"""The time of a group: estimated until its records are locked, then the database's.

A prediction that turns out to be right took effect when it was made: what it depends on was
committed before, and did not change until it was locked. So the operation need not run again with
the time of the transaction, if the estimate was neither earlier than a time that any client had
seen, nor later than the time of the transaction.
"""

from __future__ import annotations

from typing import Final

from etagere.clock import TICKS_PER_MILLISECOND, TICKS_PER_SECOND
from etagere.engine.postgres.fence import Reading
from etagere.engine.postgres.stamps import StampSource
from etagere.engine.timeline import Instant

_WINDOW_TICKS: Final = 1 * TICKS_PER_SECOND
_STEP_TICKS_MIN: Final = 1 * TICKS_PER_MILLISECOND
"""If the database's clock is further ahead than time can have passed, it was set."""


class ClockEstimate:
    """Estimates the database's clock, never too early unless it was set.

    The clock was read after the query was sent. So the difference between the clock in a result and
    the elapsed time when its query was sent is an upper bound for how far the clock is ahead of
    this machine's elapsed time. The least upper bound of the last seconds counts.
    """

    def __init__(self, reading: Reading, asked_at: int) -> None:
        """`asked_at`: the elapsed time of this machine before the query was sent."""
        self.last = reading
        self._begin(reading.clock - asked_at, asked_at)

    def _begin(self, ahead: int, asked_at: int) -> None:
        self._ahead = self._earlier_ahead = ahead
        self._window_began = asked_at

    def note(self, reading: Reading, asked_at: int, *, was_wrong: bool) -> None:
        self.last = reading
        ahead = reading.clock - asked_at
        if was_wrong:
            self._begin(ahead, asked_at)
        elif asked_at - self._window_began > _WINDOW_TICKS:
            # The clocks may drift apart.
            self._earlier_ahead, self._ahead, self._window_began = self._ahead, ahead, asked_at
        elif ahead < self._ahead:
            self._ahead = ahead

    def at(self, elapsed: int) -> Reading:
        """Returns what a reading would be after this much elapsed time."""
        return Reading(elapsed + min(self._ahead, self._earlier_ahead), self.last.fence)


class GroupTimes:
    """The time and the stamps of a group."""

    def __init__(
        self, estimate: Reading, estimated_at: int, floor: int, stamps: StampSource
    ) -> None:
        """`estimated_at` is an elapsed time of this machine; `now` will not be before `floor`."""
        self._reading = estimate
        self._estimated_at = estimated_at
        self._instant = self._not_before(floor)
        self._floor = floor
        self._stamps = stamps
        self._is_estimate = True
        self.estimate_was_wrong = False

    def update(self, reading: Reading, elapsed: int) -> None:
        """Replaces the time by that of the transaction."""
        if self._is_estimate:
            self._is_estimate = False
            passed = reading.clock - self._reading.clock
            passed_max = elapsed - self._estimated_at + _STEP_TICKS_MIN
            is_same_fence = reading.fence.renewals == self._reading.fence.renewals
            self.estimate_was_wrong = not (0 <= passed <= passed_max and is_same_fence)
        self._reading = reading
        self._instant = self._not_before(self._floor)

    def _not_before(self, floor: int) -> Instant:
        """Returns the time, if it has run backwards the latest that was used: the database's clock
        may have been set back by less than the age of the fence."""
        instant = self._reading.instant
        if instant.now >= floor:
            return instant
        return Instant(floor, instant.steady_now + floor - instant.now)

    def instant(self) -> Instant:
        return self._instant

    def next_stamp(self, above: int) -> int:
        return self._stamps.issue(max(self._reading.clock, self._instant.now), above)
