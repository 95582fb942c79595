"""Directories and files: creation, properties, leases and deletion.

Every operation is atomic. The last writer wins, except where a lease or the read-only attribute
forbids a change.
"""

from __future__ import annotations

from msgspec.structs import replace

from etagere.bodies import intervals
from etagere.engine.interface import ReadTxn, Refused, WriteTxn, abort_if, operation, unwrap
from etagere.errors import Refusal
from etagere.model.bodies import Content, Empty
from etagere.model.files import (
    PRESERVE_TIME,
    ChangedTimes,
    CreateDirectory,
    CreateFile,
    DeleteEntry,
    DirectoryNode,
    Entry,
    FileNode,
    GetEntry,
    LeaseFile,
    OverwriteFile,
    SetEntryMetadata,
    SetEntryProperties,
    TimedEntry,
)
from etagere.model.leases import LeaseKind
from etagere.operations.file.changes import (
    changed,
    check_no_pending_copy,
    check_replaceable,
    content_map,
    file_length,
    file_node,
    find_changeable,
    keep_replaced,
    new_attributes,
    new_entry,
    new_permission,
    remove,
    require_not_root,
)
from etagere.operations.file.shares import change_usage
from etagere.operations.file.tree import (
    Place,
    find_at,
    guard_entry,
    guard_path,
    is_directory_empty,
    put_entry,
    put_unversioned,
    release_content,
)
from etagere.rules import leases as lease_rules
from etagere.rules.file_attributes import (
    FileAttributes,
    attributes_of_new,
    check_overwrite,
    check_writable,
)
from etagere.rules.posix import changed_owner


def get_file_or_directory(txn: ReadTxn, command: GetEntry) -> TimedEntry:
    entry = find_at(txn, command.path)
    if isinstance(entry.node, FileNode):
        lease, lease_id = entry.node.lease, command.lease_id
        abort_if(lease_rules.check_read(lease, lease_id, txn.steady_now, LeaseKind.FILE))
    return TimedEntry(txn.steady_now, entry)


def get_directory(txn: ReadTxn, command: GetEntry) -> TimedEntry:
    result = get_file_or_directory(txn, command)
    if not result.entry.is_directory:
        raise Refused(Refusal("ResourceNotFound"))
    return result


def get_file(txn: ReadTxn, command: GetEntry) -> TimedEntry:
    """Returns a file or a symbolic link."""
    result = get_file_or_directory(txn, command)
    if result.entry.is_directory:
        raise Refused(Refusal("ResourceNotFound"))
    return result


# Creation


@operation
def create_directory(txn: WriteTxn, command: CreateDirectory) -> Entry:
    place = guard_path(txn, command.path)
    if guard_entry(txn, place) is not None:
        raise Refused(Refusal("ResourceAlreadyExists"))
    entry = new_entry(txn, place, txn.stamp, command.new, DirectoryNode())
    return put_entry(txn, place, entry)


@operation
def create_file(txn: WriteTxn, command: CreateFile) -> Entry:
    """Creates a file of zeros, or replaces all of one; its lease and its links stay. Zeros take no
    space."""
    place = guard_path(txn, command.path)
    old = guard_entry(txn, place)
    check_replaceable(txn, old, command.lease_id, only_if_absent=command.only_if_absent)
    node = keep_replaced(txn, place, old)
    entry_id = txn.stamp if old is None else old.id
    change_usage(txn, place.tree.share, entry_id, command.length - file_length(old))
    node = replace(node, content=_new_content(txn, command), headers=command.headers)
    entry = put_entry(txn, place, new_entry(txn, place, entry_id, command.new, node))
    if old is not None:
        release_content(txn, old)
    return entry


