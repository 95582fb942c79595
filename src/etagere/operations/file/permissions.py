"""Security descriptors, which the entries of a share refer to by number.

A share keeps every descriptor once, until the share is purged.
"""

from __future__ import annotations

from etagere.engine.interface import EXCLUSIVE, ReadTxn, Refused, WriteTxn, operation
from etagere.errors import Refusal
from etagere.model.files import (
    CreatePermission,
    FilePermission,
    FilePermissionNumber,
    GetPermission,
)
from etagere.operations.file.collections import PERMISSION_NUMBERS, PERMISSIONS
from etagere.operations.file.shares import find, find_guarded


@operation
def create_permission(txn: WriteTxn, command: CreatePermission) -> int:
    """Returns the number of a descriptor: that of an equal one, if the share has it."""
    share_id = find_guarded(txn, command.share).id
    key = (share_id, command.digest)
    known = txn.get(PERMISSION_NUMBERS, key, EXCLUSIVE)
    if known is not None:
        return known.number
    number = txn.stamp
    txn.put(PERMISSIONS, (share_id, number), FilePermission(command.descriptor))
    txn.put(PERMISSION_NUMBERS, key, FilePermissionNumber(number))
    return number


def get_permission(txn: ReadTxn, command: GetPermission) -> bytes:
    """Returns a descriptor in its binary form."""
    found = txn.get(PERMISSIONS, (find(txn, command.share).id, command.number))
    if found is None:
        raise Refused(Refusal("FileInvalidPermissionKey"))
    return found.descriptor
