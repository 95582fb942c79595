"""Preconditions of writes in the model: the error code of a refusal, or None."""

from __future__ import annotations

from tests.history.blob.entries import SearchEntry
from tests.history.blob.events import ANY
from tests.history.blob.lease_model import refusal_to_write
from tests.history.blob.state import State


def refusal_to_create(state: State, entry: SearchEntry) -> str | None:
    """For writes that create or replace a blob."""
    refusal = refusal_to_write(state.lease, entry.operation.request.lease_id)
    if refusal is not None:
        return refusal
    if state.version and entry.if_none_match == ANY:
        # The lease id shows that the client knows the blob.
        return None if entry.operation.request.lease_id is not None else "BlobAlreadyExists"
    return _unmet(state, entry)


def refusal_to_change(state: State, entry: SearchEntry) -> str | None:
    """For writes that change an existing blob."""
    if not state.version:
        return "BlobNotFound"
    refusal = refusal_to_write(state.lease, entry.operation.request.lease_id)
    return refusal or _unmet(state, entry)


def _unmet(state: State, entry: SearchEntry) -> str | None:
    matches = entry.if_match in (None, state.version) or (entry.if_match == ANY and state.version)
    differs = entry.if_none_match is None or entry.if_none_match != state.version
    return None if matches and differs else "ConditionNotMet"
