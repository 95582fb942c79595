"""Nodes of other cells that have failed, and so are avoided for a while."""

from __future__ import annotations

import asyncio
import math
from typing import Final, NamedTuple

Address = tuple[str, int]

AVOID_SECONDS_MIN: Final = 5.0
"""How long a node is tried only after all others, after it has failed."""
AVOID_SECONDS_MAX: Final = 60.0
"""The same, after it could not be reached many times in a row."""
_FORGET_SECONDS: Final = 60.0
"""How long after that a node that nobody has tried again is remembered."""


class Target(NamedTuple):
    """What fails as a whole. A node serves Blob, Queue and Table itself. It forwards connections
    for File to the node that serves files, so these may fail while the node is healthy."""

    address: Address
    is_for_files: bool


class Suspect:
    """A node that has failed, and has not accepted a connection since."""

    def __init__(self) -> None:
        self.probing = asyncio.Lock()
        """Held during a handshake: a node that may be gone gets one at a time, so that the requests
        that wait for it are few."""
        self.unreachable_at = -math.inf
        """When it was found to be unreachable."""
        self.avoid_seconds = 0.0
        self.avoid_until = -math.inf


class Suspects:
    """The nodes that have failed."""

    def __init__(self) -> None:
        self._suspects: dict[Target, Suspect] = {}

    def get(self, target: Target) -> Suspect | None:
        return self._suspects.get(target)

    def is_avoided(self, target: Target) -> bool:
        """Returns whether a node is to be tried after all others."""
        suspect = self._suspects.get(target)
        return suspect is not None and (_now() < suspect.avoid_until or suspect.probing.locked())

    def has_become_unreachable(self, target: Target, since: float) -> bool:
        """Returns whether a node was found to be unreachable after this time."""
        suspect = self._suspects.get(target)
        return suspect is not None and suspect.unreachable_at > since

    def note_failure(self, target: Target) -> None:
        """Avoids a node that has failed, although it may be reachable."""
        suspect = self._suspects.setdefault(target, Suspect())
        suspect.avoid_until = max(suspect.avoid_until, _now() + AVOID_SECONDS_MIN)

    def note_unreachable(self, target: Target, began: float) -> None:
        """Avoids a node with which a handshake that began at this time has failed: longer each
        time, because a request may wait for seconds to find out that the node is still gone."""
        suspect = self._suspects.setdefault(target, Suspect())
        if began < suspect.unreachable_at:
            return  # handshakes at the same time fail for the same reason
        doubled = max(AVOID_SECONDS_MIN, 2 * suspect.avoid_seconds)
        suspect.avoid_seconds = min(doubled, AVOID_SECONDS_MAX)
        suspect.unreachable_at = _now()
        suspect.avoid_until = suspect.unreachable_at + suspect.avoid_seconds

    def clear(self, target: Target) -> None:
        """Notes that a node has accepted a connection."""
        self._suspects.pop(target, None)

    def forget_old(self) -> None:
        """Drops nodes that nobody has tried again. Perhaps they do not exist any more."""
        oldest = _now() - _FORGET_SECONDS
        for target, suspect in list(self._suspects.items()):
            if suspect.avoid_until < oldest and not suspect.probing.locked():
                del self._suspects[target]


def _now() -> float:
    return asyncio.get_running_loop().time()
