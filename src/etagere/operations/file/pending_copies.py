"""Asynchronous copies to files.

Until the source has been read, the destination is an empty file that cannot be changed, and a
record names the process that reads. If that process is gone, the copy has failed.

The record is stored under the key of the file's record, which stays the same if a directory further
up is renamed.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from etagere.engine.interface import (
    EXCLUSIVE,
    SHARED,
    ReadTxn,
    Refused,
    WriteTxn,
    abort_if,
    operation,
)
from etagere.errors import Refusal
from etagere.model.blobs import Copied, CopyStatus
from etagere.model.bodies import Content, Empty
from etagere.model.copies import FailCopy, FinishCopy, RecordProgress
from etagere.model.file_copies import (
    AbortFileCopy,
    BeginFileCopy,
    BegunFileCopy,
    FileCopyRef,
    PendingFileCopy,
)
from etagere.model.files import Entry, FileNode
from etagere.operations.file.changes import check_lease, file_node
from etagere.operations.file.collections import ENTRIES, PENDING_FILE_COPIES, SHARES
from etagere.operations.file.copies import (
    adopt_pieces,
    check_destination,
    copy_state,
    new_copy_of_bytes,
    replace_by_copy,
)
from etagere.operations.file.shares import change_usage
from etagere.operations.file.tree import (
    Place,
    Tree,
    guard_entry,
    guard_path,
    keep_state,
    put_entry,
    record_place,
)
from etagere.rules import file_copies as rules

_ROWS_MAX: Final = 200
_SHARE_DELETED: Final = "500 OperationCancelled The share was deleted before the copy was complete."


@operation
def begin_file_copy(txn: WriteTxn, command: BeginFileCopy) -> BegunFileCopy:
    destination = command.destination
    place = guard_path(txn, destination.path)
    old = guard_entry(txn, place)
    check_destination(txn, old, destination)
    copied = copy_state(destination, CopyStatus.PENDING, 0, command.total, 0)
    file = FileNode(Empty(), command.headers, copied=copied)
    new = new_copy_of_bytes(destination, command.metadata)
    entry = replace_by_copy(txn, place, old, new, file, destination)
    share, copy_id = destination.path.ref.share, destination.copy_id
    key = record_place(place, entry).key
    txn.put(PENDING_FILE_COPIES, key, PendingFileCopy(copy_id, share, command.process))
    return BegunFileCopy(entry, FileCopyRef(copy_id, share, *key))


@operation
def record_file_progress(txn: WriteTxn, command: RecordProgress[FileCopyRef]) -> bool:
    """Records the progress of a copy; returns False if it is no longer pending. Neither the ETag
    nor any time changes."""
    tree, entry = _find_tree(txn, command.copy_ref), _find_pending(txn, command.copy_ref)
    if tree is None or entry is None:
        return False
    txn.put(ENTRIES, command.copy_ref.key, _with_copied(entry, copied=command.copied))
    return True


@operation
def finish_file_copy(txn: WriteTxn, command: FinishCopy[FileCopyRef]) -> bool:
    """Completes a copy; returns False if it is no longer pending, in which case the bytes are
    dropped."""
    tree, entry = _find_tree(txn, command.copy_ref), _find_pending(txn, command.copy_ref)
    if entry is None:
        return False
    if tree is None:
        _fail_in_place(txn, command.copy_ref, entry, _SHARE_DELETED)
        return False
    length = command.body.length
    change_usage(txn, tree.share, entry.id, length)
    # The id of the body names the map, which has no other content.
    content = adopt_pieces(txn, command.body, command.body.id)
    finished = _with_copied(
        entry, status=CopyStatus.SUCCESS, copied=length, total=length, ended=txn.now
    )
    _end(txn, _place(tree, entry), entry, finished, content)
    return True


@operation(reclaims=True)
def fail_file_copy(txn: WriteTxn, command: FailCopy[FileCopyRef]) -> bool:
    """Marks a copy as failed; returns False if it has ended already."""
    tree, entry = _find_tree(txn, command.copy_ref), _find_pending(txn, command.copy_ref)
    if entry is None:
        return False
    if tree is None:
        _fail_in_place(txn, command.copy_ref, entry, command.description)
    else:
        failed = _with_copied(
            entry, status=CopyStatus.FAILED, ended=txn.now, description=command.description
        )
        _end(txn, _place(tree, entry), entry, failed)
    return True


@operation
def abort_file_copy(txn: WriteTxn, command: AbortFileCopy) -> None:
    """Aborts a pending copy. The destination stays, without bytes, but with the properties of the
    copy."""
    place = guard_path(txn, command.path)
    old = guard_entry(txn, place)
    if old is None:
        raise Refused(Refusal("ResourceNotFound"))
    node = file_node(old)
    abort_if(check_lease(txn, old, command.lease_id))
    if node.copied is None or not rules.is_pending(node):
        raise Refused(Refusal("NoPendingCopyOperation"))
    if node.copied.id != command.copy_id:
        raise Refused(Refusal("CopyIdMismatch"))
    _end(txn, place, old, _with_copied(old, status=CopyStatus.ABORTED, ended=txn.now))


def _find_tree(txn: WriteTxn, copy_ref: FileCopyRef) -> Tree | None:
    """Returns the tree of the destination; None if its share was deleted. A deleted share can be
    restored, and under another name."""
    found = txn.get(SHARES, copy_ref.share.key, SHARED)
    return Tree(found) if found is not None and found.id == copy_ref.share_id else None


def _find_pending(txn: WriteTxn, copy_ref: FileCopyRef) -> Entry | None:
    """Returns the destination, if this copy is still pending. Otherwise deletes the record of the
    copy."""
    key = copy_ref.key
    pending = txn.get(PENDING_FILE_COPIES, key, EXCLUSIVE)
    if pending is None or pending.copy_id != copy_ref.copy_id:
        return None
    entry = txn.get(ENTRIES, key, EXCLUSIVE)
    copied = _copied(entry)
    if entry is None or copied is None or copied.id != copy_ref.copy_id:
        txn.delete(PENDING_FILE_COPIES, key)
        return None
    return entry


def _copied(entry: Entry | None) -> Copied | None:
    return entry.node.copied if entry and isinstance(entry.node, FileNode) else None


def _place(tree: Tree, entry: Entry) -> Place:
    return Place(tree, (entry.parent_id,), entry.name)


def _with_copied(entry: Entry, **fields: object) -> Entry:
    """Returns the destination with another state of its copy."""
    node = file_node(entry)
    assert node.copied is not None
    return replace(entry, node=replace(node, copied=replace(node.copied, **fields)))


def _end(
    txn: WriteTxn, place: Place, old: Entry, ended: Entry, content: Content | None = None
) -> None:
    """Stores a destination whose copy has ended. Its ETag changes, but none of its times."""
    keep_state(txn, place, old)
    node = file_node(ended)
    if content is not None:
        node = replace(node, content=content)
    txn.delete(PENDING_FILE_COPIES, record_place(place, old).key)
    put_entry(txn, place, replace(ended, stamp=txn.stamp, node=node))


def _fail_in_place(txn: WriteTxn, copy_ref: FileCopyRef, entry: Entry, description: str) -> None:
    """Marks a copy in a deleted share as failed. What its snapshots show is not known here, so the
    state itself is changed, which a restored share will show."""
    failed = _with_copied(entry, status=CopyStatus.FAILED, ended=txn.now, description=description)
    txn.delete(PENDING_FILE_COPIES, copy_ref.key)
    txn.put(ENTRIES, copy_ref.key, failed)


# Monitoring


def pending_file_copies(txn: ReadTxn, after: FileCopyRef | None) -> list[tuple[FileCopyRef, bytes]]:
    """Returns some pending copies after this one, each with the process that runs it."""
    span, last = PENDING_FILE_COPIES.all(), None if after is None else after.key
    if last is not None:
        span = PENDING_FILE_COPIES.starting(span, last)
    rows = txn.scan(PENDING_FILE_COPIES, span, _ROWS_MAX)
    return [
        (FileCopyRef(pending.copy_id, pending.share, *key), pending.process)
        for key, pending in rows
        if key != last
    ]
