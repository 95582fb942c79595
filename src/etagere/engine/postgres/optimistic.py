"""Optimistic reads: operations that run on cached records before the database is asked.

A read operation is a pure function of the records that it gets. It runs on those that the process
has cached, and notes every record, present or absent. Then one statement compares the versions of
all of them in one snapshot, which was taken after the read began. If they are the current ones, the
result is what the operation would have returned in that snapshot. Otherwise the statement has
returned the current records, and the operation runs again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn, cast

from etagere.engine.interface import FILTERED_SCAN_BYTES_MAX, C, ReadTxn, T
from etagere.engine.postgres.record_cache import (
    UNKNOWN,
    CachedRecord,
    RecordCache,
    RecordLookups,
)
from etagere.engine.postgres.snapshot_txn import NOTHING_EXPECTED, Expected, Scan, first_slice
from etagere.engine.records import Collection, K, R, RecordKey, Span
from etagere.engine.timeline import Instant

GETS_MAX: Final = 1_024
"""An operation that gets more records runs in a transaction instead. This also ends operations
that would never end on records of different times."""
ROUNDS_MAX: Final = 6
"""The statements after which a read that is still not valid runs in a transaction. One statement
suffices if everything is cached; each record that leads to another one may take one more."""


class Incomplete(BaseException):
    """The operation needs a record that is not cached.

    Not an `Exception`: operations must not handle it.
    """


class NeedsSnapshot(BaseException):
    """The operation does something that only a transaction can do, such as a scan. `expected` is
    what it will look at."""

    def __init__(self, expected: Expected = NOTHING_EXPECTED) -> None:
        super().__init__()
        self.expected = expected


class Validation(NamedTuple):
    """Records of one snapshot, and its time."""

    entries: Mapping[RecordKey, CachedRecord]
    instant: Instant


class RecordingTxn(RecordLookups):
    """A read transaction on cached records, which notes what the operation uses."""

    __slots__ = (
        "_cache",
        "_gets_left",
        "_instant",
        "_key_bytes_max",
        "_validated",
        "asked_time",
        "seen",
        "unknown",
    )

    def __init__(
        self,
        cache: RecordCache,
        validated: Mapping[RecordKey, CachedRecord],
        instant: Instant,
        key_bytes_max: int,
    ) -> None:
        """`validated`: records that are known to be of one snapshot, and are used first."""
        self._cache = cache
        self._validated = validated
        self._instant = instant
        self._key_bytes_max = key_bytes_max
        self._gets_left = GETS_MAX
        self.asked_time = False
        self.seen: dict[RecordKey, CachedRecord] = {}
        self.unknown: list[RecordKey] = []
        """Records that are not cached."""

    @property
    def now(self) -> int:
        self.asked_time = True
        return self._instant.now

    @property
    def steady_now(self) -> int:
        self.asked_time = True
        return self._instant.steady_now

    @property
    def is_overdue(self) -> bool:
        return False

    def get(self, collection: Collection[K, R], key: K) -> R | None:
        entry = self._find((collection, collection.pack(key)))
        if entry is None:
            raise Incomplete
        return cast("R | None", entry.record)

    def scan(
        self, collection: Collection[K, R], span: Span, limit: int, *, reverse: bool = False
    ) -> NoReturn:
        raise self.needs_snapshot(Scan(collection, span, limit, reverse))

    def scan_filtered(
        self,
        collection: Collection[K, R],
        span: Span,
        limit: int,
        passes: Callable[[R], bool],
        bytes_max: int = FILTERED_SCAN_BYTES_MAX,
    ) -> NoReturn:
        raise self.needs_snapshot(first_slice(collection, span, limit))

    def count(self, collection: Collection[K, R], span: Span, limit: int) -> NoReturn:
        raise self.needs_snapshot()

    def needs_snapshot(self, scan: Scan | None = None) -> NeedsSnapshot:
        """Returns the exception that ends the attempt in favour of a transaction."""
        return NeedsSnapshot(Expected({**self.seen, **dict.fromkeys(self.unknown, UNKNOWN)}, scan))

    def _find_all(self, collection: Collection[K, Any], keys: Sequence[K]) -> list[CachedRecord]:
        pack, find = collection.pack, self._find
        found = [find((collection, pack(key))) for key in keys]
        if self.unknown:
            raise Incomplete
        return cast("list[CachedRecord]", found)

    def _find(self, record_key: RecordKey) -> CachedRecord | None:
        if not self._gets_left:
            raise self.needs_snapshot()
        self._gets_left -= 1
        entry = self.seen.get(record_key)
        if entry is not None:
            return entry
        entry = self._validated.get(record_key)
        if entry is None:
            entry = self._cache.get(record_key)
            if entry is None:
                if len(record_key[1]) > self._key_bytes_max:
                    raise self.needs_snapshot()
                self.unknown.append(record_key)
                return None
        self.seen[record_key] = entry
        return entry


def run_optimistically(
    operation: Callable[[ReadTxn, C], T],
    command: C,
    cache: RecordCache,
    last: Instant,
    key_bytes_max: int,
) -> Generator[RecordingTxn, Validation, T]:
    """Runs a read. Yields the records that it depends on, and expects to be sent a validation: the
    current state of all records that it has seen or lacks, in one snapshot that was taken after
    the yield. Returns the result or raises the exception of the operation in that snapshot. Raises
    `NeedsSnapshot` if the operation must run in a transaction.

    `last`: a time in the past, for the first attempt.
    """
    validated: Mapping[RecordKey, CachedRecord] = {}
    instant, is_current = last, False
    result: T
    for _ in range(ROUNDS_MAX):
        txn = RecordingTxn(cache, validated, instant, key_bytes_max)
        error: Exception | None = None
        complete = True
        try:
            result = operation(txn, command)
        except Incomplete:
            complete = False
        except Exception as raised:
            # Also one that no snapshot would have caused: the records may be of different times.
            error = raised
        needs_time = txn.asked_time and not is_current
        if not complete or needs_time or not _all_in(validated, txn.seen):
            validated, instant = yield txn
            is_current = True
            if not complete or txn.asked_time or not _all_in(validated, txn.seen):
                continue
        if error is not None:
            raise error
        return result
    raise NeedsSnapshot(Expected(validated))


def _all_in(
    validated: Mapping[RecordKey, CachedRecord], seen: Mapping[RecordKey, CachedRecord]
) -> bool:
    for record_key, entry in seen.items():  # noqa: SIM110 (all() would cost a generator)
        if validated.get(record_key) is not entry:
            return False
    return True
