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


class Hold(enum.IntEnum):
    """How a group has read or locked a record; each level includes those below it."""

    PREDICTED = 0
    """Not read in the transaction: the record as it is cached."""
    READ = 1
    """Read at some time during the transaction."""
    SHARED = 2
    """Locked FOR SHARE."""
    EXCLUSIVE = 3
    """Locked FOR UPDATE, or by a placeholder."""


HOLD_OF: Final = {None: Hold.READ, Guard.SHARED: Hold.SHARED, Guard.EXCLUSIVE: Hold.EXCLUSIVE}

Needs = dict[RecordKey, Hold]


def has_guard(needs: Needs) -> bool:
    return any(hold > Hold.READ for hold in needs.values())


def merge_need(needs: Needs, record_key: RecordKey, guard: Guard | None) -> None:
    """Adds a need; the stronger of two counts."""
    hold = HOLD_OF[guard]
    if needs.get(record_key, Hold.PREDICTED) < hold:
        needs[record_key] = hold


class StatementKind(enum.Enum):
    INSERT_PLACEHOLDERS = enum.auto()
    CHECK_EXISTENCE = enum.auto()
    READ = enum.auto()


class SentStatement(NamedTuple):
    """A statement about keys of one collection whose result has not been received."""

    kind: StatementKind
    collection: Collection[Any, Any]
    keys: list[bytes]
    hold: Hold


class Acquisition:
    """Sends the statements of one round trip."""

    def __init__(
        self, pipeline: Pipeline, look_up: Callable[[RecordKey], CachedRecord], *, skip_locked: bool
    ) -> None:
        """`look_up` returns a record as it is cached."""
        self._pipeline = pipeline
        self._look_up = look_up
        self._skip_locked = skip_locked

    def send(self, needs: Needs) -> list[SentStatement]:
        by_collection: dict[Collection[Any, Any], list[tuple[bytes, Hold]]] = {}
        for (collection, key), hold in needs.items():
            by_collection.setdefault(collection, []).append((key, hold))
        in_order = [(each, sorted(by_collection[each])) for each in by_collection]
        in_order.sort(key=lambda pair: pair[0].name)
        sent: list[SentStatement] = []
        for collection, wanted in in_order:
            sent += self._lock(collection, schema.statements(collection), wanted)
        # After all locks: a record that is read without a guard may be protected by the guard on
        # another, whose lock may have to be waited for.
        for collection, wanted in in_order:
            keys = [key for key, hold in wanted if hold is Hold.READ]
            if keys:
                sent.append(
                    self._read(schema.statements(collection).known, collection, keys, Hold.READ)
                )
        return sent

    def _lock(
        self, collection: Collection[Any, Any], sql: Statements, wanted: list[tuple[bytes, Hold]]
    ) -> Iterator[SentStatement]:
        guarded = [key for key, hold in wanted if hold > Hold.READ]
        absent = [key for key in guarded if self._look_up((collection, key)).record is None]
        if absent:
            self._pipeline.send(sql.insert_placeholders, _columns(absent))
            kind = StatementKind.INSERT_PLACEHOLDERS
            yield SentStatement(kind, collection, absent, Hold.EXCLUSIVE)
        if self._skip_locked and guarded:
            keys, _, digests = _columns(guarded)
            self._pipeline.send(sql.exists, (keys, digests))
            kind = StatementKind.CHECK_EXISTENCE
            yield SentStatement(kind, collection, guarded, Hold.PREDICTED)
        # In the order of keys, whichever locks they need: one statement for each run of keys with
        # the same kind of lock.
        locked = [pair for pair in wanted if pair[1] > Hold.READ]
        for hold, run in itertools.groupby(locked, itemgetter(1)):
            yield self._read(self._locking(sql, hold), collection, [key for key, _ in run], hold)

    def _locking(self, sql: Statements, hold: Hold) -> str:
        if hold is Hold.SHARED:
            return sql.known_for_share_skipping if self._skip_locked else sql.known_for_share
        return sql.known_for_update_skipping if self._skip_locked else sql.known_for_update

    def _read(
        self, sql: str, collection: Collection[Any, Any], packed: list[bytes], hold: Hold
    ) -> SentStatement:
        keys, _, digests = _columns(packed)
        versions = [self._look_up((collection, key)).version or None for key in packed]
        self._pipeline.send(sql, (keys, digests, bigint_array(versions)))
        return SentStatement(StatementKind.READ, collection, packed, hold)


def _columns(packed: list[bytes]) -> tuple[bytes, bytes, bytes]:
    """Returns encoded keys as arrays of their columns: keys, rests and digests."""
    columns = [split(key) for key in packed]
    return (
        bytea_array([column.key for column in columns]),
        bytea_array([column.rest for column in columns]),
        bytea_array([column.digest for column in columns]),
    )
