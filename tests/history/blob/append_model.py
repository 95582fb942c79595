"""The model of append blobs."""

from __future__ import annotations

from tests.history.blob.contents import size_of
from tests.history.blob.lease_model import after_write
from tests.history.blob.preconditions import refusal_to_change, refusal_to_create
from tests.history.blob.state import State
from tests.history.blob.trials import Trial


def create(state: State, trial: Trial) -> State | str:
    """Snapshots outlive the blob that they were taken of."""
    return refusal_to_create(state, trial) or State(
        trial.version,
        lease=after_write(state.lease),
        origin=trial.origin,
        snapshots=state.snapshots,
    )


def append(state: State, trial: Trial) -> State | str:
    refusal = refusal_to_change(state, trial) or _misplaced(state, trial)
    if refusal is not None:
        return refusal
    if state.sealed:
        return "BlobIsSealed"
    return state._replace(
        version=trial.version,
        content=(*state.content, trial.content),
        length=state.length + size_of(trial.operation.request.token),
        lease=after_write(state.lease),
    )


def seal(state: State, trial: Trial) -> State | str:
    """What is sealed already stays as it is."""
    refusal = refusal_to_change(state, trial) or _misplaced(state, trial)
    if refusal is not None or state.sealed:
        return refusal or state
    return state._replace(version=trial.version, sealed=True, lease=after_write(state.lease))


def _misplaced(state: State, trial: Trial) -> str | None:
    position = trial.operation.request.position
    return None if position in (None, state.length) else "AppendPositionConditionNotMet"
