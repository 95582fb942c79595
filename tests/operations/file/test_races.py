"""Pairs of concurrent operations on one share: serializable, with every tree and count right."""

from __future__ import annotations

from itertools import permutations

import pytest

from etagere.bodies.contents import SEGMENTS
from etagere.bodies.plans import locate
from etagere.bodies.segments import Reap, reap
from etagere.clock import TICKS_PER_SECOND
from etagere.engine.interface import ReadTxn
from etagere.engine.memory import MemoryEngine
from etagere.engine.memory_transactions import MemoryReadTxn
from etagere.model.bodies import Body, Piece, Segment
from etagere.model.common import ContentHeaders
from etagere.model.copies import FailCopy, FinishCopy
from etagere.model.file_copies import AbortFileCopy, BeginFileCopy, CopyFile, FileDestination
from etagere.model.files import (
    CreateDirectory,
    CreateFile,
    CreateHardLink,
    CreateSymbolicLink,
    DeleteEntry,
    FileNode,
    LeaseFile,
    ListEntries,
    PutRange,
    RenameEntry,
    SetEntryMetadata,
    SetEntryProperties,
    SymbolicLinkNode,
)
from etagere.model.ids import new_id
from etagere.model.leases import Acquire
from etagere.model.shares import (
    CreateShare,
    DeleteShare,
    RestoreShare,
    ShareName,
    ShareProtocol,
    ShareRef,
    ShareSettings,
    SnapshotShare,
    SnapshotsOfShare,
)
from etagere.model.sources import SourceFile
from etagere.operations.file import (
    copies,
    entries,
    links,
    pending_copies,
    purging,
    ranges,
    renames,
    shares,
)
from etagere.operations.file.collections import DELETED_SHARES, SHARE_SNAPSHOTS, SHARES
from etagere.operations.service import set_service_properties
from tests.clocks import SharedClock
from tests.operations.blob.consistency import require_balanced, rows
from tests.operations.file.consistency import require_trees
from tests.operations.file.copying import of, to
from tests.operations.file.fixture import NEW, SHARE, keep_deleted_shares, list_entries, path_of
from tests.operations.interleaving import Call, Interleavings, execute, execute_until_done, look
from tests.operations.pages import filled

SEGMENT = 1
DAY = 24 * 3_600 * TICKS_PER_SECOND


def _body(number: int) -> Body:
    """Returns an upload of ten bytes at its own place."""
    return Body(new_id(), 10, 0, pieces=(Piece(SEGMENT, 10 * number, 10),))


def _file(path: str, number: int) -> Call:
    command = CreateFile(path_of(path), NEW, new_id(), 20, body=_body(number))
    return Call(entries.create_file, command)


def _directory(path: str) -> Call:
    return Call(entries.create_directory, CreateDirectory(path_of(path), NEW))


def _delete(path: str, *, is_directory: bool = False) -> Call:
    return Call(entries.delete_entry, DeleteEntry(path_of(path), is_directory))


def _rename(source: str, target: str, *, is_directory: bool = False) -> Call:
    command = RenameEntry(path_of(source), path_of(target), is_directory, replace=True)
    return Call(renames.rename_entry, command)


def _write(path: str, number: int) -> Call:
    return Call(ranges.put_range, PutRange(path_of(path), 5, _body(number), new_id()))


def _link(path: str, target: str) -> Call:
    return Call(links.create_hard_link, CreateHardLink(path_of(path), path_of(target).components))


def _copy(source: SourceFile, target: str) -> Call:
    return Call(copies.copy_file, CopyFile(to(target), source))


def _begin(destination: FileDestination) -> Call:
    command = BeginFileCopy(destination, 10, ContentHeaders(), (), b"p" * 16)
    return Call(pending_copies.begin_file_copy, command)


_SNAPSHOT = Call(shares.snapshot_share, SnapshotShare(SHARE))

_BACKGROUND = {
    "expire": Call(purging.expire_shares, purging.PurgeShares()),
    "forget": Call(purging.forget_deleted_names, purging.PurgeShares()),
    "purge shares": Call(purging.purge_shares, purging.PurgeShares()),
    "purge histories": Call(purging.purge_histories, purging.PurgeShares()),
    "reap": Call(reap, Reap()),
}
"""Background removal, which is invisible to clients."""


def _started(protocol: ShareProtocol = ShareProtocol.SMB) -> MemoryEngine:
    clock = SharedClock()
    clock.freeze()
    engine = MemoryEngine(clock)
    opening = engine.begin()
    opening.put(SEGMENTS, (SEGMENT,), Segment(new_id()))
    opening.commit()
    create = CreateShare(SHARE, new_id(), ShareSettings(protocol=protocol))
    execute(engine, Call(shares.create_share, create))
    return engine


