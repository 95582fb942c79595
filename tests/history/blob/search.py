"""The model of a blob as the search for an order uses it.

These rules limit the number of configurations further without losing an explanation:

- Versions have an order: their ETags are increasing numbers. So a change is made only after those
  in flight with a smaller number, and a configuration in which a version is gone that an operation
  in flight still has to show is a dead end.
- A content whose last reader has been answered gets the name of unread contents, and a
  snapshot that no later request names is forgotten.
- A doubtful operation is forgotten as soon as it asks for a version or a lease that is gone from
  all configurations for good.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from tests.history import linearizability
from tests.history.blob.entries import SearchEntry, last_seen
from tests.history.blob.events import ANY, Verb
from tests.history.blob.model import step
from tests.history.blob.state import ABSENT, State, forget_names
from tests.history.configurations import Configuration, Part
from tests.history.events import NEVER
from tests.history.linearizability import SECONDS_MAX, STEPS_MAX, Result


def search(
    entries: Sequence[SearchEntry], *, steps_max: int = STEPS_MAX, seconds_max: float = SECONDS_MAX
) -> Result:
    """Searches an order of the operations of a blob that did not exist before the first of them."""
    return linearizability.search(
        entries, BlobModel(entries), steps_max=steps_max, seconds_max=seconds_max
    )


class BlobModel(linearizability.Model[State, SearchEntry]):
    """The sequential specification of a blob."""

    initial = ABSENT

    def __init__(self, entries: Sequence[SearchEntry]) -> None:
        self._entries = entries
        self._in_flight: dict[int, SearchEntry] = {}
        self._ranked: dict[int, SearchEntry] = {}
        """Operations in flight that make or show a version whose number is known."""
        self._grants_left = Counter(entry.operation.request.proposed_id for entry in entries)
        """How many operations that are not over can bring a lease id into force."""

    def step(self, state: State, entry: SearchEntry, until: int) -> Iterable[State]:
        return step(state, entry, until)

    def is_timeless(self, state: State) -> bool:
        return state.lease.ends_after >= NEVER

    def last_uses(self) -> dict[str, int]:
        return last_seen(self._entries)

    def forget(self, state: State, names: Collection[str]) -> State:
        return forget_names(state, names)

    def begin(self, bit: int, entry: SearchEntry) -> None:
        self._in_flight[bit] = entry
        if entry.rank:
            self._ranked[bit] = entry

    def end(self, bit: int, entry: SearchEntry) -> None:
        del self._in_flight[bit]
        self._ranked.pop(bit, None)
        self._grants_left[entry.operation.request.proposed_id] -= 1

    def is_dead_end(self, configuration: Configuration[State]) -> bool:
        state = configuration.state
        done = configuration.active | configuration.passive
        return any(
            entry.rank <= state.rank and entry.shows != state.version and not done & bit
            for bit, entry in self._ranked.items()
        )

    def hopeless(self, states: Collection[State]) -> list[int]:
        lease_ids = {state.lease.id for state in states}
        return [
            bit
            for bit, entry in self._in_flight.items()
            if entry.part is Part.DOUBTFUL
            and (
                self._asks_for_lost_lease(entry, lease_ids)
                or all(_asks_for_lost_version(entry, state) for state in states)
            )
        ]

    def _asks_for_lost_lease(self, entry: SearchEntry, lease_ids: Collection[str]) -> bool:
        request = entry.operation.request
        if request.lease_id is None or request.lease_id in lease_ids or request.verb is Verb.CHANGE:
            return False
        return not self._grants_left[request.lease_id]


def _asks_for_lost_version(entry: SearchEntry, state: State) -> bool:
    if entry.if_match in (None, ANY):
        return False
    return entry.asked_rank <= state.rank and entry.if_match != state.version
