"""The schema in PostgreSQL: splitting keys, creating and refusing."""

from __future__ import annotations

import hashlib
import random
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from etagere.engine.interface import SchemaTooNew
from etagere.engine.keys import KEY_BYTES_MAX
from etagere.engine.postgres import schema
from etagere.engine.postgres.connecting import Database, connect_writer
from etagere.engine.postgres.schema import KEY_HEAD_BYTES, bound, split
from etagere.engine.records import COLLECTIONS, SCHEMA
from tests.engine import samples


def test_short_keys_are_one_column() -> None:
    for length in (0, 1, KEY_HEAD_BYTES):
        assert split(b"x" * length) == (b"x" * length, b"", b"")


def test_long_keys_are_split() -> None:
    for length in (KEY_HEAD_BYTES + 1, KEY_BYTES_MAX):
        key = random.randbytes(length)
        head, rest, digest = split(key)
        assert head + rest == key
        assert len(head) == KEY_HEAD_BYTES
        assert digest == hashlib.sha256(rest).digest()


def test_the_order_of_the_columns_is_that_of_the_keys() -> None:
    random.seed(1)
    common = b"a" * (KEY_HEAD_BYTES - 2)
    keys = [
        common + random.choices([b"", b"\x00"])[0] + bytes(random.choices(range(3), k=length))
        for length in (0, 1, 2, 3, 4, 5, 6)
        for _ in range(20)
    ]
    keys += [b"", b"a", b"b"]
    assert sorted(keys, key=bound) == sorted(keys)
    assert sorted(keys, key=lambda key: split(key)[:2]) == sorted(keys)


def test_several_nodes_create_the_schema_at_once(
    postgresql_dsn: str, postgresql_schema: str
) -> None:
    database = Database(postgresql_dsn, postgresql_schema)

    def create(_: int) -> None:
        with connect_writer(database) as connection:
            schema.create(connection, postgresql_schema)

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(create, range(6)))
    with connect_writer(database) as connection:
        schema.create(connection, postgresql_schema)
        tables = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = %s", (postgresql_schema,)
        )
        assert {name for (name,) in tables} == {*schema.OTHER_TABLES, *COLLECTIONS}
        assert connection.execute("SELECT count(*) FROM fence").fetchone() == (1,)


def test_a_collection_that_was_added_gets_its_table(
    postgresql_dsn: str, postgresql_schema: str
) -> None:
    database = Database(postgresql_dsn, postgresql_schema)
    with connect_writer(database) as connection:
        schema.create(connection, postgresql_schema)
        connection.execute(f"DROP TABLE {samples.ITEMS.name}")
        schema.create(connection, postgresql_schema)
        connection.execute(f"SELECT FROM {samples.ITEMS.name}")


@pytest.mark.parametrize("column", ["records", "layout"])
def test_a_newer_schema_is_refused(
    postgresql_dsn: str, postgresql_schema: str, column: str
) -> None:
    database = Database(postgresql_dsn, postgresql_schema)
    with connect_writer(database) as connection:
        schema.create(connection, postgresql_schema)
        connection.execute(f"UPDATE schema_version SET {column} = {SCHEMA + 1}")  # noqa: S608
        with pytest.raises(SchemaTooNew, match="newer version"):
            schema.create(connection, postgresql_schema)


def test_statements_use_the_index(postgresql_dsn: str, postgresql_schema: str) -> None:
    """Even in tables that are empty, or of which PostgreSQL knows nothing yet."""
    with connect_writer(Database(postgresql_dsn, postgresql_schema)) as connection:
        schema.create(connection, postgresql_schema)
        for name, statement in schema.statements(samples.ITEMS)._asdict().items():
            if name in ("insert_placeholders", "put"):
                continue
            count = max(number for number in range(1, 6) if f"${number}" in statement)
            types = {2: "bytea[], bytea[]", 3: "bytea[], bytea[], bigint[]"}.get(
                count, "bytea, bytea, bytea, bytea, bigint"
            )
            connection.execute(f"PREPARE {name} ({types}) AS {statement}")
            values = {2: "'{}', '{}'", 3: "'{}', '{}', '{}'"}.get(count, "'', '', 'x', '', 1")
            rows = connection.execute(f"EXPLAIN EXECUTE {name} ({values})")
            plan = "\n".join([row for (row,) in rows])
            assert f"using {samples.ITEMS.name}_pkey" in plan, plan
            assert "Seq Scan" not in plan, plan


def test_placeholders_of_a_transaction_that_ended_are_gone(
    postgresql_dsn: str, postgresql_schema: str
) -> None:
    with connect_writer(Database(postgresql_dsn, postgresql_schema)) as connection:
        schema.create(connection, postgresql_schema)
        cursor = psycopg.RawCursor(connection)
        insert = schema.statements(samples.ITEMS).insert_placeholders
        with connection.transaction(force_rollback=True):
            made = cursor.execute(insert, ([b"b", b"a"], [b"", b""], [b"", b""])).fetchall()
            assert made == [(b"b", b""), (b"a", b"")]
            assert cursor.execute(insert, ([b"a"], [b""], [b""])).fetchall() == []
        assert connection.execute("SELECT count(*) FROM test_items").fetchone() == (0,)