@operation
def overwrite_file(txn: WriteTxn, command: OverwriteFile) -> Entry:
    """Truncates a file as an SMB client does that opens it."""
    place = guard_path(txn, command.path)
    old = find_changeable(txn, place, False, None)
    node, asked = file_node(old), FileAttributes(command.attributes)
    abort_if(check_overwrite(FileAttributes(old.attributes), asked))
    change_usage(txn, place.tree.share, old.id, -file_length(old))
    entry = changed(
        txn,
        old,
        times=ChangedTimes(None if command.supersedes else PRESERVE_TIME, None),
        attributes=int(unwrap(attributes_of_new(asked, is_directory=False))),
        node=replace(node, content=Empty(), copied=None),
    )
    entry = put_entry(txn, place, entry)
    release_content(txn, old)
    return entry


def _new_content(txn: WriteTxn, command: CreateFile) -> Content:
    if not command.length:
        return Empty()
    content = intervals.begin(txn, command.content_id, command.length)
    if command.body is None:
        return content
    if command.body.length > command.length:
        raise Refused(Refusal("InvalidRange", {"ContentLength": command.length}))
    return intervals.write(txn, content, 0, command.body.pieces, command.content_id)


# Changes


@operation
def set_metadata(txn: WriteTxn, command: SetEntryMetadata) -> Entry:
    """Replaces the metadata. Only the change time moves."""
    place = guard_path(txn, command.path)
    old = find_changeable(txn, place, command.is_directory, command.lease_id)
    return put_entry(txn, place, changed(txn, old, metadata=command.metadata))


@operation
def set_properties(txn: WriteTxn, command: SetEntryProperties) -> Entry:
    """Changes the properties that are named. A request that sets the attributes of a read-only
    file may change its other properties too, but not its length."""
    place = guard_path(txn, command.path)
    old = find_changeable(
        txn,
        place,
        command.is_directory,
        command.lease_id,
        check_read_only=command.length is not None
        or not (command.ignore_read_only or command.attributes is not None),
    )
    node = old.node
    if isinstance(node, FileNode):
        node = _with_properties(txn, place, old.id, node, command)
    elif command.length is not None:
        raise Refused(Refusal("ResourceTypeMismatch"))
    entry = changed(
        txn,
        old,
        times=command.times,
        attributes=new_attributes(old, command.attributes),
        node=node,
        permission=new_permission(txn, place, old, command.permission),
        posix=unwrap(changed_owner(old.posix, command.posix)),
    )
    return put_entry(txn, place, entry)


def _with_properties(
    txn: WriteTxn, place: Place, entry_id: int, node: FileNode, command: SetEntryProperties
) -> FileNode:
    """Returns a file with other headers or another length. It is no longer what was copied."""
    node = replace(node, copied=None)
    if command.headers is not None:
        node = replace(node, headers=command.headers)
    length = node.content.length
    if command.length is None or command.length == length:
        return node
    change_usage(txn, place.tree.share, entry_id, command.length - length)
    content = content_map(txn, node, command.child_id)
    content = intervals.resize(txn, content, command.length, command.child_id)
    return replace(node, content=content)


@operation
def lease_file(txn: WriteTxn, command: LeaseFile) -> TimedEntry:
    """Changes the lease of a file. Neither the ETag nor any time changes, and snapshots do not
    contain leases."""
    place = guard_path(txn, command.path)
    old = guard_entry(txn, place)
    if old is None:
        raise Refused(Refusal("ResourceNotFound"))
    node = file_node(old)
    abort_if(check_no_pending_copy(old))
    lease = unwrap(lease_rules.step_file(node.lease, command.action, txn.steady_now))
    leased = replace(old, node=replace(node, lease=lease))
    return TimedEntry(txn.steady_now, put_unversioned(txn, place, leased))


# Deletion


@operation(reclaims=True)
def delete_entry(txn: WriteTxn, command: DeleteEntry) -> int:
    """Deletes a file, or a directory without entries. Returns the number of links that the file
    has left."""
    require_not_root(command.path)
    place = guard_path(txn, command.path)
    old = find_changeable(txn, place, command.is_directory, command.lease_id)
    abort_if(check_writable(FileAttributes(old.attributes)))
    if old.is_directory and not is_directory_empty(txn, (place.tree.share.id, old.id)):
        raise Refused(Refusal("DirectoryNotEmpty"))
    return remove(txn, place, old)
