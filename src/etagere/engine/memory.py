"""The engine for tests: in memory, with guarantees as weak as those of the weakest real engine.

Reads have a snapshot. Each call of a write transaction sees the newest committed state, as in
PostgreSQL's READ COMMITTED; only guarded records stay the same, so tests notice a missing guard.
Two things differ from a real engine, to make tests deterministic: a lock that another transaction
holds is a conflict at once instead of a wait, and transactions can be stepped by hand (`begin`,
`begin_read`).
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, cast

import msgspec

from etagere.clock import Clock, SystemClock
from etagere.engine.interface import (
    EXCLUSIVE,
    FILTERED_SCAN_BYTES_MAX,
    C,
    Conflict,
    Counted,
    Fault,
    FaultReason,
    FilteredRows,
    Guard,
    Operation,
    ReadClass,
    ReadTxn,
    Refused,
    Steps,
    T,
    WriteTxn,
    registered,
)
from etagere.engine.records import ENCODE, Collection, K, R, Span
from etagere.engine.retry import RetryCounters, RetryPolicy, retry_on_conflict
from etagere.engine.timeline import Timeline, advance, begin, next_stamp, now_at
from etagere.errors import Refusal
from etagere.telemetry.formats import describe_exception

logger = logging.getLogger(__name__)

_decode_refusal = msgspec.msgpack.Decoder(Refusal).decode


class _RecordPlace(NamedTuple):
    """The collection and key of a record, present or absent: the unit of locking."""

    collection: str
    key: bytes


class _Version(NamedTuple):
    """The value of a key since a commit; None if that deleted it."""

    sequence: int
    value: bytes | None


class _Table:
    """The keys of one collection in order, each with its versions, oldest first."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.versions: dict[bytes, list[_Version]] = {}

    def value_at(self, key: bytes, sequence: int) -> bytes | None:
        for version in reversed(self.versions.get(key, ())):
            if version.sequence <= sequence:
                return version.value
        return None

    def keys_in(self, span: Span, *, reverse: bool) -> Iterator[bytes]:
        places = range(bisect_left(self.keys, span.start), bisect_left(self.keys, span.stop))
        return (self.keys[place] for place in (reversed(places) if reverse else places))

    def append(self, key: bytes, version: _Version) -> None:
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


class _Store:
    """The committed records, in as many versions as the open snapshots need."""

    def __init__(self) -> None:
        self.sequence = 0
        self._tables: defaultdict[str, _Table] = defaultdict(_Table)
        self._snapshots: Counter[int] = Counter()
        self._superseded: set[_RecordPlace] = set()

    def table(self, collection: str) -> _Table:
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

    def apply(self, writes: dict[_RecordPlace, bytes | None]) -> None:
        self.sequence += 1
        for place, value in writes.items():
            self._tables[place.collection].append(place.key, _Version(self.sequence, value))
        self._prune(writes)

    def newest(self) -> _Store:
        """Returns a copy of the newest state."""
        copy = _Store()
        copy.apply(
            {
                _RecordPlace(name, key): versions[-1].value
                for name, table in self._tables.items()
                for key, versions in table.versions.items()
            }
        )
        return copy

    def _prune(self, places: Iterable[_RecordPlace]) -> None:
        for place in places:
            if self._tables[place.collection].prune(place.key, self._snapshots):
                self._superseded.add(place)
            else:
                self._superseded.discard(place)


class _Locks:
    """The locks of the open write transactions."""

    def __init__(self) -> None:
        self._holders: defaultdict[_RecordPlace, dict[object, Guard]] = defaultdict(dict)
        self._held: defaultdict[object, set[_RecordPlace]] = defaultdict(set)

    def take(self, owner: object, place: _RecordPlace, guard: Guard) -> bool:
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


class _Core:
    """The state that the transactions of one engine share."""

    def __init__(self, store: _Store, clock: Clock, stored: Timeline | None) -> None:
        self.store = store
        self.locks = _Locks()
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

    def commit(self, writes: dict[_RecordPlace, bytes | None]) -> None:
        self.require_open()
        timeline = advance(self.timeline, self.clock, self._last_stamp)
        self.store.apply(writes)
        self.timeline = timeline


