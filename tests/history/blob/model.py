"""The sequential specification of a blob: what each operation answers, and what it leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from tests.history.blob import append_model, page_model
from tests.history.blob.events import (
    ACTS_ON_LEASE,
    CHANGES_PAGES,
    MAKES_VERSION,
    READS,
    Done,
    Seen,
    Verb,
)
from tests.history.blob.lease_model import (
    act,
    after_write,
    goes_on_for,
    may_be,
    refusal_to_read,
    refusal_to_write,
)
from tests.history.blob.preconditions import refusal_to_change, refusal_to_create
from tests.history.blob.state import ABSENT, State
from tests.history.blob.trials import Trial

NOTHING_HAPPENED: Final = "ServerBusy"
"""The answer that is right in every state, as long as it is true."""


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
        yield from _named(state, after, trial)


def _named(before: State, after: State, trial: Trial) -> Iterator[State]:
    """With each name that the version may have which it leaves."""
    seals = trial.verb is Verb.SEAL and not before.sealed
    makes = seals or trial.verb in MAKES_VERSION
    if not makes or not trial.rank:
        yield after._replace(rank=before.rank)
    elif trial.rank > before.rank:
        yield after._replace(rank=trial.rank)
    for name in trial.names if makes else ():
        if name.rank > before.rank and name.content in (None, after.content):
            yield after._replace(version=name.etag, rank=name.rank)


def _shows(state: State, trial: Trial) -> bool:
    """Whether the answer may come from an operation that left this."""
    if trial.made is not None and trial.made != state.content:
        return False
    if trial.shows is not None and trial.shows != state.version:
        return False
    outcome = trial.operation.outcome
    if not isinstance(outcome, Done) or trial.verb is Verb.GET_SNAPSHOT:
        return True
    seen = outcome.seen
    if seen.lease and seen.lease != state.lease.phase:
        return False
    if seen.seconds is not None and not goes_on_for(state.lease, trial.lease_request, seen.seconds):
        return False
    return _agrees(state, seen) and all(_agrees(state, each) for each in trial.kept)


def _agrees(state: State, seen: Seen) -> bool:
    """Whether this, where it is told, is what the blob is."""
    return (
        seen.content in (None, state.content)
        and seen.origin in ("", state.origin)
        and seen.length in (None, state.length)
        and seen.blocks in (None, len(state.content))
        and seen.sealed in (None, state.sealed)
        and seen.number in (None, state.number)
        and (seen.pages is None or seen.pages == _written(state))
    )


def _written(state: State) -> tuple[int, ...]:
    return tuple(number for number, token in enumerate(state.content) if token)


# The rules: the state afterwards, or the code of the refusal


def _put(state: State, trial: Trial) -> State | str:
    return refusal_to_create(state, trial) or State(
        trial.version, (trial.content,), lease=after_write(state.lease)
    )


def _stage(state: State, trial: Trial) -> State | str:
    request = trial.operation.request
    refusal = refusal_to_write(state.lease, request.lease_id)
    staged = {**dict(state.staged), request.block: trial.content}
    return refusal or state._replace(staged=tuple(sorted(staged.items())))


def _commit(state: State, trial: Trial) -> State | str:
    refusal = refusal_to_create(state, trial)
    if refusal is not None:
        return refusal
    latest = {**dict(state.committed), **dict(state.staged)}
    listed = trial.operation.request.blocks
    if not latest.keys() >= set(listed):
        return "InvalidBlockList"
    content = tuple(latest[block] for block in listed)
    committed = tuple(sorted({block: latest[block] for block in listed}.items()))
    return State(trial.version, content, committed, lease=after_write(state.lease))


def _describe(state: State, trial: Trial) -> State | str:
    return refusal_to_change(state, trial) or state._replace(
        version=trial.version, lease=after_write(state.lease)
    )


def _delete(state: State, trial: Trial) -> State | str:
    """Its snapshots too. Of a name without a blob, the blocks that are staged."""
    if not state.version and state.staged:
        return refusal_to_create(state, trial) or ABSENT
    return refusal_to_change(state, trial) or ABSENT


def _read(state: State, trial: Trial) -> State | str:
    if not state.version:
        return "BlobNotFound"
    return refusal_to_read(state.lease, trial.operation.request.lease_id) or state


def _lease(state: State, trial: Trial) -> State | str:
    if not state.version:
        return "BlobNotFound"
    after = act(state.lease, trial.lease_request)
    return after if isinstance(after, str) else state._replace(lease=after)


def _snapshot(state: State, trial: Trial) -> State | str:
    if not state.version:
        return "BlobNotFound"
    return state._replace(snapshots=state.snapshots | trial.taken)


def _get_snapshot(state: State, trial: Trial) -> State | str:
    """What it shows is asked of the one that took it."""
    return state if trial.operation.request.snapshot in state.snapshots else "BlobNotFound"


_RULES: Final[dict[Verb, Callable[[State, Trial], State | str]]] = {
    Verb.PUT: _put,
    Verb.STAGE: _stage,
    Verb.COMMIT: _commit,
    Verb.DESCRIBE: _describe,
    Verb.DELETE: _delete,
    **dict.fromkeys(READS, _read),
    **dict.fromkeys(ACTS_ON_LEASE, _lease),
    Verb.CREATE_APPEND: append_model.create,
    Verb.APPEND: append_model.append,
    Verb.SEAL: append_model.seal,
    Verb.CREATE_PAGES: page_model.create,
    **dict.fromkeys(CHANGES_PAGES, page_model.change_pages),
    Verb.RENUMBER: page_model.renumber,
    Verb.RESIZE: page_model.resize,
    Verb.SNAPSHOT: _snapshot,
    Verb.GET_SNAPSHOT: _get_snapshot,
}
