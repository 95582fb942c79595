"""SQLite in one process, for comparison."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path

import apsw

from etagere.config import Config
from etagere.engine.ledger import database_path

GROUP = 32
_GET = "SELECT value FROM bench_items WHERE key = ?"
_PUT = "REPLACE INTO bench_items VALUES (?, ?)"


class RawTable:
    """A table like that of a collection of small records, with 32 changes per commit."""

    def __init__(self, path: Path, config: Config, rows: Sequence[tuple[bytes, bytes]]) -> None:
        self._connection = apsw.Connection(str(path))
        execute = self._connection.execute
        execute(f"PRAGMA page_size = {config.page_bytes}")
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = FULL")
        execute(f"PRAGMA cache_size = {-config.page_cache_bytes // 1024}")
        execute(f"PRAGMA wal_autocheckpoint = {config.checkpoint_pages}")
        execute(
            "CREATE TABLE bench_items (key BLOB PRIMARY KEY NOT NULL, value BLOB NOT NULL)"
            " WITHOUT ROWID"
        )
        with self._connection:
            self._connection.executemany(_PUT, rows)
        self._rows = list(rows)
        self._random = random.Random(1)

    def puts_per_second(self, seconds: float) -> float:
        """Executes conditional puts: read, compare, replace."""
        execute = self._connection.cursor().execute
        done = 0
        started = time.perf_counter()
        deadline = started + seconds
        while time.perf_counter() < deadline:
            execute("BEGIN IMMEDIATE")
            for key, value in self._random.choices(self._rows, k=GROUP):
                ((found,),) = execute(_GET, (key,))
                if found != value:
                    raise AssertionError("a value that nobody wrote")
                execute(_PUT, (key, value))
            execute("COMMIT")
            done += GROUP
        return done / (time.perf_counter() - started)

    def close(self) -> None:
        self._connection.close()


def reader(directory: Path, config: Config) -> apsw.Connection:
    """A connection that reads the store's own tables."""
    path = str(database_path(directory))
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    connection.execute(f"PRAGMA cache_size = {-config.page_cache_bytes // 1024}")
    return connection