class MemoryReadTxn:
    """A snapshot, until it is closed."""

    def __init__(self, core: _Core) -> None:
        self._core = core
        self._timeline = core.timeline
        self._sequence = core.store.open_snapshot()
        self._now: int | None = None
        self._open = True

    @property
    def now(self) -> int:
        if self._now is None:
            self._now = now_at(self._timeline, self._core.clock.elapsed())
        return self._now

    @property
    def steady_now(self) -> int:
        return self.now - self._timeline.offset

    @property
    def is_overdue(self) -> bool:
        return False  # nothing waits for the end of a snapshot

    def get(self, collection: Collection[K, R], key: K) -> R | None:
        value = self._table(collection).value_at(collection.pack(key), self._sequence)
        return None if value is None else collection.decode(value)

    def get_all(self, collection: Collection[K, R], keys: Sequence[K]) -> list[R | None]:
        return [self.get(collection, key) for key in keys]

    def scan(
        self, collection: Collection[K, R], span: Span, limit: int, *, reverse: bool = False
    ) -> list[tuple[K, R]]:
        table = self._table(collection)
        found: list[tuple[K, R]] = []
        for key in table.keys_in(span, reverse=reverse):
            if len(found) >= limit:
                break
            value = table.value_at(key, self._sequence)
            if value is not None:
                found.append((collection.unpack(key), collection.decode(value)))
        return found

    def scan_filtered(
        self,
        collection: Collection[K, R],
        span: Span,
        limit: int,
        passes: Callable[[R], bool],
        bytes_max: int = FILTERED_SCAN_BYTES_MAX,
    ) -> FilteredRows[K, R]:
        rows: list[tuple[K, R]] = []
        passed: list[tuple[K, R]] = []
        sizes: list[int] = []
        seen_bytes = 0
        for key, record in self.scan(collection, span, limit):
            size = len(ENCODE(record))
            rows.append((key, record))
            seen_bytes += size
            if passes(record):
                passed.append((key, record))
                sizes.append(size)
            if seen_bytes >= bytes_max:
                break
        is_cut = len(rows) == limit or seen_bytes >= bytes_max
        rest = collection.after(span, rows[-1][0]) if rows and is_cut else None
        return FilteredRows(passed, sizes, len(rows), seen_bytes, rest)

    def get_filtered(
        self, collection: Collection[K, R], keys: Sequence[K], passes: Callable[[R], bool]
    ) -> FilteredRows[K, R]:
        found = [(key, self.get(collection, key)) for key in keys]
        rows = [(key, record) for key, record in found if record is not None]
        passed = [(key, record) for key, record in rows if passes(record)]
        sizes = [len(ENCODE(record)) for _, record in passed]
        seen_bytes = sum(len(ENCODE(record)) for _, record in rows)
        return FilteredRows(passed, sizes, len(rows), seen_bytes, None)

    def count(self, collection: Collection[K, R], span: Span, limit: int) -> Counted:
        table = self._table(collection)
        keys = table.keys_in(span, reverse=False)
        present = (key for key in keys if table.value_at(key, self._sequence) is not None)
        found = list(islice(present, limit))
        return Counted(
            len(found), Span(found[-1] + b"\x00", span.stop) if len(found) == limit else None
        )

    def close(self) -> None:
        if self._open:
            self._open = False
            self._core.store.close_snapshot(self._sequence)

    def _table(self, collection: Collection[Any, Any]) -> _Table:
        if not self._open:
            raise RuntimeError("the transaction has ended")
        return self._core.store.table(collection.name)


