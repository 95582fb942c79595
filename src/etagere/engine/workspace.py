"""The write buffer and record cache of the writer.

The changes of operations stay here until a scan needs them or until the commit. Then they are
stored, many records per statement, and a record that was changed several times only once. Since no
other process changes the ledger, records that were recently read or changed are cached: most
operations find the container or table they work in, and often the object itself, without a query.
"""

from __future__ import annotations

from typing import Any, Final, cast

import apsw

from etagere.config import KIB, MIB
from etagere.engine import ledger
from etagere.engine.records import Collection, K, R, RecordKey, Span
from etagere.model.base import Record

Row = tuple[Record, bytes]
"""A record and its encoding."""

_FEW_KEYS: Final = 16
_CHANGED_BYTES_MAX: Final = 8 * MIB
_ROW_BYTES: Final = 256
"""The memory overhead of a row."""
_CACHED_MAX: Final = 2_048
"""Records in the recent generation of the cache. The older one has as many."""
_CACHED_BYTES_MAX: Final = 2 * MIB
"""The encoded size of the recent generation."""
_RECORD_BYTES_MAX: Final = 8 * KIB
"""Longer records are not cached."""


class TransactionLost(Exception):
    """The whole group was or must be rolled back: SQLite dropped the transaction with its
    savepoints, or could not store some of the changes."""

    def __init__(self, error: apsw.Error) -> None:
        super().__init__(str(error))
        self.error = error


class Workspace:
    """The buffer and cache of one connection and its open transaction."""

    def __init__(self, cursor: apsw.Cursor) -> None:
        self._cursor = cursor
        self._changed: dict[Collection[Any, Any], dict[bytes, Row | None]] = {}
        self._changed_bytes = 0
        self._recent: dict[RecordKey, Any] = {}
        self._recent_bytes = 0
        self._less_recent: dict[RecordKey, Any] = {}

    # Reading

    def get(self, collection: Collection[K, R], key: bytes, *, cache: bool) -> R | None:
        record_key = collection, key
        record: R | None = self._recent.get(record_key)
        if record is not None:
            return record
        older: R | None = self._less_recent.get(record_key)
        if older is not None:
            return older
        changed = self._changed.get(collection)
        if changed is not None and key in changed:
            row = changed[key]
            return None if row is None else cast("R", row[0])
        stored = self._cursor.execute(ledger.statements(collection).get, (key,)).fetchone()
        if stored is None:
            return None
        found = collection.decode(stored[0])
        if cache:
            self._cache(record_key, found, len(stored[0]))
        return found

    def get_all(self, collection: Collection[K, R], keys: list[bytes]) -> list[R | None]:
        if len(keys) <= _FEW_KEYS:
            return [self.get(collection, key, cache=False) for key in keys]
        self.store(collection)
        decode = collection.decode
        values = map(ledger.get_many(self._cursor, collection, keys).get, keys)
        return [None if value is None else decode(value) for value in values]

    def scan(
        self, collection: Collection[K, R], span: Span, limit: int, *, reverse: bool
    ) -> list[tuple[K, R]]:
        self.store(collection)
        return ledger.scan(self._cursor, collection, span, limit, reverse)

    def _cache(self, record_key: RecordKey, record: Record, size: int) -> None:
        if size > _RECORD_BYTES_MAX:
            self.forget(record_key)
            return
        self._recent_bytes += size
        if len(self._recent) >= _CACHED_MAX or self._recent_bytes > _CACHED_BYTES_MAX:
            self._less_recent, self._recent = self._recent, {}
            self._recent_bytes = size
        self._recent[record_key] = record

    # Changing

    def change(self, record_key: RecordKey, row: Row | None, *, cache: bool = True) -> None:
        """Buffers a change; None is a delete."""
        collection, key = record_key
        changed = self._changed.get(collection)
        if changed is None:
            changed = self._changed[collection] = {}
        changed[key] = row
        self._changed_bytes += _ROW_BYTES
        if row is None:
            self.forget(record_key)
        else:
            self._changed_bytes += len(row[1])
            if cache:
                self._cache(record_key, row[0], len(row[1]))
            else:
                self.forget(record_key)
        if self._changed_bytes > _CHANGED_BYTES_MAX:
            self.store_all()

    def forget(self, record_key: RecordKey) -> None:
        """Evicts a record that is about to be changed by an operation that may be undone."""
        self._recent.pop(record_key, None)
        self._less_recent.pop(record_key, None)

    def store_all(self) -> None:
        for collection in tuple(self._changed):
            self.store(collection)
        self._changed_bytes = 0

    def store(self, collection: Collection[Any, Any]) -> None:
        changed = self._changed.pop(collection, None)
        if changed is None:
            return
        sql = ledger.statements(collection)
        puts = [(key, row[1]) for key, row in changed.items() if row is not None]
        try:
            if puts:
                self._cursor.executemany(sql.put, puts)
            if len(puts) < len(changed):
                deletes = [(key,) for key, row in changed.items() if row is None]
                self._cursor.executemany(sql.delete, deletes)
        except apsw.Error as error:
            raise TransactionLost(error) from error

    def clear(self) -> None:
        """Drops everything, after a transaction was rolled back."""
        self._changed = {}
        self._changed_bytes = 0
        self._recent = {}
        self._recent_bytes = 0
        self._less_recent = {}
