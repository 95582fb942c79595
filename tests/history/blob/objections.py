"""What leases and conditions have against a write: the code of the refusal, or None."""

from __future__ import annotations

from tests.history.blob.events import ANY
from tests.history.blob.lease_model import objection_to_write
from tests.history.blob.state import State
from tests.history.blob.trials import Trial


def objection_to_create(state: State, trial: Trial) -> str | None:
    """For what makes a blob, or replaces all of one."""
    objection = objection_to_write(state.lease, trial.operation.request.lease_id)
    if objection is not None:
        return objection
    if state.version and trial.if_none_match == ANY:
        # Who holds the lease is let through, having shown that it knows of the blob.
        return None if trial.operation.request.lease_id is not None else "BlobAlreadyExists"
    return _unmet(state, trial)


def objection_to_change(state: State, trial: Trial) -> str | None:
    """For what needs a blob."""
    if not state.version:
        return "BlobNotFound"
    objection = objection_to_write(state.lease, trial.operation.request.lease_id)
    return objection or _unmet(state, trial)


def _unmet(state: State, trial: Trial) -> str | None:
    matches = trial.if_match in (None, state.version) or (trial.if_match == ANY and state.version)
    differs = trial.if_none_match is None or trial.if_none_match != state.version
    return None if matches and differs else "ConditionNotMet"
