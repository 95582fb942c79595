"""`etagere check` on the trees of shares."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from etagere.bodies.audit import findings as kinds
from etagere.bodies.audit.findings import FindingKind, Report
from etagere.bodies.audit.remedies import repair
from etagere.bodies.audit.walk import check
from etagere.clock import SystemClock
from etagere.config import Config
from etagere.engine import ledger, wire
from etagere.engine.groups import Writer
from etagere.engine.interface import C, T, WriteTxn, registered
from etagere.engine.records import ENCODE, Collection, K, R
from etagere.engine.wire import Outcome
from etagere.model.files import (
    CreateDirectory,
    CreateFile,
    Entry,
    FileNode,
    HardLinkNode,
    NewEntry,
    NewPermission,
    NewTimes,
)
from etagere.model.ids import new_id
from etagere.model.shares import CreateShare, DeleteShare, ShareRef, ShareUsage
from etagere.operations.file.collections import (
    ENTRIES,
    PERMISSIONS,
    SHARE_USAGE,
    SHARES,
    EntryKey,
)
from etagere.operations.file.entries import create_directory, create_file
from etagere.operations.file.purging import PurgeShares, purge_shares
from etagere.operations.file.shares import create_share, delete_share
from etagere.operations.tree_audits import TREE_AUDITS
from etagere.rules.sddl import parse_sddl
from etagere.rules.security_descriptors import encode_descriptor
from tests.operations.file.fixture import NEW, SHARE, path_of

CONFIG = Config(durable=False, reserve_bytes=0)


class Store:
    """A ledger with one share: a, a/b, a/b/f and c."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        ledger.create(directory, CONFIG, SystemClock())
        (directory / "segments").mkdir()
        self.share = self.write(create_share, CreateShare(SHARE, new_id()))
        for path in ("a", "a/b", "c"):
            self.write(create_directory, CreateDirectory(path_of(path), NEW))
        self.write(create_file, CreateFile(path_of("a/b/f"), NEW, new_id(), 100))

    def write(self, operation: Callable[[WriteTxn, C], T], command: C) -> T:
        writer = Writer(self.directory, CONFIG, SystemClock())
        known = registered(operation)
        request = wire.Request(0, known.wire_name, memoryview(ENCODE(command)))
        (answer,) = writer.run_group([request])
        writer.close()
        assert answer.outcome is Outcome.RESULT
        return known.decode_result(answer.payload)

    def check(self) -> Report:
        return check(self.directory, audits=TREE_AUDITS)

    def found(self) -> list[FindingKind]:
        return [found.kind for found in self.check().findings]

    def rows(self, collection: Collection[K, R]) -> dict[K, R]:
        found = self.execute(f"SELECT key, value FROM {collection.name}")  # noqa: S608
        return {collection.unpack(key): collection.decode(value) for key, value in found}

    def put(self, collection: Collection[K, R], key: K, record: R) -> None:
        sql = f"INSERT OR REPLACE INTO {collection.name} VALUES (?, ?)"  # noqa: S608
        self.execute(sql, (collection.pack(key), ENCODE(record)))

    def delete(self, collection: Collection[K, R], key: K) -> None:
        sql = f"DELETE FROM {collection.name} WHERE key = ?"  # noqa: S608
        self.execute(sql, (collection.pack(key),))

    def execute(self, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
        connection = apsw.Connection(str(ledger.database_path(self.directory)))
        found = list(connection.execute(sql, values))
        connection.close()
        return found

    def entry(self, name: str) -> tuple[EntryKey, Entry]:
        rows = self.rows(ENTRIES).items()
        return next((key, entry) for key, entry in rows if entry.name == name)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "data")


def test_a_consistent_tree_has_no_findings(store: Store) -> None:
    assert store.found() == []


def test_an_entry_without_its_directory(store: Store) -> None:
    store.delete(ENTRIES, store.entry("b")[0])
    assert store.found() == [kinds.ENTRY_UNREACHABLE]


