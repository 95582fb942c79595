"""Statements that lock and read the records that a group needs, sent in one round trip."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, Final, NamedTuple

from etagere.engine.interface import Guard
from etagere.engine.postgres import schema
from etagere.engine.postgres.binary import bigint_array, bytea_array
from etagere.engine.postgres.pipeline import Pipeline
from etagere.engine.postgres.record_cache import CachedRecord
from etagere.engine.postgres.schema import Statements, split
from etagere.engine.records import Collection, RecordKey


class LockLevel(enum.IntEnum):
    """How a group has read or locked a record; each level includes those below it. The two lowest
    are no locks."""

    PREDICTED = 0
    """Not read in the transaction: the record as it is cached."""
    READ = 1
    """Read at some time during the transaction."""
    SHARED = 2
    """Locked FOR SHARE."""
    EXCLUSIVE = 3
    """Locked FOR UPDATE, or by a placeholder."""


LEVEL_OF_GUARD: Final = {
    None: LockLevel.READ,
    Guard.SHARED: LockLevel.SHARED,
    Guard.EXCLUSIVE: LockLevel.EXCLUSIVE,
}

WantedLocks = dict[RecordKey, LockLevel]
"""The levels that records must have."""


def has_guard(wanted: WantedLocks) -> bool:
    return any(level > LockLevel.READ for level in wanted.values())


def merge_wanted(wanted: WantedLocks, record_key: RecordKey, guard: Guard | None) -> None:
    """Adds what a guard needs; the higher of two levels counts."""
    level = LEVEL_OF_GUARD[guard]
    if wanted.get(record_key, LockLevel.PREDICTED) < level:
        wanted[record_key] = level


class StatementKind(enum.Enum):
    INSERT_PLACEHOLDERS = enum.auto()
    CHECK_EXISTENCE = enum.auto()
    READ = enum.auto()


class SentStatement(NamedTuple):
    """A statement about keys of one collection whose result has not been received."""

    kind: StatementKind
    collection: Collection[Any, Any]
    keys: list[bytes]
    level: LockLevel


class Acquisition:
    """Sends the statements of one round trip."""

    def __init__(
        self, pipeline: Pipeline, look_up: Callable[[RecordKey], CachedRecord], *, skip_locked: bool
    ) -> None:
        """`look_up` returns a record as it is cached."""
        self._pipeline = pipeline
        self._look_up = look_up
        self._skip_locked = skip_locked

    def send(self, wanted: WantedLocks) -> list[SentStatement]:
        by_collection: dict[Collection[Any, Any], list[tuple[bytes, LockLevel]]] = {}
        for (collection, key), level in wanted.items():
            by_collection.setdefault(collection, []).append((key, level))
        in_order = [(each, sorted(by_collection[each])) for each in by_collection]
        in_order.sort(key=lambda pair: pair[0].name)
        sent: list[SentStatement] = []
        for collection, pairs in in_order:
            sent += self._lock(collection, schema.statements(collection), pairs)
        # After all locks: a record that is read without a guard may be protected by the guard on
        # another, whose lock may have to be waited for.
        for collection, pairs in in_order:
            keys = [key for key, level in pairs if level is LockLevel.READ]
            if keys:
                sent.append(
                    self._read(
                        schema.statements(collection).known, collection, keys, LockLevel.READ
                    )
                )
        return sent

    def _lock(
        self,
        collection: Collection[Any, Any],
        sql: Statements,
        pairs: list[tuple[bytes, LockLevel]],
    ) -> Iterator[SentStatement]:
        guarded = [key for key, level in pairs if level > LockLevel.READ]
        absent = [key for key in guarded if self._look_up((collection, key)).record is None]
        if absent:
            self._pipeline.send(sql.insert_placeholders, _columns(absent))
            kind = StatementKind.INSERT_PLACEHOLDERS
            yield SentStatement(kind, collection, absent, LockLevel.EXCLUSIVE)
        if self._skip_locked and guarded:
            keys, _, digests = _columns(guarded)
            self._pipeline.send(sql.exists, (keys, digests))
            kind = StatementKind.CHECK_EXISTENCE
            yield SentStatement(kind, collection, guarded, LockLevel.PREDICTED)
        # In the order of keys, whichever locks they need: one statement for each run of keys with
        # the same kind of lock.
        locked = [pair for pair in pairs if pair[1] > LockLevel.READ]
        for level, run in itertools.groupby(locked, itemgetter(1)):
            yield self._read(self._locking(sql, level), collection, [key for key, _ in run], level)

    def _locking(self, sql: Statements, level: LockLevel) -> str:
        if level is LockLevel.SHARED:
            return sql.known_for_share_skipping if self._skip_locked else sql.known_for_share
        return sql.known_for_update_skipping if self._skip_locked else sql.known_for_update

    def _read(
        self, sql: str, collection: Collection[Any, Any], packed: list[bytes], level: LockLevel
    ) -> SentStatement:
        keys, _, digests = _columns(packed)
        versions = [self._look_up((collection, key)).version or None for key in packed]
        self._pipeline.send(sql, (keys, digests, bigint_array(versions)))
        return SentStatement(StatementKind.READ, collection, packed, level)


def _columns(packed: list[bytes]) -> tuple[bytes, bytes, bytes]:
    """Returns encoded keys as arrays of their columns: keys, rests and digests."""
    columns = [split(key) for key in packed]
    return (
        bytea_array([column.key for column in columns]),
        bytea_array([column.rest for column in columns]),
        bytea_array([column.digest for column in columns]),
    )
