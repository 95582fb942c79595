"""Symbolic and hard links, which NFS shares have.

Symbolic links are not followed: their text is stored for clients, which resolve it. A hard link is
another name of a file. The file gets a record of its own with its second link.
"""

from __future__ import annotations

from msgspec.structs import replace

from etagere.engine.interface import ReadTxn, Refused, WriteTxn, abort_if, operation
from etagere.errors import Refusal
from etagere.model.files import (
    CreateHardLink,
    CreateSymbolicLink,
    Entry,
    GetEntry,
    SymbolicLinkNode,
)
from etagere.model.shares import ShareProtocol
from etagere.operations.file.changes import (
    changed,
    check_lease,
    check_no_pending_copy,
    file_node,
    new_entry,
)
from etagere.operations.file.entries import get_file_or_directory
from etagere.operations.file.tree import (
    Place,
    Tree,
    find_tree,
    guard_entry,
    guard_path,
    guard_place,
    keep_place,
    keep_state,
    put_entry,
    put_link,
)


@operation
def create_symbolic_link(txn: WriteTxn, command: CreateSymbolicLink) -> Entry:
    place = guard_path(txn, command.path)
    _require_nfs(place.tree, "symboliclink")
    _require_free(txn, place)
    if command.lease_id is not None:
        raise Refused(Refusal("LeaseNotPresentWithFileOperation"))
    node = SymbolicLinkNode(command.target)
    return put_entry(txn, place, new_entry(txn, place, txn.stamp, command.new, node))


def get_symbolic_link(txn: ReadTxn, command: GetEntry) -> Entry:
    _require_nfs(find_tree(txn, command.path.ref), "symboliclink")
    entry = get_file_or_directory(txn, command).entry
    if not isinstance(entry.node, SymbolicLinkNode):
        raise Refused(Refusal("ResourceTypeMismatch"))
    return entry


@operation
def create_hard_link(txn: WriteTxn, command: CreateHardLink) -> Entry:
    """Creates a link to a file. The file is changed by it: its link count, change time and ETag.
    Neither directories nor symbolic links can have hard links."""
    place = guard_path(txn, command.path)
    _require_nfs(place.tree, "hardlink")
    target = guard_place(txn, place.tree, command.target)
    _require_free(txn, place)
    file = guard_entry(txn, target)
    if file is None:
        raise Refused(Refusal("ResourceNotFound"))
    node = file_node(file)
    abort_if(check_lease(txn, file, command.lease_id))
    abort_if(check_no_pending_copy(file))
    keep_state(txn, target, file)
    if not node.links:
        keep_place(txn, target, file)
        # The file keeps its name, however the request spells it.
        put_link(txn, target._replace(name=file.name), file.id)
    put_link(txn, place, file.id)
    linked = changed(txn, file, node=replace(node, links=file.link_count + 1))
    linked = replace(linked, name=place.name, parent_id=place.directory_id)
    return put_entry(txn, place, linked)


def _require_nfs(tree: Tree, resource_type: str) -> None:
    if tree.share.settings.protocol is not ShareProtocol.NFS:
        facts: dict[str, str | int] = {
            "QueryParameterName": "restype",
            "QueryParameterValue": resource_type,
        }
        raise Refused(Refusal("UnsupportedQueryParameter", facts))


def _require_free(txn: WriteTxn, place: Place) -> None:
    if guard_entry(txn, place) is not None:
        raise Refused(Refusal("ResourceAlreadyExists"))
