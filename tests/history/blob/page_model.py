"""The model of page blobs: pages, and the sequence number."""

from __future__ import annotations

from tests.history.blob.contents import PAGE_BYTES
from tests.history.blob.events import Verb
from tests.history.blob.lease_model import after_write
from tests.history.blob.preconditions import refusal_to_change, refusal_to_create
from tests.history.blob.state import State
from tests.history.blob.trials import Trial


def create(state: State, trial: Trial) -> State | str:
    """Snapshots outlive the blob that they were taken of."""
    refusal = refusal_to_create(state, trial)
    if refusal is not None:
        return refusal
    asked = trial.operation.request
    return State(
        trial.version,
        ("",) * asked.count,
        lease=after_write(state.lease),
        origin=trial.origin,
        length=asked.count * PAGE_BYTES,
        number=asked.number or 0,
        snapshots=state.snapshots,
    )


def change_pages(state: State, trial: Trial) -> State | str:
    """Writes or clears some."""
    refusal = refusal_to_change(state, trial) or _unmet_number(state, trial)
    if refusal is not None:
        return refusal
    asked = trial.operation.request
    behind = asked.first + asked.count
    if behind > len(state.content):
        return "InvalidPageRange"
    token = trial.content if asked.verb is Verb.PUT_PAGES else ""
    pages = (*state.content[: asked.first], *(token,) * asked.count, *state.content[behind:])
    return state._replace(version=trial.version, content=pages, lease=after_write(state.lease))


def _unmet_number(state: State, trial: Trial) -> str | None:
    asked = trial.operation.request
    limit = asked.number or 0
    met = {
        "": True,
        "lte": state.number <= limit,
        "lt": state.number < limit,
        "eq": state.number == limit,
    }
    return None if met[asked.comparison] else "SequenceNumberConditionNotMet"


def renumber(state: State, trial: Trial) -> State | str:
    refusal = refusal_to_change(state, trial)
    if refusal is not None:
        return refusal
    asked = trial.operation.request
    sent = asked.number or 0
    number = {
        "increment": state.number + 1,
        "max": max(state.number, sent),
        "update": sent,
    }[asked.action]
    return state._replace(version=trial.version, number=number, lease=after_write(state.lease))


def resize(state: State, trial: Trial) -> State | str:
    refusal = refusal_to_change(state, trial)
    if refusal is not None:
        return refusal
    count = trial.operation.request.count
    pages = state.content[:count] + ("",) * (count - len(state.content))
    return state._replace(
        version=trial.version,
        content=pages,
        length=count * PAGE_BYTES,
        lease=after_write(state.lease),
    )
