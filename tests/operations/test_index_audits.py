"""`etagere check` on indexes: of blob tags and of entity properties."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from etagere.bodies.audit import findings as kinds
from etagere.bodies.audit.remedies import repair
from etagere.bodies.audit.walk import check
from etagere.clock import SystemClock
from etagere.config import Config
from etagere.engine import ledger, wire
from etagere.engine.groups import Writer
from etagere.engine.interface import C, T, WriteTxn, operation, registered
from etagere.engine.records import ENCODE, Collection
from etagere.engine.wire import Outcome
from etagere.model.blobs import BlobName, PutBlob
from etagere.model.bodies import Body
from etagere.model.containers import ContainerName, CreateContainer, DeleteContainer
from etagere.model.ids import new_id
from etagere.model.tables import (
    ChangeEntities,
    ChangeKind,
    CreateTable,
    DeleteTable,
    EntityChange,
    Keys,
    Properties,
    TableName,
)
from etagere.operations.blob.blobs import put_blob
from etagere.operations.blob.collections import TAG_VALUES, TAGGED_BLOBS
from etagere.operations.blob.containers import create_container, delete_container
from etagere.operations.blob.purging import PurgeContainers, purge_containers
from etagere.operations.index_audits import INDEXES
from etagere.operations.table.collections import PROPERTY_VALUES, TABLES
from etagere.operations.table.entities import change_entities
from etagere.operations.table.indexes import (
    BuildIndex,
    DropUnused,
    RequestIndex,
    build_index,
    drop_unused,
    request_index,
)
from etagere.operations.table.tables import PurgeTables, create_table, delete_table, purge_tables

BOX = ContainerName("account", "box")
BOOKS = TableName("account", "Books")
CONFIG = Config(durable=False, reserve_bytes=0)


class Store:
    """A ledger with tagged blobs and an indexed table."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        ledger.create(directory, CONFIG, SystemClock())
        (directory / "segments").mkdir()
        self.write(create_container, CreateContainer(BOX, new_id()))
        for number in range(20):
            tags = (("shelf", str(number % 3)), ("row", "1"))
            body = Body(new_id(), 0, 0)
            self.write(put_blob, PutBlob(BlobName(BOX, f"blob {number}"), body, tags=tags))
        self.write(create_table, CreateTable(BOOKS, new_id()))
        for number in range(50):
            keys = Keys(f"part {number % 4}", f"row {number}")
            properties = Properties(("Shelf",), "i", (number % 7,))
            change = EntityChange(ChangeKind.INSERT, keys, properties)
            self.write(change_entities, ChangeEntities(BOOKS, (change,)))
        assert self.write(request_index, RequestIndex(BOOKS, "Shelf"))

    def write(self, operation: Callable[[WriteTxn, C], T], command: C) -> T:
        writer = Writer(self.directory, CONFIG, SystemClock())
        known = registered(operation)
        request = wire.Request(0, known.wire_name, memoryview(ENCODE(command)))
        (answer,) = writer.run_group([request])
        writer.close()
        assert answer.outcome is Outcome.RESULT
        return known.decode_result(answer.payload)

    def build(self) -> None:
        while self.write(build_index, BuildIndex(BOOKS, "Shelf")):
            pass

    def found(self) -> list[str]:
        return [found.kind.name for found in check(self.directory, indexes=INDEXES).findings]

    def execute(self, sql: str) -> None:
        connection = apsw.Connection(str(ledger.database_path(self.directory)))
        connection.execute(sql)
        connection.close()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "data")
    made.build()
    return made


def test_a_consistent_store_has_no_findings(store: Store) -> None:
    assert store.found() == []


ROWS = pytest.mark.parametrize(
    "rows", [TAGGED_BLOBS, TAG_VALUES, PROPERTY_VALUES], ids=lambda rows: rows.name
)


@ROWS
def test_a_missing_row(store: Store, rows: Collection[Any, Any]) -> None:
    first = f"SELECT key FROM {rows.name} ORDER BY key LIMIT 1"  # noqa: S608
    store.execute(f"DELETE FROM {rows.name} WHERE key = ({first})")  # noqa: S608
    assert store.found() == [kinds.INDEX_ROW_MISSING.name]


@ROWS
def test_a_row_without_an_object(store: Store, rows: Collection[Any, Any]) -> None:
    source = "entities" if rows is PROPERTY_VALUES else "blobs"
    ((count,),) = apsw.Connection(str(ledger.database_path(store.directory))).execute(
        f"SELECT count(*) FROM {rows.name}"  # noqa: S608
    )
    store.execute(f"DELETE FROM {source}")  # noqa: S608
    report = check(store.directory, indexes=INDEXES)
    names = [found.kind.name for found in report.findings if rows.name in found.where]
    assert names == [kinds.INDEX_ROW_UNUSED.name] * count
    repair(store.directory, report.findings, CONFIG, SystemClock())
    assert store.found() == []


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_partially_built_index(tmp_path: Path, steps: int) -> None:
    """Has rows up to where it was built, and of entities that changed since."""
    store = Store(tmp_path / "data")
    for _ in range(steps):
        store.write(build_index, BuildIndex(BOOKS, "Shelf", 15))
    assert store.found() == []
    changed = Properties(("Shelf",), "i", (99,))
    for keys in (Keys("part 0", "row 0"), Keys("part 3", "row 47")):
        change = EntityChange(ChangeKind.REPLACE, keys, changed)
        store.write(change_entities, ChangeEntities(BOOKS, (change,)))
    assert store.found() == []
    if steps:
        # The first row that was built; rows of entities that changed since would come last.
        first = "SELECT key FROM property_values ORDER BY key LIMIT 1"
        store.execute(f"DELETE FROM property_values WHERE key = ({first})")  # noqa: S608
        assert store.found() == [kinds.INDEX_ROW_MISSING.name]


def test_objects_being_removed_are_no_findings(store: Store) -> None:
    store.write(delete_table, DeleteTable(BOOKS))
    store.write(delete_container, DeleteContainer(BOX))
    assert store.found() == []
    left = 1
    while left:
        left = store.write(purge_tables, PurgeTables(7))
        assert store.found() == []
    while store.write(purge_containers, PurgeContainers()):
        assert store.found() == []
    assert store.found() == []


def test_a_dropped_index(store: Store) -> None:
    """Its rows are no finding until they are removed; the index that replaces it is checked."""
    store.write(forget_index, BOOKS)
    assert store.found() == []
    store.build()
    assert store.found() == []
    while store.write(purge_tables, PurgeTables(7)):
        assert store.found() == []
    ((count,),) = apsw.Connection(str(ledger.database_path(store.directory))).execute(
        "SELECT count(*) FROM property_values"
    )
    assert count == 0


@operation
def forget_index(txn: WriteTxn, name: TableName) -> None:
    """Drops the index as if it had not been used for long."""
    table = txn.get(TABLES, name.key)
    assert table is not None
    old = tuple(
        [msgspec.structs.replace(index, created_at=1, used_at=1) for index in table.indexes]
    )
    txn.put(TABLES, name.key, msgspec.structs.replace(table, indexes=old))
    drop_unused(txn, DropUnused(name))