def test_a_directory_below_itself(store: Store) -> None:
    key, a = store.entry("a")
    _, b = store.entry("b")
    store.delete(ENTRIES, key)
    store.put(ENTRIES, (key[0], b.id, "A"), replace(a, parent_id=b.id))
    assert store.found() == [kinds.ENTRY_UNREACHABLE] * 3


def test_an_entry_under_another_key(store: Store) -> None:
    key, entry = store.entry("c")
    store.put(ENTRIES, key, replace(entry, name="d"))
    assert store.found() == [kinds.ENTRY_MISPLACED]


def test_two_entries_with_one_id(store: Store) -> None:
    key, entry = store.entry("c")
    store.put(ENTRIES, key, replace(entry, id=store.entry("b")[1].id))
    assert store.found() == [kinds.ENTRY_ID_SHARED]


def test_wrong_usage(store: Store) -> None:
    store.put(SHARE_USAGE, (store.share.id, 99), ShareUsage(1))
    assert store.found() == [kinds.USAGE_WRONG]


def test_wrong_links(store: Store) -> None:
    key, file = store.entry("f")
    for name in ("g", "h"):
        link = replace(file, name=name, node=HardLinkNode())
        store.put(ENTRIES, (*key[:2], name.upper()), link)
    store.delete(ENTRIES, key)
    assert isinstance(file.node, FileNode)
    record_key = (key[0], file.id, "")
    for links, found in ((2, []), (3, [kinds.LINKS_WRONG]), (1, [kinds.LINKS_WRONG])):
        node = replace(file.node, links=links)
        record = replace(file, name="", parent_id=file.id, node=node)
        store.put(ENTRIES, record_key, record)
        assert store.found() == found
    misplaced = replace(file, name="", parent_id=0)
    store.put(ENTRIES, record_key, misplaced)
    assert kinds.ENTRY_MISPLACED in store.found()
    store.delete(ENTRIES, record_key)
    assert store.found().count(kinds.LINKS_WRONG) == 2


def test_a_link_count_in_an_entry(store: Store) -> None:
    key, file = store.entry("f")
    assert isinstance(file.node, FileNode)
    store.put(ENTRIES, key, replace(file, node=replace(file.node, links=1)))
    assert store.found() == [kinds.LINKS_WRONG]


def test_a_missing_permission(store: Store) -> None:
    descriptor = encode_descriptor(parse_sddl("O:SYG:SYD:(A;OICI;FA;;;WD)"))
    new = NewEntry(NewTimes(), 0, permission=NewPermission(descriptor, b"d" * 32))
    store.write(create_directory, CreateDirectory(path_of("e"), new))
    store.write(create_directory, CreateDirectory(path_of("e/e"), NEW))
    assert store.found() == []
    (own, own_record), (inherited, _) = store.rows(PERMISSIONS).items()
    store.delete(PERMISSIONS, own)
    # Of the entry, of the digest, and of what is inherited from it.
    assert store.found() == [kinds.USAGE_WRONG, *[kinds.PERMISSION_MISSING] * 3]
    store.put(PERMISSIONS, own, own_record)
    store.delete(PERMISSIONS, inherited)
    assert store.found() == [kinds.USAGE_WRONG, *[kinds.PERMISSION_MISSING] * 3]
    store.write(delete_share, DeleteShare(ShareRef(SHARE)))
    store.put(PERMISSIONS, inherited, own_record)
    while store.write(purge_shares, PurgeShares(1)):
        assert store.found() == []


def test_records_of_an_unknown_share(store: Store) -> None:
    store.delete(SHARES, SHARE.key)
    report = store.check()
    assert [found.kind for found in report.findings] == [kinds.SHARE_UNKNOWN]
    removed, troubles = repair(store.directory, report.findings, CONFIG, SystemClock())
    assert (removed, troubles) == (1, [])
    assert store.found() == []
    while store.write(purge_shares, PurgeShares()):
        pass
    assert store.rows(ENTRIES) == {}


def test_a_share_that_is_purged_has_no_findings(store: Store) -> None:
    store.write(delete_share, DeleteShare(ShareRef(SHARE)))
    assert store.found() == []
    store.write(purge_shares, PurgeShares(2))
    assert store.found() == []
