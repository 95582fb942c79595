"""Whether there is an order of a blob's operations that explains every outcome.

The search is the one of Wing and Gong in the form that Lowe calls just-in-time: it walks through
the history by time, and keeps every *configuration* that explains what was answered so far: the
state of the model, and which of the operations in flight have been carried out. When an operation
is answered, each configuration must have it carried out, with as many of the others in flight
before it as it takes. Configurations that come out the same are kept once. If none is left, no
order explains that answer, and the history up to it is the shortest one that cannot be explained.

What keeps the number of configurations small, and why nothing is lost by it:

- Versions have an order: their ETags are increasing numbers. So a change is made only after those
  in flight with a smaller number, and a configuration in which a version is gone that an operation
  in flight still has to show is a dead end.
- A read or refusal that the current state explains without any change is taken at once. It has to
  come somewhere, and here it costs nothing: whatever can follow without it can follow with it.
- Of two configurations with the same state and the same acknowledged changes, one is superfluous
  if the other has taken all its reads and refusals and has used no doubtful operation besides
  its: whatever can follow the first can follow the second, for a doubtful operation need not be
  used. So unknown writes that were overwritten before anybody saw them leave no trace, and those
  that would change nothing are never used.
- Of operations that do the same, the one whose time ends first is used first. In any
  explanation that uses another one, the two can change places.
- A content whose last reader has been answered is called like those that nobody ever saw, and a
  snapshot that nobody will ask for is forgotten.
- A doubtful operation is forgotten when its time ends, after it was tried up to that moment; or
  as soon as it asks for a version or a lease that is gone from all configurations for good.
"""

from __future__ import annotations

import enum
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tests.history.blob.configurations import Configuration, Frontier, Trail
from tests.history.blob.events import Operation
from tests.history.blob.flights import Flights
from tests.history.blob.model import step
from tests.history.blob.state import ABSENT, State, fade
from tests.history.blob.trials import Part, Trial, last_seen
from tests.history.events import NEVER, describe

STEPS_MAX: Final = 20_000_000
SECONDS_MAX: Final = 120.0
SHOWN_MAX: Final = 12
REMEMBERED_MAX: Final = 200_000


class Verdict(enum.Enum):
    OK = "OK"
    VIOLATION = "VIOLATION"
    GAVE_UP = "GAVE UP"


class Result(NamedTuple):
    verdict: Verdict
    steps: int
    configurations_max: int
    """How many were kept at once."""
    explanation: str = ""


class _GaveUp(Exception):
    pass


def search(
    trials: Sequence[Trial], *, steps_max: int = STEPS_MAX, seconds_max: float = SECONDS_MAX
) -> Result:
    """Searches an order of the operations of a blob that did not exist before the first of them."""
    return _Search(trials, steps_max, time.monotonic() + seconds_max).run()


