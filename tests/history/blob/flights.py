"""The operations in flight at one moment of a history, each with a bit of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Sequence

from tests.history.blob.configurations import Configuration
from tests.history.blob.events import ANY, Verb
from tests.history.blob.state import State
from tests.history.blob.trials import Part, Trial


class Flights:
    def __init__(self, trials: Sequence[Trial]) -> None:
        """Of the history of these."""
        self.trials: dict[int, Trial] = {}
        """By bit."""
        self.alike: dict[Hashable, list[int]] = {}
        """Bits of operations that do the same, the one whose time ends first in front."""
        self._ranked: dict[int, Trial] = {}
        """Those that have to make or show a version whose place is known."""
        self._bits: dict[int, int] = {}
        """By identity of the trial."""
        self._grants_left = Counter(trial.operation.request.proposed_id for trial in trials)
        """How many operations that are not over can bring a lease id into force."""

    def begin(self, trial: Trial) -> None:
        bit = 1
        while bit in self.trials:
            bit <<= 1
        self.trials[bit] = trial
        self._bits[id(trial)] = bit
        if trial.rank:
            self._ranked[bit] = trial
        if trial.alike is not None:
            alike = self.alike.setdefault(trial.alike, [])
            alike.append(bit)
            alike.sort(key=lambda each: self.trials[each].latest)

    def bit_of(self, trial: Trial) -> int:
        """0: it was forgotten."""
        return self._bits.get(id(trial), 0)

    def forget(self, bit: int) -> None:
        trial = self.trials.pop(bit)
        del self._bits[id(trial)]
        self._ranked.pop(bit, None)
        self._grants_left[trial.operation.request.proposed_id] -= 1
        if trial.alike is not None:
            self.alike[trial.alike].remove(bit)

    def is_dead_end(self, configuration: Configuration) -> bool:
        """A version is gone, or has been passed over, that is still to be made or shown."""
        state = configuration.state
        done = configuration.active | configuration.passive
        return any(
            trial.rank <= state.rank and trial.shows != state.version and not done & bit
            for bit, trial in self._ranked.items()
        )

    def hopeless(self, states: Collection[State]) -> list[int]:
        """The doubtful ones that can change none of these states nor any that may follow."""
        lease_ids = {state.lease.id for state in states}
        return [
            bit
            for bit, trial in self.trials.items()
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
