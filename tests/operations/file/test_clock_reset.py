"""Resetting the dates of files that a wrong clock has set in the future."""

from __future__ import annotations

import asyncio

from etagere.clock import TICKS_PER_SECOND
from etagere.engine.interface import ReadTxn
from etagere.engine.memory import MemoryEngine
from etagere.model.files import (
    CreateDirectory,
    CreateFile,
    CreateHardLink,
    CreatePermission,
    DeleteEntry,
    Entry,
    GetEntry,
    NewEntry,
    NewPermission,
    NewTimes,
)
from etagere.model.ids import new_id
from etagere.model.shares import CreateShare, ShareProtocol, ShareSettings, SnapshotShare
from etagere.operations.clock_reset import ResetClock, reset_clock
from etagere.operations.file import entries, links, permissions, shares
from etagere.operations.file.collections import (
    ENTRIES,
    FORMER_ENTRIES,
    PERMISSIONS,
    SHARE_SNAPSHOTS,
    SHARES,
)
from etagere.rules.sddl import parse_sddl
from etagere.rules.security_descriptors import encode_descriptor
from tests.clocks import SharedClock
from tests.operations.blob.consistency import rows
from tests.operations.file.consistency import require_trees
from tests.operations.file.fixture import NEW, SHARE, path_of
from tests.operations.interleaving import Call, execute, look

DAY = 24 * 3_600 * TICKS_PER_SECOND


def _directory(path: str) -> Call:
    return Call(entries.create_directory, CreateDirectory(path_of(path), NEW))


def test_links_of_the_future_stay_links() -> None:
    clock = SharedClock()
    clock.freeze()
    engine = MemoryEngine(clock)
    wall = clock.wall()
    settings = ShareSettings(protocol=ShareProtocol.NFS)
    execute(engine, Call(shares.create_share, CreateShare(SHARE, new_id(), settings)))
    clock.advance(365 * DAY)
    execute(engine, _directory("a"))
    file = CreateFile(path_of("a/f"), NEW, new_id(), 10)
    execute(engine, Call(entries.create_file, file))
    execute(engine, Call(shares.snapshot_share, SnapshotShare(SHARE)))
    link = CreateHardLink(path_of("g"), ("a", "f"))
    execute(engine, Call(links.create_hard_link, link))
    execute(engine, Call(shares.snapshot_share, SnapshotShare(SHARE)))
    execute(engine, Call(entries.delete_entry, DeleteEntry(path_of("a/f"), False)))
    asyncio.run(engine.write(reset_clock, ResetClock(wall, 365 * DAY)))
    look(engine, require_trees)

    def found(path: str, snapshot: int | None) -> Entry:
        def get(txn: ReadTxn, _: None) -> Entry:
            return entries.get_file(txn, GetEntry(path_of(path, snapshot))).entry

        entry: Entry = look(engine, get)
        return entry

    moments = [key[1] for key in look(engine, lambda txn, _: rows(txn, SHARE_SNAPSHOTS))]
    first, second = moments
    for path, snapshot, count in (("g", None, 1), ("g", second, 2), ("a/f", second, 2)):
        assert found(path, snapshot).link_count == count
    shown = found("a/f", first)
    assert (shown.link_count, shown.stamp <= wall + 1_000) == (1, True)


def test_ids_and_stamps_of_the_future_are_lowered_together() -> None:
    clock = SharedClock()
    clock.freeze()
    engine = MemoryEngine(clock)
    execute(engine, Call(shares.create_share, CreateShare(SHARE, new_id())))
    execute(engine, _directory("before"))
    wall = clock.wall()
    clock.advance(365 * DAY)
    descriptor = CreatePermission(SHARE, NewPermission(b"descriptor", b"d" * 32))
    number: int = execute(engine, Call(permissions.create_permission, descriptor))
    for path in ("a", "a/b", "before/c"):
        execute(engine, _directory(path))
    execute(engine, Call(shares.snapshot_share, SnapshotShare(SHARE)))
    execute(engine, Call(shares.snapshot_share, SnapshotShare(SHARE)))
    new = NewEntry(NewTimes(), 0, permission=number)
    file = CreateFile(path_of("a/b/f"), new, new_id(), 10)
    execute(engine, Call(entries.create_file, file))
    execute(engine, Call(shares.snapshot_share, SnapshotShare(SHARE)))
    execute(engine, Call(entries.create_file, file))
    before = {e.name: e for e in look(engine, lambda txn, _: rows(txn, ENTRIES)).values()}
    done = asyncio.run(engine.write(reset_clock, ResetClock(wall, 365 * DAY)))
    look(engine, require_trees)
    after = {e.name: e for e in look(engine, lambda txn, _: rows(txn, ENTRIES)).values()}
    assert after["before"] == before["before"]
    assert after["a"].id < after["b"].id < after["f"].id <= done.last_stamp < wall + 1_000
    assert after["f"].times.created <= wall
    parents = {name: entry.parent_id for name, entry in after.items()}
    ids = {name: entry.id for name, entry in after.items()}
    assert parents == {
        "a": 0,
        "before": 0,
        "b": ids["a"],
        "c": ids["before"],
        "f": ids["b"],
    }
    ((_, kept),) = look(engine, lambda txn, _: list(rows(txn, PERMISSIONS)))
    assert after["f"].permission == kept < wall + 1_000
    (former,) = look(engine, lambda txn, _: rows(txn, FORMER_ENTRIES)).values()
    assert (former.id, former.parent_id) == (ids["f"], ids["b"])
    (share,) = look(engine, lambda txn, _: rows(txn, SHARES)).values()
    assert max(share.stamp, share.last_snapshot) <= wall
    moments = [key[1] for key in look(engine, lambda txn, _: rows(txn, SHARE_SNAPSHOTS))]
    first = (wall // TICKS_PER_SECOND + 1) * TICKS_PER_SECOND
    assert moments == [first + number * TICKS_PER_SECOND for number in range(3)]


def test_entries_inherit_the_same_permission_afterwards() -> None:
    clock = SharedClock()
    clock.freeze()
    engine = MemoryEngine(clock)
    execute(engine, Call(shares.create_share, CreateShare(SHARE, new_id())))
    wall = clock.wall()
    clock.advance(365 * DAY)
    descriptor = encode_descriptor(parse_sddl("O:SYG:SYD:(A;OICI;GA;;;CO)"))
    new = NewEntry(NewTimes(), 0, permission=NewPermission(descriptor, b"d" * 32))
    execute(engine, Call(entries.create_directory, CreateDirectory(path_of("d"), new)))
    for path in ("d/a", "d/a/a"):
        execute(engine, _directory(path))
    asyncio.run(engine.write(reset_clock, ResetClock(wall, 365 * DAY)))
    for path in ("d/b", "d/a/b"):
        execute(engine, _directory(path))
    found = look(engine, lambda txn, _: rows(txn, ENTRIES)).values()
    inherited = {entry.permission for entry in found if entry.name != "d"}
    assert len([*found]) == 5
    assert len(inherited) == 1
    assert inherited <= {
        number for _, number in look(engine, lambda txn, _: rows(txn, PERMISSIONS))
    }