class _Search:
    def __init__(self, trials: Sequence[Trial], steps_max: int, deadline: float) -> None:
        self._trials = trials
        self._steps_max = steps_max
        self._deadline = deadline
        self._steps = 0
        self._configurations_max = 1
        self._frontier = Frontier()
        self._frontier.add(Configuration(ABSENT))
        self._flights = Flights(trials)
        self._fading = sorted(
            ((moment, token) for token, moment in last_seen(trials).items()), reverse=True
        )
        """When which content is shown for the last time, the next one at the end."""
        self._remembered: dict[tuple[State, int], list[State]] = {}
        """What operations, by their identity, do in states in which time does not matter."""

    def run(self) -> Result:
        for trial, ends in _events(self._trials):
            if not ends:
                self._flights.begin(trial)
                continue
            try:
                explained = self._end(trial)
            except _GaveUp:
                return self._result(Verdict.GAVE_UP, self._tell(trial))
            if not explained:
                return self._result(Verdict.VIOLATION, self._tell(trial))
        return self._result(Verdict.OK)

    def _result(self, verdict: Verdict, explanation: str = "") -> Result:
        return Result(verdict, self._steps, self._configurations_max, explanation)

    def _end(self, trial: Trial) -> bool:
        """Returns whether it can be explained."""
        bit = self._flights.bit_of(trial)
        if not bit:
            return True
        reached = self._carry_out(trial, bit)
        if not reached.count:
            return False
        over = {bit, *self._flights.hopeless({each.state for each in reached})}
        decayed = self._faded_at(trial.latest)
        self._frontier = Frontier()
        for configuration in reached:
            state = fade(configuration.state, decayed) if decayed else configuration.state
            self._frontier.add(configuration._replace(state=state).without(sum(over)))
        for each in over:
            self._flights.forget(each)
        self._configurations_max = max(self._configurations_max, self._frontier.count)
        return True

    def _faded_at(self, moment: int) -> set[str]:
        decayed = set()
        while self._fading and self._fading[-1][0] < moment:
            decayed.add(self._fading.pop()[1])
        return decayed

    def _carry_out(self, goal: Trial, bit: int) -> Frontier:
        """The configurations in which this operation, as the last one, has been carried out, and
        those without it if it is doubtful."""
        reached, visited = Frontier(), Frontier()
        waiting = deque(self._frontier)
        if goal.part is Part.DOUBTFUL:
            for configuration in self._frontier:
                reached.add(configuration)
        while waiting:
            configuration = self._take_what_shows(waiting.popleft(), goal.latest)
            if configuration.done & bit:
                reached.add(configuration)
            elif visited.add(configuration):
                following = self._next(configuration, goal.latest)
                waiting.extend(each for each in following if not self._flights.is_dead_end(each))
        return reached

    def _take_what_shows(self, configuration: Configuration, until: int) -> Configuration:
        state, passive, trail = configuration.state, configuration.passive, configuration.trail
        for bit, trial in self._flights.trials.items():
            if trial.part is not Part.PASSIVE or passive & bit:
                continue
            if state in self._steps_of(state, trial, until):
                passive |= bit
                trail = Trail(trial, trail)
        return configuration._replace(passive=passive, trail=trail)

    def _next(self, configuration: Configuration, until: int) -> Iterator[Configuration]:
        """What one more operation makes of it."""
        for bit, trial in self._flights.trials.items():
            if trial.alike is not None or configuration.done & bit:
                continue
            yield from self._after(configuration, trial, bit, until)
        for alike in self._flights.alike.values():
            for bit in alike:
                if configuration.done & bit:
                    continue
                following = list(self._after(configuration, self._flights.trials[bit], bit, until))
                yield from following
                if following:
                    break

    def _after(
        self, configuration: Configuration, trial: Trial, bit: int, until: int
    ) -> Iterator[Configuration]:
        state, active, passive, doubtful, trail = configuration
        if trial.part is Part.ACTIVE:
            active |= bit
        elif trial.part is Part.PASSIVE:
            passive |= bit
        else:
            doubtful |= bit
        for after in self._steps_of(state, trial, until):
            yield Configuration(after, active, passive, doubtful, Trail(trial, trail))

    def _steps_of(self, state: State, trial: Trial, until: int) -> list[State]:
        self._steps += 1
        if self._steps > self._steps_max:
            raise _GaveUp
        if self._steps % 1000 == 0 and time.monotonic() > self._deadline:
            raise _GaveUp
        if state.lease.ends_after < NEVER:
            return list(step(state, trial, until))
        key = (state, id(trial))
        known = self._remembered.get(key)
        if known is None:
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            known = self._remembered[key] = list(step(state, trial, until))
        return known

    def _tell(self, trial: Trial) -> str:
        """What was found before this answer, and what was in flight."""
        some = next(iter(self._frontier))
        order: list[Operation] = []
        trail = some.trail
        while trail is not None and len(order) < SHOWN_MAX:
            order.append(trail.trial.operation)
            trail = trail.before
        origin = order[-1].began if order else trial.began
        states = list(dict.fromkeys(each.state for each in self._frontier))
        others = [each for each in self._flights.trials.values() if each is not trial]
        return "\n".join(
            [
                "no order explains this answer:",
                f"  {describe(trial.operation, origin)}",
                f"in flight meanwhile ({len(others)}):",
                *(f"  {describe(each.operation, origin)}" for each in others[:SHOWN_MAX]),
                f"what the blob could be before ({len(states)}):",
                *(f"  {state}" for state in states[:SHOWN_MAX]),
                "one order that explains all earlier answers ends so:",
                *(f"  {describe(operation, origin)}" for operation in reversed(order)),
            ]
        )


def _events(trials: Sequence[Trial]) -> Iterator[tuple[Trial, bool]]:
    """Beginnings and ends by time; at the same moment beginnings come first, so that operations
    that touch count as concurrent. Doubtful operations may have no end."""
    begins = [(trial.began, False, trial) for trial in trials]
    ends = [(trial.latest, True, trial) for trial in trials if trial.latest < NEVER]
    for _, ending, trial in sorted(begins + ends, key=lambda event: event[:2]):
        yield trial, ending