def _populated() -> Interleavings:
    """Creates a share with directories, files and snapshots, one of them deleted."""
    engine = _started()
    for call in (
        _directory("a"),
        _directory("a/b"),
        _directory("c"),
        _directory("empty"),
        _file("a/f", 0),
        _file("a/b/g", 1),
        _file("h", 2),
        _SNAPSHOT,
        _write("a/f", 3),
        _delete("h"),
        _file("h", 4),
        _SNAPSHOT,
        _write("a/f", 5),
        _rename("h", "i"),
        _file("h", 6),
    ):
        execute(engine, call)
    destination = to("a/b/pending")
    begun = execute(engine, _begin(destination)).copy_ref
    (_, first), (_, second) = look(engine, lambda txn, _: list(rows(txn, SHARE_SNAPSHOTS)))
    execute(engine, Call(shares.delete_share, DeleteShare(ShareRef(SHARE, first))))
    calls = {
        "create file": _file("a/b/new", 10),
        "create in empty": _file("empty/new", 11),
        "overwrite": _file("a/f", 12),
        "write": _write("a/f", 13),
        "resize": Call(
            entries.set_properties,
            SetEntryProperties(path_of("a/f"), False, length=7, child_id=new_id()),
        ),
        "describe": Call(
            entries.set_metadata, SetEntryMetadata(path_of("a/f"), False, (("k", "v"),))
        ),
        "lease": Call(entries.lease_file, LeaseFile(path_of("a/f"), Acquire(b"\xaa" * 16, None))),
        "delete file": _delete("a/f"),
        "delete empty": _delete("empty", is_directory=True),
        "rename file": _rename("a/f", "a/F"),
        "move file": _rename("a/f", "empty/h"),
        "move over": _rename("h", "a/f"),
        "rename directory": _rename("a", "z", is_directory=True),
        "replace directory": _rename("c", "a", is_directory=True),
        "move a": _rename("a", "c/a", is_directory=True),
        "move b": _rename("a/b", "empty/b", is_directory=True),
        "move c": _rename("c", "a/b/c", is_directory=True),
        "copy": _copy(of("a/f"), "empty/copy"),
        "copy over": _copy(of("h"), "a/f"),
        "copy from snapshot": _copy(of("a/f", second), "h"),
        "begin copy": _begin(to("a/f")),
        "abort copy": Call(
            pending_copies.abort_file_copy, AbortFileCopy(destination.path, destination.copy_id)
        ),
        "finish copy": Call(pending_copies.finish_file_copy, FinishCopy(begun, _body(14))),
        "fail copy": Call(pending_copies.fail_file_copy, FailCopy(begun, "why")),
        "snapshot": _SNAPSHOT,
        "delete snapshot": Call(shares.delete_share, DeleteShare(ShareRef(SHARE, second))),
        "delete share": Call(
            shares.delete_share, DeleteShare(ShareRef(SHARE), SnapshotsOfShare.INCLUDE)
        ),
        "keep deleted shares": Call(set_service_properties, keep_deleted_shares(SHARE.account, 1)),
        "purge histories": _BACKGROUND["purge histories"],
    }
    return Interleavings(engine, calls, _show_result, _show_outcome)


def _show_result(result: object) -> str:
    return "nothing" if result is None else "something"


def _show_outcome(engine: MemoryEngine, results: dict[str, object]) -> object:
    """Shows what clients can see: the results, and all trees, before and after background work."""
    look(engine, require_balanced)
    look(engine, require_trees)
    for call in _BACKGROUND.values():
        execute_until_done(engine, call)
    look(engine, require_balanced)
    look(engine, require_trees)
    shown = {name: result for name, result in results.items() if name not in _BACKGROUND}
    return shown, look(engine, _visible)


def _visible(txn: MemoryReadTxn, _: None) -> object:
    share = txn.get(SHARES, SHARE.key)
    if share is None:
        return "no share", len(rows(txn, DELETED_SHARES))
    taken = [key[1] for key in rows(txn, SHARE_SNAPSHOTS) if key[0] == share.id]
    return [_tree(txn, "", moment) for moment in (None, *taken)]


def _tree(txn: ReadTxn, directory: str, snapshot: int | None) -> object:
    found: dict[str, object] = {}
    command = ListEntries(path_of(directory, snapshot), 1_000)
    for entry in filled(txn, list_entries, command)[0]:
        path = f"{directory}/{entry.name}" if directory else entry.name
        if isinstance(entry.node, FileNode):
            plan = locate(txn, entry.node.content)
            node = entry.node
            state = (plan, node.lease, node.copied, entry.metadata, entry.link_count)
            found[entry.name] = state
        elif isinstance(entry.node, SymbolicLinkNode):
            found[entry.name] = entry.node.target
        else:
            found[entry.name] = _tree(txn, path, snapshot)
    return found


OPERATIONS = tuple(_populated().calls)


@pytest.mark.parametrize("outer", OPERATIONS)
def test_pairs_of_operations_are_serializable(outer: str) -> None:
    pairs = _populated()
    for inner in OPERATIONS:
        if inner != outer:
            pairs.require_serializable(outer, inner)


