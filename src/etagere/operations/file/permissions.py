"""Security descriptors, which the entries of a share refer to by number.

A share keeps every descriptor once, until the share is purged. What new entries inherit from a
directory depends only on its descriptor, so it is determined once per descriptor and kept.
"""

from __future__ import annotations

import hashlib

from etagere.engine.interface import EXCLUSIVE, SHARED, ReadTxn, Refused, WriteTxn, operation
from etagere.errors import Refusal
from etagere.model.files import (
    ROOT_ID,
    CreatePermission,
    FilePermission,
    FilePermissionNumber,
    GetPermission,
    InheritedPermission,
    NewPermission,
)
from etagere.operations.file.collections import (
    ENTRIES,
    INHERITED_PERMISSIONS,
    PERMISSION_NUMBERS,
    PERMISSIONS,
)
from etagere.operations.file.shares import find, find_guarded
from etagere.operations.file.tree import Place
from etagere.rules.file_permissions import (
    DEFAULT_DIRECTORY_PERMISSION,
    DEFAULT_PERMISSIONS,
    SYSTEM,
    inherit,
    inherited_default,
)
from etagere.rules.security_descriptors import (
    InvalidDescriptorError,
    decode_descriptor,
    encode_descriptor,
)


@operation
def create_permission(txn: WriteTxn, command: CreatePermission) -> int:
    """Returns the number of a descriptor: that of an equal one, if the share has it."""
    return _store(txn, find_guarded(txn, command.share).id, command.permission)


def copy_permission(txn: WriteTxn, number: int, source_id: bytes, share_id: bytes) -> int:
    """Returns the number that a permission of one share has in another. Both shares are guarded."""
    if source_id == share_id or number in DEFAULT_PERMISSIONS:
        return number
    descriptor = _descriptor(txn, source_id, number)
    new = NewPermission(descriptor, hashlib.sha256(descriptor).digest())
    return _store(txn, share_id, new)


def get_permission(txn: ReadTxn, command: GetPermission) -> bytes:
    """Returns a descriptor in its binary form."""
    return _descriptor(txn, find(txn, command.share).id, command.number)


def number_of(txn: WriteTxn, share_id: bytes, asked: int | NewPermission) -> int:
    """Returns the number of a permission that a request names or contains."""
    if isinstance(asked, NewPermission):
        return _store(txn, share_id, asked)
    _descriptor(txn, share_id, asked)
    return asked


def permission_of_new(
    txn: WriteTxn, place: Place, asked: int | NewPermission | None, *, is_directory: bool
) -> int:
    """Returns the number of the permission of a new entry: what the request asks for, or what the
    entry inherits from its directory."""
    share_id = place.tree.share.id
    if asked is not None:
        return number_of(txn, share_id, asked)
    parent = place.directory_permission
    if parent is None:
        root = txn.get(ENTRIES, place.tree.key(ROOT_ID, ""), SHARED)
        parent = DEFAULT_DIRECTORY_PERMISSION if root is None else root.permission
    default = inherited_default(parent, directory=is_directory)
    return _inherited(txn, share_id, parent, is_directory) if default is None else default


def _inherited(txn: WriteTxn, share_id: bytes, parent: int, is_directory: bool) -> int:
    key = (share_id, parent, int(is_directory))
    # The record never changes, so only its creation needs the guard.
    known = txn.get(INHERITED_PERMISSIONS, key) or txn.get(INHERITED_PERMISSIONS, key, EXCLUSIVE)
    if known is not None:
        return known.number
    from_directory = decode_descriptor(_descriptor(txn, share_id, parent))
    child = inherit(from_directory, SYSTEM, SYSTEM, directory=is_directory)
    try:
        descriptor = encode_descriptor(child)
    except InvalidDescriptorError:
        # Directories get two entries for one with generic rights, which may exceed the limit.
        raise Refused(Refusal("FileInvalidPermission")) from None
    new = NewPermission(descriptor, hashlib.sha256(descriptor).digest())
    number = _store(txn, share_id, new)
    txn.put(INHERITED_PERMISSIONS, key, InheritedPermission(number))
    return number


def _store(txn: WriteTxn, share_id: bytes, new: NewPermission) -> int:
    key = (share_id, new.digest)
    known = txn.get(PERMISSION_NUMBERS, key, EXCLUSIVE)
    if known is not None:
        return known.number
    number = txn.stamp
    txn.put(PERMISSIONS, (share_id, number), FilePermission(new.descriptor))
    txn.put(PERMISSION_NUMBERS, key, FilePermissionNumber(number))
    return number


def _descriptor(txn: ReadTxn | WriteTxn, share_id: bytes, number: int) -> bytes:
    default = DEFAULT_PERMISSIONS.get(number)
    if default is not None:
        return default
    found = txn.get(PERMISSIONS, (share_id, number))
    if found is None:
        raise Refused(Refusal("FileInvalidPermissionKey"))
    return found.descriptor
