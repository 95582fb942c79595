"""Directories and files: creation, properties, rename and deletion.

Every operation is atomic. The last writer wins, except where a lease or the read-only attribute
forbids a change.
"""

from __future__ import annotations

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
    FileNode,
    FileTimes,
    GetEntry,
    LeaseFile,
    NewEntry,
    Node,
    RenameEntry,
    SetEntryMetadata,
    SetEntryProperties,
    TimedEntry,
)
from etagere.model.leases import LeaseKind
from etagere.operations.file.collections import ENTRIES
from etagere.operations.file.shares import change_usage
from etagere.operations.file.tree import (
    Place,
    find_entry,
    guard_entry,
    guard_place,
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


def get_file_or_directory(txn: ReadTxn, command: GetEntry) -> TimedEntry:
    entry = find_entry(txn, command.path)
    if isinstance(entry.node, FileNode):
        lease, lease_id = entry.node.lease, command.lease_id
        abort_if(lease_rules.check_read(lease, lease_id, txn.steady_now, LeaseKind.FILE))
    return TimedEntry(txn.steady_now, entry)


# Creation


@operation
def create_directory(txn: WriteTxn, command: CreateDirectory) -> Entry:
    place = guard_place(txn, command.path)
    if guard_entry(txn, place) is not None:
        raise Refused(Refusal("ResourceAlreadyExists"))
    entry = _new_entry(txn, place, txn.stamp, command.new, DirectoryNode())
    return put_entry(txn, place, entry)


@operation
def create_file(txn: WriteTxn, command: CreateFile) -> Entry:
    """Creates a file of zeros, or replaces all of one; a lease stays. Zeros take no space."""
    place = guard_place(txn, command.path)
    old = guard_entry(txn, place)
    entry_id, lease = txn.stamp, None
    if old is not None:
        node = _changeable_file(txn, old, command.lease_id)
        abort_if(check_writable(FileAttributes(old.attributes)))
        keep_state(txn, place, old)
        entry_id, lease = old.id, node.lease
        change_usage(txn, place.tree.share, old.id, -node.content.length)
    elif command.lease_id is not None:
        raise Refused(Refusal("LeaseNotPresentWithFileOperation"))
    content: Content = Empty()
    if command.length:
        content = intervals.begin(txn, command.content_id, command.length)
    if command.body is not None and isinstance(content, Mapped):
        content = intervals.write(txn, content, 0, command.body.pieces, command.content_id)
    change_usage(txn, place.tree.share, entry_id, command.length)
    new_node = FileNode(content, command.headers)
    if lease is not None:
        new_node = replace(new_node, lease=lease)
    entry = put_entry(txn, place, _new_entry(txn, place, entry_id, command.new, new_node))
    if old is not None:
        release_content(txn, old)
    return entry


def _new_entry(txn: WriteTxn, place: Place, entry_id: int, new: NewEntry, node: Node) -> Entry:
    now, times = txn.now, new.times
    attributes = unwrap(
        attributes_of_new(
            FileAttributes(new.attributes), is_directory=isinstance(node, DirectoryNode)
        )
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
        new.permission,
        new.metadata,
        new.posix,
    )


# Changes


@operation
def set_metadata(txn: WriteTxn, command: SetEntryMetadata) -> Entry:
    """Replaces the metadata. Only the change time moves."""
    place = guard_place(txn, command.path)
    old = _changeable(txn, place, command.is_directory, command.lease_id)
    return put_entry(txn, place, _changed(txn, old, metadata=command.metadata))


@operation
def set_properties(txn: WriteTxn, command: SetEntryProperties) -> Entry:
    """Changes the properties that are named. The attributes of a read-only file may be changed."""
    place = guard_place(txn, command.path)
    is_directory = command.is_directory
    old = _changeable(
        txn, place, is_directory, command.lease_id, writable=command.attributes is None
    )
    attributes = old.attributes
    if command.attributes is not None:
        asked = FileAttributes(command.attributes)
        attributes = int(unwrap(changed_attributes(asked, is_directory=is_directory)))
    node = old.node
    if isinstance(node, FileNode):
        if command.headers is not None:
            node = replace(node, headers=command.headers)
        if command.length is not None:
            added = command.length - node.content.length
            change_usage(txn, place.tree.share, old.id, added)
            content = content_map(txn, node, command.child_id)
            content = intervals.resize(txn, content, command.length, command.child_id)
            node = replace(node, content=content)
    changed = _changed(
        txn,
        old,
        times=command.times,
        attributes=attributes,
        node=node,
        permission=old.permission if command.permission is None else command.permission,
        posix=old.posix if command.posix is None else command.posix,
    )
    return put_entry(txn, place, changed)


@operation
def lease_file(txn: WriteTxn, command: LeaseFile) -> TimedEntry:
    """Changes the lease of a file. Neither the ETag nor any time changes, and snapshots do not
    contain leases."""
    place = guard_place(txn, command.path)
    old = guard_entry(txn, place)
    if old is None:
        raise Refused(Refusal("ResourceNotFound"))
    node = _file_node(old)
    lease = unwrap(lease_rules.step_file(node.lease, command.action, txn.steady_now))
    changed = replace(old, node=replace(node, lease=lease))
    return TimedEntry(txn.steady_now, txn.put(ENTRIES, place.key, changed))


# Deletion


@operation(reclaims=True)
def delete_entry(txn: WriteTxn, command: DeleteEntry) -> None:
    """Deletes a file, or a directory without entries."""
    place = guard_place(txn, command.path)
    old = _changeable(txn, place, command.is_directory, command.lease_id)
    if isinstance(old.node, DirectoryNode):
        if not is_empty(txn, place, old.id):
            raise Refused(Refusal("DirectoryNotEmpty"))
    elif isinstance(old.node, FileNode):
        change_usage(txn, place.tree.share, old.id, -old.node.content.length)
    remove_entry(txn, place)
    release_content(txn, old)


# Rename


@operation(reclaims=True)
def rename_entry(txn: WriteTxn, command: RenameEntry) -> Entry:
    """Moves an entry. Creation and write time stay, unless the request sets them.

    A directory that moves to another directory guards the share exclusively: two such moves at once
    could each move a directory below the other.
    """
    moves = command.source.components[:-1] != command.destination.components[:-1]
    exclusive = command.is_directory and moves
    source = guard_place(txn, command.source, exclusive_share=exclusive)
    destination = guard_place(txn, command.destination, exclusive_share=exclusive)
    old = guard_entry(txn, source)
    if old is None:
        raise Refused(Refusal("ResourceNotFound"))
    _check_kind(old, command.is_directory)
    if isinstance(old.node, DirectoryNode) and old.id in destination.directory_ids:
        raise Refused(Refusal("InvalidInput"))
    abort_if(_check_lease(txn, old, command.source_lease_id))
    if not command.ignore_read_only:
        abort_if(check_writable(FileAttributes(old.attributes)))
    keep_state(txn, source, old)
    is_same = source.key == destination.key
    if not is_same:
        _clear_destination(txn, destination, command)
    attributes = old.attributes
    if command.attributes is not None:
        asked = FileAttributes(command.attributes)
        attributes = int(unwrap(changed_attributes(asked, is_directory=command.is_directory)))
    changed = _changed(
        txn,
        replace(old, name=destination.name, parent_id=destination.directory_id),
        times=command.times,
        attributes=attributes,
        permission=old.permission if command.permission is None else command.permission,
        metadata=old.metadata if command.metadata is None else command.metadata,
    )
    if is_same:
        return put_entry(txn, source, changed)
    remove_entry(txn, source)
    return put_entry(txn, destination, changed)


def _clear_destination(txn: WriteTxn, destination: Place, command: RenameEntry) -> None:
    """Deletes the file at the destination, if it may be replaced."""
    target = guard_entry(txn, destination)
    if target is None:
        if command.destination_lease_id is not None:
            raise Refused(Refusal("LeaseNotPresentWithFileOperation"))
        return
    if not command.replace or not isinstance(target.node, FileNode):
        raise Refused(Refusal("ResourceAlreadyExists"))
    abort_if(_check_lease(txn, target, command.destination_lease_id))
    if not command.ignore_read_only:
        abort_if(check_writable(FileAttributes(target.attributes)))
    keep_state(txn, destination, target)
    change_usage(txn, destination.tree.share, target.id, -target.node.content.length)
    remove_entry(txn, destination)
    release_content(txn, target)


# Helpers that other operations on files share


def find_changeable_file(
    txn: WriteTxn, place: Place, lease_id: bytes | None
) -> tuple[Entry, FileNode]:
    """Returns a guarded file that this request may change."""
    old = _changeable(txn, place, False, lease_id)
    return old, _file_node(old)


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
    writable: bool = True,
) -> Entry:
    old = guard_entry(txn, place)
    if old is None:
        raise Refused(Refusal("ResourceNotFound"))
    _check_kind(old, is_directory)
    abort_if(_check_lease(txn, old, lease_id))
    if writable:
        abort_if(check_writable(FileAttributes(old.attributes)))
    keep_state(txn, place, old)
    return _after_write(txn, old)


def _changeable_file(txn: WriteTxn, old: Entry, lease_id: bytes | None) -> FileNode:
    if not isinstance(old.node, FileNode):
        raise Refused(Refusal("ResourceTypeMismatch"))
    abort_if(_check_lease(txn, old, lease_id))
    return _file_node(_after_write(txn, old))


def _check_lease(txn: WriteTxn, entry: Entry, lease_id: bytes | None) -> Refusal | None:
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


def _file_node(entry: Entry) -> FileNode:
    if not isinstance(entry.node, FileNode):
        raise Refused(Refusal("ResourceTypeMismatch"))
    return entry.node


_METADATA_CHANGE = ChangedTimes()


def _changed(
    txn: WriteTxn, old: Entry, *, times: ChangedTimes = _METADATA_CHANGE, **fields: object
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
