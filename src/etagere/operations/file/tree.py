"""The tree of a share: looking up entries by path, now and in snapshots, and replacing them.

A change guards the share and every directory on the path shared, and the entry exclusively: the
path leads to the same entry until the commit. A directory is deleted under an exclusive guard, so
that nothing is created in it at the same time.

The first change of an entry after a snapshot keeps its old state for the snapshot (`keep_state`),
before anything else is changed: contents are changed in place unless they are shared.

The root directory is the entry with an empty name in itself. It is not stored before it is changed.

A file with a second hard link has a record of its own, at a place without a name under its id, and
the entries at its places refer to it. Callers see the file at each of them: functions that return
an entry follow the reference, and those that store one store the file in its record.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Final, NamedTuple

from msgspec.structs import replace

from etagere.bodies.contents import MissingRecord, release, share
from etagere.engine.interface import EXCLUSIVE, SHARED, Guard, ReadTxn, Refused, WriteTxn
from etagere.errors import Refusal
from etagere.model.files import (
    NO_ENTRY,
    ROOT_ID,
    DirectoryNode,
    Entry,
    EntryPath,
    FileNode,
    FileTimes,
    FormerPlaceNode,
    HardLinkNode,
)
from etagere.model.leases import NO_LEASE
from etagere.model.shares import Share, ShareRef
from etagere.operations.file.collections import ENTRIES, FORMER_ENTRIES, EntryKey
from etagere.operations.file.shares import find, find_guarded, get_snapshot
from etagere.rules.file_attributes import FileAttributes
from etagere.rules.file_copies import is_pending
from etagere.rules.file_names import fold_name
from etagere.rules.leases import LOCKED, effective_state
from etagere.rules.posix import DIRECTORY_MODE, default_owner

AFTER_ROOT: Final = "\x01"
"""Behind the empty name of the root, and before all others, which have no control characters."""
_NO_TIMES: Final = FileTimes(0, 0, 0)
"""Those of a reference to a file, which has the times."""


class Tree(NamedTuple):
    """The tree of a share as it is now, or as a snapshot shows it."""

    share: Share
    generation: int | None = None
    """The generation that a snapshot shows; None is the current state."""

    def key(self, directory_id: int, name: str) -> EntryKey:
        return self.share.id, directory_id, fold_name(name)


class Place(NamedTuple):
    """Where an entry is or would be."""

    tree: Tree
    directory_ids: tuple[int, ...]
    """The ids of the directories on the way, the root first."""
    name: str
    directory_permission: int | None = None
    """The permission of the directory; None: it is the root, which is not read on the way."""
    expected_id: int | None = None
    """As in `EntryPath`."""

    @property
    def directory_id(self) -> int:
        return self.directory_ids[-1]

    @property
    def key(self) -> EntryKey:
        return self.tree.key(self.directory_id, self.name)


_PATH_CHANGED: Final = {"Reason": "The path leads to another file or directory than before."}


def _require_expected(expected_id: int | None, entry: Entry | None) -> None:
    """Ends the operation if a path does not lead to the entry that the caller has examined."""
    if expected_id is None:
        return
    if (NO_ENTRY if entry is None else entry.id) != expected_id:
        raise path_changed()


def path_changed() -> Refused:
    """Returns what ends an operation whose path leads to another entry than expected."""
    return Refused(Refusal("ServerBusy", dict(_PATH_CHANGED)))


def is_path_change(refused: Refused) -> bool:
    """Returns whether an operation ended because a path leads to another entry than expected, so
    that the caller has to examine that one and try again."""
    return refused.refusal.code == "ServerBusy" and refused.refusal.facts == _PATH_CHANGED


# Reading


def find_tree(txn: ReadTxn, ref: ShareRef) -> Tree:
    found = find(txn, ref.share)
    if ref.snapshot is None:
        return Tree(found)
    return Tree(found, get_snapshot(txn, found.id, ref.snapshot).generation)


def get_entry(txn: ReadTxn | WriteTxn, tree: Tree, directory_id: int, name: str) -> Entry | None:
    """Returns the entry of this name in a directory. Snapshots show no leases."""
    key = tree.key(directory_id, name)
    found = _shown(txn, tree, key, _or_root(tree, name, txn.get(ENTRIES, key)))
    return None if found is None else follow_link(txn, tree, found)


def _shown(
    txn: ReadTxn | WriteTxn, tree: Tree, key: EntryKey, current: Entry | None
) -> Entry | None:
    """Returns the state of an entry that the tree shows."""
    if tree.generation is None:
        return current
    if current is not None and current.generation <= tree.generation:
        return without_lease(current)
    span = FORMER_ENTRIES.starting(FORMER_ENTRIES.under(key), (*key, tree.generation + 1))
    for _, former in txn.scan(FORMER_ENTRIES, span, 1):
        if former.generation <= tree.generation:
            return former
    return None


def follow_link(txn: ReadTxn | WriteTxn, tree: Tree, entry: Entry) -> Entry:
    """Returns the entry, or the file that it is a link to, with the name of the link."""
    if not isinstance(entry.node, HardLinkNode):
        return entry
    key = tree.key(entry.id, "")
    return _named_as(entry, _shown(txn, tree, key, txn.get(ENTRIES, key)))


def find_in_snapshot(txn: ReadTxn, tree: Tree, file: Entry) -> Entry | None:
    """Returns a file as a snapshot shows it, wherever it was then."""
    key = tree.key(file.id, "")
    found = _shown(txn, tree, key, txn.get(ENTRIES, key))
    if found is None:
        found = get_entry(txn, tree, file.parent_id, file.name)
    elif isinstance(found.node, FormerPlaceNode):
        found = get_entry(txn, tree, found.parent_id, found.name)
    return found if found is not None and found.id == file.id else None


def _named_as(link: Entry, file: Entry | None) -> Entry:
    if file is None:
        raise MissingRecord(f"file {link.id} is missing, and {link.name!r} is a link to it")
    return replace(file, name=link.name, parent_id=link.parent_id)


def without_lease(entry: Entry) -> Entry:
    node = entry.node
    if not isinstance(node, FileNode) or node.lease == NO_LEASE:
        return entry
    return replace(entry, node=replace(node, lease=NO_LEASE))


def _former(entry: Entry) -> Entry:
    """Returns the state of an entry for snapshots. A pending copy is left out, because it would be
    pending forever."""
    node = entry.node
    if isinstance(node, FileNode) and is_pending(node):
        entry = replace(entry, node=replace(node, copied=None))
    return without_lease(entry)


def _or_root(tree: Tree, name: str, entry: Entry | None) -> Entry | None:
    """Returns the entry, or the root directory as it is before its first change."""
    if entry is not None or name:
        return entry
    created = tree.share.created
    times = FileTimes(created, created, created)
    return Entry(
        "",
        ROOT_ID,
        parent_id=ROOT_ID,
        generation=0,
        stamp=created,
        times=times,
        attributes=int(FileAttributes.DIRECTORY),
        node=DirectoryNode(),
        posix=default_owner(DIRECTORY_MODE, tree.share.settings.protocol),
    )


def _resolve(
    tree: Tree, components: tuple[str, ...], get: Callable[[int, str], Entry | None]
) -> Place:
    """Resolves the directories of a path. Refuses a path whose directory does not exist."""
    directory_ids = [ROOT_ID]
    permission: int | None = None
    for name in components[:-1]:
        entry = get(directory_ids[-1], name)
        if entry is None or not isinstance(entry.node, DirectoryNode):
            raise Refused(Refusal("ParentNotFound"))
        directory_ids.append(entry.id)
        permission = entry.permission
    return Place(tree, tuple(directory_ids), components[-1] if components else "", permission)


def find_place(txn: ReadTxn | WriteTxn, tree: Tree, components: tuple[str, ...]) -> Place:
    return _resolve(tree, components, lambda parent, name: get_entry(txn, tree, parent, name))


def find_entry(txn: ReadTxn | WriteTxn, tree: Tree, components: tuple[str, ...]) -> Entry:
    """Returns the directory or file at a path, which may be the root."""
    place = find_place(txn, tree, components)
    entry = get_entry(txn, tree, place.directory_id, place.name)
    if entry is None:
        raise Refused(Refusal("ResourceNotFound"))
    return entry


def find_at(txn: ReadTxn, path: EntryPath) -> Entry:
    """Returns the directory or file at a path, if it is the expected one."""
    tree = find_tree(txn, path.ref)
    place = find_place(txn, tree, path.components)
    entry = get_entry(txn, tree, place.directory_id, place.name)
    _require_expected(path.expected_id, entry)
    if entry is None:
        raise Refused(Refusal("ResourceNotFound"))
    return entry


class LocatedEntry(NamedTuple):
    """Where a path leads in one snapshot of the ledger."""

    share_id: bytes
    directory_ids: tuple[int, ...]
    """The ids of the directories that were found on the way, the root first."""
    names: tuple[str, ...]
    """The names on the way as they are stored, the last one that of the entry."""
    entry: Entry | None
    is_leased: bool = False
    """Whether the entry is a file with an active lease."""
    is_copied: bool = False
    """Whether the entry is the destination of a copy that has not ended."""

    @property
    def entry_id(self) -> int:
        return NO_ENTRY if self.entry is None else self.entry.id

    @property
    def path(self) -> str:
        return "/".join(self.names)

    def found(self, components: tuple[str, ...]) -> Entry:
        """Returns the entry at the path with these components; refuses if there is none."""
        if self.entry is None:
            has_parent = len(self.directory_ids) == len(components)
            raise Refused(Refusal("ResourceNotFound" if has_parent else "ParentNotFound"))
        return self.entry


def locate_entry(txn: ReadTxn, path: EntryPath) -> LocatedEntry:
    """Finds an entry with the directories above it. A missing entry or directory is no error."""
    tree = find_tree(txn, path.ref)
    share_id = tree.share.id
    entry = get_entry(txn, tree, ROOT_ID, "")
    directory_ids: list[int] = []
    names: list[str] = []
    for name in path.components:
        if entry is None or not isinstance(entry.node, DirectoryNode):
            return LocatedEntry(share_id, tuple(directory_ids), tuple(names), None)
        directory_ids.append(entry.id)
        entry = get_entry(txn, tree, entry.id, name)
        names.append(name if entry is None else entry.name)
    file = entry.node if entry is not None and isinstance(entry.node, FileNode) else None
    is_leased = file is not None and effective_state(file.lease, txn.steady_now) in LOCKED
    is_copied = file is not None and is_pending(file)
    above = tuple(directory_ids) or (ROOT_ID,)
    return LocatedEntry(share_id, above, tuple(names), entry, is_leased, is_copied)


def is_directory_empty(txn: ReadTxn | WriteTxn, directory: tuple[bytes, int]) -> bool:
    """Returns whether a directory, by the ids of its share and of itself, has no entries now. It
    stays empty until the commit if the caller has guarded it exclusively."""
    span = ENTRIES.starting(ENTRIES.under(directory), (*directory, AFTER_ROOT))
    return not txn.scan(ENTRIES, span, 1)


def find_directory(txn: ReadTxn, tree: Tree, components: tuple[str, ...]) -> Entry:
    """Returns the directory at a path, which may be the root."""
    entry = find_entry(txn, tree, components)
    if not isinstance(entry.node, DirectoryNode):
        raise Refused(Refusal("ResourceNotFound"))
    return entry


def guard_source(txn: WriteTxn, path: EntryPath) -> tuple[Tree, Entry]:
    """Returns the tree and the entry at a path, guarded against changes until the commit. A
    snapshot cannot be deleted while its share is guarded, and nothing else changes it."""
    found, snapshot = find_guarded(txn, path.ref.share), path.ref.snapshot
    if snapshot is not None:
        tree = Tree(found, get_snapshot(txn, found.id, snapshot).generation)
        return tree, find_entry(txn, tree, path.components)
    place = guard_place(txn, Tree(found), path.components)
    entry = guard_entry(txn, place, SHARED)
    if entry is None:
        raise Refused(Refusal("ResourceNotFound"))
    return place.tree, entry


# Changing


def guard_tree(txn: WriteTxn, ref: ShareRef) -> Tree:
    """Returns the tree of a share that is to be changed. Snapshots cannot be changed."""
    if ref.snapshot is not None:
        raise Refused(Refusal("ShareSnapshotOperationNotSupported"))
    return Tree(find_guarded(txn, ref.share))


def guard_place(txn: WriteTxn, tree: Tree, components: tuple[str, ...]) -> Place:
    """Resolves a path for a change, and guards its directories."""
    return _resolve(
        tree, components, lambda parent, name: txn.get(ENTRIES, tree.key(parent, name), SHARED)
    )


def guard_path(txn: WriteTxn, path: EntryPath) -> Place:
    """Resolves a path for a change, and guards the share and the directories."""
    place = guard_place(txn, guard_tree(txn, path.ref), path.components)
    return place._replace(expected_id=path.expected_id)


def guard_entry(txn: WriteTxn, place: Place, guard: Guard = EXCLUSIVE) -> Entry | None:
    """Returns the entry at a place, guarded together with the file that it may be a link to."""
    found = _or_root(place.tree, place.name, txn.get(ENTRIES, place.key, guard))
    if found is not None and isinstance(found.node, HardLinkNode):
        found = _named_as(found, txn.get(ENTRIES, place.tree.key(found.id, ""), guard))
    _require_expected(place.expected_id, found)
    return found


def record_place(place: Place, entry: Entry) -> Place:
    """Returns the place of the record of an entry: that of a file with a record of its own, or the
    place of the entry itself."""
    return Place(place.tree, (entry.id,), "") if _has_own_record(entry) else place


def _has_own_record(entry: Entry) -> bool:
    return isinstance(entry.node, FileNode) and entry.node.links > 0


def _as_record(entry: Entry) -> Entry:
    return replace(entry, name="", parent_id=entry.id) if _has_own_record(entry) else entry


def keep_state(txn: WriteTxn, place: Place, old: Entry) -> bool:
    """Keeps the state of an entry that is about to be changed, if a snapshot shows it. Returns
    whether one does."""
    tree_share = place.tree.share
    generation = tree_share.generation
    if not is_shown(tree_share.snapshot_generations, old.generation, generation):
        return False
    if isinstance(old.node, FileNode):
        share(txn, old.node.content)
    key = (*record_place(place, old).key, generation)
    txn.put(FORMER_ENTRIES, key, _as_record(_former(old)))
    return True


def keep_place(txn: WriteTxn, place: Place, file: Entry) -> None:
    """Keeps the place of a file whose record is about to be moved, if a snapshot may show the file
    there. That of the first move in a generation of the share counts: the file was there in earlier
    ones. `keep_state` has kept the state of the file."""
    tree = place.tree
    key = (*tree.key(file.id, ""), tree.share.generation)
    if not tree.share.snapshot_generations or not _has_former_state(txn, place, file):
        return
    if txn.get(FORMER_ENTRIES, key) is None:
        node = FormerPlaceNode()
        txn.put(FORMER_ENTRIES, key, _reference(txn, place, file.id, node, generation=0))


def _has_former_state(txn: WriteTxn, place: Place, file: Entry) -> bool:
    """Returns whether the history has a state of the file at this place. It has none of a file that
    no snapshot shows, and the last one there is of the file if a snapshot shows it at the place
    that it has now."""
    last = txn.scan(FORMER_ENTRIES, FORMER_ENTRIES.under(place.key), 1, reverse=True)
    return any(former.id == file.id for _, former in last)


def put_entry(txn: WriteTxn, place: Place, new: Entry) -> Entry:
    """Stores the state of an entry. `keep_state` has kept the old one."""
    return put_unversioned(txn, place, replace(new, generation=place.tree.share.generation))


def put_unversioned(txn: WriteTxn, place: Place, new: Entry) -> Entry:
    """Stores a change of an entry that snapshots do not show."""
    txn.put(ENTRIES, record_place(place, new).key, _as_record(new))
    return new


def remove_entry(txn: WriteTxn, place: Place) -> None:
    """Removes an entry from its place. `keep_state` has kept it; its content is left to the
    caller."""
    txn.delete(ENTRIES, place.key)


# Hard links


def put_link(txn: WriteTxn, place: Place, file_id: int) -> None:
    """Stores a link to a file at a place that has none, or whose link is to be renamed."""
    generation = place.tree.share.generation
    txn.put(ENTRIES, place.key, _reference(txn, place, file_id, HardLinkNode(), generation))


def _reference(
    txn: WriteTxn,
    place: Place,
    file_id: int,
    node: HardLinkNode | FormerPlaceNode,
    generation: int,
) -> Entry:
    stamp, directory_id = txn.stamp, place.directory_id
    return Entry(place.name, file_id, directory_id, generation, stamp, _NO_TIMES, 0, node)


def keep_link(txn: WriteTxn, place: Place) -> None:
    """Keeps a guarded link that is about to be removed or renamed, if a snapshot shows it."""
    link = txn.get(ENTRIES, place.key)
    if link is not None and isinstance(link.node, HardLinkNode):
        keep_state(txn, place, link)


def release_content(txn: WriteTxn, entry: Entry) -> None:
    if isinstance(entry.node, FileNode):
        release(txn, entry.node.content)


def is_shown(generations: tuple[int, ...], written: int, replaced: int) -> bool:
    """Returns whether one of these snapshots shows a state that was written and replaced in these
    generations."""
    at = bisect_left(generations, written)
    return at < len(generations) and generations[at] < replaced
