"""Preconditions of writes in the model: the error code of a refusal, or None."""

from __future__ import annotations

from tests.history.blob.events import ANY
from tests.history.blob.lease_model import refusal_to_write
from tests.history.blob.state import State
from tests.history.blob.trials import Trial


def refusal_to_create(state: State, trial: Trial) -> str | None:
    """For writes that create or replace a blob."""
    refusal = refusal_to_write(state.lease, trial.operation.request.lease_id)
    if refusal is not None:
        return refusal
    if state.version and trial.if_none_match == ANY:
        # Who holds the lease is let through, having shown that it knows of the blob.
        return None if trial.operation.request.lease_id is not None else "BlobAlreadyExists"
    return _unmet(state, trial)


def refusal_to_change(state: State, trial: Trial) -> str | None:
    """For writes that change an existing blob."""
    if not state.version:
        return "BlobNotFound"
    refusal = refusal_to_write(state.lease, trial.operation.request.lease_id)
    return refusal or _unmet(state, trial)


def _unmet(state: State, trial: Trial) -> str | None:
    matches = trial.if_match in (None, state.version) or (trial.if_match == ANY and state.version)
    differs = trial.if_none_match is None or trial.if_none_match != state.version
    return None if matches and differs else "ConditionNotMet"
