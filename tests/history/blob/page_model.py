"""The model of page blobs: pages, and the sequence number."""

from __future__ import annotations

from tests.history.blob.contents import PAGE_BYTES
from tests.history.blob.entries import SearchEntry
from tests.history.blob.events import Verb
from tests.history.blob.lease_model import after_write
from tests.history.blob.preconditions import refusal_to_change, refusal_to_create
from tests.history.blob.state import State


def create(state: State, entry: SearchEntry) -> State | str:
    """The snapshots of a replaced blob remain."""
    refusal = refusal_to_create(state, entry)
    if refusal is not None:
        return refusal
    asked = entry.operation.request
    return State(
        entry.version,
        ("",) * asked.count,
        lease=after_write(state.lease),
        origin=entry.origin,
        length=asked.count * PAGE_BYTES,
        number=asked.number or 0,
        snapshots=state.snapshots,
    )


def change_pages(state: State, entry: SearchEntry) -> State | str:
    """Writes or clears pages."""
    refusal = refusal_to_change(state, entry) or _unmet_number(state, entry)
    if refusal is not None:
        return refusal
    asked = entry.operation.request
    behind = asked.first + asked.count
    if behind > len(state.content):
        return "InvalidPageRange"
    token = entry.content if asked.verb is Verb.PUT_PAGES else ""
    pages = (*state.content[: asked.first], *(token,) * asked.count, *state.content[behind:])
    return state._replace(version=entry.version, content=pages, lease=after_write(state.lease))


def _unmet_number(state: State, entry: SearchEntry) -> str | None:
    asked = entry.operation.request
    limit = asked.number or 0
    met = {
        "": True,
        "lte": state.number <= limit,
        "lt": state.number < limit,
        "eq": state.number == limit,
    }
    return None if met[asked.comparison] else "SequenceNumberConditionNotMet"


def renumber(state: State, entry: SearchEntry) -> State | str:
    refusal = refusal_to_change(state, entry)
    if refusal is not None:
        return refusal
    asked = entry.operation.request
    sent = asked.number or 0
    number = {
        "increment": state.number + 1,
        "max": max(state.number, sent),
        "update": sent,
    }[asked.action]
    return state._replace(version=entry.version, number=number, lease=after_write(state.lease))


def resize(state: State, entry: SearchEntry) -> State | str:
    refusal = refusal_to_change(state, entry)
    if refusal is not None:
        return refusal
    count = entry.operation.request.count
    pages = state.content[:count] + ("",) * (count - len(state.content))
    return state._replace(
        version=entry.version,
        content=pages,
        length=count * PAGE_BYTES,
        lease=after_write(state.lease),
    )
