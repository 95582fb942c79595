"""The state of a blob in the model, as far as answers depend on it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from tests.history.blob.entries import UNSEEN
from tests.history.blob.lease_model import NO_LEASE, Lease

Blocks = tuple[tuple[str, str], ...]
"""Ids with the tokens of their contents, in order of the ids."""


class State(NamedTuple):
    version: str = ""
    """Empty: there is no blob."""
    content: tuple[str, ...] = ()
    """Of a page blob: a token for each page, empty where nothing was written."""
    committed: Blocks = ()
    """Blocks that a list may name although they are not staged."""
    staged: Blocks = ()
    lease: Lease = NO_LEASE
    rank: int = 0
    """The number of the last ETag, even of a deleted blob: the next one is greater."""
    origin: str = ""
    """What created it. This and what follows belong to append and page blobs only."""
    length: int = 0
    """In bytes."""
    sealed: bool = False
    number: int = 0
    """The sequence number."""
    snapshots: frozenset[str] = frozenset()
    """Those that a later request names."""


ABSENT: Final = State()


def forget_names(state: State, names: Collection[str]) -> State:
    """Returns the state without names that no answer will show any more."""

    def name(token: str) -> str:
        return UNSEEN if token in names else token

    return state._replace(
        content=tuple(map(name, state.content)),
        committed=tuple((block, name(token)) for block, token in state.committed),
        staged=tuple((block, name(token)) for block, token in state.staged),
        origin=name(state.origin),
        snapshots=state.snapshots.difference(names),
    )
