"""Copies to files, in one transaction.

A copy of a file shares its interval map, whatever its size. A copy of a blob shares its pieces if
they are not too many. Bytes that cannot be shared, and those of other servers, have been read
before.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from etagere.bodies import intervals
from etagere.bodies.contents import MissingRecord, share
from etagere.engine.interface import ReadTxn, Refused, WriteTxn, operation
from etagere.errors import Refusal
from etagere.model.blobs import Copied, CopyStatus
from etagere.model.bodies import Body, Content, Empty, Inline, Mapped
from etagere.model.common import Metadata
from etagere.model.file_copies import CopyFile, FileDestination, PutFileCopy
from etagere.model.files import Entry, FileNode, NewEntry, PutRange
from etagere.operations.file.changes import (
    check_replaceable,
    file_length,
    file_node,
    keep_replaced,
    new_entry,
)
from etagere.operations.file.permissions import copy_permission
from etagere.operations.file.ranges import put_range
from etagere.operations.file.shares import change_usage
from etagere.operations.file.tree import (
    Place,
    find_place,
    find_tree,
    get_entry,
    guard_entry,
    guard_path,
    put_entry,
    release_content,
)
from etagere.operations.sources import PIECES_GONE, guard_stored, pieces_of
from etagere.rules import file_copies as rules

_SHARED_PIECES_MAX: Final = 512
"""The bytes of a blob with more pieces are copied, so that no transaction takes long."""


@operation
def copy_file(txn: WriteTxn, command: CopyFile) -> Entry | None:
    """Copies a blob or file of this store; returns None if its bytes cannot be shared."""
    destination = command.destination
    place = guard_path(txn, destination.path)
    old = guard_entry(txn, place)
    source = guard_stored(txn, command.source)
    check_destination(txn, old, destination)
    content = _shared(txn, source.content, destination.content_id)
    if content is None:
        return None
    permission, entry = destination.permission, source.entry
    if permission == "source":
        permission = None
        if entry is not None:
            number, share_id = entry.permission, place.tree.share.id
            permission = copy_permission(txn, number, source.share_id, share_id)
    new = rules.new_copy(destination, source.metadata, permission, entry)
    file = FileNode(content, source.headers)
    return replace_by_copy(txn, place, old, new, file, destination)


@operation
def put_file_copy(txn: WriteTxn, command: PutFileCopy) -> Entry:
    """Creates a copy from bytes that have been read."""
    destination = command.destination
    place = guard_path(txn, destination.path)
    old = guard_entry(txn, place)
    check_destination(txn, old, destination)
    content = adopt_pieces(txn, command.body, destination.content_id)
    file = FileNode(content, command.headers)
    new = new_copy_of_bytes(destination, command.metadata)
    return replace_by_copy(txn, place, old, new, file, destination)


def new_copy_of_bytes(destination: FileDestination, metadata: Metadata) -> NewEntry:
    """Returns what the copy of a source is created with that is not a file of this store."""
    permission = None if destination.permission == "source" else destination.permission
    return rules.new_copy(destination, metadata, permission)


def precheck_file_copy(txn: ReadTxn, destination: FileDestination) -> None:
    """Refuses, before a source is read, what would be refused now."""
    path = destination.path
    if path.ref.snapshot is not None:
        raise Refused(Refusal("ShareSnapshotOperationNotSupported"))
    tree = find_tree(txn, path.ref)
    place = find_place(txn, tree, path.components)
    check_destination(txn, get_entry(txn, tree, place.directory_id, place.name), destination)


def check_destination(
    txn: ReadTxn | WriteTxn, old: Entry | None, destination: FileDestination
) -> None:
    """Checks whether a copy may create or replace its destination."""
    check_replaceable(
        txn,
        old,
        destination.lease_id,
        only_if_absent=destination.only_if_absent,
        ignore_read_only=destination.ignore_read_only,
    )


@operation
def put_shared_range(txn: WriteTxn, command: PutRange) -> Entry:
    """Writes pieces that a source holds too. Refuses pieces that are gone."""
    try:
        return put_range(txn, command)
    except MissingRecord:
        raise Refused(Refusal(PIECES_GONE)) from None


# Contents


def _shared(txn: WriteTxn, content: Content, map_id: bytes) -> Content | None:
    """Returns a content that shares the bytes of another one; None if it cannot. Ranges of files
    are compared with snapshots, which inline intervals do not allow."""
    if isinstance(content, Mapped):
        return None if content.inline_bytes else share(txn, content)
    if isinstance(content, Empty | Inline):
        return content if isinstance(content, Empty) else None
    pieces = pieces_of(txn, content, 0, content.length, _SHARED_PIECES_MAX)
    if pieces is None:
        return None
    return intervals.write_shared(txn, intervals.begin(txn, map_id, 0), 0, pieces, map_id)


def adopt_pieces(txn: WriteTxn, body: Body, map_id: bytes) -> Content:
    """Returns the content of a file that consists of an upload."""
    if not body.length:
        return Empty()
    return intervals.write(txn, intervals.begin(txn, map_id, 0), 0, body.pieces, map_id)


# The copy


def copy_state(
    destination: FileDestination, status: CopyStatus, copied: int, total: int, ended: int
) -> Copied:
    """Returns the copy properties of the destination."""
    return Copied(destination.copy_id, destination.source, status, copied, total, ended)


def copied_of(entry: Entry) -> Copied:
    """Returns the copy properties of the destination of a copy."""
    copied = file_node(entry).copied
    assert copied is not None
    return copied


def replace_by_copy(
    txn: WriteTxn,
    place: Place,
    old: Entry | None,
    new: NewEntry,
    file: FileNode,
    destination: FileDestination,
) -> Entry:
    """Replaces the destination by the copy, or creates it. It keeps its lease, its links and its
    id. A file without the state of its copy is complete."""
    length = file.content.length
    left = keep_replaced(txn, place, old)
    entry_id = txn.stamp if old is None else old.id
    change_usage(txn, place.tree.share, entry_id, length - file_length(old))
    copied = file.copied
    if copied is None:
        copied = copy_state(destination, CopyStatus.SUCCESS, length, length, txn.now)
    node = replace(file, lease=left.lease, links=left.links, copied=copied)
    entry = put_entry(txn, place, new_entry(txn, place, entry_id, new, node))
    if old is not None:
        release_content(txn, old)
    return entry
