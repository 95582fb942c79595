"""A search for an order of operations that explains every outcome.

The search is the one of Wing and Gong in the form that Lowe calls just-in-time: it walks through
the history by time, and keeps every *configuration* that explains what was answered so far: the
state of the model, and which of the operations in flight have been carried out. When an operation
is answered, each configuration must have it carried out, with as many of the others in flight
before it as it takes. Configurations that come out the same are kept once. If none is left, no
order explains that answer, and the history up to it is the shortest one that cannot be explained.

These rules limit the number of configurations without losing an explanation:

- A read or refusal that the current state explains without any change is carried out immediately.
  It has to come somewhere, and costs nothing here: all that can follow without it can follow it.
- Of two configurations with the same state and the same acknowledged changes, one is superfluous
  if the other has carried out all its reads and refusals and no doubtful operation that it
  has not: all that can follow the first can follow the second, because a doubtful operation need
  not be carried out. So unknown writes that were overwritten unread leave no trace, and those that
  change nothing are never carried out.
- Of operations with the same effect, the one whose time ends first is carried out first. In any
  explanation with another one, the two can be swapped.
- A doubtful operation is forgotten when its time ends, after it was tried up to that moment.

A model may know more: dead ends, names that are not shown any more, and doubtful operations that
cannot have an effect any more.
"""

from __future__ import annotations

import enum
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final, Generic, NamedTuple

from tests.history.configurations import (
    Configuration,
    EntryT,
    Frontier,
    OperationsInFlight,
    Part,
    StateT,
    Trail,
)
from tests.history.events import NEVER, describe

STEPS_MAX: Final = 20_000_000
SECONDS_MAX: Final = 120.0
SHOWN_MAX: Final = 12
REMEMBERED_MAX: Final = 200_000


class Verdict(enum.Enum):
    """The result of a search."""

    OK = "OK"
    VIOLATION = "VIOLATION"
    GAVE_UP = "GAVE UP"


class Result(NamedTuple):
    """The verdict, how it was reached, and why."""

    verdict: Verdict
    steps: int
    configurations_max: int
    """How many were kept at once."""
    explanation: str = ""


class _GaveUp(Exception):
    pass


class Model(ABC, Generic[StateT, EntryT]):
    """A sequential specification, with hints that keep the search small."""

    initial: StateT

    @abstractmethod
    def step(self, state: StateT, entry: EntryT, until: int) -> Iterable[StateT]:
        """Returns every state that the operation may leave behind, given its outcome.

        It is carried out in `state`, at a time between its beginning and `until`.
        """

    def is_timeless(self, state: StateT) -> bool:
        """Whether the results of steps in this state do not depend on the time."""
        del state
        return True

    def begin(self, bit: int, entry: EntryT) -> None:
        """Called when an operation begins."""

    def end(self, bit: int, entry: EntryT) -> None:
        """Called when an operation is not in flight any more."""

    def is_dead_end(self, configuration: Configuration[StateT]) -> bool:
        """Whether some operation in flight can never be explained from here."""
        del configuration
        return False

    def hopeless(self, states: Collection[StateT]) -> list[int]:
        """Returns bits of doubtful operations without effect in these states and all to come."""
        del states
        return []

    def last_uses(self) -> dict[str, int]:
        """Returns names in states, with the time after which no answer depends on them."""
        return {}

    def forget(self, state: StateT, names: Collection[str]) -> StateT:
        """Returns the state without names that no answer depends on any more."""
        del names
        return state


def search(
    entries: Sequence[EntryT],
    model: Model[StateT, EntryT],
    *,
    steps_max: int = STEPS_MAX,
    seconds_max: float = SECONDS_MAX,
) -> Result:
    """Searches for an order of operations, from the initial state of the model."""
    return _Search(entries, model, steps_max, time.monotonic() + seconds_max).run()


