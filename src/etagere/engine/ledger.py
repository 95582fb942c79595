"""The SQLite database: its files, schema, pragmas and statements.

There is one table per collection. Small records are stored in the B-tree of the keys (WITHOUT
ROWID); large ones in a rowid table with an index, so that scans need not read them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import msgspec

from etagere import directories
from etagere.clock import Clock
from etagere.config import MIB, Config
from etagere.engine import interface, timeline
from etagere.engine.filtering import filter_found, filter_scanned
from etagere.engine.interface import Counted, Fault, FaultReason, FilteredRows
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
BUSY_MILLISECONDS = 5_000

READ_TIMELINE = "SELECT value FROM timeline"
WRITE_TIMELINE = "UPDATE timeline SET value = ?"

# The wal-index, as described in SQLite's documentation of the WAL format: the version at the start
# of both copies of its header, and the offset of the number of checkpointed frames.
_WAL_INDEX_VERSION = (3_007_000).to_bytes(4, sys.byteorder)
_CHECKPOINTED_FRAMES_OFFSET = 96

decode_timeline = msgspec.msgpack.Decoder(Timeline).decode


DatabaseError = apsw.Error
"""Raised by SQLite, whatever went wrong."""


SchemaTooNew = interface.SchemaTooNew


class NotALedger(Exception):
    """The file in place of the ledger is something else."""


class Statements(NamedTuple):
    """The SQL of one collection."""

    get: str
    get_many: str
    """`GET_BATCH` keys at once."""
    find_any: str
    """Whether there is a key between two, inclusive."""
    put: str
    delete: str
    scan: str
    scan_reverse: str
    count_rows: str


GET_BATCH = 64
_MANY_KEYS = 8
"""For this many keys it pays to check first whether there is any record between them."""

_STATEMENTS: dict[Collection[Any, Any], Statements] = {}


def statements(collection: Collection[Any, Any]) -> Statements:
    try:
        return _STATEMENTS[collection]
    except KeyError:
        name = collection.name
        several = ", ".join("?" * GET_BATCH)
        scan = f"SELECT key, value FROM {name} WHERE key >= ? AND key < ? ORDER BY key"  # noqa: S608
        keys = f"SELECT key FROM {name} WHERE key >= ? AND key < ? ORDER BY key"  # noqa: S608
        put = f"REPLACE INTO {name} VALUES (?, ?)"  # noqa: S608
        if collection.layout is Layout.LARGE:
            # In place. REPLACE would append the row at the end and change the index twice.
            put = (
                f"INSERT INTO {name} VALUES (?, ?) "  # noqa: S608
                "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
            )
        made = _STATEMENTS[collection] = Statements(
            f"SELECT value FROM {name} WHERE key = ?",  # noqa: S608
            f"SELECT key, value FROM {name} WHERE key IN ({several})",  # noqa: S608
            f"SELECT 1 FROM {name} WHERE key >= ? AND key <= ? LIMIT 1",  # noqa: S608
            put,
            f"DELETE FROM {name} WHERE key = ?",  # noqa: S608
            f"{scan} LIMIT ?",
            f"{scan} DESC LIMIT ?",
            f"SELECT count(*), max(key) FROM ({keys} LIMIT ?)",  # noqa: S608
        )
        return made


def database_path(directory: Path) -> Path:
    return directory / DATABASE_NAME


def create(directory: Path, config: Config, clock: Clock) -> Timeline:
    """Creates the database, or upgrades an older one; durable on return. Returns the stored
    timeline."""
    directories.make(directory)
    # The ledger contains account keys. SQLite gives its log the same mode.
    os.close(directories.open_private(database_path(directory)))
    connection = _open(directory, config, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
    try:
        _require_ledger(connection, directory)
        _tune_writer(connection, config)  # before the first change, which may have to be synced
        # A current ledger is not written to: on a full disk the log could not grow.
        if _is_empty(connection):
            connection.execute(f"PRAGMA page_size = {config.page_bytes}")
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        with connection:
            for pragma, value in (("application_id", APPLICATION_ID), ("user_version", SCHEMA)):
                if connection.pragma(pragma) != value:
                    connection.execute(f"PRAGMA {pragma} = {value}")
            connection.execute("CREATE TABLE IF NOT EXISTS timeline (value BLOB NOT NULL)")
            for collection in COLLECTIONS.values():
                connection.execute(_create_table(collection))
            stored = stored_timeline(connection)
            current = stored or timeline.begin(None, clock)
            if stored is None:
                connection.execute("INSERT INTO timeline VALUES (?)", (ENCODE(current),))
    except apsw.NotADBError:
        raise NotALedger(f"{database_path(directory)} is not an Étagère ledger") from None
    finally:
        connection.close()
    if config.durable:
        directories.sync(directory)
    return current


def open_for_reading(directory: Path, config: Config) -> apsw.Connection:
    connection = _open(directory, config, apsw.SQLITE_OPEN_READONLY)
    connection.execute(f"PRAGMA cache_size = {-config.page_cache_bytes // 1024}")
    return connection


def open_for_writing(directory: Path, config: Config) -> apsw.Connection:
    connection = _open(directory, config, apsw.SQLITE_OPEN_READWRITE)
    _require_ledger(connection, directory)
    _tune_writer(connection, config)
    return connection


def compact(directory: Path, config: Config) -> None:
    """Rewrites the database without free pages and with incremental vacuum. No other process may
    use the directory."""
    forget_checkpoints(directory)
    connection = open_for_writing(directory, config)
    try:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("VACUUM")
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        connection.close(True)


def log_path(directory: Path) -> Path:
    return directory / f"{DATABASE_NAME}-wal"


def log_bytes(directory: Path) -> int:
    """Returns the size of the write-ahead log."""
    try:
        return log_path(directory).stat().st_size
    except FileNotFoundError:
        return 0


def rewrite_log(directory: Path) -> None:
    """Rewrites the log in place and syncs it, so that the pages that a failed sync dropped reach
    the disk. Only for the writer. Readers find the same bytes at any time, and SQLite has no locks
    on this file."""
    descriptor = os.open(log_path(directory), os.O_RDWR | os.O_CLOEXEC)
    try:
        offset = 0
        while data := os.pread(descriptor, MIB, offset):
            offset += os.pwrite(descriptor, data, offset)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def forget_checkpoints(directory: Path) -> None:
    """Makes the next checkpoint start at the first frame of the log.

    The number of checkpointed frames is in shared memory, which exists as long as any process has
    the database open. SQLite tolerates a number that is too low: readers use more of the log than
    necessary, and a checkpoint copies some frames again.

    Only for a process that does not have the database open: closing any descriptor of a file
    releases all locks that the process has on it.
    """
    try:
        descriptor = os.open(directory / f"{DATABASE_NAME}-shm", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if os.pread(descriptor, len(_WAL_INDEX_VERSION), 0) == _WAL_INDEX_VERSION:
            os.pwrite(descriptor, bytes(4), _CHECKPOINTED_FRAMES_OFFSET)
    finally:
        os.close(descriptor)


def stored_timeline(connection: apsw.Connection) -> Timeline | None:
    row = connection.execute(READ_TIMELINE).fetchone()
    return None if row is None else decode_timeline(row[0])


def store_timeline(directory: Path, config: Config, record: Timeline) -> None:
    """Replaces the timeline of a ledger that no other process uses; durable on return."""
    connection = open_for_writing(directory, config)
    try:
        connection.execute(WRITE_TIMELINE, (ENCODE(record),))
    finally:
        connection.close()


def is_disk_full(error: apsw.Error) -> bool:
    """Returns whether SQLite failed for lack of disk space. If its shared memory, which is a file
    too, cannot grow with the log, it reports an I/O error."""
    return (
        isinstance(error, apsw.FullError)
        or getattr(error, "extendedresult", apsw.SQLITE_OK) == apsw.SQLITE_IOERR_SHMSIZE
    )


def fault_of(error: apsw.Error) -> Fault:
    """Returns the fault to report for an SQLite error that changed nothing."""
    reason = FaultReason.DISK_FULL if is_disk_full(error) else FaultReason.FAILED
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
    """Returns the stored values of the keys that exist."""
    found: dict[bytes, bytes] = {}
    sql = statements(collection).get_many
    if len(keys) >= _MANY_KEYS and not _any_between(cursor, collection, min(keys), max(keys)):
        # As when the rows of a new partition are inserted: one search instead of one per key.
        return found
    for at in range(0, len(keys), GET_BATCH):
        some = keys[at : at + GET_BATCH]
        # Padded with the last key, so that one statement serves any number of keys.
        padded = (*some, *some[-1:] * (GET_BATCH - len(some)))
        found.update(cursor.execute(sql, padded))
    return found


def _any_between(
    cursor: apsw.Cursor, collection: Collection[Any, Any], first: bytes, last: bytes
) -> bool:
    return cursor.execute(statements(collection).find_any, (first, last)).fetchone() is not None


def scan(
    cursor: apsw.Cursor, collection: Collection[K, R], span: Span, limit: int, reverse: bool
) -> list[tuple[K, R]]:
    sql = statements(collection)
    rows = list(cursor.execute(sql.scan_reverse if reverse else sql.scan, (*span, limit)))
    decode = collection.decode
    keys = collection.unpack_all([key for key, _ in rows])
    return list(zip(keys, [decode(value) for _, value in rows], strict=True))


def scan_filtered(
    cursor: apsw.Cursor,
    collection: Collection[K, R],
    span: Span,
    limit: int,
    passes: Callable[[R], bool],
    bytes_max: int,
) -> FilteredRows[K, R]:
    scanned = cursor.execute(statements(collection).scan, (*span, limit))
    return filter_scanned(collection, scanned, span, limit, passes, bytes_max)


def get_filtered(
    cursor: apsw.Cursor,
    collection: Collection[K, R],
    keys: Sequence[K],
    passes: Callable[[R], bool],
) -> FilteredRows[K, R]:
    packed = [collection.pack(key) for key in keys]
    found = get_many(cursor, collection, packed)
    values = [(key, found[at]) for key, at in zip(keys, packed, strict=True) if at in found]
    return filter_found(collection, values, passes)


def count(cursor: apsw.Cursor, collection: Collection[Any, Any], span: Span, limit: int) -> Counted:
    ((found, last),) = cursor.execute(statements(collection).count_rows, (*span, limit))
    return Counted(found, Span(last + b"\x00", span.stop) if found == limit else None)


def _open(directory: Path, config: Config, flags: int) -> apsw.Connection:
    path = str(database_path(directory))
    vfs = config.sqlite_vfs or None
    connection = apsw.Connection(path, flags=flags, vfs=vfs, statementcachesize=256)
    connection.set_busy_timeout(BUSY_MILLISECONDS)
    # Otherwise SQLite prepares a statement with `LIMIT ?` again whenever it is executed, because
    # the best plan may depend on the limit.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    return connection


def _tune_writer(connection: apsw.Connection, config: Config) -> None:
    # The writer runs checkpoints itself, after it has answered rather than before.
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute(f"PRAGMA journal_size_limit = {config.log_bytes_kept}")
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
