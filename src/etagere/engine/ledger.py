"""The SQLite database: where it lies, how it is created, opened and queried.

One table per collection. Small records lie in the key's own tree (WITHOUT ROWID); large
ones in a rowid table with an index, so that their bytes stay out of the way of scans.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import apsw
import msgspec

from etagere import directories
from etagere.clock import Clock
from etagere.config import Config
from etagere.engine import timeline
from etagere.engine.interface import Fault, FaultReason, Sifted
from etagere.engine.records import (
    COLLECTIONS,
    ENCODE,
    SCHEMA,
    Collection,
    K,
    Layout,
    R,
    Span,
)
from etagere.engine.timeline import Timeline

DATABASE_NAME = "ledger.sqlite3"
APPLICATION_ID = 0x45746167  # "Etag", so that `file` and people can tell what this is
_BUSY_MILLISECONDS = 5_000

READ_TIMELINE = "SELECT value FROM timeline"
WRITE_TIMELINE = "UPDATE timeline SET value = ?"

decode_timeline = msgspec.msgpack.Decoder(Timeline).decode


class SchemaTooNew(Exception):
    """The database was written by a newer version of the program."""


class NotALedger(Exception):
    """There is a file where the ledger should be, but it is something else."""


class Statements(NamedTuple):
    """The SQL of one collection."""

    get: str
    get_many: str
    """As many as `GOT_TOGETHER`."""
    put: str
    delete: str
    scan: str
    scan_reverse: str
    count_rows: str


GOT_TOGETHER = 64

_STATEMENTS: dict[Collection[Any, Any], Statements] = {}


def statements(collection: Collection[Any, Any]) -> Statements:
    try:
        return _STATEMENTS[collection]
    except KeyError:
        name = collection.name
        several = ", ".join("?" * GOT_TOGETHER)
        scan = f"SELECT key, value FROM {name} WHERE key >= ? AND key < ? ORDER BY key"  # noqa: S608
        put = f"REPLACE INTO {name} VALUES (?, ?)"  # noqa: S608
        if collection.layout is Layout.LARGE:
            # Where it lies, rather than behind all others, with the index changed twice.
            put = (
                f"INSERT INTO {name} VALUES (?, ?) "  # noqa: S608
                "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
            )
        made = _STATEMENTS[collection] = Statements(
            f"SELECT value FROM {name} WHERE key = ?",  # noqa: S608
            f"SELECT key, value FROM {name} WHERE key IN ({several})",  # noqa: S608
            put,
            f"DELETE FROM {name} WHERE key = ?",  # noqa: S608
            f"{scan} LIMIT ?",
            f"{scan} DESC LIMIT ?",
            f"SELECT count(*) FROM {name} WHERE key >= ? AND key < ?",  # noqa: S608
        )
        return made


def database_path(directory: Path) -> Path:
    return directory / DATABASE_NAME


def create(directory: Path, config: Config, clock: Clock) -> None:
    """Makes the database, or brings an older one up to date; both are durable on return."""
    directories.make(directory)
    # It holds the keys of accounts. SQLite gives its log the same mode.
    os.close(directories.open_private(database_path(directory)))
    connection = _open(directory, config, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
    try:
        _require_ledger(connection, directory)
        connection.execute(f"PRAGMA page_size = {config.page_bytes}")
        connection.execute("PRAGMA journal_mode = WAL")
        _tune_writer(connection, config)
        with connection:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {SCHEMA}")
            connection.execute("CREATE TABLE IF NOT EXISTS timeline (value BLOB NOT NULL)")
            for collection in COLLECTIONS.values():
                connection.execute(_create_table(collection))
            if stored_timeline(connection) is None:
                first = timeline.begin(None, clock)
                connection.execute("INSERT INTO timeline VALUES (?)", (ENCODE(first),))
    except apsw.NotADBError:
        raise NotALedger(f"{database_path(directory)} is not an Étagère ledger") from None
    finally:
        connection.close()
    directories.sync(directory)


def open_for_reading(directory: Path, config: Config) -> apsw.Connection:
    connection = _open(directory, config, apsw.SQLITE_OPEN_READONLY)
    connection.execute(f"PRAGMA cache_size = {-config.page_cache_bytes // 1024}")
    return connection


def open_for_writing(directory: Path, config: Config) -> apsw.Connection:
    connection = _open(directory, config, apsw.SQLITE_OPEN_READWRITE)
    _require_ledger(connection, directory)
    _tune_writer(connection, config)
    return connection


def stored_timeline(connection: apsw.Connection) -> Timeline | None:
    row = connection.execute(READ_TIMELINE).fetchone()
    return None if row is None else decode_timeline(row[0])


def fault_of(error: apsw.Error) -> Fault:
    """What an SQLite error that changed nothing means to a caller."""
    full = isinstance(error, apsw.FullError)
    reason = FaultReason.DISK_FULL if full else FaultReason.FAILED
    return Fault(reason, f"{type(error).__name__}: {error}")


def get(cursor: apsw.Cursor, collection: Collection[K, R], key: K) -> R | None:
    return get_packed(cursor, collection, collection.pack(key))


def get_packed(cursor: apsw.Cursor, collection: Collection[K, R], key: bytes) -> R | None:
    row = cursor.execute(statements(collection).get, (key,)).fetchone()
    return None if row is None else collection.decode(row[0])


def get_all(cursor: apsw.Cursor, collection: Collection[K, R], keys: Sequence[K]) -> list[R | None]:
    packed = [collection.pack(key) for key in keys]
    found, decode = get_many(cursor, collection, packed), collection.decode
    return [decode(found[key]) if key in found else None for key in packed]


def get_many(
    cursor: apsw.Cursor, collection: Collection[Any, Any], keys: list[bytes]
) -> dict[bytes, bytes]:
    """The stored values of those that are there."""
    found: dict[bytes, bytes] = {}
    sql = statements(collection).get_many
    for at in range(0, len(keys), GOT_TOGETHER):
        some = keys[at : at + GOT_TOGETHER]
        # One statement for every number: a key that is asked for twice is found once.
        padded = (*some, *some[-1:] * (GOT_TOGETHER - len(some)))
        found.update(cursor.execute(sql, padded))
    return found


def scan(
    cursor: apsw.Cursor, collection: Collection[K, R], span: Span, limit: int, reverse: bool
) -> list[tuple[K, R]]:
    sql = statements(collection)
    rows = list(cursor.execute(sql.scan_reverse if reverse else sql.scan, (*span, limit)))
    decode = collection.decode
    keys = collection.unpack_all([key for key, _ in rows])
    return list(zip(keys, [decode(value) for _, value in rows], strict=True))


def sift(
    cursor: apsw.Cursor,
    collection: Collection[K, R],
    span: Span,
    limit: int,
    passes: Callable[[R], bool],
) -> Sifted[K, R]:
    rows = list(cursor.execute(statements(collection).scan, (*span, limit)))
    rest = Span(rows[-1][0] + b"\x00", span.stop) if len(rows) == limit else None
    decode = collection.decode
    passed = [(key, record, len(value)) for key, value in rows if passes(record := decode(value))]
    keys = collection.unpack_all([key for key, _, _ in passed])
    found = [(key, record) for key, (_, record, _) in zip(keys, passed, strict=True)]
    sizes = [size for _, _, size in passed]
    return Sifted(found, sizes, len(rows), sum([len(value) for _, value in rows]), rest)


def sift_keys(
    cursor: apsw.Cursor,
    collection: Collection[K, R],
    keys: Sequence[K],
    passes: Callable[[R], bool],
) -> Sifted[K, R]:
    packed = [collection.pack(key) for key in keys]
    found = get_many(cursor, collection, packed)
    values = [(key, found[at]) for key, at in zip(keys, packed, strict=True) if at in found]
    decode = collection.decode
    passed = [(key, record, len(value)) for key, value in values if passes(record := decode(value))]
    rows = [(key, record) for key, record, _ in passed]
    sizes = [size for _, _, size in passed]
    return Sifted(rows, sizes, len(values), sum([len(value) for _, value in values]), None)


def count(cursor: apsw.Cursor, collection: Collection[K, R], span: Span) -> int:
    ((found,),) = cursor.execute(statements(collection).count_rows, span)
    return cast("int", found)


def _open(directory: Path, config: Config, flags: int) -> apsw.Connection:
    path = str(database_path(directory))
    vfs = config.sqlite_vfs or None
    connection = apsw.Connection(path, flags=flags, vfs=vfs, statementcachesize=256)
    connection.set_busy_timeout(_BUSY_MILLISECONDS)
    return connection


def _tune_writer(connection: apsw.Connection, config: Config) -> None:
    # The writer checkpoints by itself, after the answers are out rather than before.
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute(f"PRAGMA synchronous = {'FULL' if config.durable else 'OFF'}")
    connection.execute(f"PRAGMA cache_size = {-config.page_cache_bytes // 1024}")


def _require_ledger(connection: apsw.Connection, directory: Path) -> None:
    application_id = connection.pragma("application_id")
    schema = connection.pragma("user_version")
    if schema > SCHEMA:
        raise SchemaTooNew(
            f"{database_path(directory)} has schema {schema}; this version of etagere knows "
            f"schemas up to {SCHEMA}. Use the newer version that wrote it."
        )
    if application_id != APPLICATION_ID and not (application_id == 0 and _is_empty(connection)):
        raise NotALedger(f"{database_path(directory)} is not an Étagère ledger")


def _is_empty(connection: apsw.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_schema").fetchone() is None


def _create_table(collection: Collection[Any, Any]) -> str:
    layout = "" if collection.layout is Layout.LARGE else " WITHOUT ROWID"
    return (
        f"CREATE TABLE IF NOT EXISTS {collection.name} "
        f"(key BLOB PRIMARY KEY NOT NULL, value BLOB NOT NULL){layout}"
    )
