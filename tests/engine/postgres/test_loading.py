"""Loading a whole ledger into PostgreSQL: it continues where the source has stopped."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from etagere.clock import TICKS_PER_SECOND, SystemClock
from etagere.config import Config
from etagere.coordination.postgres import NodeRegistry
from etagere.engine import timeline
from etagere.engine.direct import write_directly
from etagere.engine.interface import EXCLUSIVE, Fault, Unknown, WriteTxn, operation
from etagere.engine.postgres.bulk_insert import BulkInsert
from etagere.engine.postgres.connecting import Database
from etagere.engine.postgres.copying import open_snapshot
from etagere.engine.postgres.groups import PostgresWriter
from etagere.engine.postgres.loading import LedgerExists, LoadUnderWay, PostgresLoad
from etagere.engine.postgres.opening import LedgerIncomplete, NoLedger, prepare_ledger
from etagere.engine.records import ENCODE
from etagere.model.base import Command, Part
from tests.clusters.postgresql import PostgresServer, postgresql, without_standby
from tests.engine.postgres.ledgers import FIRST_VERSION, raw_ledger
from tests.engine.postgres.schemas import empty_schema
from tests.engine.samples import ITEMS, Item
from tests.server import eventually

_HOUR = 3_600 * TICKS_PER_SECOND


class Touch(Command, frozen=True):
    """Changes a record."""

    name: str


class Touched(Part, frozen=True):
    """The times of a change, and the record before."""

    now: int
    stamp: int
    before: Item | None


@operation
def touch(txn: WriteTxn, command: Touch) -> Touched:
    before = txn.get(ITEMS, (command.name,), EXCLUSIVE)
    txn.put(ITEMS, (command.name,), Item("touched"))
    return Touched(txn.now, txn.stamp, before)


@contextlib.contextmanager
def loading(database: Database) -> Iterator[PostgresLoad]:
    load = PostgresLoad(database)
    try:
        yield load
    finally:
        load.close()


@pytest.fixture
def database(postgresql_database: str) -> Database:
    return Database(postgresql_database)


def test_times_and_records_continue(database: Database) -> None:
    clock = SystemClock()
    # The clock of the source was ahead, and its stamps even further.
    time = timeline.begin(None, clock)
    time = replace(time, now=time.now + _HOUR, last_stamp=time.now + 2 * _HOUR)
    name = "long" * 1_000
    with loading(database) as load:
        assert load.begin(b"id", "bodies").is_new
        load.prepare(time.last_stamp)
        rows = [(ITEMS.pack((each,)), ENCODE(Item(each))) for each in ("a", name)]
        load.load(ITEMS, rows)
        load.finish(time)
    writer = PostgresWriter(database, Config(), clock)
    try:
        first, last = [write_directly(writer, touch, Touch(each)) for each in ("a", name)]
    finally:
        writer.close()
    assert (first.before, last.before) == (Item("a"), Item(name))
    assert time.now <= first.now <= last.now
    assert time.last_stamp < first.stamp < last.stamp
    with open_snapshot(database) as snapshot:
        back = snapshot.timeline(clock)
        assert [key for key, _ in snapshot.rows(ITEMS)] == sorted(key for key, _ in rows)
    assert timeline.instant_from(back, clock).now >= last.now
    assert back.last_stamp >= last.stamp


def test_a_load_is_exclusive_and_all_or_nothing(database: Database) -> None:
    time = timeline.begin(None, SystemClock())
    with loading(database) as load, loading(database) as other:
        assert load.begin(b"id", "bodies").is_new
        with pytest.raises(LoadUnderWay):
            other.begin(b"other", "bodies")
        load.prepare(1)
        load.load(ITEMS, [(ITEMS.pack(("a",)), ENCODE(Item("a")))])
        for create in (True, False):
            with pytest.raises(LedgerIncomplete):
                prepare_ledger(database, create=create)
    # Interrupted: the next one starts over, with the id that the bodies may have already.
    with loading(database) as load:
        assert load.begin(b"third", "elsewhere") == (b"id", "bodies", False)
        load.prepare(1)
        load.finish(time)
    with open_snapshot(database) as snapshot:
        assert not list(snapshot.rows(ITEMS))
    with loading(database) as load, pytest.raises(LedgerExists):
        load.begin(b"id", "bodies")


def test_an_abandoned_load_leaves_nothing(database: Database) -> None:
    with loading(database) as load:
        load.begin(b"id", "bodies")
        load.abandon()
    with pytest.raises(NoLedger):
        prepare_ledger(database, create=False)


def test_the_outcome_of_a_commit_that_was_not_replicated_is_unknown(tmp_path: Path) -> None:
    """PostgreSQL reports success if its wait for a standby is cancelled."""
    with postgresql(tmp_path) as server:
        _load_without_standby(server)
        with empty_schema(server.dsn) as schema, raw_ledger(server.dsn, schema) as ledger:
            _insert_without_standby(server, ledger.database)


def _insert_without_standby(server: PostgresServer, database: Database) -> None:
    with BulkInsert(database, FIRST_VERSION) as records:
        records.add(ITEMS, ITEMS.pack(("a",)), ITEMS.encode(Item()))
        with (
            without_standby(server) as administrator,
            cancelling(administrator, records._connection.info.backend_pid),
            pytest.raises(Unknown),
        ):
            records.commit()


def _load_without_standby(server: PostgresServer) -> None:
    with loading(Database(server.dsn)) as load:
        load.begin(b"id", "bodies")
        load.prepare(1)
        load._loader.execute("SET synchronous_commit = local")  # only the last COMMIT waits
        with (
            without_standby(server) as administrator,
            cancelling(administrator, load._holder.info.backend_pid),
            pytest.raises(Unknown),
        ):
            load.finish(timeline.begin(None, SystemClock()))


@contextlib.contextmanager
def cancelling(administrator: psycopg.Connection[Any], pid: int) -> Iterator[None]:
    """Cancels the wait of a session for a standby."""
    cancel = (
        "SELECT pg_cancel_backend(pid) FROM pg_stat_activity"
        " WHERE pid = %s AND wait_event = 'SyncRep'"
    )
    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(
            eventually, lambda: administrator.execute(cancel, (pid,)).rowcount > 0, "the wait"
        )
        yield
        done.result()


def test_only_an_empty_schema_is_replaced(database: Database) -> None:
    time = timeline.begin(None, SystemClock())
    with psycopg.connect(database.connection_string, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA etagere")
        connection.execute("CREATE TABLE etagere.other (n int)")
        with loading(database) as load:
            load.begin(b"id", "bodies")
            load.prepare(1)
            with pytest.raises(Fault, match="other objects depend on it"):
                load.finish(time)
        connection.execute("DROP TABLE etagere.other")
    with loading(database) as load:
        assert not load.begin(b"id", "bodies").is_new
        load.prepare(1)
        load.finish(time)
    prepare_ledger(database, create=False)
    assert not NodeRegistry(database.connection_string).list()
