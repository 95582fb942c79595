"""The bytes of files: ranges that are written, cleared, read and listed."""

from __future__ import annotations

from typing import NamedTuple

from etagere.bodies import intervals
from etagere.bodies.maps import cut_piece
from etagere.bodies.plans import Plan, locate, try_locate
from etagere.engine.interface import ReadTxn, Refused, WriteTxn, operation
from etagere.errors import Refusal
from etagere.model.bodies import Content, Mapped
from etagere.model.files import (
    ClearRange,
    Entry,
    FileNode,
    FileRange,
    FileRanges,
    ListRanges,
    OpenFile,
    PutRange,
    TimedEntry,
)
from etagere.model.shares import ShareRef
from etagere.operations.file.changes import (
    changed_content,
    check_file_change,
    content_map,
    file_node,
    find_changeable_file,
)
from etagere.operations.file.entries import get_file
from etagere.operations.file.tree import (
    Tree,
    find_entry,
    find_in_snapshot,
    find_tree,
    guard_path,
    put_entry,
)
from etagere.rules.file_ranges import cleared_range

# Writing


def precheck_range(txn: ReadTxn, command: PutRange) -> None:
    """Refuses, before an upload, what would be refused if the upload ended now. Only the length of
    the body has to be known."""
    path = command.path
    if path.ref.snapshot is not None:
        raise Refused(Refusal("ShareSnapshotOperationNotSupported"))
    entry = find_entry(txn, find_tree(txn, path.ref), path.components)
    check_file_change(txn, entry, command.lease_id)
    _require_inside(command.start + command.body.length, file_node(entry).content)


@operation
def put_range(txn: WriteTxn, command: PutRange) -> Entry:
    """Writes bytes within the length of a file. The last writer wins."""
    place = guard_path(txn, command.path)
    old, node = find_changeable_file(txn, place, command.lease_id)
    _require_inside(command.start + command.body.length, node.content)
    write = intervals.write_shared if command.borrowed else intervals.write
    content = content_map(txn, node, command.child_id)
    content = write(txn, content, command.start, command.body.pieces, command.child_id)
    changed = changed_content(txn, old, node, content, preserve_written=command.preserve_written)
    return put_entry(txn, place, changed)


@operation(reclaims=True)
def clear_range(txn: WriteTxn, command: ClearRange) -> Entry:
    """Replaces bytes by zeros. The aligned part of the range takes no space afterwards."""
    place = guard_path(txn, command.path)
    old, node = find_changeable_file(txn, place, command.lease_id)
    _require_inside(command.end, node.content)
    content = node.content
    if isinstance(content, Mapped):
        content = _cleared(txn, content, command)
    changed = changed_content(txn, old, node, content, preserve_written=command.preserve_written)
    return put_entry(txn, place, changed)


def _cleared(txn: WriteTxn, content: Mapped, command: ClearRange) -> Mapped:
    child_id = command.child_id
    if command.zeros is None:
        return intervals.clear(txn, content, command.start, command.end, child_id)
    cleared = cleared_range(command.start, command.end)
    content = intervals.clear(txn, content, cleared.freed_start, cleared.freed_end, child_id)
    write = intervals.write
    for start, end in cleared.zeroed:
        (zeros,) = command.zeros.pieces
        content = write(txn, content, start, (cut_piece(zeros, 0, end - start),), child_id)
        # The first part is as long as the zeros, which both parts refer to.
        write = intervals.write_shared
    return content


def _require_inside(end: int, content: Content) -> None:
    if end > content.length:
        raise Refused(Refusal("InvalidRange", {"ContentLength": content.length}))


# Reading


class OpenedFile(NamedTuple):
    """A range of a file, and the location of its bytes."""

    result: TimedEntry
    file: FileNode
    start: int
    length: int
    plan: Plan
    is_range: bool


def open_file(txn: ReadTxn, command: OpenFile) -> OpenedFile | None:
    """Returns, from one snapshot of the ledger, the file, the range and the location of its bytes.
    The caller must have opened a reader before. Returns None if the lookup would take long and the
    command asks not to wait."""
    result = get_file(txn, command.ask)
    file = file_node(result.entry)
    start, end = _span(command.first, command.last, file.content.length)
    find = try_locate if command.brief else locate
    plan = find(txn, file.content, start, end - start)
    if plan is None:
        return None
    return OpenedFile(result, file, start, end - start, plan, command.first is not None)


def _span(first: int | None, last: int | None, length: int) -> tuple[int, int]:
    if first is None:
        return 0, length
    if first >= length:
        raise Refused(Refusal("InvalidRange", {"ContentLength": length}))
    return first, length if last is None else min(last + 1, length)


def list_ranges(txn: ReadTxn, command: ListRanges) -> FileRanges:
    """Returns the ranges of a file that were written, or the changes since an earlier snapshot. If
    there are more than the limit, the result has the offset to continue from."""
    result = get_file(txn, command.ask)
    content = file_node(result.entry).content
    start, end = _span(command.first, command.last, content.length)
    found = _ranges(txn, command, result.entry, max(start, command.start), end)
    more = found[command.limit].start if len(found) > command.limit else None
    ranges = tuple(found[: command.limit])
    return FileRanges(txn.steady_now, result.entry, content.length, ranges, more)


def _ranges(
    txn: ReadTxn, command: ListRanges, entry: Entry, start: int, end: int
) -> list[FileRange]:
    """Returns the ranges in order, with one more than the limit if there are more."""
    content, limit = file_node(entry).content, command.limit + 1
    old = None
    if command.previous is not None:
        old = _previous_content(txn, command, entry, command.previous)
    if start >= end or not isinstance(content, Mapped):
        return []
    if not isinstance(old, Mapped):
        written = intervals.ranges(txn, content, start, end, limit)
        return [FileRange(*range_) for range_ in written[:limit]]
    changes = intervals.changes(txn, old, content, start, end, limit)
    if changes is None:
        raise Refused(Refusal("FileGenerationMismatch"))
    return [FileRange(*change) for change in changes[:limit]]


def _previous_content(txn: ReadTxn, command: ListRanges, entry: Entry, previous: int) -> Content:
    """Returns the content of the same file in an earlier snapshot."""
    path = command.ask.path
    if path.ref.snapshot is not None and previous > path.ref.snapshot:
        raise Refused(Refusal("PreviousSnapshotCannotBeNewer"))
    try:
        tree = find_tree(txn, ShareRef(path.ref.share, previous))
    except Refused:
        raise Refused(Refusal("PreviousSnapshotNotFound")) from None
    old = _previous_entry(txn, command, tree, entry)
    if old is None or old.id != entry.id:
        raise Refused(Refusal("FileGenerationMismatch"))
    return file_node(old).content


def _previous_entry(txn: ReadTxn, command: ListRanges, tree: Tree, entry: Entry) -> Entry | None:
    if command.follows_renames:
        return find_in_snapshot(txn, tree, entry)
    try:
        return find_entry(txn, tree, command.ask.path.components)
    except Refused:
        return None
