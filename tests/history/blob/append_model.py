"""The model of append blobs."""

from __future__ import annotations

from tests.history.blob.contents import size_of
from tests.history.blob.entries import SearchEntry
from tests.history.blob.lease_model import after_write
from tests.history.blob.preconditions import refusal_to_change, refusal_to_create
from tests.history.blob.state import State


def create(state: State, entry: SearchEntry) -> State | str:
    """The snapshots of a replaced blob remain."""
    return refusal_to_create(state, entry) or State(
        entry.version,
        lease=after_write(state.lease),
        origin=entry.origin,
        snapshots=state.snapshots,
    )


def append(state: State, entry: SearchEntry) -> State | str:
    refusal = refusal_to_change(state, entry) or _misplaced(state, entry)
    if refusal is not None:
        return refusal
    if state.sealed:
        return "BlobIsSealed"
    return state._replace(
        version=entry.version,
        content=(*state.content, entry.content),
        length=state.length + size_of(entry.operation.request.token),
        lease=after_write(state.lease),
    )


def seal(state: State, entry: SearchEntry) -> State | str:
    """Sealing a sealed blob changes nothing."""
    refusal = refusal_to_change(state, entry) or _misplaced(state, entry)
    if refusal is not None or state.sealed:
        return refusal or state
    return state._replace(version=entry.version, sealed=True, lease=after_write(state.lease))


def _misplaced(state: State, entry: SearchEntry) -> str | None:
    position = entry.operation.request.position
    return None if position in (None, state.length) else "AppendPositionConditionNotMet"
