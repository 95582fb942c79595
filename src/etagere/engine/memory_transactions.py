"""The transactions of the engine for tests."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from etagere.engine.interface import (
    EXCLUSIVE,
    FILTERED_SCAN_BYTES_MAX,
    C,
    Conflict,
    Counted,
    FilteredRows,
    Guard,
)
from etagere.engine.memory_store import MemoryCore, RecordPlace, Table
from etagere.engine.records import ENCODE, Collection, K, R, Span
from etagere.engine.timeline import now_at

logger = logging.getLogger(__name__)


class MemoryReadTxn:
    """A snapshot, until it is closed."""

    def __init__(self, core: MemoryCore) -> None:
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

    def _table(self, collection: Collection[Any, Any]) -> Table:
        if not self._open:
            raise RuntimeError("the transaction has ended")
        return self._core.store.table(collection.name)


class MemoryWriteTxn:
    """A write transaction: its own writes over what is committed at the time of each call."""

    def __init__(self, core: MemoryCore, interrupt: Callable[[], None] | None) -> None:
        self._core = core
        self._interrupt = interrupt
        self._writes: dict[RecordPlace, bytes | None] = {}
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
        place = RecordPlace(collection.name, collection.pack(key))
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
        self._write(RecordPlace(collection.name, collection.pack(key)), value)
        return stored

    def delete(self, collection: Collection[K, R], key: K) -> None:
        self._step()
        self._write(RecordPlace(collection.name, collection.pack(key)), None)

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

    def _lock(self, place: RecordPlace, guard: Guard) -> None:
        if not self._core.locks.take(self, place, guard):
            self._conflicted = True
            raise Conflict(f"another transaction holds a record of {place.collection}")

    def _write(self, place: RecordPlace, value: bytes | None) -> None:
        self._lock(place, EXCLUSIVE)
        self._writes[place] = value

    def _value(self, place: RecordPlace) -> bytes | None:
        if place in self._writes:
            return self._writes[place]
        store = self._core.store
        return store.table(place.collection).value_at(place.key, store.sequence)

    def _places(self, collection: str, span: Span, *, reverse: bool) -> Iterator[RecordPlace]:
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
                yield RecordPlace(collection, key)
            previous = key
