"""The transaction of one write operation on SQLite."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, cast

import apsw

from etagere.engine import ledger
from etagere.engine.group_writer import Hook
from etagere.engine.interface import Guard
from etagere.engine.records import ENCODE, Collection, K, R, RecordKey, Span
from etagere.engine.workspace import Row, Workspace

_BUFFERED_MAX: Final = 1_024
_CACHED_MAX: Final = 16
"""An operation that changes more records does not put them into the cache."""


class OpenGroup(Protocol):
    """The group of operations that the writer is running."""

    @property
    def clock_offset(self) -> int: ...

    def now(self) -> int: ...

    def next_stamp(self) -> int: ...

    def changed(self) -> None:
        """Notes that the group has something to make durable."""
        ...


class WriteTransaction:
    """The transaction of one operation within the open group.

    Its first writes are buffered until it succeeds, so that most operations need no savepoint:
    within one, SQLite keeps a copy of every page it changes.
    """

    __slots__ = ("_buffered", "_cursor", "_group", "_now", "_stamp", "_workspace", "hooks")

    def __init__(self, group: OpenGroup, cursor: apsw.Cursor, workspace: Workspace) -> None:
        self._group = group
        self._cursor = cursor
        self._workspace = workspace
        # Buffered writes; a row of None is a delete. None instead of the dictionary means that the
        # operation writes to the database.
        self._buffered: dict[RecordKey, Row | None] | None = {}
        self._now: int | None = None
        self._stamp: int | None = None
        self.hooks: list[Hook] | None = None

    @property
    def now(self) -> int:
        if self._now is None:
            self._now = self._group.now()
        return self._now

    @property
    def steady_now(self) -> int:
        return self.now - self._group.clock_offset

    @property
    def stamp(self) -> int:
        if self._stamp is None:
            self._stamp = self._group.next_stamp()
        return self._stamp

    # There is one writer, so everything is guarded, and nothing by others.
    def get(self, collection: Collection[K, R], key: K, guard: Guard | None = None) -> R | None:
        packed = collection.pack(key)
        held = self._buffered
        if held and (collection, packed) in held:
            row = held[collection, packed]
            return None if row is None else cast("R", row[0])
        # What is in the database within a savepoint may be undone, so it must not be cached.
        return self._workspace.get(collection, packed, cache=held is not None)

    def get_all(
        self, collection: Collection[K, R], keys: Sequence[K], guard: Guard | None = None
    ) -> list[R | None]:
        packed = [collection.pack(key) for key in keys]
        found = self._workspace.get_all(collection, packed)
        if self._buffered:
            for index, key in enumerate(packed):
                if (collection, key) in self._buffered:
                    row = self._buffered[collection, key]
                    found[index] = None if row is None else cast("R", row[0])
        return found

    def scan(
        self,
        collection: Collection[K, R],
        span: Span,
        limit: int,
        *,
        reverse: bool = False,
        claim: bool = False,
    ) -> list[tuple[K, R]]:
        if self._buffered:
            self._write_through()
        return self._workspace.scan(collection, span, limit, reverse=reverse)

    def put(self, collection: Collection[K, R], key: K, record: R) -> R:
        self._change((collection, collection.pack(key)), (record, ENCODE(record)))
        return record

    def delete(self, collection: Collection[K, R], key: K) -> None:
        self._change((collection, collection.pack(key)), None)

    def on_commit(self, hook: Callable[[Any], None], argument: Any) -> None:
        if self.hooks is None:
            self.hooks = []
        self.hooks.append((hook, argument))

    def _change(self, record_key: RecordKey, row: Row | None) -> None:
        if self._buffered is None:
            self._store(record_key, row)
            return
        self._buffered[record_key] = row
        if len(self._buffered) > _BUFFERED_MAX:
            self._write_through()

    def _store(self, record_key: RecordKey, row: Row | None) -> None:
        collection, key = record_key
        self._workspace.forget(record_key)
        sql = ledger.statements(collection)
        if row is None:
            self._cursor.execute(sql.delete, (key,))
        else:
            self._cursor.execute(sql.put, (key, row[1]))

    def _write_through(self) -> None:
        # The changes of other operations in the group must not be undone with this one.
        self._workspace.store_all()
        self._cursor.execute("SAVEPOINT operation")
        held, self._buffered = self._buffered or {}, None
        self._group.changed()
        for record_key in held:
            self._workspace.forget(record_key)
        puts: dict[Collection[Any, Any], list[tuple[bytes, bytes]]] = {}
        for (collection, key), row in held.items():
            if row is None:
                self._cursor.execute(ledger.statements(collection).delete, (key,))
            else:
                puts.setdefault(collection, []).append((key, row[1]))
        for collection, rows in puts.items():
            self._cursor.executemany(ledger.statements(collection).put, rows)

    def keep(self) -> None:
        """Adds the writes to the group. If this fails, the whole group is rolled back."""
        if self._buffered is None:
            self._cursor.execute("RELEASE operation")
        elif self._buffered:
            self._group.changed()
            change = self._workspace.change
            # A bulk change would evict what other operations need from the cache.
            cache = len(self._buffered) <= _CACHED_MAX
            for record_key, row in self._buffered.items():
                change(record_key, row, cache=cache)

    def undo(self) -> None:
        if self._buffered is None:
            self._cursor.execute("ROLLBACK TO operation")
            self._cursor.execute("RELEASE operation")
