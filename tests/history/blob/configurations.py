"""What the search for an order keeps: explanations of what was answered so far."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.history.blob.state import State
from tests.history.blob.trials import Trial


class Trail(NamedTuple):
    """The order so far, newest first."""

    trial: Trial
    before: Trail | None


class Configuration(NamedTuple):
    state: State
    active: int = 0
    """Bits of those in flight that have been carried out; likewise the next two."""
    passive: int = 0
    doubtful: int = 0
    trail: Trail | None = None

    @property
    def done(self) -> int:
        return self.active | self.passive | self.doubtful

    def without(self, bits: int) -> Configuration:
        kept = ~bits
        return self._replace(
            active=self.active & kept, passive=self.passive & kept, doubtful=self.doubtful & kept
        )


class Frontier:
    """Configurations of which none is superfluous."""

    def __init__(self) -> None:
        self._kept: dict[tuple[State, int], list[Configuration]] = {}
        self.count = 0

    def __iter__(self) -> Iterator[Configuration]:
        for kept in self._kept.values():
            yield from kept

    def add(self, new: Configuration) -> bool:
        kept = self._kept.setdefault((new.state, new.active), [])
        if any(_covers(old, new) for old in kept):
            return False
        left = [old for old in kept if not _covers(new, old)]
        self.count += 1 + len(left) - len(kept)
        kept[:] = [*left, new]
        return True


def _covers(one: Configuration, other: Configuration) -> bool:
    return not (other.passive & ~one.passive) and not (one.doubtful & ~other.doubtful)
