"""Snapshots of the whole ledger that a check can query with SQL for as long as it takes.

A snapshot is a copy in a temporary file. A read transaction held for the whole of a check would
keep the write-ahead log of a running server from starting over.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from etagere.config import Config
from etagere.engine import ledger
from etagere.engine.records import SCHEMA
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
_PAGES_PER_REPORT = 4_096


class LedgerSnapshot:
    """The ledger at one instant, with temporary tables.

    Temporary tables use a bounded cache and a temporary file, so that the memory of a check does
    not depend on the number of objects.
    """

    def __init__(self, directory: Path, config: Config, progress: Progress) -> None:
        """Raises `NotALedger`, `SchemaTooNew` or `DatabaseError`."""
        path = ledger.database_path(directory)
        try:
            with contextlib.ExitStack() as on_failure:
                connection = ledger.open_for_reading(directory, config)
                on_failure.callback(connection.close, True)
                _begin(connection, path)
                self._connection = _copied(connection, directory, progress)
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


def _begin(connection: apsw.Connection, path: Path) -> None:
    _tune(connection)
    connection.execute("BEGIN")
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


def _copied(connection: apsw.Connection, directory: Path, progress: Progress) -> apsw.Connection:
    """Copies the snapshot to a temporary database, and closes the connection to the original.
    If there is no room for a copy and no server runs, returns the original connection."""
    copy = apsw.Connection("")
    try:
        with copy.backup("main", connection, "main") as backup:
            while not backup.done:
                backup.step(_PAGES_PER_REPORT)
                progress("copy", backup.page_count - backup.remaining, backup.page_count)
        _tune(copy)
        copy.execute("BEGIN")
    except BaseException as error:
        copy.close(True)
        if isinstance(error, apsw.FullError) and not is_served(directory):
            return connection
        raise
    connection.close(True)
    return copy
