"""The sequential specification of a blob: outcomes of operations, and states after them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from tests.history.blob import append_model, page_model
from tests.history.blob.entries import SearchEntry
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

NOTHING_HAPPENED: Final = "ServerBusy"
"""An error that is right in every state."""


def step(state: State, entry: SearchEntry, until: int) -> Iterator[State]:
    """Yields every state that the operation may leave behind, given its outcome.

    It is carried out in this state, at a time between its beginning and `until`.
    """
    if entry.refusal == NOTHING_HAPPENED:
        yield state
        return
    if not _asks_for_lease(entry):
        yield from _decide(state, entry)
        return
    for lease in may_be(state.lease, entry.began, min(until, entry.latest)):
        yield from _decide(state._replace(lease=lease), entry)


def _asks_for_lease(entry: SearchEntry) -> bool:
    """Whether it matters to the outcome if the lease has ended."""
    outcome = entry.operation.outcome
    shows_lease = isinstance(outcome, Done) and outcome.seen.lease
    return (
        entry.verb not in READS or entry.operation.request.lease_id is not None or bool(shows_lease)
    )


def _decide(state: State, entry: SearchEntry) -> Iterator[State]:
    after = _RULES[entry.verb](state, entry)
    if isinstance(after, str):
        if after == entry.refusal:
            yield state
    elif entry.refusal is None and _shows(after, entry):
        yield from _named(state, after, entry)


def _named(before: State, after: State, entry: SearchEntry) -> Iterator[State]:
    """Yields the state with each name that its version may have."""
    seals = entry.verb is Verb.SEAL and not before.sealed
    makes = seals or entry.verb in MAKES_VERSION
    if not makes or not entry.rank:
        yield after._replace(rank=before.rank)
    elif entry.rank > before.rank:
        yield after._replace(rank=entry.rank)
    for name in entry.names if makes else ():
        if name.rank > before.rank and name.content in (None, after.content):
            yield after._replace(version=name.etag, rank=name.rank)


def _shows(state: State, entry: SearchEntry) -> bool:
    """Whether the answer agrees with the state after the operation."""
    if entry.made_content is not None and entry.made_content != state.content:
        return False
    if entry.shows is not None and entry.shows != state.version:
        return False
    outcome = entry.operation.outcome
    if not isinstance(outcome, Done) or entry.verb is Verb.GET_SNAPSHOT:
        return True
    seen = outcome.seen
    if seen.lease and seen.lease != state.lease.phase:
        return False
    if seen.seconds is not None and not goes_on_for(state.lease, entry.lease_request, seen.seconds):
        return False
    return _agrees(state, seen) and all(_agrees(state, each) for each in entry.snapshot_reads)


def _agrees(state: State, seen: Seen) -> bool:
    """Whether everything that the answer shows agrees with the state."""
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


def _put(state: State, entry: SearchEntry) -> State | str:
    return refusal_to_create(state, entry) or State(
        entry.version, (entry.content,), lease=after_write(state.lease)
    )


def _stage(state: State, entry: SearchEntry) -> State | str:
    request = entry.operation.request
    refusal = refusal_to_write(state.lease, request.lease_id)
    staged = {**dict(state.staged), request.block: entry.content}
    return refusal or state._replace(staged=tuple(sorted(staged.items())))


def _commit(state: State, entry: SearchEntry) -> State | str:
    refusal = refusal_to_create(state, entry)
    if refusal is not None:
        return refusal
    latest = {**dict(state.committed), **dict(state.staged)}
    listed = entry.operation.request.blocks
    if not latest.keys() >= set(listed):
        return "InvalidBlockList"
    content = tuple(latest[block] for block in listed)
    committed = tuple(sorted({block: latest[block] for block in listed}.items()))
    return State(entry.version, content, committed, lease=after_write(state.lease))


def _describe(state: State, entry: SearchEntry) -> State | str:
    return refusal_to_change(state, entry) or state._replace(
        version=entry.version, lease=after_write(state.lease)
    )


def _delete(state: State, entry: SearchEntry) -> State | str:
    """Deletes the blob with its snapshots, or the staged blocks of an uncommitted blob."""
    if not state.version and state.staged:
        return refusal_to_create(state, entry) or ABSENT
    return refusal_to_change(state, entry) or ABSENT


def _read(state: State, entry: SearchEntry) -> State | str:
    if not state.version:
        return "BlobNotFound"
    return refusal_to_read(state.lease, entry.operation.request.lease_id) or state


def _lease(state: State, entry: SearchEntry) -> State | str:
    if not state.version:
        return "BlobNotFound"
    after = act(state.lease, entry.lease_request)
    return after if isinstance(after, str) else state._replace(lease=after)


def _snapshot(state: State, entry: SearchEntry) -> State | str:
    if not state.version:
        return "BlobNotFound"
    return state._replace(snapshots=state.snapshots | entry.snapshots)


def _get_snapshot(state: State, entry: SearchEntry) -> State | str:
    """The content is compared where the snapshot is taken."""
    return state if entry.operation.request.snapshot in state.snapshots else "BlobNotFound"


_RULES: Final[dict[Verb, Callable[[State, SearchEntry], State | str]]] = {
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
