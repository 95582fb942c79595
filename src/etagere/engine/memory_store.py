"""The records of the engine for tests: versions of each, and the locks on them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from etagere.clock import Clock
from etagere.engine.interface import (
    EXCLUSIVE,
    Fault,
    FaultReason,
    Guard,
)
from etagere.engine.records import Span
from etagere.engine.timeline import Timeline, advance, begin, next_stamp


class RecordPlace(NamedTuple):
    """The collection and key of a record, present or absent: the unit of locking."""

    collection: str
    key: bytes


class Version(NamedTuple):
    """The value of a key since a commit; None if that deleted it."""

    sequence: int
    value: bytes | None


class Table:
    """The keys of one collection in order, each with its versions, oldest first."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.versions: dict[bytes, list[Version]] = {}

    def value_at(self, key: bytes, sequence: int) -> bytes | None:
        for version in reversed(self.versions.get(key, ())):
            if version.sequence <= sequence:
                return version.value
        return None

    def keys_in(self, span: Span, *, reverse: bool) -> Iterator[bytes]:
        places = range(bisect_left(self.keys, span.start), bisect_left(self.keys, span.stop))
        return (self.keys[place] for place in (reversed(places) if reverse else places))

    def append(self, key: bytes, version: Version) -> None:
        if key not in self.versions:
            insort(self.keys, key)
            self.versions[key] = []
        self.versions[key].append(version)

    def prune(self, key: bytes, snapshots: Iterable[int]) -> bool:
        """Drops the versions that neither a snapshot nor the next reader can see; returns whether
        any but the newest remain."""
        versions = self.versions[key]
        needed = {bisect_right(versions, s, key=lambda v: v.sequence) - 1 for s in snapshots}
        needed.add(len(versions) - 1)
        kept = [version for place, version in enumerate(versions) if place in needed]
        # Before its first value a key is absent in any case.
        while kept and kept[0].value is None:
            del kept[0]
        if kept:
            self.versions[key] = kept
        else:
            del self.versions[key]
            del self.keys[bisect_left(self.keys, key)]
        return len(kept) > 1


class Store:
    """The committed records, in as many versions as the open snapshots need."""

    def __init__(self) -> None:
        self.sequence = 0
        self._tables: defaultdict[str, Table] = defaultdict(Table)
        self._snapshots: Counter[int] = Counter()
        self._superseded: set[RecordPlace] = set()

    def table(self, collection: str) -> Table:
        return self._tables[collection]

    def versions_held(self) -> int:
        tables = self._tables.values()
        return sum(len(versions) for table in tables for versions in table.versions.values())

    def open_snapshot(self) -> int:
        self._snapshots[self.sequence] += 1
        return self.sequence

    def close_snapshot(self, sequence: int) -> None:
        self._snapshots[sequence] -= 1
        if not self._snapshots[sequence]:
            del self._snapshots[sequence]
            self._prune(list(self._superseded))

    def apply(self, writes: dict[RecordPlace, bytes | None]) -> None:
        self.sequence += 1
        for place, value in writes.items():
            self._tables[place.collection].append(place.key, Version(self.sequence, value))
        self._prune(writes)

    def newest(self) -> Store:
        """Returns a copy of the newest state."""
        copy = Store()
        copy.apply(
            {
                RecordPlace(name, key): versions[-1].value
                for name, table in self._tables.items()
                for key, versions in table.versions.items()
            }
        )
        return copy

    def _prune(self, places: Iterable[RecordPlace]) -> None:
        for place in places:
            if self._tables[place.collection].prune(place.key, self._snapshots):
                self._superseded.add(place)
            else:
                self._superseded.discard(place)


class Locks:
    """The locks of the open write transactions."""

    def __init__(self) -> None:
        self._holders: defaultdict[RecordPlace, dict[object, Guard]] = defaultdict(dict)
        self._held: defaultdict[object, set[RecordPlace]] = defaultdict(set)

    def take(self, owner: object, place: RecordPlace, guard: Guard) -> bool:
        """Takes a lock; returns False if another transaction holds it."""
        holders = self._holders.get(place, {})
        others = [held for holder, held in holders.items() if holder is not owner]
        if EXCLUSIVE in others or (others and guard is EXCLUSIVE):
            return False
        if holders.get(owner) is not EXCLUSIVE:
            self._holders[place][owner] = guard
            self._held[owner].add(place)
        return True

    def release(self, owner: object) -> None:
        for place in self._held.pop(owner, ()):
            holders = self._holders[place]
            del holders[owner]
            if not holders:
                del self._holders[place]


class MemoryCore:
    """The state that the transactions of one engine share."""

    def __init__(self, store: Store, clock: Clock, stored: Timeline | None) -> None:
        self.store = store
        self.locks = Locks()
        self.clock = clock
        self.timeline = begin(stored, clock)
        self.closed = False
        self._last_stamp = self.timeline.last_stamp

    def require_open(self) -> None:
        if self.closed:
            raise Fault(FaultReason.UNAVAILABLE, "the engine is closed")

    def new_stamp(self) -> int:
        self._last_stamp = next_stamp(self._last_stamp, self.clock.wall())
        return self._last_stamp

    def commit(self, writes: dict[RecordPlace, bytes | None]) -> None:
        self.require_open()
        timeline = advance(self.timeline, self.clock, self._last_stamp)
        self.store.apply(writes)
        self.timeline = timeline
