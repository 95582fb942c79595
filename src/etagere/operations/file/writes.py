"""The bytes of open files: storing gathered writes, and reading.

Access was checked when the file was opened. What was acknowledged since then is stored whatever has
become of its attributes and of the quota.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from etagere.bodies import intervals
from etagere.bodies.plans import Plan, locate, try_locate
from etagere.engine.interface import SHARED, ReadTxn, Refused, WriteTxn, operation
from etagere.errors import Refusal
from etagere.model.bodies import Mapped
from etagere.model.files import PRESERVE_TIME, ChangedTimes, FileNode
from etagere.model.open_files import ListAllocated, OpenFileRef, ReadOpenFile, StoreWrites
from etagere.model.shares import ShareName
from etagere.operations.file.changes import after_write, changed, content_map
from etagere.operations.file.collections import SHARES
from etagere.operations.file.shares import change_usage, get_snapshot, usage
from etagere.operations.file.tree import (
    Place,
    Tree,
    get_entry,
    guard_entry,
    keep_state,
    put_entry,
)
from etagere.rules.file_copies import check_not_pending, is_pending

# Storing


@operation
def store_writes(txn: WriteTxn, command: StoreWrites) -> bool:
    """Applies gathered writes. Returns False if the file is gone, or is being replaced by a copy:
    nothing is left that they could apply to."""
    return _store(txn, command)


@operation(reclaims=True)
def store_clears(txn: WriteTxn, command: StoreWrites) -> bool:
    """Applies writes without any bytes: ranges that were cleared, and the length."""
    return _store(txn, command)


def _store(txn: WriteTxn, command: StoreWrites) -> bool:
    ref = command.file
    found = txn.get(SHARES, ref.share.key, SHARED)
    if found is None or found.id != ref.share_id:
        return False
    place = Place(Tree(found), (ref.directory_id,), ref.name)
    old = guard_entry(txn, place)
    if old is None or old.id != ref.id or not isinstance(old.node, FileNode):
        return False
    if is_pending(old.node):
        return False
    keep_state(txn, place, old)
    old = after_write(txn, old)
    assert isinstance(old.node, FileNode)
    node, length = old.node, old.node.content.length
    content = content_map(txn, node, command.map_id)
    for one in command.ranges:
        if one.pieces:
            content = intervals.write(txn, content, one.start, one.pieces, command.map_id)
        else:
            content = intervals.clear(txn, content, one.start, one.end, command.map_id)
    if command.length is not None:
        content = intervals.resize(txn, content, command.length, command.map_id)
        node = replace(node, copied=None)
    change_usage(txn, found, old.id, content.length - length, enforce=False)
    written = PRESERVE_TIME if command.written is None else command.written
    times = ChangedTimes(written=written, changed=command.changed)
    stored = changed(txn, old, times=times, node=replace(node, content=content))
    put_entry(txn, place, stored)
    return True


# Reading


def _find(txn: ReadTxn, ref: OpenFileRef) -> FileNode:
    found = txn.get(SHARES, ref.share.key)
    if found is None or found.id != ref.share_id:
        raise Refused(Refusal("ShareNotFound"))
    generation = None
    if ref.snapshot is not None:
        generation = get_snapshot(txn, found.id, ref.snapshot).generation
    entry = get_entry(txn, Tree(found, generation), ref.directory_id, ref.name)
    if entry is None or entry.id != ref.id:
        raise Refused(Refusal("ResourceNotFound"))
    if not isinstance(entry.node, FileNode):
        raise Refused(Refusal("ResourceTypeMismatch"))
    return entry.node


def find_writable_length(txn: ReadTxn, ref: OpenFileRef) -> int:
    """Returns the length of a file that is about to be written. It must not be the destination of a
    copy, which replaces everything."""
    node = _find(txn, ref)
    refusal = check_not_pending(node)
    if refusal is not None:
        raise Refused(refusal)
    return node.content.length


class LocatedBytes(NamedTuple):
    """Where bytes of a file are, from one snapshot of the ledger."""

    plan: Plan
    length: int
    """The number of bytes, less than requested at the end of the file."""


def locate_bytes(txn: ReadTxn, command: ReadOpenFile) -> LocatedBytes | None:
    """Locates bytes of a file. The caller must have opened a reader before."""
    content = _find(txn, command.file).content
    length = max(0, min(command.length, content.length - command.start))
    find = try_locate if command.brief else locate
    plan = find(txn, content, command.start, length) if length else b""
    return None if plan is None else LocatedBytes(plan, length)


def list_allocated(txn: ReadTxn, command: ListAllocated) -> list[tuple[int, int]]:
    """Returns the written ranges in order; one more than the limit means that there are more."""
    content = _find(txn, command.file).content
    end = min(command.end, content.length)
    if command.start >= end or not isinstance(content, Mapped):
        return []
    return intervals.ranges(txn, content, command.start, end, command.limit)


# The quota


def quota_left(txn: ReadTxn, share: tuple[ShareName, bytes]) -> int:
    """Returns how many bytes the quota of a share leaves, which is known by its name and its ID."""
    name, share_id = share
    found = txn.get(SHARES, name.key)
    if found is None or found.id != share_id:
        raise Refused(Refusal("ShareNotFound"))
    return (found.settings.quota_gib << 30) - usage(txn, found.id)
