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


class SearchEntry(Protocol):
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
        """Entries for which this is equal have the same effect at any time; None if unique."""


StateT = TypeVar("StateT", bound=Hashable)
EntryT = TypeVar("EntryT", bound=SearchEntry)


class Trail(NamedTuple):
    """The order so far, newest first."""

    entry: SearchEntry
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
        others = ~bits
        return self._replace(
            active=self.active & others,
            passive=self.passive & others,
            doubtful=self.doubtful & others,
        )


class Frontier(Generic[StateT]):
    """A set of configurations of which none covers another."""

    def __init__(self) -> None:
        self._configurations: dict[tuple[StateT, int], list[Configuration[StateT]]] = {}
        self.count = 0

    def __iter__(self) -> Iterator[Configuration[StateT]]:
        for configurations in self._configurations.values():
            yield from configurations

    def add(self, new: Configuration[StateT]) -> bool:
        """Returns whether it was added: no other covers it."""
        configurations = self._configurations.setdefault((new.state, new.active), [])
        if any(_covers(old, new) for old in configurations):
            return False
        uncovered = [old for old in configurations if not _covers(new, old)]
        self.count += 1 + len(uncovered) - len(configurations)
        configurations[:] = [*uncovered, new]
        return True


def _covers(one: Configuration[StateT], other: Configuration[StateT]) -> bool:
    """Whether everything that can follow `other` can follow `one`."""
    return not (other.passive & ~one.passive) and not (one.doubtful & ~other.doubtful)


class OperationsInFlight(Generic[EntryT]):
    """The operations in flight at one moment of a history, each with a bit of its own."""

    def __init__(self) -> None:
        self.entries: dict[int, EntryT] = {}
        """By bit."""
        self.alike: dict[Hashable, list[int]] = {}
        """Bits of operations with the same effect, the one whose time ends first in front."""
        self._bits: dict[int, int] = {}
        """By identity of the entry."""

    def begin(self, entry: EntryT) -> int:
        """Returns the bit of the operation."""
        bit = 1
        while bit in self.entries:
            bit <<= 1
        self.entries[bit] = entry
        self._bits[id(entry)] = bit
        if entry.alike is not None:
            alike = self.alike.setdefault(entry.alike, [])
            alike.append(bit)
            alike.sort(key=lambda each: self.entries[each].latest)
        return bit

    def bit_of(self, entry: EntryT) -> int:
        """Returns 0 if the operation was forgotten."""
        return self._bits.get(id(entry), 0)

    def forget(self, bit: int) -> EntryT:
        entry = self.entries.pop(bit)
        del self._bits[id(entry)]
        if entry.alike is not None:
            self.alike[entry.alike].remove(bit)
        return entry
