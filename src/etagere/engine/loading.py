"""Reading and writing all records of a ledger in SQLite, encoded as they are: for migrations.

A ledger that is being loaded lies in a subdirectory of its data directory. It becomes the ledger
when everything is complete.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Self

import apsw
from msgspec.structs import replace

from etagere import directories
from etagere.clock import Clock
from etagere.config import Config
from etagere.engine import ledger
from etagere.engine.records import COLLECTIONS, ENCODE, SCHEMA, Collection, K, R
from etagere.engine.timeline import Timeline

PARTIAL_NAME: Final = "migrate.partial"
"""The subdirectory of an incomplete migration."""
Rows = Iterable[tuple[bytes, bytes]]
"""Encoded keys and records."""

_OTHER_TABLES: Final = ("timeline",)


class UnknownTable(Exception):
    """A ledger has a table that this version does not know."""


def is_incomplete(directory: Path) -> bool:
    """Returns whether a migration to a data directory was interrupted."""
    return (directory / PARTIAL_NAME).exists() and not ledger.database_path(directory).exists()


class StoppedLedger:
    """The ledger in a directory that no process changes."""

    def __init__(self, directory: Path, config: Config) -> None:
        """Raises `NotALedger`, `SchemaTooNew`, `UnknownTable` or `DatabaseError`."""
        path = ledger.database_path(directory)
        self._connection = ledger.open_for_reading(directory, config)
        try:
            self._connection.execute("BEGIN")
            if self._connection.pragma("application_id") != ledger.APPLICATION_ID:
                raise ledger.NotALedger(f"{path} is not an Étagère ledger")
            schema = self._connection.pragma("user_version")
            if schema > SCHEMA:
                raise ledger.SchemaTooNew(
                    f"{path} has schema {schema}; this version of etagere knows schemas up to "
                    f"{SCHEMA}. Use the newer version that wrote it."
                )
            names = self._connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
            self._tables = {name for (name,) in names if not name.startswith("sqlite_")}
            require_known(self._tables - {*_OTHER_TABLES})
        except apsw.NotADBError:
            self.close()
            raise ledger.NotALedger(f"{path} is not an Étagère ledger") from None
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close(True)

    def timeline(self) -> Timeline:
        """Returns the stored time, with the last stamp."""
        stored = ledger.stored_timeline(self._connection)
        if stored is None:
            raise ledger.NotALedger("the ledger has no timeline")
        return stored

    def rows(self, collection: Collection[Any, Any]) -> Iterator[tuple[bytes, bytes]]:
        """Yields the encoded records of a collection in the order of their keys."""
        if collection.name not in self._tables:
            return  # the ledger of an older version
        query = f"SELECT key, value FROM {collection.name} ORDER BY key"  # noqa: S608
        yield from self._connection.cursor().execute(query)

    def records(self, collection: Collection[K, R]) -> Iterator[tuple[K, R]]:
        """Yields the records of a collection in the order of their keys."""
        for key, value in self.rows(collection):
            yield collection.unpack(key), collection.decode(value)

    def get(self, collection: Collection[K, R], key: K) -> R | None:
        if collection.name not in self._tables:
            return None
        return ledger.get(self._connection.cursor(), collection, key)


def require_known(tables: Iterable[str]) -> None:
    """Raises `UnknownTable` unless all tables are those of collections."""
    unknown = sorted(set(tables) - COLLECTIONS.keys())
    if unknown:
        raise UnknownTable(f"the ledger has a table that is not known: {unknown[0]}")


class LedgerLoad:
    """A new ledger that is being filled in an empty directory. Nothing is durable before the
    end."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._directory = directory
        self._config = Config(durable=False)
        directories.make(directory, durable=False)
        ledger.create(directory, self._config, clock)
        self._connection = ledger.open_for_writing(directory, self._config)
        # An interrupted load starts over.
        self._connection.execute("PRAGMA journal_mode = OFF")

    def load(self, collection: Collection[Any, Any], rows: Rows) -> None:
        """Adds records, in one transaction."""
        with self._connection:
            self._connection.executemany(ledger.statements(collection).put, rows)

    def finish(self, time: Timeline) -> None:
        """Stores the time, from which the ledger continues, and makes everything durable."""
        self._connection.execute(ledger.WRITE_TIMELINE, (ENCODE(time),))
        self._connection.execute("PRAGMA journal_mode = WAL")
        self.close()
        descriptor = os.open(ledger.database_path(self._directory), os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        directories.sync(self._directory)

    def close(self) -> None:
        self._connection.close(True)


def with_last_stamp(time: Timeline, last_stamp: int) -> Timeline:
    """Returns the time with a number of the last change that is at least this one."""
    return replace(time, last_stamp=max(time.last_stamp, last_stamp))