class MemoryWriteTxn:
    """A write transaction: its own writes over what is committed at the time of each call."""

    def __init__(self, core: _Core, interrupt: Callable[[], None] | None) -> None:
        self._core = core
        self._interrupt = interrupt
        self._writes: dict[_RecordPlace, bytes | None] = {}
        self._hooks: list[tuple[Callable[[Any], None], Any]] = []
        self._now: int | None = None
        self._steady_now = 0
        self._stamp: int | None = None
        self._open = True
        self._conflicted = False

    @property
    def now(self) -> int:
        if self._now is None:
            self._now = now_at(self._core.timeline, self._core.clock.elapsed())
            # Other transactions may commit, and the date may step, while this one is open.
            self._steady_now = self._now - self._core.timeline.offset
        return self._now

    @property
    def steady_now(self) -> int:
        _ = self.now
        return self._steady_now

    @property
    def stamp(self) -> int:
        if self._stamp is None:
            self._stamp = self._core.new_stamp()
        return self._stamp

    def get(self, collection: Collection[K, R], key: K, guard: Guard | None = None) -> R | None:
        self._step()
        place = _RecordPlace(collection.name, collection.pack(key))
        if guard is not None:
            self._lock(place, guard)
        value = self._value(place)
        return None if value is None else collection.decode(value)

    def get_all(
        self, collection: Collection[K, R], keys: Sequence[K], guard: Guard | None = None
    ) -> list[R | None]:
        return [self.get(collection, key, guard) for key in keys]

    def scan(
        self,
        collection: Collection[K, R],
        span: Span,
        limit: int,
        *,
        reverse: bool = False,
        claim: bool = False,
    ) -> list[tuple[K, R]]:
        self._step()
        found: list[tuple[K, R]] = []
        for place in self._places(collection.name, span, reverse=reverse):
            if len(found) >= limit:
                break
            value = self._value(place)
            if value is None:
                continue
            if claim and not self._core.locks.take(self, place, EXCLUSIVE):
                continue
            found.append((collection.unpack(place.key), collection.decode(value)))
        return found

    def put(self, collection: Collection[K, R], key: K, record: R) -> R:
        self._step()
        value = collection.encode(record)
        # Fails here, rather than in the next reader, if the record cannot be decoded.
        stored = collection.decode(value)
        self._write(_RecordPlace(collection.name, collection.pack(key)), value)
        return stored

    def delete(self, collection: Collection[K, R], key: K) -> None:
        self._step()
        self._write(_RecordPlace(collection.name, collection.pack(key)), None)

    def on_commit(self, hook: Callable[[C], None], argument: C) -> None:
        self._step()
        self._hooks.append((hook, argument))

    def commit(self) -> None:
        try:
            self._step()
            self._core.commit(self._writes)
        finally:
            self._end()
        for hook, argument in self._hooks:
            try:
                hook(argument)
            except Exception:
                logger.exception("a commit hook failed")

    def rollback(self) -> None:
        if self._open:
            self._end()

    def _end(self) -> None:
        self._open = False
        self._core.locks.release(self)

    def _step(self) -> None:
        if self._interrupt is not None:
            self._interrupt()
        if not self._open:
            raise RuntimeError("the transaction has ended")
        # As in PostgreSQL, an operation cannot swallow a conflict and go on.
        if self._conflicted:
            raise Conflict("the transaction has met a conflict")

    def _lock(self, place: _RecordPlace, guard: Guard) -> None:
        if not self._core.locks.take(self, place, guard):
            self._conflicted = True
            raise Conflict(f"another transaction holds a record of {place.collection}")

    def _write(self, place: _RecordPlace, value: bytes | None) -> None:
        self._lock(place, EXCLUSIVE)
        self._writes[place] = value

    def _value(self, place: _RecordPlace) -> bytes | None:
        if place in self._writes:
            return self._writes[place]
        store = self._core.store
        return store.table(place.collection).value_at(place.key, store.sequence)

    def _places(self, collection: str, span: Span, *, reverse: bool) -> Iterator[_RecordPlace]:
        """Yields the places of committed records and of its own, in order, each once."""
        committed = self._core.store.table(collection).keys_in(span, reverse=reverse)
        own = sorted(
            (
                place.key
                for place in self._writes
                if place.collection == collection and span.start <= place.key < span.stop
            ),
            reverse=reverse,
        )
        previous: bytes | None = None
        for key in heapq.merge(committed, own, reverse=reverse):
            if key != previous:
                yield _RecordPlace(collection, key)
            previous = key