class _Search(Generic[StateT, EntryT]):
    def __init__(
        self,
        entries: Sequence[EntryT],
        model: Model[StateT, EntryT],
        steps_max: int,
        deadline: float,
    ) -> None:
        self._entries = entries
        self._model = model
        self._steps_max = steps_max
        self._deadline = deadline
        self._steps = 0
        self._configurations_max = 1
        self._frontier: Frontier[StateT] = Frontier()
        self._frontier.add(Configuration(model.initial))
        self._flights: OperationsInFlight[EntryT] = OperationsInFlight()
        self._last_uses = sorted(
            ((moment, name) for name, moment in model.last_uses().items()), reverse=True
        )
        """When each name is used for the last time, the next one at the end."""
        self._remembered: dict[tuple[StateT, int], list[StateT]] = {}
        """The results of steps, by state and identity of the entry."""

    def run(self) -> Result:
        for entry, ends in _events(self._entries):
            if not ends:
                self._model.begin(self._flights.begin(entry), entry)
                continue
            try:
                explained = self._end(entry)
            except _GaveUp:
                summary = "the search took too long, and ended at this answer:"
                return self._result(Verdict.GAVE_UP, self._tell(entry, summary))
            if not explained:
                summary = "no order explains this answer:"
                return self._result(Verdict.VIOLATION, self._tell(entry, summary))
        return self._result(Verdict.OK)

    def _result(self, verdict: Verdict, explanation: str = "") -> Result:
        return Result(verdict, self._steps, self._configurations_max, explanation)

    def _end(self, entry: EntryT) -> bool:
        """Returns whether it can be explained."""
        bit = self._flights.bit_of(entry)
        if not bit:
            return True
        reached = self._carry_out(entry, bit)
        if not reached.count:
            return False
        over = {bit, *self._model.hopeless({each.state for each in reached})}
        unused = self._unused_at(entry.latest)
        self._frontier = Frontier()
        for configuration in reached:
            state = configuration.state
            if unused:
                state = self._model.forget(state, unused)
            self._frontier.add(configuration._replace(state=state).without(sum(over)))
        for each in over:
            self._model.end(each, self._flights.forget(each))
        self._configurations_max = max(self._configurations_max, self._frontier.count)
        return True

    def _unused_at(self, moment: int) -> set[str]:
        unused = set()
        while self._last_uses and self._last_uses[-1][0] < moment:
            unused.add(self._last_uses.pop()[1])
        return unused

    def _carry_out(self, goal: EntryT, bit: int) -> Frontier[StateT]:
        """The configurations in which this operation, as the last one, has been carried out, and
        those without it if it is doubtful."""
        reached: Frontier[StateT] = Frontier()
        visited: Frontier[StateT] = Frontier()
        waiting = deque(self._frontier)
        if goal.part is Part.DOUBTFUL:
            for configuration in self._frontier:
                reached.add(configuration)
        while waiting:
            configuration = self._take_passive(waiting.popleft(), goal.latest)
            if configuration.done & bit:
                reached.add(configuration)
            elif visited.add(configuration):
                following = self._next(configuration, goal.latest)
                waiting.extend(each for each in following if not self._model.is_dead_end(each))
        return reached

    def _take_passive(
        self, configuration: Configuration[StateT], until: int
    ) -> Configuration[StateT]:
        state, passive, trail = configuration.state, configuration.passive, configuration.trail
        for bit, entry in self._flights.entries.items():
            if entry.part is not Part.PASSIVE or passive & bit:
                continue
            if state in self._steps_of(state, entry, until):
                passive |= bit
                trail = Trail(entry, trail)
        return configuration._replace(passive=passive, trail=trail)

    def _next(
        self, configuration: Configuration[StateT], until: int
    ) -> Iterator[Configuration[StateT]]:
        """Yields the configurations after one more operation."""
        for bit, entry in self._flights.entries.items():
            if entry.alike is not None or configuration.done & bit:
                continue
            yield from self._after(configuration, entry, bit, until)
        for alike in self._flights.alike.values():
            for bit in alike:
                if configuration.done & bit:
                    continue
                following = list(self._after(configuration, self._flights.entries[bit], bit, until))
                yield from following
                if following:
                    break

    def _after(
        self, configuration: Configuration[StateT], entry: EntryT, bit: int, until: int
    ) -> Iterator[Configuration[StateT]]:
        state, active, passive, doubtful, trail = configuration
        if entry.part is Part.ACTIVE:
            active |= bit
        elif entry.part is Part.PASSIVE:
            passive |= bit
        else:
            doubtful |= bit
        for after in self._steps_of(state, entry, until):
            yield Configuration(after, active, passive, doubtful, Trail(entry, trail))

    def _steps_of(self, state: StateT, entry: EntryT, until: int) -> list[StateT]:
        self._steps += 1
        if self._steps > self._steps_max:
            raise _GaveUp
        if self._steps % 1000 == 0 and time.monotonic() > self._deadline:
            raise _GaveUp
        if not self._model.is_timeless(state):
            return list(self._model.step(state, entry, until))
        key = (state, id(entry))
        known = self._remembered.get(key)
        if known is None:
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            known = self._remembered[key] = list(self._model.step(state, entry, until))
        return known

    def _tell(self, entry: EntryT, summary: str) -> str:
        """Describes the order found before this answer, and the operations in flight."""
        some = next(iter(self._frontier))
        order: list[Any] = []
        trail = some.trail
        while trail is not None and len(order) < SHOWN_MAX:
            order.append(trail.entry.operation)
            trail = trail.before
        origin = order[-1].began if order else entry.began
        states = list(dict.fromkeys(each.state for each in self._frontier))
        others = [each for each in self._flights.entries.values() if each is not entry]
        return "\n".join(
            [
                summary,
                f"  {describe(entry.operation, origin)}",
                f"in flight meanwhile ({len(others)}):",
                *(f"  {describe(each.operation, origin)}" for each in others[:SHOWN_MAX]),
                f"possible states before ({len(states)}):",
                *(f"  {state}" for state in states[:SHOWN_MAX]),
                "one order that explains all earlier answers ends so:",
                *(f"  {describe(operation, origin)}" for operation in reversed(order)),
            ]
        )


def _events(entries: Sequence[EntryT]) -> Iterator[tuple[EntryT, bool]]:
    """Beginnings and ends by time; at the same moment beginnings come first, so that operations
    that touch count as concurrent. Doubtful operations may have no end."""
    begins = [(entry.began, False, entry) for entry in entries]
    ends = [(entry.latest, True, entry) for entry in entries if entry.latest < NEVER]
    for _, ending, entry in sorted(begins + ends, key=lambda event: event[:2]):
        yield entry, ending
