"""The model of a blob as the search for an order uses it.

What a blob adds to keep the search small, and why nothing is lost by it:

- Versions have an order: their ETags are increasing numbers. So a change is made only after those
  in flight with a smaller number, and a configuration in which a version is gone that an operation
  in flight still has to show is a dead end.
- A content whose last reader has been answered is called like those that nobody ever saw, and a
  snapshot that nobody will ask for is forgotten.
- A doubtful operation is forgotten as soon as it asks for a version or a lease that is gone from
  all configurations for good.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from tests.history import linearizability
from tests.history.blob.events import ANY, Verb
from tests.history.blob.model import step
from tests.history.blob.state import ABSENT, State, forget_names
from tests.history.blob.trials import Trial, last_seen
from tests.history.configurations import Configuration, Part
from tests.history.events import NEVER
from tests.history.linearizability import SECONDS_MAX, STEPS_MAX, Result


def search(
    trials: Sequence[Trial], *, steps_max: int = STEPS_MAX, seconds_max: float = SECONDS_MAX
) -> Result:
    """Searches an order of the operations of a blob that did not exist before the first of them."""
    return linearizability.search(
        trials, BlobModel(trials), steps_max=steps_max, seconds_max=seconds_max
    )


class BlobModel(linearizability.Model[State, Trial]):
    """The sequential specification of a blob."""

    initial = ABSENT

    def __init__(self, trials: Sequence[Trial]) -> None:
        self._trials = trials
        self._in_flight: dict[int, Trial] = {}
        self._ranked: dict[int, Trial] = {}
        """Operations in flight that make or show a version whose number is known."""
        self._grants_left = Counter(trial.operation.request.proposed_id for trial in trials)
        """How many operations that are not over can bring a lease id into force."""

    def step(self, state: State, trial: Trial, until: int) -> Iterable[State]:
        return step(state, trial, until)

    def is_timeless(self, state: State) -> bool:
        return state.lease.ends_after >= NEVER

    def last_uses(self) -> dict[str, int]:
        return last_seen(self._trials)

    def forget(self, state: State, names: Collection[str]) -> State:
        return forget_names(state, names)

    def begin(self, bit: int, trial: Trial) -> None:
        self._in_flight[bit] = trial
        if trial.rank:
            self._ranked[bit] = trial

    def end(self, bit: int, trial: Trial) -> None:
        del self._in_flight[bit]
        self._ranked.pop(bit, None)
        self._grants_left[trial.operation.request.proposed_id] -= 1

    def is_dead_end(self, configuration: Configuration[State]) -> bool:
        state = configuration.state
        done = configuration.active | configuration.passive
        return any(
            trial.rank <= state.rank and trial.shows != state.version and not done & bit
            for bit, trial in self._ranked.items()
        )

    def hopeless(self, states: Collection[State]) -> list[int]:
        lease_ids = {state.lease.id for state in states}
        return [
            bit
            for bit, trial in self._in_flight.items()
            if trial.part is Part.DOUBTFUL
            and (
                self._asks_for_lost_lease(trial, lease_ids)
                or all(_asks_for_lost_version(trial, state) for state in states)
            )
        ]

    def _asks_for_lost_lease(self, trial: Trial, lease_ids: Collection[str]) -> bool:
        asked = trial.operation.request
        if asked.lease_id is None or asked.lease_id in lease_ids or asked.verb is Verb.CHANGE:
            return False
        return not self._grants_left[asked.lease_id]


def _asks_for_lost_version(trial: Trial, state: State) -> bool:
    if trial.if_match in (None, ANY):
        return False
    return trial.asked_rank <= state.rank and trial.if_match != state.version
