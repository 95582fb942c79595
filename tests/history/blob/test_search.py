"""The search for an order, compared with a brute-force search, and its limits."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Sequence
from functools import cache

import msgspec
import pytest

from tests.history.blob.bugs import Bug
from tests.history.blob.entries import Name, SearchEntry
from tests.history.blob.events import (
    CREATES,
    ONLY_ETAG_NAMES,
    READS,
    Done,
    History,
    Verb,
    number_of,
    operations_by_blob,
)
from tests.history.blob.model import step
from tests.history.blob.preparation import prepare
from tests.history.blob.scheduler import Simulation
from tests.history.blob.search import search
from tests.history.blob.state import ABSENT, State
from tests.history.blob.workloads import APPENDS, LEASES, OVERWRITES, PAGES, STAGED_BLOCKS, Workload
from tests.history.configurations import Part
from tests.history.events import Refused, ServerKill, Unknown, latest_moment
from tests.history.linearizability import Verdict

WORKLOADS = {
    "overwrites": OVERWRITES,
    "blocks": STAGED_BLOCKS,
    "leases": LEASES,
    "appends": APPENDS,
    "pages": PAGES,
}
CODES = (
    "BlobNotFound",
    "ConditionNotMet",
    "LeaseIdMissing",
    "LeaseAlreadyPresent",
    "AppendPositionConditionNotMet",
    "SequenceNumberConditionNotMet",
)


# The brute-force search


def naive(entry: SearchEntry, kills: Sequence[ServerKill], etags: Collection[str]) -> SearchEntry:
    """Returns the entry without conclusions from other answers; `etags` were shown to clients."""
    operation = entry.operation
    unknown = isinstance(operation.outcome, Unknown)
    token = operation.request.token
    named = operation.request.verb not in ONLY_ETAG_NAMES
    names = tuple(Name(etag, number_of(etag), None) for etag in etags)
    return entry._replace(
        part=Part.DOUBTFUL if unknown else entry.part,
        latest=latest_moment(operation, kills),
        version=token if named or unknown else entry.version,
        content=token,
        origin=token,
        made_content=None,
        alike=None,
        names=() if named or not unknown else names,
    )


def etags_shown(history: History) -> list[str]:
    outcomes = (each.outcome for each in history.operations)
    etags = {each.seen.etag for each in outcomes if isinstance(each, Done)}
    return sorted(etags - {""})


def has_order(entries: Sequence[SearchEntry]) -> bool:
    """Tries every order of the operations that agrees with their times."""
    numbers = frozenset(range(len(entries)))
    certain = frozenset(n for n in numbers if entries[n].part is not Part.DOUBTFUL)

    @cache
    def can_go_on(left: frozenset[int], newest_began: int, state: State) -> bool:
        due = min((entries[n].latest for n in left & certain), default=None)
        if due is None:
            return True
        return any(
            can_go_on(left - {n}, max(newest_began, entries[n].began), after)
            for n in left
            if newest_began <= entries[n].latest and entries[n].began <= due
            for after in step(state, entries[n], min(due, entries[n].latest))
        )

    return can_go_on(numbers, 0, ABSENT)


def altered(history: History, source: random.Random) -> History:
    """Returns the history with one outcome replaced."""
    operations = list(history.operations)
    number = source.randrange(len(operations))
    verb = operations[number].request.verb
    answers: list[Done | Refused | Unknown] = [Unknown(), *map(Refused, CODES)]
    if verb in READS | {Verb.GET_SNAPSHOT}:
        answers += [each.outcome for each in operations if each.request.verb is verb]
    outcome = source.choice(answers)
    operations[number] = msgspec.structs.replace(operations[number], outcome=outcome)
    return msgspec.structs.replace(history, operations=tuple(operations))


def with_more_of(workload: Workload, verbs: Collection[Verb]) -> Workload:
    """Chooses these verbs more often, so that even short histories have conflicts."""
    weights = {
        verb: weight * 4 if verb in verbs else weight for verb, weight in workload.weights.items()
    }
    return workload._replace(weights=weights)


@pytest.mark.parametrize("name", WORKLOADS)
def test_it_agrees_with_a_brute_force_search(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short histories, valid and invalid, with many unknown outcomes."""
    monkeypatch.setattr(Simulation, "lost_share", 0.25)
    monkeypatch.setattr(Simulation, "server_seconds_max", 6.0)
    workloads = {name: with_more_of(WORKLOADS[name], CREATES)}
    verdicts: Counter[Verdict] = Counter()
    for seed in range(400):
        source = random.Random(seed)
        bug = source.choice([None, *Bug])
        history = Simulation(seed, workloads, clients=4, operations=9, bug=bug).run()
        if source.random() < 0.5:
            history = altered(history, source)
        entries = prepare(operations_by_blob(history)[name], history.kills)
        etags = etags_shown(history)
        tried = [naive(entry, history.kills, etags) for entry in entries]
        verdict = search(entries).verdict
        assert verdict is (Verdict.OK if has_order(tried) else Verdict.VIOLATION), seed
        verdicts[verdict] += 1
    assert min(verdicts[Verdict.OK], verdicts[Verdict.VIOLATION]) >= 20, verdicts


# Size


@pytest.mark.parametrize(
    ("name", "operations"),
    [("overwrites", 4000), ("blocks", 1500), ("leases", 4000), ("appends", 3000), ("pages", 3000)],
)
def test_long_histories_with_many_kills(name: str, operations: int) -> None:
    """Eight clients at one blob all the time, and every kill leaves eight outcomes unknown."""
    simulation = Simulation(5, {name: WORKLOADS[name]}, clients=8, operations=operations)
    history = simulation.run()
    unknown = sum(isinstance(each.outcome, Unknown) for each in history.operations)
    assert unknown > operations // 50
    result = search(prepare(operations_by_blob(history)[name], history.kills))
    assert result.verdict is Verdict.OK, result.explanation


def test_it_gives_up_in_time() -> None:
    history = Simulation(5, {"overwrites": OVERWRITES}).run()
    entries = prepare(operations_by_blob(history)["overwrites"], history.kills)
    result = search(entries, steps_max=100)
    assert result.verdict is Verdict.GAVE_UP
    assert result.explanation.startswith("the search took too long")
    assert search(entries, seconds_max=0.0).verdict is Verdict.GAVE_UP
