"""Security descriptors, which the entries of a share refer to by number.

A share keeps every descriptor once, until the share is purged. What new entries inherit from a
directory depends only on its descriptor, so it is determined once per descriptor and kept.
"""

from __future__ import annotations

import hashlib
from typing import Final

from etagere.config import KIB
from etagere.engine.interface import EXCLUSIVE, SHARED, ReadTxn, Refused, WriteTxn, operation
from etagere.errors import Refusal
from etagere.model.files import (
    ROOT_ID,
    CreatePermission,
    FilePermission,
    FilePermissionNumber,
    FilePermissionUsage,
    FindInherited,
    GetPermission,
    InheritedPermission,
    KeepInherited,
    NewPermission,
)
from etagere.model.shares import ShareName
from etagere.operations.file.collections import (
    ENTRIES,
    INHERITED_PERMISSIONS,
    PERMISSION_NUMBERS,
    PERMISSION_USAGE,
    PERMISSIONS,
)
from etagere.operations.file.shares import find, find_guarded
from etagere.operations.file.tree import Place
from etagere.rules.file_permissions import (
    DEFAULT_DIRECTORY_PERMISSION,
    DEFAULT_PERMISSIONS,
    PERMISSIONS_BYTES_MAX,
    SYSTEM,
    inherit,
    inherited_default,
    stored_length,
)
from etagere.rules.security_descriptors import (
    InvalidDescriptorError,
    decode_descriptor,
    encode_descriptor,
)

_INHERITED_AT_ONCE_BYTES_MAX: Final = 4 * KIB
"""What is inherited from longer descriptors is determined outside of write transactions, because
other writes would have to wait."""
_PARENT: Final = "InheritedFrom"
_IS_DIRECTORY: Final = "IsDirectory"


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
    descriptor = _descriptor(txn, share_id, parent)
    if len(descriptor) > _INHERITED_AT_ONCE_BYTES_MAX:
        raise Refused(Refusal("ServerBusy", {_PARENT: parent, _IS_DIRECTORY: int(is_directory)}))
    return _store_inherited(txn, key, _inherit(descriptor, is_directory))


def _inherit(descriptor: bytes, is_directory: bool) -> NewPermission:
    """Returns what new entries inherit from a directory with a descriptor. This takes 10 to 20 ms
    for the longest ones."""
    child = inherit(decode_descriptor(descriptor), SYSTEM, SYSTEM, directory=is_directory)
    try:
        inherited = encode_descriptor(child)
    except InvalidDescriptorError:
        # Directories get two entries for one with generic rights, which may exceed the limit.
        raise Refused(Refusal("FileInvalidPermission")) from None
    return NewPermission(inherited, hashlib.sha256(inherited).digest())


def _store_inherited(txn: WriteTxn, key: tuple[bytes, int, int], new: NewPermission) -> int:
    number = _store(txn, key[0], new)
    txn.put(INHERITED_PERMISSIONS, key, InheritedPermission(number))
    return number


# What is inherited from long descriptors


def unknown_inheritance(refused: Refused, share: ShareName) -> FindInherited | None:
    """Returns what has to be found and kept before the operation can run, if it was refused because
    it would take long to determine what the new entry inherits."""
    facts = refused.refusal.facts
    if refused.refusal.code != "ServerBusy" or _PARENT not in facts:
        return None
    return FindInherited(share, int(facts[_PARENT]), bool(facts[_IS_DIRECTORY]))


def find_inherited(txn: ReadTxn, command: FindInherited) -> KeepInherited:
    """Determines what new entries inherit from a permission, which never changes."""
    share_id = find(txn, command.share).id
    descriptor = _descriptor(txn, share_id, command.parent)
    return KeepInherited(command, share_id, _inherit(descriptor, command.is_directory))


@operation
def keep_inherited(txn: WriteTxn, command: KeepInherited) -> None:
    found = command.found
    if find_guarded(txn, found.share).id != command.share_id:
        return
    key = (command.share_id, found.parent, int(found.is_directory))
    if txn.get(INHERITED_PERMISSIONS, key, EXCLUSIVE) is None:
        _store_inherited(txn, key, command.inherited)


def _store(txn: WriteTxn, share_id: bytes, new: NewPermission) -> int:
    key = (share_id, new.digest)
    known = txn.get(PERMISSION_NUMBERS, key, EXCLUSIVE)
    if known is not None:
        return known.number
    _count(txn, share_id, stored_length(new.descriptor))
    number = txn.stamp
    txn.put(PERMISSIONS, (share_id, number), FilePermission(new.descriptor))
    txn.put(PERMISSION_NUMBERS, key, FilePermissionNumber(number))
    return number


def _count(txn: WriteTxn, share_id: bytes, added: int) -> None:
    """Counts the bytes of a new permission, and refuses what exceeds the limit."""
    used = txn.get(PERMISSION_USAGE, (share_id,), EXCLUSIVE)
    length = added + (0 if used is None else used.length)
    if length > PERMISSIONS_BYTES_MAX:
        raise Refused(Refusal("ShareSizeLimitReached"))
    txn.put(PERMISSION_USAGE, (share_id,), FilePermissionUsage(length))


def _descriptor(txn: ReadTxn | WriteTxn, share_id: bytes, number: int) -> bytes:
    default = DEFAULT_PERMISSIONS.get(number)
    if default is not None:
        return default
    found = txn.get(PERMISSIONS, (share_id, number))
    if found is None:
        raise Refused(Refusal("FileInvalidPermissionKey"))
    return found.descriptor
