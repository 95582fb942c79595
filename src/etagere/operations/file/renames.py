"""Renaming and moving directories and files."""

from __future__ import annotations

from msgspec.structs import replace

from etagere.engine.interface import Refused, WriteTxn, abort_if, operation
from etagere.errors import Refusal
from etagere.model.files import Entry, FileNode, Node, RenameEntry
from etagere.operations.file.changes import (
    REPLACE_REFUSED,
    after_write,
    changed,
    check_kind,
    check_lease,
    check_no_pending_copy,
    check_read_only_file,
    new_attributes,
    new_permission,
    remove,
    require_not_root,
)
from etagere.operations.file.tree import (
    Place,
    guard_entry,
    guard_place,
    guard_tree,
    keep_link,
    keep_place,
    keep_state,
    put_entry,
    put_link,
    remove_entry,
)


@operation(reclaims=True)
def rename_entry(txn: WriteTxn, command: RenameEntry) -> Entry:
    """Moves an entry. Creation and write time stay, unless the request sets them."""
    source, destination = _guard_places(txn, command)
    old = _find_source(txn, source, destination, command)
    if source.key != destination.key and _clear_destination(txn, destination, command) == old.id:
        # The destination was another link to the same file, which has changed.
        old = _find_source(txn, source, destination, command)
    keep_state(txn, source, old)
    entry = changed(
        txn,
        after_write(txn, old),
        times=command.times,
        name=destination.name,
        parent_id=destination.directory_id,
        attributes=new_attributes(old, command.attributes),
        permission=new_permission(txn, destination, old, command.permission),
        metadata=old.metadata if command.metadata is None else command.metadata,
    )
    entry = replace(entry, node=_with_type(entry.node, command.content_type))
    _move_record(txn, source, destination, entry)
    return put_entry(txn, destination, entry)


def _move_record(txn: WriteTxn, source: Place, destination: Place, entry: Entry) -> None:
    """Removes a record from its old place, or moves a link to a file whose record stays."""
    is_file = isinstance(entry.node, FileNode)
    is_link = isinstance(entry.node, FileNode) and entry.node.links > 0
    if is_link:
        keep_link(txn, source)
    if source.key != destination.key:
        if is_file and not is_link:
            keep_place(txn, source, entry)
        remove_entry(txn, source)
    if is_link:
        put_link(txn, destination, entry.id)


def _find_source(txn: WriteTxn, source: Place, destination: Place, command: RenameEntry) -> Entry:
    """Returns the guarded entry to be moved, if this request may move it."""
    old = guard_entry(txn, source)
    if old is None:
        raise Refused(Refusal("ResourceNotFound"))
    check_kind(old, command.is_directory)
    if old.is_directory and old.id in destination.directory_ids:
        raise Refused(Refusal("InvalidInput"))
    abort_if(check_lease(txn, old, command.source_lease_id))
    abort_if(check_no_pending_copy(old))
    return old


def _with_type(node: Node, content_type: str | None) -> Node:
    if content_type is None or not isinstance(node, FileNode):
        return node
    return replace(node, headers=replace(node.headers, content_type=content_type))


def _guard_places(txn: WriteTxn, command: RenameEntry) -> tuple[Place, Place]:
    """Resolves both paths. Their directories are guarded, so that neither path changes: two moves
    at once cannot each move a directory below the other."""
    require_not_root(command.source)
    require_not_root(command.destination)
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


def _clear_destination(txn: WriteTxn, destination: Place, command: RenameEntry) -> int | None:
    """Deletes the file at the destination, if it may be replaced. Returns its id."""
    target = guard_entry(txn, destination)
    if target is None:
        if command.destination_lease_id is not None:
            raise Refused(Refusal("LeaseNotPresentWithFileOperation"))
        return None
    if not command.replace or target.is_directory:
        raise Refused(Refusal("ResourceAlreadyExists"))
    if command.only_if_absent:
        raise Refused(REPLACE_REFUSED)
    abort_if(check_lease(txn, target, command.destination_lease_id))
    if not command.ignore_read_only:
        abort_if(check_read_only_file(target))
    abort_if(check_no_pending_copy(target))
    keep_state(txn, destination, target)
    remove(txn, destination, target)
    return target.id
