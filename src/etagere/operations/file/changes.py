"""Steps that operations on directories and files share: checks before a change, and new states of
entries."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from etagere.bodies import intervals
from etagere.engine.interface import ReadTxn, Refused, WriteTxn, abort_if, unwrap
from etagere.errors import Refusal
from etagere.model.bodies import Content, Empty, Mapped
from etagere.model.files import (
    PRESERVE_TIME,
    ChangedTimes,
    DirectoryNode,
    Entry,
    EntryPath,
    FileNode,
    FileTimes,
    NewEntry,
    NewPermission,
    Node,
    SymbolicLinkNode,
)
from etagere.model.leases import LeaseKind
from etagere.operations.file.permissions import number_of, permission_of_new
from etagere.operations.file.shares import change_usage
from etagere.operations.file.tree import (
    Place,
    guard_entry,
    keep_link,
    keep_state,
    put_entry,
    record_place,
    release_content,
    remove_entry,
)
from etagere.rules import leases as lease_rules
from etagere.rules import posix
from etagere.rules.file_attributes import (
    FileAttributes,
    attributes_of_new,
    changed_attributes,
    check_writable,
)
from etagere.rules.file_copies import check_not_pending

REPLACE_REFUSED: Final = Refusal("AuthorizationPermissionMismatch", {"RequiredPermission": "w"})
"""The refusal of a caller that may create files, but not replace them."""
_CHANGE_TIME_ONLY: Final = ChangedTimes()


# Checks


def find_changeable(
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
    check_kind(old, is_directory)
    abort_if(check_lease(txn, old, lease_id))
    if check_read_only:
        abort_if(check_read_only_file(old))
    abort_if(check_no_pending_copy(old))
    keep_state(txn, place, old)
    return after_write(txn, old)


def find_changeable_file(
    txn: WriteTxn, place: Place, lease_id: bytes | None
) -> tuple[Entry, FileNode]:
    """Returns a guarded file that this request may change."""
    old = find_changeable(txn, place, False, lease_id)
    return old, file_node(old)


def check_file_change(txn: ReadTxn, entry: Entry, lease_id: bytes | None) -> None:
    """Refuses what would be refused if this file were changed now."""
    check_kind(entry, is_directory=False)
    abort_if(check_lease(txn, entry, lease_id))
    abort_if(check_read_only_file(entry))
    abort_if(check_no_pending_copy(entry))


def check_replaceable(
    txn: ReadTxn | WriteTxn,
    old: Entry | None,
    lease_id: bytes | None,
    *,
    only_if_absent: bool,
    ignore_read_only: bool = False,
) -> None:
    """Refuses what would be refused if a file were created, or replaced the old one as a whole."""
    if old is None:
        if lease_id is not None:
            raise Refused(Refusal("LeaseNotPresentWithFileOperation"))
        return
    if only_if_absent:
        raise Refused(REPLACE_REFUSED)
    file_node(old)
    abort_if(check_lease(txn, old, lease_id))
    if not ignore_read_only:
        abort_if(check_read_only_file(old))
    abort_if(check_no_pending_copy(old))


def check_kind(entry: Entry, is_directory: bool) -> None:
    if entry.is_directory is not is_directory:
        raise Refused(Refusal("ResourceTypeMismatch"))


def check_lease(txn: ReadTxn | WriteTxn, entry: Entry, lease_id: bytes | None) -> Refusal | None:
    if not isinstance(entry.node, FileNode):
        return None if lease_id is None else Refusal("LeaseNotPresentWithFileOperation")
    return lease_rules.check_write(entry.node.lease, lease_id, txn.steady_now, LeaseKind.FILE)


def check_read_only_file(entry: Entry) -> Refusal | None:
    """The attribute protects files from changes. It protects directories only from deletion, as in
    Windows."""
    return None if entry.is_directory else check_writable(FileAttributes(entry.attributes))


def check_no_pending_copy(entry: Entry) -> Refusal | None:
    return check_not_pending(entry.node) if isinstance(entry.node, FileNode) else None


def require_not_root(path: EntryPath) -> None:
    if not path.components:
        raise Refused(Refusal("InvalidInput"))


def file_node(entry: Entry) -> FileNode:
    if not isinstance(entry.node, FileNode):
        raise Refused(Refusal("ResourceTypeMismatch"))
    return entry.node


# New states


def after_write(txn: WriteTxn, entry: Entry) -> Entry:
    """Returns the entry with its lease as it is after a write: a broken lease is forgotten."""
    node = entry.node
    if not isinstance(node, FileNode):
        return entry
    lease = lease_rules.after_write(node.lease, txn.steady_now, LeaseKind.FILE)
    return entry if lease is node.lease else replace(entry, node=replace(node, lease=lease))


def keep_replaced(txn: WriteTxn, place: Place, old: Entry | None) -> FileNode:
    """Keeps the state of a file that is about to be replaced as a whole, if a snapshot shows it.
    Returns what is left of it: the lease and the number of links."""
    if old is None:
        return FileNode(Empty())
    keep_state(txn, place, old)
    node = file_node(after_write(txn, old))
    return FileNode(Empty(), lease=node.lease, links=node.links)


def new_entry(txn: WriteTxn, place: Place, entry_id: int, new: NewEntry, node: Node) -> Entry:
    now, times = txn.now, new.times
    is_directory = isinstance(node, DirectoryNode)
    attributes = unwrap(
        attributes_of_new(
            FileAttributes(new.attributes), is_directory=is_directory, restores=new.restores
        )
    )
    protocol = place.tree.share.settings.protocol
    owner = unwrap(posix.owner_of_new(new.posix, _default_mode(node), protocol))
    abort_if(posix.check_attributes(owner, attributes))
    if new.permission is not None:
        abort_if(posix.check_permission(owner))
    return Entry(
        place.name,
        entry_id,
        parent_id=place.directory_id,
        generation=place.tree.share.generation,
        stamp=txn.stamp,
        times=FileTimes(
            now if times.created is None else times.created,
            now if times.written is None else times.written,
            now if times.changed is None else times.changed,
        ),
        attributes=int(attributes),
        node=node,
        permission=permission_of_new(txn, place, new.permission, is_directory=is_directory),
        metadata=new.metadata,
        posix=owner,
    )


def _default_mode(node: Node) -> int:
    if isinstance(node, DirectoryNode):
        return posix.DIRECTORY_MODE
    return posix.SYMBOLIC_LINK_MODE if isinstance(node, SymbolicLinkNode) else posix.FILE_MODE


def changed(
    txn: WriteTxn, old: Entry, *, times: ChangedTimes = _CHANGE_TIME_ONLY, **fields: object
) -> Entry:
    """Returns a changed state of an entry, with a new ETag."""
    return replace(old, stamp=txn.stamp, times=_new_times(old.times, times, txn.now), **fields)


def _new_times(old: FileTimes, asked: ChangedTimes, now: int) -> FileTimes:
    return FileTimes(
        _new_time(old.created, asked.created, now),
        _new_time(old.written, asked.written, now),
        _new_time(old.changed, asked.changed, now),
        old.accessed if asked.accessed == PRESERVE_TIME else asked.accessed,
    )


def _new_time(old: int, asked: int | None, now: int) -> int:
    if asked is None:
        return now
    return old if asked == PRESERVE_TIME else asked


def new_attributes(old: Entry, asked: int | None) -> int:
    if asked is None:
        return old.attributes
    abort_if(posix.check_attributes(old.posix, FileAttributes(asked)))
    return int(unwrap(changed_attributes(FileAttributes(asked), is_directory=old.is_directory)))


def new_permission(
    txn: WriteTxn, place: Place, old: Entry, asked: int | NewPermission | None
) -> int:
    if asked is None:
        return old.permission
    abort_if(posix.check_permission(old.posix))
    return number_of(txn, place.tree.share.id, asked)


def remove(txn: WriteTxn, place: Place, old: Entry) -> int:
    """Removes an entry, whose state `keep_state` has kept, and its content unless the file has
    other links. Returns how many are left."""
    links = old.node.links if isinstance(old.node, FileNode) else 0
    if links:
        keep_link(txn, place)
        remove_entry(txn, place)
    if links > 1:
        left = replace(file_node(old), links=links - 1)
        put_entry(txn, place, changed(txn, old, node=left))
        return links - 1
    change_usage(txn, place.tree.share, old.id, -file_length(old))
    remove_entry(txn, record_place(place, old))
    release_content(txn, old)
    return 0


# Contents


def file_length(entry: Entry | None) -> int:
    """Returns the length of a file; 0 if there is none, or it is something else."""
    return entry.node.content.length if entry and isinstance(entry.node, FileNode) else 0


def content_map(txn: WriteTxn, node: FileNode, map_id: bytes) -> Mapped:
    """Returns the content of a file as an interval map."""
    if isinstance(node.content, Mapped):
        return node.content
    return intervals.begin(txn, map_id, node.content.length)


def changed_content(
    txn: WriteTxn, old: Entry, node: FileNode, content: Content, *, preserve_written: bool
) -> Entry:
    times = ChangedTimes(written=PRESERVE_TIME if preserve_written else None)
    return changed(txn, old, times=times, node=replace(node, content=content))
