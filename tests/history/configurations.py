"""The candidates that the search for an order keeps."""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterator
from typing import Any, Generic, NamedTuple, Protocol, TypeVar


class Part(enum.Enum):
    """What an operation can contribute to an explanation."""

    ACTIVE = enum.auto()
    """It was carried out, and changed something."""
    PASSIVE = enum.auto()
    """It was carried out, and showed something: a read, or a refusal."""
    DOUBTFUL = enum.auto()
    """It changed something, if it was carried out."""


class Trial(Protocol):
    """An operation as the search sees it."""

    @property
    def operation(self) -> Any: ...

    @property
    def part(self) -> Part: ...

    @property
    def began(self) -> int: ...

    @property
    def latest(self) -> int:
        """The time by which it had been carried out, if ever."""

    @property
    def alike(self) -> Hashable:
        """Trials for which this is equal have the same effect at any time; None if unique."""


StateT = TypeVar("StateT", bound=Hashable)
TrialT = TypeVar("TrialT", bound=Trial)


class Trail(NamedTuple):
    """The order so far, newest first."""

    trial: Trial
    before: Trail | None


class Configuration(NamedTuple, Generic[StateT]):
    """A state of the model, and the operations in flight that were carried out to reach it."""

    state: StateT
    active: int = 0
    """Bits of operations in flight that have been carried out; likewise the next two."""
    passive: int = 0
    doubtful: int = 0
    trail: Trail | None = None

    @property
    def done(self) -> int:
        return self.active | self.passive | self.doubtful

    def without(self, bits: int) -> Configuration[StateT]:
        kept = ~bits
        return self._replace(
            active=self.active & kept, passive=self.passive & kept, doubtful=self.doubtful & kept
        )


class Frontier(Generic[StateT]):
    """A set of configurations of which none covers another."""

    def __init__(self) -> None:
        self._kept: dict[tuple[StateT, int], list[Configuration[StateT]]] = {}
        self.count = 0

    def __iter__(self) -> Iterator[Configuration[StateT]]:
        for kept in self._kept.values():
            yield from kept

    def add(self, new: Configuration[StateT]) -> bool:
        """Returns whether it was added: no other covers it."""
        kept = self._kept.setdefault((new.state, new.active), [])
        if any(_covers(old, new) for old in kept):
            return False
        left = [old for old in kept if not _covers(new, old)]
        self.count += 1 + len(left) - len(kept)
        kept[:] = [*left, new]
        return True


def _covers(one: Configuration[StateT], other: Configuration[StateT]) -> bool:
    """Whether whatever can follow `other` can follow `one`."""
    return not (other.passive & ~one.passive) and not (one.doubtful & ~other.doubtful)


class OperationsInFlight(Generic[TrialT]):
    """The operations in flight at one moment of a history, each with a bit of its own."""

    def __init__(self) -> None:
        self.trials: dict[int, TrialT] = {}
        """By bit."""
        self.alike: dict[Hashable, list[int]] = {}
        """Bits of operations with the same effect, the one whose time ends first in front."""
        self._bits: dict[int, int] = {}
        """By identity of the trial."""

    def begin(self, trial: TrialT) -> int:
        """Returns the bit of the operation."""
        bit = 1
        while bit in self.trials:
            bit <<= 1
        self.trials[bit] = trial
        self._bits[id(trial)] = bit
        if trial.alike is not None:
            alike = self.alike.setdefault(trial.alike, [])
            alike.append(bit)
            alike.sort(key=lambda each: self.trials[each].latest)
        return bit

    def bit_of(self, trial: TrialT) -> int:
        """Returns 0 if the operation was forgotten."""
        return self._bits.get(id(trial), 0)

    def forget(self, bit: int) -> TrialT:
        trial = self.trials.pop(bit)
        del self._bits[id(trial)]
        if trial.alike is not None:
            self.alike[trial.alike].remove(bit)
        return trial
