"""The PostgreSQL transaction of one group: what it has read and locked, and what it will store.

A group begins without a transaction: its operations run on cached records. Then everything
that they looked at is locked, or read again, in one round trip. A record that turns out to have
changed replaces the cached one, and the operations that looked at it run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, Final

from psycopg import pq

from etagere.engine.interface import Conflict
from etagere.engine.postgres import fence, schema, storing
from etagere.engine.postgres.acquiring import (
    Acquisition,
    LockLevel,
    SentStatement,
    StatementKind,
    WantedLocks,
)
from etagere.engine.postgres.binary import bigint, to_int
from etagere.engine.postgres.connecting import QUERY_CANCELED
from etagere.engine.postgres.fence import Reading, StaleFence
from etagere.engine.postgres.lock_requests import LockRequests, fence_and_requests_sql
from etagere.engine.postgres.pipeline import Pipeline, PipelineFailed
from etagere.engine.postgres.record_cache import ABSENT, CachedRecord, RecordCache, decode_cached
from etagere.engine.postgres.schema import bound, split
from etagere.engine.postgres.storing import Overlay, Row
from etagere.engine.records import Collection, Layout, RecordKey, Span

SKIP_TIMEOUT_MILLISECONDS: Final = 20
LOCKING_MILLISECONDS_MAX: Final = 250
"""How long a statement may take that waits for exclusive locks. PostgreSQL applies `lock_timeout`
to each transaction that is waited for, and there may always be another one with a share lock."""
_LIMIT_LOCKING: Final = f"SET LOCAL statement_timeout = {LOCKING_MILLISECONDS_MAX}"
_UNLIMITED: Final = "SET LOCAL statement_timeout = 0"


class GroupTransaction:
    """The state of one group."""

    def __init__(
        self,
        pipeline: Pipeline,
        cache: RecordCache,
        clock: str,
        wal_timeline: str,
        elapsed: Callable[[], int],
        lock_requests: LockRequests,
        requested: frozenset[RecordKey],
        *,
        skip_locked: bool,
    ) -> None:
        """`elapsed` is this machine's clock. `requested`: the records on which other nodes request
        an exclusive lock. `skip_locked`: whether records that others have locked
        are left out at once, instead of waiting for them."""
        self._pipeline = pipeline
        self._cache = cache
        self._clock = clock
        self._wal_timeline = wal_timeline
        self.elapsed = elapsed
        self._lock_requests = lock_requests
        self._requested = requested
        self.skip_locked = skip_locked
        self.records: dict[RecordKey, CachedRecord] = {}
        """Records as they are cached or were read, without the writes of the group."""
        self._levels: dict[RecordKey, LockLevel] = {}
        self._refreshed: set[RecordKey] = set()
        """Records that differed from the cached ones."""
        self._placeholders: set[RecordKey] = set()
        self.unavailable: set[RecordKey] = set()
        """Records that others have locked, or on which they request an exclusive lock."""
        self._unavailable_exclusively: set[RecordKey] = set()
        """Those of the unavailable records that this group wanted to lock exclusively."""
        self.overlay: Overlay = {}
        """The writes of the operations that have succeeded so far; None is a delete."""
        self.reading: Reading | None = None
        """The latest fence and time."""
        self.asked_at = 0
        """This machine's elapsed time before the last query for them was sent."""
        self._begun = False

    # Reading

    def look_up(self, record_key: RecordKey) -> CachedRecord:
        """Returns a record as it is cached or was read, without the writes of the group."""
        found = self.records.get(record_key)
        if found is None:
            # Most of the records that are not cached are about to be created.
            found = self.records[record_key] = self._cache.get(record_key) or ABSENT
        return found

    def lacks(self, record_key: RecordKey, level: LockLevel) -> bool:
        return self._levels.get(record_key, LockLevel.PREDICTED) < level

    def missing(self, wanted: WantedLocks) -> WantedLocks:
        """Returns what has not been locked or read yet."""
        return {
            record_key: level
            for record_key, level in wanted.items()
            if self.lacks(record_key, level)
        }

    def acquire(self, wanted: WantedLocks) -> set[RecordKey]:
        """Locks and reads records in one round trip; returns those that differ from the
        cached ones. Those that could not be locked are in `unavailable`, or still lacking."""
        pipeline = self._pipeline
        is_late = self._begun
        if not is_late:
            pipeline.send("BEGIN")
            if self.skip_locked:
                pipeline.send(f"SET LOCAL lock_timeout = {SKIP_TIMEOUT_MILLISECONDS}")
            self._begun = True
        if self._requested:
            wanted = self._without_requested(wanted)
        # To wait for a lock while holding others is safe only in the one order of all locks.
        skip = is_late or self.skip_locked
        is_limited = not skip and self._waits_for_exclusive_lock(wanted)
        if is_limited:
            pipeline.send(_LIMIT_LOCKING)
        sent = Acquisition(pipeline, self.look_up, skip_locked=skip).send(wanted)
        if is_limited:
            pipeline.send(_UNLIMITED)  # a COMMIT must not be cancelled
        pipeline.send(fence_and_requests_sql(self._clock))
        asked_at = self.elapsed()
        results = self._receive_locks() if is_limited else pipeline.receive()
        self._receive_fence(results[-1], asked_at)
        end = len(results) - (2 if is_limited else 1)
        return self._receive_records(sent, results[end - len(sent) : end])

    def _waits_for_exclusive_lock(self, wanted: WantedLocks) -> bool:
        return any(
            level is LockLevel.EXCLUSIVE and self.look_up(record_key).record is not None
            for record_key, level in wanted.items()
        )

    def _receive_locks(self) -> list[pq.abc.PGresult]:
        try:
            return self._pipeline.receive()
        except PipelineFailed as failed:
            if failed.sqlstate != QUERY_CANCELED:
                raise
            raise PipelineFailed(Conflict("a lock was not available in time")) from None

    def _without_requested(self, wanted: WantedLocks) -> WantedLocks:
        """Leaves out the share locks on records on which other nodes request an exclusive lock."""
        declined = {
            record_key
            for record_key, level in wanted.items()
            if level is LockLevel.SHARED and record_key in self._requested
        }
        if not declined:
            return wanted
        self.unavailable |= declined
        return {
            record_key: level for record_key, level in wanted.items() if record_key not in declined
        }

    def _receive_fence(self, result: pq.abc.PGresult, asked_at: int) -> None:
        self.asked_at = asked_at
        self.reading = fence.decode_result(result)
        if not self.reading.is_valid(self._wal_timeline):
            raise StaleFence
        self._lock_requests.receive(result, self.asked_at)

    def _receive_records(
        self, sent: list[SentStatement], results: list[pq.abc.PGresult]
    ) -> set[RecordKey]:
        """Processes the results of the statements; returns the records that differ from the
        cached ones."""
        changed: set[RecordKey] = set()
        existing: set[RecordKey] = set()
        found: set[RecordKey] = set()
        for (kind, collection, keys, level), result in zip(sent, results, strict=True):
            if kind is StatementKind.INSERT_PLACEHOLDERS:
                self._receive_placeholders(collection, keys, result)
                continue
            record_keys = [
                (collection, keys[_ordinal(result, row)]) for row in range(result.ntuples)
            ]
            if kind is StatementKind.CHECK_EXISTENCE:
                existing.update(record_keys)
                continue
            found.update(record_keys)
            changed.update(
                [
                    record_key
                    for row, record_key in enumerate(record_keys)
                    if self._receive_row(record_key, result, row, level)
                ]
            )
        for statement in sent:
            if statement.kind is StatementKind.READ:
                missing = [(statement.collection, key) for key in statement.keys]
                changed |= self._note_missing(missing, statement.level, found, existing)
        return changed

    def _receive_placeholders(
        self, collection: Collection[Any, Any], keys: list[bytes], result: pq.abc.PGresult
    ) -> None:
        placed = {
            (result.get_value(row, 0), result.get_value(row, 1)) for row in range(result.ntuples)
        }
        for key in keys:
            column = split(key)
            if (column.key, column.digest) in placed:
                record_key = collection, key
                self._levels[record_key] = LockLevel.EXCLUSIVE
                self._placeholders.add(record_key)

    def _receive_row(
        self, record_key: RecordKey, result: pq.abc.PGresult, row: int, level: LockLevel
    ) -> bool:
        """Processes a record that exists; returns whether it differs from the cached one."""
        self._levels[record_key] = max(level, self._levels.get(record_key, LockLevel.PREDICTED))
        version = to_int(result.get_value(row, 1))
        if version == self.look_up(record_key).version:
            return False
        value = result.get_value(row, 2)
        assert value is not None
        self.records[record_key] = decode_cached(record_key[0], version, value)
        self._refreshed.add(record_key)
        return True

    def _note_missing(
        self,
        record_keys: Iterable[RecordKey],
        level: LockLevel,
        found: set[RecordKey],
        existing: set[RecordKey],
    ) -> set[RecordKey]:
        """Processes the records that were not returned; returns those that were cached as
        present."""
        changed: set[RecordKey] = set()
        for record_key in record_keys:
            if record_key in found or record_key in self._placeholders:
                continue
            if record_key in existing:
                self.unavailable.add(record_key)
                if level is LockLevel.EXCLUSIVE:
                    self._unavailable_exclusively.add(record_key)
                continue
            if level is LockLevel.READ:
                self._levels[record_key] = max(
                    level, self._levels.get(record_key, LockLevel.PREDICTED)
                )
            # Otherwise it has just been deleted, and needs a placeholder.
            if self.look_up(record_key).record is not None:
                self.records[record_key] = ABSENT
                self._refreshed.add(record_key)
                changed.add(record_key)
        return changed

    # Scanning

    def scan(
        self,
        collection: Collection[Any, Any],
        span: Span,
        limit: int,
        own: dict[RecordKey, Row | None],
        *,
        reverse: bool,
        claim: bool,
        with_time: bool,
    ) -> list[tuple[bytes, CachedRecord]]:
        """Returns records of a span with the writes of the group and of one operation, `own`.
        `with_time`: whether the fence and the time are read again after that."""
        written = {
            key: row
            for key, row in self.overlay.get(collection, {}).items()
            if span.start <= key < span.stop
        }
        for (each, key), row in own.items():
            if each is collection and span.start <= key < span.stop:
                written[key] = row
        self._send_scan(collection, span, limit + len(written), reverse=reverse, claim=claim)
        if with_time:
            self._pipeline.send(fence_and_requests_sql(self._clock))
        asked_at = self.elapsed()
        results = self._pipeline.receive()
        rows = self._receive_scanned(collection, results[0], claim=claim)
        if with_time:
            self._receive_fence(results[1], asked_at)
        merged = {key: row for key, row in rows.items() if key not in written}
        for key, change in written.items():
            if change is not None:
                merged[key] = CachedRecord(rows.get(key, ABSENT).version, change[0], len(change[1]))
        found = sorted(merged.items(), key=itemgetter(0), reverse=reverse)
        return found[:limit]

    def _send_scan(
        self,
        collection: Collection[Any, Any],
        span: Span,
        limit: int,
        *,
        reverse: bool,
        claim: bool,
    ) -> None:
        sql = schema.statements(collection)
        if claim:
            chosen = sql.scan_reverse_for_update if reverse else sql.scan_for_update
        else:
            chosen = sql.scan_reverse if reverse else sql.scan
        self._pipeline.send(chosen, (*bound(span.start), *bound(span.stop), bigint(limit)))

    def _receive_scanned(
        self, collection: Collection[Any, Any], result: pq.abc.PGresult, *, claim: bool
    ) -> dict[bytes, CachedRecord]:
        if claim:
            # What the claimed records protect is read again.
            self._levels = {
                record_key: level
                for record_key, level in self._levels.items()
                if level > LockLevel.READ
            }
        rows: dict[bytes, CachedRecord] = {}
        for row in range(result.ntuples):
            head, rest, version, value = [result.get_value(row, column) for column in range(4)]
            assert head is not None
            assert rest is not None
            assert value is not None
            key = head + rest if rest else head
            rows[key] = found = decode_cached(collection, to_int(version), value)
            if claim:
                record_key = collection, key
                self._levels[record_key] = LockLevel.EXCLUSIVE
                self.records[record_key] = found
        return rows

    # Writing

    def apply(self, writes: dict[RecordKey, Row | None]) -> None:
        """Adds the writes of an operation that has succeeded."""
        for (collection, key), row in writes.items():
            changed = self.overlay.get(collection)
            if changed is None:
                changed = self.overlay[collection] = {}
            changed[key] = row

    @property
    def latest_version(self) -> int:
        """The latest version among the records that the group guarded. That of its changes must be
        greater: a record may keep its stamp, which later stamps have to exceed."""
        guarded = [
            record_key for record_key, level in self._levels.items() if level > LockLevel.READ
        ]
        return max([self.look_up(record_key).version for record_key in guarded], default=0)

    def commit(self, version: int) -> None:
        """Stores everything under one version and commits, in one round trip, unless the fence is
        no longer valid."""
        pipeline = self._pipeline
        pipeline.require_connected()
        storing.send_changes(pipeline, self.overlay, self._placeholders, version)
        self._send_lock_requests()
        pipeline.send(fence.require_valid_sql(self._clock), (self._wal_timeline.encode(),))
        pipeline.send_commit()
        pipeline.receive()
        self._lock_requests.committed()
        self._update_cache(version)

    def _send_lock_requests(self) -> None:
        assert self.reading is not None
        self._lock_requests.send_changes(
            self._pipeline,
            self._unavailable_exclusively,
            (
                record_key
                for record_key, level in self._levels.items()
                if level is LockLevel.EXCLUSIVE
            ),
            self.reading.clock,
        )

    def _update_cache(self, version: int) -> None:
        cache = self._cache
        for record_key in self._refreshed:
            found = self.records[record_key]
            if found.record is None:
                cache.forget(record_key)
            else:
                cache.put(record_key, found)
        for collection, changed in self.overlay.items():
            # Bodies are hardly ever looked at by a write.
            is_useful = collection.layout is not Layout.LARGE
            for key, row in changed.items():
                if row is not None and is_useful:
                    cache.put((collection, key), CachedRecord(version, row[0], len(row[1])))
                else:
                    cache.forget((collection, key))

    def roll_back(self) -> None:
        """Ends the transaction without a change, if the connection is still there."""
        if self._begun and self._pipeline.is_open and self._pipeline.in_transaction:
            self._pipeline.send("ROLLBACK")
            self._pipeline.receive()


def _ordinal(result: pq.abc.PGresult, row: int) -> int:
    return to_int(result.get_value(row, 0)) - 1
