"""Copies of the whole ledger as of one instant: for a check, which queries its copy with SQL for as
long as it takes, and for backups.

A read transaction held for the whole of a check would keep the write-ahead log of a running server
from starting over. While a ledger is being copied, a lock tells the writer not to wait for that
(`copy_lock`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

from etagere import directories
from etagere.config import MIB, Config
from etagere.engine import ledger
from etagere.engine.copy_lock import copying
from etagere.engine.records import SCHEMA, Collection, K, R
from etagere.engine.reserve import free_bytes
from etagere.engine.writer import is_served

Progress = Callable[[str, int, int], None]
"""Called with the phase, how much of it is done, and how much there is (0: not known)."""

UNREADABLE = (apsw.CorruptError, apsw.IOError, apsw.NotADBError)
"""Raised by queries where the database file cannot be read."""
OutOfSpace = apsw.FullError
"""Raised where there is no room for temporary files."""
Corrupt = apsw.CorruptError
"""Raised where the database file is damaged."""

_TEMPORARY_CACHE_KIB = 64 * 1024
_PAGES_PER_STEP = 512
"""After each step the length of the log is compared with the free space."""
_LOG_BYTES_MAX = 1_024 * MIB
"""A copy is abandoned when the write-ahead log is longer than the ledger by this much."""
_ROWS_PER_READ = 2_000


class LogTooLong(Exception):
    """The ledger changes faster than it can be copied, or the disk has no room for its log; the
    message says which."""


class _LogWatch:
    """Watches the write-ahead log while the ledger is copied, during which it cannot be restarted.

    A checkpoint may need as much space in the database as the log has. A copy is abandoned while
    there is still that space and the reserve: after that, the writer would refuse what needs
    space."""

    def __init__(self, directory: Path, config: Config) -> None:
        self._directory = directory
        self._reserve_bytes = config.reserve_bytes
        self._bytes_before = ledger.log_bytes(directory)
        self._bytes_max = ledger.database_path(directory).stat().st_size + _LOG_BYTES_MAX
        self._short_bytes = config.log_restart_pages * config.page_bytes

    def check(self) -> None:
        """Raises `LogTooLong`."""
        log_bytes = ledger.log_bytes(self._directory)
        if log_bytes > self._bytes_max:
            raise LogTooLong("the ledger changes faster than it can be copied")
        if log_bytes <= max(self._bytes_before, self._short_bytes):
            return
        if free_bytes(self._directory) < log_bytes + self._reserve_bytes:
            raise LogTooLong(
                f"the disk of {self._directory} is nearly full, and the write-ahead log "
                f"({log_bytes // MIB} MiB) cannot be restarted while the ledger is copied. Free "
                "some space, and try again"
            )


class LedgerSnapshot:
    """The ledger at one instant, with temporary tables.

    Temporary tables use a bounded cache and a temporary file, so that the memory of a check does
    not depend on the number of objects.
    """

    def __init__(self, directory: Path, config: Config, progress: Progress) -> None:
        """Raises `NotALedger`, `SchemaTooNew`, `LogTooLong` or `DatabaseError`."""
        path = ledger.database_path(directory)
        try:
            with contextlib.ExitStack() as on_failure:
                connection = ledger.open_for_reading(directory, config)
                on_failure.callback(connection.close, True)
                with copying(directory):
                    _begin(connection, path)
                    watch = _LogWatch(directory, config)
                    self._connection = _copied(connection, directory, watch, progress)
                on_failure.pop_all()
        except apsw.NotADBError:
            raise ledger.NotALedger(f"{path} is not an Étagère ledger") from None

    def execute(self, sql: str, values: tuple[Any, ...] = ()) -> apsw.Cursor:
        return self._connection.cursor().execute(sql, values)

    def changed_rows(self) -> int:
        """Returns how many rows the last statement inserted, updated or deleted."""
        return self._connection.changes()

    def close(self) -> None:
        self._connection.close(True)


class LedgerFile:
    """A copy of a ledger, which nobody changes."""

    def __init__(self, path: Path) -> None:
        """Raises `NotALedger`, `SchemaTooNew` or `DatabaseError`."""
        # An immutable database needs no log beside it.
        self._connection = apsw.Connection(
            f"file:{quote(str(path))}?immutable=1",
            flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
        )
        try:
            _require_known(self._connection, path)
        except BaseException as error:
            self._connection.close(True)
            if isinstance(error, apsw.NotADBError):
                raise ledger.NotALedger(f"{path} is not an Étagère ledger") from None
            raise

    def __enter__(self) -> LedgerFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close(True)

    @property
    def schema(self) -> int:
        schema: int = self._connection.pragma("user_version")
        return schema

    def rows(self, collection: Collection[K, R]) -> Iterator[tuple[K, R]]:
        """Yields the records of a collection in the order of their keys."""
        if not self._has(collection):
            return
        span = collection.all()
        while rows := ledger.scan(
            self._connection.cursor(), collection, span, _ROWS_PER_READ, reverse=False
        ):
            yield from rows
            span = collection.after(span, rows[-1][0])

    def get(self, collection: Collection[K, R], key: K) -> R | None:
        return ledger.get(self._connection.cursor(), collection, key)

    def last(self, collection: Collection[K, R], prefix: tuple[Any, ...]) -> tuple[K, R] | None:
        """Returns the last record whose key begins with these values."""
        if not self._has(collection):
            return None
        span = collection.under(prefix)
        rows = ledger.scan(self._connection.cursor(), collection, span, 1, reverse=True)
        return rows[0] if rows else None

    def _has(self, collection: Collection[Any, Any]) -> bool:
        """Returns whether the ledger has a table, which an older version may not have created."""
        query = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?"
        return self._connection.execute(query, (collection.name,)).fetchone() is not None


def copy_ledger(directory: Path, target: Path, config: Config, progress: Progress) -> None:
    """Copies the ledger of a data directory as of one instant, page by page, to a new file. A
    server may be running. Nothing is synced. Raises `NotALedger`, `SchemaTooNew`, `LogTooLong` or
    `DatabaseError`."""
    path = ledger.database_path(directory)
    watch = _LogWatch(directory, config)
    os.close(directories.open_private(target))
    with contextlib.ExitStack() as stack:
        # Every page is read once.
        connection = ledger.open_for_reading(
            directory, replace(config, page_cache_bytes=config.stepping_cache_bytes)
        )
        stack.callback(connection.close, True)
        copy = apsw.Connection(str(target))
        stack.callback(copy.close, True)
        # A copy that is interrupted is removed.
        copy.execute("PRAGMA journal_mode = OFF")
        copy.execute("PRAGMA synchronous = OFF")
        stack.enter_context(copying(directory))
        try:
            _begin(connection, path)
        except apsw.NotADBError:
            raise ledger.NotALedger(f"{path} is not an Étagère ledger") from None
        with copy.backup("main", connection, "main") as backup:
            while not backup.done:
                backup.step(_PAGES_PER_STEP)
                progress("ledger", backup.page_count - backup.remaining, backup.page_count)
                watch.check()


def _begin(connection: apsw.Connection, path: Path) -> None:
    _tune(connection)
    connection.execute("BEGIN")
    _require_known(connection, path)


def _require_known(connection: apsw.Connection, path: Path) -> None:
    if connection.pragma("application_id") != ledger.APPLICATION_ID:
        raise ledger.NotALedger(f"{path} is not an Étagère ledger")
    schema = connection.pragma("user_version")
    if schema > SCHEMA:
        raise ledger.SchemaTooNew(
            f"{path} has schema {schema}; this version of etagere knows schemas up to {SCHEMA}. "
            "Use the newer version that wrote it."
        )


def _tune(connection: apsw.Connection) -> None:
    connection.execute("PRAGMA temp_store = FILE")
    # Temporary tables are never rolled back.
    connection.execute("PRAGMA temp.journal_mode = OFF")
    connection.execute(f"PRAGMA temp.cache_size = {-_TEMPORARY_CACHE_KIB}")


def _copied(
    connection: apsw.Connection, directory: Path, watch: _LogWatch, progress: Progress
) -> apsw.Connection:
    """Copies the snapshot to a temporary database, and closes the connection to the original.
    If there is no room for a copy and no server runs, returns the original connection."""
    copy = apsw.Connection("")
    try:
        with copy.backup("main", connection, "main") as backup:
            while not backup.done:
                backup.step(_PAGES_PER_STEP)
                progress("copy", backup.page_count - backup.remaining, backup.page_count)
                watch.check()
        _tune(copy)
        copy.execute("BEGIN")
    except BaseException as error:
        copy.close(True)
        if isinstance(error, apsw.FullError) and not is_served(directory):
            return connection
        raise
    connection.close(True)
    return copy
