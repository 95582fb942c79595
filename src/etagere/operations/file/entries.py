"""Directories and files: creation, properties, rename and deletion.

Every operation is atomic. The last writer wins, except where a lease or the read-only attribute
forbids a change.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from etagere.bodies import intervals
from etagere.engine.interface import ReadTxn, Refused, WriteTxn, abort_if, operation, unwrap
from etagere.errors import Refusal
from etagere.model.bodies import Content, Empty, Mapped
from etagere.model.files import (
    ChangedTimes,
    CreateDirectory,
    CreateFile,
    DeleteEntry,
    DirectoryNode,
    Entry,
    EntryPath,
    FileNode,
    FileTimes,
    GetEntry,
    LeaseFile,
    NewEntry,
    NewPermission,
    Node,
    RenameEntry,
    SetEntryMetadata,
    SetEntryProperties,
    TimedEntry,
)
from etagere.model.leases import NO_LEASE, Lease, LeaseKind
from etagere.operations.file.collections import ENTRIES
from etagere.operations.file.permissions import number_of, permission_of_new
from etagere.operations.file.shares import change_usage
from etagere.operations.file.tree import (
    Place,
    find_at,
    guard_entry,
    guard_path,
    guard_place,
    guard_tree,
    is_empty,
    keep_state,
    put_entry,
    release_content,
    remove_entry,
)
from etagere.rules import leases as lease_rules
from etagere.rules.file_attributes import (
    FileAttributes,
    attributes_of_new,
    changed_attributes,
    check_writable,
)

_CHANGE_TIME_ONLY: Final = ChangedTimes()
REPLACE_REFUSED: Final = Refusal("AuthorizationPermissionMismatch", {"RequiredPermission": "w"})
"""The refusal of a caller that may create files, but not replace them."""


def get_file_or_directory(txn: ReadTxn, command: GetEntry) -> TimedEntry:
    entry = find_at(txn, command.path)
    if isinstance(entry.node, FileNode):
        lease, lease_id = entry.node.lease, command.lease_id
        abort_if(lease_rules.check_read(lease, lease_id, txn.steady_now, LeaseKind.FILE))
    return TimedEntry(txn.steady_now, entry)


# Creation


@operation
def create_directory(txn: WriteTxn, command: CreateDirectory) -> Entry:
    place = guard_path(txn, command.path)
    if guard_entry(txn, place) is not None:
        raise Refused(Refusal("ResourceAlreadyExists"))
    entry = _new_entry(txn, place, txn.stamp, command.new, DirectoryNode())
    return put_entry(txn, place, entry)


@operation
def create_file(txn: WriteTxn, command: CreateFile) -> Entry:
    """Creates a file of zeros, or replaces all of one; its lease stays. Zeros take no space."""
    place = guard_path(txn, command.path)
    old = guard_entry(txn, place)
    lease: Lease = NO_LEASE
    if old is not None:
        if command.only_if_absent:
            raise Refused(REPLACE_REFUSED)
        lease = _replaceable(txn, place, old, command.lease_id)
    elif command.lease_id is not None:
        raise Refused(Refusal("LeaseNotPresentWithFileOperation"))
    entry_id = txn.stamp if old is None else old.id
    change_usage(txn, place.tree.share, entry_id, command.length - _length(old))
    node = FileNode(_new_content(txn, command), command.headers, lease)
    entry = put_entry(txn, place, _new_entry(txn, place, entry_id, command.new, node))
    if old is not None:
        release_content(txn, old)
    return entry


def _replaceable(txn: WriteTxn, place: Place, old: Entry, lease_id: bytes | None) -> Lease:
    """Prepares a file to be replaced as a whole; returns the lease that stays."""
    file_node(old)
    abort_if(_check_lease(txn, old, lease_id))
    abort_if(_check_read_only(old))
    keep_state(txn, place, old)
    return file_node(_after_write(txn, old)).lease


def _new_content(txn: WriteTxn, command: CreateFile) -> Content:
    if not command.length:
        return Empty()
    content = intervals.begin(txn, command.content_id, command.length)
    if command.body is None:
        return content
    if command.body.length > command.length:
        raise Refused(Refusal("InvalidRange", {"ContentLength": command.length}))
    return intervals.write(txn, content, 0, command.body.pieces, command.content_id)


def _length(entry: Entry | None) -> int:
    """Returns the length of a file; 0 if there is none, or it is something else."""
    return entry.node.content.length if entry and isinstance(entry.node, FileNode) else 0


def _new_entry(txn: WriteTxn, place: Place, entry_id: int, new: NewEntry, node: Node) -> Entry:
    now, times = txn.now, new.times
    is_directory = isinstance(node, DirectoryNode)
    attributes = unwrap(
        attributes_of_new(FileAttributes(new.attributes), is_directory=is_directory)
    )
    return Entry(
        place.name,
        entry_id,
        place.directory_id,
        place.tree.share.generation,
        txn.stamp,
        FileTimes(
            now if times.created is None else times.created,
            now if times.written is None else times.written,
            now if times.changed is None else times.changed,
        ),
        int(attributes),
        node,
        permission_of_new(txn, place, new.permission, is_directory=is_directory),
        new.metadata,
        new.posix,
    )


# Changes


@operation
def set_metadata(txn: WriteTxn, command: SetEntryMetadata) -> Entry:
    """Replaces the metadata. Only the change time moves."""
    place = guard_path(txn, command.path)
    old = _changeable(txn, place, command.is_directory, command.lease_id)
    return put_entry(txn, place, _changed(txn, old, metadata=command.metadata))


@operation
def set_properties(txn: WriteTxn, command: SetEntryProperties) -> Entry:
    """Changes the properties that are named. The attributes of a read-only file may be changed."""
    place = guard_path(txn, command.path)
    old = _changeable(
        txn,
        place,
        command.is_directory,
        command.lease_id,
        check_read_only=command.attributes is None,
    )
    node = old.node
    if isinstance(node, FileNode):
        node = _with_properties(txn, place, old.id, node, command)
    changed = _changed(
        txn,
        old,
        times=command.times,
        attributes=_new_attributes(old, command.attributes),
        node=node,
        permission=_new_permission(txn, place, old, command.permission),
        posix=old.posix if command.posix is None else command.posix,
    )
    return put_entry(txn, place, changed)


def _with_properties(
    txn: WriteTxn, place: Place, entry_id: int, node: FileNode, command: SetEntryProperties
) -> FileNode:
    """Returns a file with other headers or another length."""
    if command.headers is not None:
        node = replace(node, headers=command.headers)
    length = node.content.length
    if command.length is None or command.length == length:
        return node
    change_usage(txn, place.tree.share, entry_id, command.length - length)
    content = content_map(txn, node, command.child_id)
    content = intervals.resize(txn, content, command.length, command.child_id)
    return replace(node, content=content)


def _new_attributes(old: Entry, asked: int | None) -> int:
    if asked is None:
        return old.attributes
    is_directory = isinstance(old.node, DirectoryNode)
    return int(unwrap(changed_attributes(FileAttributes(asked), is_directory=is_directory)))


def _new_permission(
    txn: WriteTxn, place: Place, old: Entry, asked: int | NewPermission | None
) -> int:
    return old.permission if asked is None else number_of(txn, place.tree.share.id, asked)


@operation
def lease_file(txn: WriteTxn, command: LeaseFile) -> TimedEntry:
    """Changes the lease of a file. Neither the ETag nor any time changes, and snapshots do not
    contain leases."""
    place = guard_path(txn, command.path)
    old = guard_entry(txn, place)
    if old is None:
        raise Refused(Refusal("ResourceNotFound"))
    node = file_node(old)
    lease = unwrap(lease_rules.step_file(node.lease, command.action, txn.steady_now))
    changed = replace(old, node=replace(node, lease=lease))
    return TimedEntry(txn.steady_now, txn.put(ENTRIES, place.key, changed))


# Deletion


@operation(reclaims=True)
def delete_entry(txn: WriteTxn, command: DeleteEntry) -> None:
    """Deletes a file, or a directory without entries."""
    _require_not_root(command.path)
    place = guard_path(txn, command.path)
    old = _changeable(txn, place, command.is_directory, command.lease_id)
    if isinstance(old.node, DirectoryNode) and not is_empty(txn, place, old.id):
        raise Refused(Refusal("DirectoryNotEmpty"))
    _remove(txn, place, old)


def _remove(txn: WriteTxn, place: Place, old: Entry) -> None:
    """Removes an entry, whose state is kept if a snapshot shows it, and its content."""
    change_usage(txn, place.tree.share, old.id, -_length(old))
    remove_entry(txn, place)
    release_content(txn, old)


def _require_not_root(path: EntryPath) -> None:
    if not path.components:
        raise Refused(Refusal("InvalidInput"))


# Rename


@operation(reclaims=True)
def rename_entry(txn: WriteTxn, command: RenameEntry) -> Entry:
    """Moves an entry. Creation and write time stay, unless the request sets them."""
    source, destination = _guard_places(txn, command)
    old = guard_entry(txn, source)
    if old is None:
        raise Refused(Refusal("ResourceNotFound"))
    _check_kind(old, command.is_directory)
    if isinstance(old.node, DirectoryNode) and old.id in destination.directory_ids:
        raise Refused(Refusal("InvalidInput"))
    abort_if(_check_lease(txn, old, command.source_lease_id))
    keep_state(txn, source, old)
    if source.key != destination.key:
        _clear_destination(txn, destination, command)
    changed = _changed(
        txn,
        _after_write(txn, old),
        times=command.times,
        name=destination.name,
        parent_id=destination.directory_id,
        attributes=_new_attributes(old, command.attributes),
        permission=_new_permission(txn, destination, old, command.permission),
        metadata=old.metadata if command.metadata is None else command.metadata,
    )
    if source.key != destination.key:
        remove_entry(txn, source)
    return put_entry(txn, destination, changed)


def _guard_places(txn: WriteTxn, command: RenameEntry) -> tuple[Place, Place]:
    """Resolves both paths. Their directories are guarded, so that neither path changes: two moves
    at once cannot each move a directory below the other."""
    _require_not_root(command.source)
    _require_not_root(command.destination)
    source, destination = command.source, command.destination
    tree = guard_tree(txn, source.ref)
    if destination.ref != source.ref:
        raise Refused(Refusal("InvalidInput"))
    from_place = guard_place(txn, tree, source.components)
    to_place = guard_place(txn, tree, destination.components)
    return (
        from_place._replace(expected_id=source.expected_id),
        to_place._replace(expected_id=destination.expected_id),
    )


def _clear_destination(txn: WriteTxn, destination: Place, command: RenameEntry) -> None:
    """Deletes the file at the destination, if it may be replaced."""
    target = guard_entry(txn, destination)
    if target is None:
        if command.destination_lease_id is not None:
            raise Refused(Refusal("LeaseNotPresentWithFileOperation"))
        return
    if not command.replace or isinstance(target.node, DirectoryNode):
        raise Refused(Refusal("ResourceAlreadyExists"))
    if command.only_if_absent:
        raise Refused(REPLACE_REFUSED)
    abort_if(_check_lease(txn, target, command.destination_lease_id))
    if not command.ignore_read_only:
        abort_if(_check_read_only(target))
    keep_state(txn, destination, target)
    _remove(txn, destination, target)


# Helpers that other operations on files share


def find_changeable_file(
    txn: WriteTxn, place: Place, lease_id: bytes | None
) -> tuple[Entry, FileNode]:
    """Returns a guarded file that this request may change."""
    old = _changeable(txn, place, False, lease_id)
    return old, file_node(old)


def content_map(txn: WriteTxn, node: FileNode, map_id: bytes) -> Mapped:
    """Returns the content of a file as an interval map."""
    if isinstance(node.content, Mapped):
        return node.content
    return intervals.begin(txn, map_id, node.content.length)


def changed_content(
    txn: WriteTxn, old: Entry, node: FileNode, content: Content, *, preserve_written: bool
) -> Entry:
    times = ChangedTimes(written=0 if preserve_written else None)
    return _changed(txn, old, times=times, node=replace(node, content=content))


def _changeable(
    txn: WriteTxn,
    place: Place,
    is_directory: bool,
    lease_id: bytes | None,
    *,
    check_read_only: bool = True,
) -> Entry:
    """Returns a guarded entry that this request may change, with its state kept for snapshots."""
    old = guard_entry(txn, place)
    if old is None:
        raise Refused(Refusal("ResourceNotFound"))
    _check_kind(old, is_directory)
    abort_if(_check_lease(txn, old, lease_id))
    if check_read_only:
        abort_if(_check_read_only(old))
    keep_state(txn, place, old)
    return _after_write(txn, old)


def check_file_change(txn: ReadTxn, entry: Entry, lease_id: bytes | None) -> None:
    """Refuses what would be refused if this file were changed now."""
    _check_kind(entry, is_directory=False)
    abort_if(_check_lease(txn, entry, lease_id))
    abort_if(_check_read_only(entry))


def _check_read_only(entry: Entry) -> Refusal | None:
    """The attribute protects files. It does not restrict directories, as in Windows."""
    if isinstance(entry.node, DirectoryNode):
        return None
    return check_writable(FileAttributes(entry.attributes))


def _check_lease(txn: ReadTxn | WriteTxn, entry: Entry, lease_id: bytes | None) -> Refusal | None:
    if not isinstance(entry.node, FileNode):
        return None if lease_id is None else Refusal("LeaseNotPresentWithFileOperation")
    return lease_rules.check_write(entry.node.lease, lease_id, txn.steady_now, LeaseKind.FILE)


def _after_write(txn: WriteTxn, entry: Entry) -> Entry:
    """Returns the entry with its lease as it is after a write: a broken lease is forgotten."""
    node = entry.node
    if not isinstance(node, FileNode):
        return entry
    lease = lease_rules.after_write(node.lease, txn.steady_now, LeaseKind.FILE)
    return entry if lease is node.lease else replace(entry, node=replace(node, lease=lease))


def _check_kind(entry: Entry, is_directory: bool) -> None:
    if isinstance(entry.node, DirectoryNode) is not is_directory:
        raise Refused(Refusal("ResourceTypeMismatch"))


def file_node(entry: Entry) -> FileNode:
    if not isinstance(entry.node, FileNode):
        raise Refused(Refusal("ResourceTypeMismatch"))
    return entry.node


def _changed(
    txn: WriteTxn, old: Entry, *, times: ChangedTimes = _CHANGE_TIME_ONLY, **fields: object
) -> Entry:
    """Returns a changed state of an entry, with a new ETag."""
    return replace(old, stamp=txn.stamp, times=_new_times(old.times, times, txn.now), **fields)


def _new_times(old: FileTimes, asked: ChangedTimes, now: int) -> FileTimes:
    return FileTimes(
        _new_time(old.created, asked.created, now),
        _new_time(old.written, asked.written, now),
        _new_time(old.changed, asked.changed, now),
    )


def _new_time(old: int, asked: int | None, now: int) -> int:
    return now if asked is None else asked or old
