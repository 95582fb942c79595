"""The bytes of files: ranges that are written, cleared, read and listed."""

from __future__ import annotations

from etagere.bodies import intervals
from etagere.engine.interface import Refused, WriteTxn, operation
from etagere.errors import Refusal
from etagere.model.bodies import Mapped
from etagere.model.files import ClearRange, Entry, PutRange
from etagere.operations.file.entries import changed_content, content_map, find_changeable_file
from etagere.operations.file.tree import guard_place, put_entry


@operation
def put_range(txn: WriteTxn, command: PutRange) -> Entry:
    """Writes bytes within the length of a file. Whoever writes last wins, whole."""
    place = guard_place(txn, command.path)
    old, node = find_changeable_file(txn, place, command.lease_id)
    if command.start + command.body.length > node.content.length:
        raise Refused(Refusal("InvalidRange", {"ContentLength": node.content.length}))
    write = intervals.write_shared if command.borrowed else intervals.write
    content = content_map(txn, node, command.child_id)
    content = write(txn, content, command.start, command.body.pieces, command.child_id)
    changed = changed_content(txn, old, node, content, preserve_written=command.preserve_written)
    return put_entry(txn, place, changed)


@operation(reclaims=True)
def clear_range(txn: WriteTxn, command: ClearRange) -> Entry:
    """Replaces bytes by zeros, which take no space."""
    place = guard_place(txn, command.path)
    old, node = find_changeable_file(txn, place, command.lease_id)
    if command.end > node.content.length:
        raise Refused(Refusal("InvalidRange", {"ContentLength": node.content.length}))
    content = node.content
    if isinstance(content, Mapped):
        content = intervals.clear(txn, content, command.start, command.end, command.child_id)
    changed = changed_content(txn, old, node, content, preserve_written=command.preserve_written)
    return put_entry(txn, place, changed)
