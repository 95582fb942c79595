"""Counts what a store contains, in the background and slowly.

Objects and leases are not counted when they change, since a lease ends without a transaction, and a
total would be a record that every write changes. They are counted by reading the ledger, at most
2 % of the time, so that the count of a large store takes minutes.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from etagere.bodies.contents import DEAD_TOTALS, SEGMENTS
from etagere.bodies.segment_records import read_all
from etagere.engine.interface import Engine, ReadTxn
from etagere.engine.records import Collection, Span
from etagere.metrics.snapshots import Snapshot
from etagere.model.bodies import SegmentState
from etagere.model.files import DirectoryNode, Entry, FileNode
from etagere.model.leases import NO_LEASE, Lease, LeaseState
from etagere.operations.blob.collections import BLOBS, CONTAINERS, SNAPSHOTS
from etagere.operations.file.collections import ENTRIES, SHARE_SNAPSHOTS, SHARES
from etagere.operations.queue.collections import MESSAGES, QUEUES
from etagere.operations.table.collections import ENTITIES, TABLES
from etagere.rules.leases import effective_state

COUNT_PAUSE_SECONDS: Final = 5.0
"""Between two counts."""
SEGMENTS_PAUSE_SECONDS: Final = 10.0
_ROWS_PER_SLICE: Final = 500
_BUSY_SHARE: Final = 0.02
_ACTIVE: Final = (LeaseState.LEASED, LeaseState.BREAKING)


def _kind_of_entry(entry: Entry) -> str:
    if isinstance(entry.node, FileNode):
        return "file"
    return "directory" if isinstance(entry.node, DirectoryNode) else "link"


def _lease_of_entry(entry: Entry) -> Lease:
    return entry.node.lease if isinstance(entry.node, FileNode) else NO_LEASE


class CountedCollection(NamedTuple):
    """A collection whose records are counted."""

    collection: Collection[Any, Any]
    kinds: tuple[str, ...]
    """The kinds of its records. If there are several, `kind_of` tells them apart."""
    lease_of: Callable[[Any], Lease] | None = None
    """None: its records have no leases, and need not be decoded."""
    kind_of: Callable[[Any], str] | None = None


COUNTED: Final = (
    CountedCollection(CONTAINERS, ("container",), lambda container: container.lease),
    CountedCollection(BLOBS, ("blob",), lambda blob: blob.lease),
    CountedCollection(SNAPSHOTS, ("blob_snapshot",)),
    CountedCollection(QUEUES, ("queue",)),
    CountedCollection(MESSAGES, ("message",)),
    CountedCollection(TABLES, ("table",)),
    CountedCollection(ENTITIES, ("entity",)),
    CountedCollection(SHARES, ("share",), lambda share: share.lease),
    CountedCollection(SHARE_SNAPSHOTS, ("share_snapshot",)),
    CountedCollection(ENTRIES, ("file", "directory", "link"), _lease_of_entry, _kind_of_entry),
)
LEASED_KINDS: Final = ("container", "blob", "share", "file")
"""The kinds of objects that may have a lease."""


class CountedSlice(NamedTuple):
    """The numbers of objects and active leases by kind, and what is left to count."""

    objects: Counter[str]
    leases: Counter[str]
    rest: Span | None


def count_slice(txn: ReadTxn, command: tuple[CountedCollection, Span]) -> CountedSlice:
    """Counts the first records of a span."""
    counted, span = command
    objects: Counter[str] = Counter()
    leases: Counter[str] = Counter()
    lease_of = counted.lease_of
    if lease_of is None:
        found = txn.count(counted.collection, span, _ROWS_PER_SLICE)
        objects[counted.kinds[0]] = found.records
        return CountedSlice(objects, leases, found.rest)
    now = txn.steady_now

    def count(record: object) -> bool:
        kind = counted.kinds[0] if counted.kind_of is None else counted.kind_of(record)
        objects[kind] += 1
        lease = lease_of(record)
        if lease != NO_LEASE and effective_state(lease, now) in _ACTIVE:
            leases[kind] += 1
        return False  # nothing is returned

    rows = txn.scan_filtered(counted.collection, span, _ROWS_PER_SLICE, count)
    return CountedSlice(objects, leases, rows.rest)


class StoreCounter:
    """Counts the objects, leases and segments of a store."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._objects: Counter[str] = Counter()
        self._leases: Counter[str] = Counter()
        self._counted_at: float | None = None
        self._segments: Counter[str] | None = None
        self._sealed_bytes = 0
        self._dead_bytes = 0

    async def count_objects(self) -> None:
        """Counts everything once."""
        objects = Counter({kind: 0 for counted in COUNTED for kind in counted.kinds})
        leases = Counter(dict.fromkeys(LEASED_KINDS, 0))
        for counted in COUNTED:
            rest: Span | None = counted.collection.all()
            while rest is not None:
                began = time.monotonic()
                counts = await self._engine.read(count_slice, (counted, rest))
                objects.update(counts.objects)
                leases.update(counts.leases)
                rest = counts.rest
                await asyncio.sleep((time.monotonic() - began) / _BUSY_SHARE)
        self._objects, self._leases = objects, leases
        self._counted_at = time.time()

    async def examine_segments(self) -> None:
        """Counts the segments and their dead bytes, of which there is one record each."""
        states = Counter({state.value: 0 for state in SegmentState})
        sealed_bytes = dead_bytes = 0
        sealed: set[int] = set()
        for number, segment in await read_all(self._engine, SEGMENTS):
            states[segment.state.value] += 1
            if segment.state is SegmentState.SEALED:
                sealed.add(number)
                sealed_bytes += segment.length
        for number, dead in await read_all(self._engine, DEAD_TOTALS):
            dead_bytes += dead.length if number in sealed else 0
        self._segments = states
        self._sealed_bytes, self._dead_bytes = sealed_bytes, min(dead_bytes, sealed_bytes)

    def report(self, snapshot: Snapshot) -> None:
        """Adds the results of the last counts."""
        if self._counted_at is not None:
            for kind, count in self._objects.items():
                snapshot.add("objects", count, kind)
            for kind, count in self._leases.items():
                snapshot.add("leases", count, kind)
            snapshot.add("count_timestamp_seconds", self._counted_at)
        if self._segments is not None:
            for state, count in self._segments.items():
                snapshot.add("segments", count, state)
            snapshot.add("segment_bytes", self._sealed_bytes - self._dead_bytes, "live")
            snapshot.add("segment_bytes", self._dead_bytes, "dead")