def _linked() -> Interleavings:
    """Creates an NFS share with a file that has two links, a plain one, and snapshots."""
    engine = _started(ShareProtocol.NFS)
    for call in (
        _directory("a"),
        _directory("b"),
        _file("a/f", 0),
        _file("g", 1),
        _SNAPSHOT,
        _link("b/f", "a/f"),
        _write("b/f", 2),
        _SNAPSHOT,
        _rename("b/f", "b/h"),
    ):
        execute(engine, call)
    (_, first), _ = look(engine, lambda txn, _: list(rows(txn, SHARE_SNAPSHOTS)))
    calls = {
        "link": _link("i", "a/f"),
        "link the other": _link("i", "b/h"),
        "link a plain file": _link("j", "g"),
        "link it again": _link("b/k", "g"),
        "symbolic link": Call(
            links.create_symbolic_link, CreateSymbolicLink(path_of("i"), NEW, "a/f")
        ),
        "write": _write("a/f", 10),
        "write the other": _write("b/h", 11),
        "write the plain file": _write("g", 12),
        "overwrite": _file("b/h", 13),
        "lease": Call(entries.lease_file, LeaseFile(path_of("a/f"), Acquire(b"\xaa" * 16, None))),
        "delete": _delete("a/f"),
        "delete the other": _delete("b/h"),
        "delete the plain file": _delete("g"),
        "delete a directory": _delete("a", is_directory=True),
        "rename": _rename("a/f", "b/f"),
        "rename onto the other": _rename("a/f", "b/h"),
        "rename the plain file": _rename("g", "b/h"),
        "rename onto the plain file": _rename("b/h", "g"),
        "move a directory": _rename("b", "a/b", is_directory=True),
        "snapshot": _SNAPSHOT,
        "delete snapshot": Call(shares.delete_share, DeleteShare(ShareRef(SHARE, first))),
        "delete share": Call(
            shares.delete_share, DeleteShare(ShareRef(SHARE), SnapshotsOfShare.INCLUDE)
        ),
        "purge histories": _BACKGROUND["purge histories"],
    }
    return Interleavings(engine, calls, _show_result, _show_outcome)


@pytest.mark.parametrize("outer", tuple(_linked().calls))
def test_pairs_of_operations_on_links_are_serializable(outer: str) -> None:
    pairs = _linked()
    for inner in pairs.calls:
        if inner != outer:
            pairs.require_serializable(outer, inner)


def test_a_path_cannot_change_halfway() -> None:
    """Directories further up are renamed, and others take their names."""
    engine = _started()
    for path in ("x", "x/a", "x/b", "z", "z/a", "z/b"):
        execute(engine, _directory(path))
    for number, path in enumerate(("x/a/f", "z/a/f")):
        execute(engine, _file(path, number))
    execute(engine, _rename("z", "y", is_directory=True))
    calls = {
        "move": _rename("x/a/f", "x/b/f"),
        "move directory": _rename("x/a", "x/b/a", is_directory=True),
        "rename": _rename("x", "w", is_directory=True),
        "swap": Call(_swap, None),
        "create": _file("x/b/new", 9),
    }
    pairs = Interleavings(engine, calls, _show_result, _show_outcome)
    for outer, inner in permutations(calls, 2):
        pairs.require_serializable(outer, inner)


def _swap(txn: object, _: None) -> None:
    """Gives the name of a directory to another one, in one transaction."""
    renames.rename_entry(txn, _rename("x", "w", is_directory=True).command)  # type: ignore[arg-type]
    renames.rename_entry(txn, _rename("y", "x", is_directory=True).command)  # type: ignore[arg-type]


def test_pairs_on_an_empty_share_are_serializable() -> None:
    """Where nothing exists, a decision rests on the absence of records."""
    calls = {
        "file": _file("a", 0),
        "directory": _directory("A"),
        "child": _file("a/b", 1),
        "delete": _delete("a"),
        "delete directory": _delete("a", is_directory=True),
        "rename": _rename("a", "b"),
        "snapshot": _SNAPSHOT,
        "create share": Call(shares.create_share, CreateShare(SHARE, new_id())),
        "delete share": Call(
            shares.delete_share, DeleteShare(ShareRef(SHARE), SnapshotsOfShare.INCLUDE)
        ),
    }
    pairs = Interleavings(_started(), calls, _show_result, _show_outcome)
    for outer, inner in permutations(calls, 2):
        pairs.require_serializable(outer, inner, steps_min=1)


def test_a_deleted_share_is_restored_or_expires() -> None:
    engine = _started()
    execute(engine, _file("f", 0))
    execute(engine, Call(set_service_properties, keep_deleted_shares(SHARE.account, 1)))
    execute(engine, Call(shares.delete_share, DeleteShare(ShareRef(SHARE))))
    ((_, _, version),) = look(engine, lambda txn, _: list(rows(txn, DELETED_SHARES)))
    other = ShareName(SHARE.account, "other")
    calls = {
        "restore": Call(shares.restore_share, RestoreShare(SHARE, SHARE.name, version)),
        "restore elsewhere": Call(shares.restore_share, RestoreShare(other, SHARE.name, version)),
        "create": Call(shares.create_share, CreateShare(SHARE, new_id())),
        **_BACKGROUND,
    }
    pairs = Interleavings(engine, calls, _show_result, _show_outcome)
    for outer, inner in permutations(calls, 2):
        pairs.require_serializable(outer, inner, steps_min=1)