class MemoryEngine:
    """A ledger in memory."""

    def __init__(
        self,
        clock: Clock | None = None,
        timeline: Timeline | None = None,
        *,
        policy: RetryPolicy | None = None,
    ) -> None:
        self.retries = RetryCounters()
        self._policy = policy or RetryPolicy()
        self._core = _Core(_Store(), clock or SystemClock(), timeline)

    @property
    def timeline(self) -> Timeline:
        """The timeline that the last commit stored."""
        return self._core.timeline

    @property
    def versions_held(self) -> int:
        """The number of record versions in memory."""
        return self._core.store.versions_held()

    def begin(self, interrupt: Callable[[], None] | None = None) -> MemoryWriteTxn:
        """Begins a write transaction to be stepped by hand.

        `interrupt` is called before each of its steps, including the commit, so that a test can
        let others commit at any point within an operation.
        """
        self._core.require_open()
        return MemoryWriteTxn(self._core, interrupt)

    def begin_read(self) -> MemoryReadTxn:
        """Begins a read transaction to be stepped by hand."""
        self._core.require_open()
        return MemoryReadTxn(self._core)

    async def read(self, operation: Callable[[ReadTxn, C], T], command: C) -> T:
        transaction = self.begin_read()
        try:
            return _run(operation, transaction, command)
        finally:
            transaction.close()

    async def read_in_thread(
        self, operation: Callable[[ReadTxn, C], T], command: C, read_class: ReadClass | None = None
    ) -> T:
        return await self.read(operation, command)

    async def read_in_steps(
        self,
        operation: Callable[[ReadTxn, C], Steps[T]],
        command: C,
        read_class: ReadClass | None = None,
    ) -> T:
        transaction = self.begin_read()
        try:
            steps = _run(operation, transaction, command)
            while True:
                ended, result = _run(_step, steps, None)
                if ended:
                    return cast("T", result)
                await asyncio.sleep(0)
        finally:
            transaction.close()

    async def write(self, operation: Callable[[WriteTxn, C], T], command: C) -> T:
        known = registered(operation)
        sent = ENCODE(command)
        return await retry_on_conflict(
            lambda: self._attempt(known, sent), self._policy, self.retries
        )

    async def close(self) -> None:
        self._core.closed = True

    def restarted(self) -> MemoryEngine:
        """Closes this engine; returns a new one with its committed records."""
        self._core.closed = True
        engine = MemoryEngine(policy=self._policy)
        engine._core = _Core(self._core.store.newest(), self._core.clock, self._core.timeline)
        return engine

    async def _attempt(self, known: Operation[C, T], sent: bytes) -> T:
        transaction = self.begin()
        try:
            result = _run(_with_encoding(known), transaction, sent)
            # Other tasks run between an operation and its commit, as with a real engine. Without
            # this, no two writes would ever overlap.
            await asyncio.sleep(0)
            transaction.commit()
        finally:
            transaction.rollback()
        return result


def _with_encoding(known: Operation[C, T]) -> Callable[[WriteTxn, bytes], T]:
    """Returns the operation with its command and result encoded, as if it ran in another
    process."""

    def run(transaction: WriteTxn, sent: bytes) -> T:
        try:
            result = known.run(transaction, known.decode_command(sent))
        except Refused as refused:
            raise Refused(_decode_refusal(ENCODE(refused.refusal))) from refused
        return known.decode_result(ENCODE(result))

    return run


def _step(steps: Steps[T], _: None) -> tuple[bool, T | None]:
    """Runs one step; returns whether it was the last one, and the result."""
    try:
        next(steps)
    except StopIteration as ended:
        return True, ended.value
    return False, None


def _run(operation: Callable[[Any, C], T], transaction: object, command: C) -> T:
    """Runs an operation; an unexpected exception is a bug in it and becomes a fault."""
    try:
        return operation(transaction, command)
    except (Refused, Conflict):
        raise
    except Exception as error:
        logger.exception("an operation failed")
        raise Fault(FaultReason.FAILED, describe_exception(error)) from error
