"""The tables and statements of a ledger in PostgreSQL.

There is one table per collection, and one schema (namespace) per ledger. A record is a row

    key      the first 2,000 bytes of the encoded key
    rest     what follows of the key; '' for nearly all keys
    digest   SHA-256 of `rest`; '' where that is ''
    version  the number of the change that wrote the row, which is never reused
    value    the encoded record; NULL in a placeholder

because an entry of a B-tree must be shorter than a third of a page, and keys may have 8 KiB. The
order of (key, rest) is the order of the encoded keys, since `key` is shorter than 2,000 bytes only
where `rest` is ''.

A placeholder locks a key that is absent. The transaction that inserts it also removes or fills it,
so no other transaction ever sees one.

Statements number their parameters ($1, $2, ...), and pass keys as arrays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import sql

from etagere.engine.interface import SchemaTooNew
from etagere.engine.postgres import fence, lock_requests, stamps
from etagere.engine.records import COLLECTIONS, SCHEMA, Collection, Layout

LAYOUT: Final = 1
"""The version of the tables, apart from the version of the records in them."""
KEY_HEAD_BYTES: Final = 2_000
PLACEHOLDER_VERSION: Final = 0

OTHER_TABLES: Final = frozenset({"fence", "lock_requests", "schema_version", "writers"})
"""The tables that are not those of collections."""

ANSWER_SECONDS_MAX: Final = 20.0
"""How long a server may take to answer while the schema is created. A COMMIT may wait for a standby
without end."""
_SCHEMA_LOCK_TIMEOUT: Final = "15s"
"""Less than that, so that the server reports it."""
_CREATE_ATTEMPTS: Final = 20
_RACES: Final = (
    psycopg.errors.UniqueViolation,
    psycopg.errors.DuplicateSchema,
    psycopg.errors.DuplicateTable,
    psycopg.errors.SerializationFailure,
    psycopg.errors.DeadlockDetected,
)
"""Errors of nodes that create the same schema at the same time, in spite of IF NOT EXISTS."""


class StoredKey(NamedTuple):
    """An encoded key as its columns."""

    key: bytes
    rest: bytes
    digest: bytes


def split(packed: bytes) -> StoredKey:
    """Returns the columns of an encoded key."""
    if len(packed) <= KEY_HEAD_BYTES:
        return StoredKey(packed, b"", b"")
    rest = packed[KEY_HEAD_BYTES:]
    return StoredKey(packed[:KEY_HEAD_BYTES], rest, hashlib.sha256(rest).digest())


def bound(packed: bytes) -> tuple[bytes, bytes]:
    """Returns `key` and `rest` of a bound of a span, which need not be a key."""
    return packed[:KEY_HEAD_BYTES], packed[KEY_HEAD_BYTES:]


class Statements(NamedTuple):
    """The SQL of one collection.

    `known` statements take keys, digests and the versions that the caller has cached (NULL:
    none), and return (ordinal, version, value) of the records that exist: the ordinal counts keys
    from 1, and the value is NULL where the version is the cached one.
    """

    known: str
    known_for_share: str
    known_for_update: str
    known_for_share_skipping: str
    known_for_update_skipping: str
    """`skipping`: leaves out the records that others have locked."""
    exists: str
    """The ordinals of the keys that exist, whether locked or not."""
    insert_placeholders: str
    """Inserts placeholders for the keys, rests and digests that are absent, and returns (key,
    digest) of these."""
    put: str
    """Stores keys, rests, digests and values under one version ($5)."""
    delete: str
    scan: str
    """(key, rest, version, value) from one (key, rest) up to another, at most $5."""
    scan_reverse: str
    scan_for_update: str
    scan_reverse_for_update: str
    """The same, locked; leaves out the records that others have locked."""
    count_rows: str
    """The number of records in a span, at most $5, and (key, rest) of the last."""


_STATEMENTS: dict[Collection[Any, Any], Statements] = {}


def copy_in(collection: Collection[Any, Any]) -> bytes:
    """Returns the statement that adds rows to the table of a collection, in binary format."""
    columns = "key, rest, digest, version, value"
    return f"COPY {collection.name} ({columns}) FROM STDIN (FORMAT binary)".encode()


def statements(collection: Collection[Any, Any]) -> Statements:
    """Returns the SQL of a collection."""
    try:
        return _STATEMENTS[collection]
    except KeyError:
        made = _STATEMENTS[collection] = _statements(collection.name)
        return made


def _statements(table: str) -> Statements:
    known = (
        "SELECT k.n, t.version, CASE WHEN t.version IS DISTINCT FROM k.version THEN t.value END"  # noqa: S608
        " FROM unnest($1::bytea[], $2::bytea[], $3::bigint[])"
        " WITH ORDINALITY AS k (key, digest, version, n)"
        f" JOIN {table} AS t ON t.key = k.key AND t.digest = k.digest"
        " WHERE t.value IS NOT NULL"
    )
    # Rows are locked in the order in which they are returned.
    locking = f"{known} ORDER BY k.n FOR"
    in_span = (
        f"FROM {table} AS t WHERE (t.key, t.rest) >= ($1::bytea, $2::bytea)"
        " AND (t.key, t.rest) < ($3::bytea, $4::bytea) AND t.value IS NOT NULL"
    )
    scan = f"SELECT t.key, t.rest, t.version, t.value {in_span}"
    forward = f"{scan} ORDER BY t.key, t.rest LIMIT $5::bigint"
    backward = f"{scan} ORDER BY t.key DESC, t.rest DESC LIMIT $5::bigint"
    claim = "FOR UPDATE OF t SKIP LOCKED"
    return Statements(
        known=known,
        known_for_share=f"{locking} SHARE OF t",
        known_for_update=f"{locking} UPDATE OF t",
        known_for_share_skipping=f"{locking} SHARE OF t SKIP LOCKED",
        known_for_update_skipping=f"{locking} UPDATE OF t SKIP LOCKED",
        exists=(
            "SELECT k.n FROM unnest($1::bytea[], $2::bytea[])"  # noqa: S608
            " WITH ORDINALITY AS k (key, digest, n)"
            f" JOIN {table} AS t ON t.key = k.key AND t.digest = k.digest"
            " WHERE t.value IS NOT NULL"
        ),
        insert_placeholders=(
            f"INSERT INTO {table} (key, rest, digest, version)"  # noqa: S608
            f" SELECT k.key, k.rest, k.digest, {PLACEHOLDER_VERSION}"
            " FROM unnest($1::bytea[], $2::bytea[], $3::bytea[]) AS k (key, rest, digest)"
            " ON CONFLICT (key, digest) DO NOTHING RETURNING key, digest"
        ),
        put=(
            f"INSERT INTO {table} (key, rest, digest, version, value)"  # noqa: S608
            " SELECT k.key, k.rest, k.digest, $5::bigint, k.value"
            " FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bytea[])"
            " AS k (key, rest, digest, value) ON CONFLICT (key, digest)"
            " DO UPDATE SET version = excluded.version, value = excluded.value"
        ),
        delete=(
            f"DELETE FROM {table} AS t USING unnest($1::bytea[], $2::bytea[])"  # noqa: S608
            " AS k (key, digest) WHERE t.key = k.key AND t.digest = k.digest"
        ),
        scan=forward,
        scan_reverse=backward,
        scan_for_update=f"{forward} {claim}",
        scan_reverse_for_update=f"{backward} {claim}",
        count_rows=(
            "SELECT count(*), (array_agg(s.key ORDER BY s.key DESC, s.rest DESC))[1],"  # noqa: S608
            " (array_agg(s.rest ORDER BY s.key DESC, s.rest DESC))[1] FROM"
            f" (SELECT t.key, t.rest {in_span} ORDER BY t.key, t.rest LIMIT $5::bigint) AS s"
        ),
    )


def create(connection: psycopg.Connection[Any], schema: str) -> None:
    """Creates the ledger's schema, or adds what is missing in an older one. Several nodes may do
    this at the same time.

    `connection` is in autocommit mode and has the schema on its search path. Raises
    `SchemaTooNew`.
    """
    if _is_complete(connection, schema):
        return
    for attempt in range(_CREATE_ATTEMPTS):
        try:
            _create_lock(connection, schema)
            break
        except _RACES:
            if attempt == _CREATE_ATTEMPTS - 1:
                raise
    with connection.transaction():
        connection.execute(f"SET LOCAL lock_timeout = '{_SCHEMA_LOCK_TIMEOUT}'")
        # The other nodes wait here.
        connection.execute("SELECT FROM schema_version FOR UPDATE")
        records, layout = require_known_version(connection)
        for statement in _missing_tables(connection, schema):
            connection.execute(statement)
        connection.execute(fence.INSERT_FIRST)
        if (records, layout) != (SCHEMA, LAYOUT):
            connection.execute(f"UPDATE schema_version SET records = {SCHEMA}, layout = {LAYOUT}")  # noqa: S608


def _is_complete(connection: psycopg.Connection[Any], schema: str) -> bool:
    """Returns whether nothing is missing. Takes no locks: a node that starts must not wait for the
    COMMIT of another, nor for a standby, which a transaction with row locks does."""
    if not has_tables(connection) or require_known_version(connection) != (SCHEMA, LAYOUT):
        return False
    if _missing_tables(connection, schema):
        return False
    return connection.execute("SELECT FROM fence").fetchone() is not None


def require_known_version(connection: psycopg.Connection[Any]) -> tuple[int, int]:
    """Returns the versions of the records and of the tables. Raises `SchemaTooNew`."""
    row = connection.execute("SELECT records, layout FROM schema_version").fetchone()
    records, layout = row or (0, 0)
    if records > SCHEMA or layout > LAYOUT:
        raise SchemaTooNew(
            f"the ledger in PostgreSQL has schema {records}.{layout}; this version of etagere "
            f"knows schemas up to {SCHEMA}.{LAYOUT}. Use the newer version that wrote it."
        )
    return records, layout


def _create_lock(connection: psycopg.Connection[Any], schema: str) -> None:
    """Creates the schema with the row that serializes its creators."""
    name = sql.Identifier(schema)
    if has_tables(connection):
        return
    with connection.transaction():
        connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(name))
        connection.execute(
            "CREATE TABLE IF NOT EXISTS schema_version (id int PRIMARY KEY CHECK (id = 1),"
            " records int NOT NULL, layout int NOT NULL)"
        )
        connection.execute("INSERT INTO schema_version VALUES (1, 0, 0) ON CONFLICT DO NOTHING")


def has_tables(connection: psycopg.Connection[Any]) -> bool:
    """Returns whether there is a ledger in the schema on the search path."""
    found = connection.execute("SELECT to_regclass('schema_version')").fetchone()
    return found is not None and found[0] is not None


def present_tables(connection: psycopg.Connection[Any], schema: str) -> set[str]:
    """Returns the names of the tables in a schema, apart from those of the coordinator."""
    rows = connection.execute(
        "SELECT tablename FROM pg_catalog.pg_tables"
        " WHERE schemaname = %s AND NOT starts_with(tablename, 'cluster_')",
        (schema,),
    )
    return {name for (name,) in rows}


def _missing_tables(connection: psycopg.Connection[Any], schema: str) -> Sequence[str]:
    present = present_tables(connection, schema)
    wanted = {
        "fence": fence.CREATE_TABLE,
        "lock_requests": lock_requests.CREATE_TABLE,
        "writers": stamps.CREATE_TABLE,
        **{each.name: create_table(each) for each in COLLECTIONS.values()},
    }
    return [statement for name, statement in wanted.items() if name not in present]


def create_table(collection: Collection[Any, Any]) -> str:
    """Returns the statement that creates the table of a collection."""
    is_large = collection.layout is Layout.LARGE
    # Large values are bodies, which rarely compress. Small records are often updated: with room in
    # their page the update does not touch the index (HOT).
    options = "" if is_large else "fillfactor = 85, "
    create = (
        f"CREATE TABLE IF NOT EXISTS {collection.name} (key bytea NOT NULL,"
        " rest bytea NOT NULL DEFAULT '', digest bytea NOT NULL DEFAULT '',"
        " version bigint NOT NULL, value bytea, PRIMARY KEY (key, digest))"
        f" WITH ({options}autovacuum_vacuum_scale_factor = 0.05)"
    )
    if is_large:
        create += f"; ALTER TABLE {collection.name} ALTER COLUMN value SET STORAGE EXTERNAL"
    return create
