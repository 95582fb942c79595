"""A blob as one client at a time would find it: what each operation answers, and what it leaves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Final, NamedTuple

from tests.history.events import ANY, MAKES_VERSION, READS, WRITES, Done, Verb
from tests.history.lease_model import (
    NO_LEASE,
    Lease,
    act,
    after_write,
    goes_on_for,
    may_be,
    objection_to_read,
    objection_to_write,
)
from tests.history.trials import UNSEEN, Trial

NOTHING_HAPPENED: Final = "ServerBusy"
"""The answer that is right in every state, as long as it is true."""

Blocks = tuple[tuple[str, str], ...]
"""Ids with the tokens of their contents, in order of the ids."""


class State(NamedTuple):
    version: str = ""
    """Empty: there is no blob."""
    content: tuple[str, ...] = ()
    committed: Blocks = ()
    """Blocks that a list may name although they are not staged."""
    staged: Blocks = ()
    lease: Lease = NO_LEASE
    rank: int = 0
    """The number of the last ETag, also of one that is gone: the next one is greater."""


ABSENT: Final = State()


def fade(state: State, tokens: Collection[str]) -> State:
    """The same without these names: what they are names of will not be shown any more."""

    def name(token: str) -> str:
        return UNSEEN if token in tokens else token

    return state._replace(
        content=tuple(map(name, state.content)),
        committed=tuple((block, name(token)) for block, token in state.committed),
        staged=tuple((block, name(token)) for block, token in state.staged),
    )


def step(state: State, trial: Trial, until: int) -> Iterator[State]:
    """Every state that the operation may leave behind, given what it answered, if it is carried
    out in this state at a moment between its beginning and `until`."""
    if trial.refusal == NOTHING_HAPPENED:
        yield state
        return
    if not _asks_for_lease(trial):
        yield from _decide(state, trial)
        return
    for lease in may_be(state.lease, trial.began, min(until, trial.latest)):
        yield from _decide(state._replace(lease=lease), trial)


def _asks_for_lease(trial: Trial) -> bool:
    """Whether it matters to the outcome if the lease has ended."""
    outcome = trial.operation.outcome
    told = isinstance(outcome, Done) and outcome.seen.lease
    return trial.verb not in READS or trial.operation.request.lease_id is not None or bool(told)


def _decide(state: State, trial: Trial) -> Iterator[State]:
    after = _RULES[trial.verb](state, trial)
    if isinstance(after, str):
        if after == trial.refusal:
            yield state
    elif trial.refusal is None and _shows(after, trial):
        if trial.verb not in MAKES_VERSION or not trial.rank:
            yield after._replace(rank=state.rank)
        elif trial.rank > state.rank:
            yield after._replace(rank=trial.rank)


def _shows(state: State, trial: Trial) -> bool:
    """Whether the answer may come from an operation that left this."""
    if trial.made is not None and trial.made != state.content:
        return False
    if trial.shows is not None and trial.shows != state.version:
        return False
    outcome = trial.operation.outcome
    if not isinstance(outcome, Done):
        return True
    seen = outcome.seen
    if seen.content is not None and seen.content != state.content:
        return False
    if seen.lease and seen.lease != state.lease.phase:
        return False
    return seen.seconds is None or goes_on_for(state.lease, trial.lease_request, seen.seconds)


# The rules: the state afterwards, or the code of the refusal


def _put(state: State, trial: Trial) -> State | str:
    return _objection_to_create(state, trial) or State(
        trial.version, (trial.content,), lease=after_write(state.lease)
    )


def _stage(state: State, trial: Trial) -> State | str:
    request = trial.operation.request
    objection = objection_to_write(state.lease, request.lease_id)
    staged = {**dict(state.staged), request.block: trial.content}
    return objection or state._replace(staged=tuple(sorted(staged.items())))


def _commit(state: State, trial: Trial) -> State | str:
    objection = _objection_to_create(state, trial)
    if objection is not None:
        return objection
    latest = {**dict(state.committed), **dict(state.staged)}
    listed = trial.operation.request.blocks
    if not latest.keys() >= set(listed):
        return "InvalidBlockList"
    content = tuple(latest[block] for block in listed)
    committed = tuple(sorted({block: latest[block] for block in listed}.items()))
    return State(trial.version, content, committed, lease=after_write(state.lease))


def _describe(state: State, trial: Trial) -> State | str:
    return _objection_to_change(state, trial) or state._replace(
        version=trial.version, lease=after_write(state.lease)
    )


def _delete(state: State, trial: Trial) -> State | str:
    return _objection_to_change(state, trial) or ABSENT


def _read(state: State, trial: Trial) -> State | str:
    if not state.version:
        return "BlobNotFound"
    return objection_to_read(state.lease, trial.operation.request.lease_id) or state


def _lease(state: State, trial: Trial) -> State | str:
    if not state.version:
        return "BlobNotFound"
    after = act(state.lease, trial.lease_request)
    return after if isinstance(after, str) else state._replace(lease=after)


_RULES: Final[dict[Verb, Callable[[State, Trial], State | str]]] = {
    Verb.PUT: _put,
    Verb.STAGE: _stage,
    Verb.COMMIT: _commit,
    Verb.DESCRIBE: _describe,
    Verb.DELETE: _delete,
    **dict.fromkeys(READS, _read),
    **dict.fromkeys(set(Verb) - READS - WRITES, _lease),
}


def _objection_to_create(state: State, trial: Trial) -> str | None:
    """For what makes a blob, or replaces all of one."""
    objection = objection_to_write(state.lease, trial.operation.request.lease_id)
    if objection is not None:
        return objection
    if state.version and trial.if_none_match == ANY:
        # Who holds the lease is let through, having shown that it knows of the blob.
        return None if trial.operation.request.lease_id is not None else "BlobAlreadyExists"
    return _unmet(state, trial)


def _objection_to_change(state: State, trial: Trial) -> str | None:
    """For what needs a blob."""
    if not state.version:
        return "BlobNotFound"
    objection = objection_to_write(state.lease, trial.operation.request.lease_id)
    return objection or _unmet(state, trial)


def _unmet(state: State, trial: Trial) -> str | None:
    matches = trial.if_match in (None, state.version) or (trial.if_match == ANY and state.version)
    differs = trial.if_none_match is None or trial.if_none_match != state.version
    return None if matches and differs else "ConditionNotMet"
