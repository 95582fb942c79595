"""The permissions of all operations, by service and operation of the catalogue."""

from __future__ import annotations

from typing import Final

from etagere.auth.permissions import Permission
from etagere.protocol.blob import operations as blob
from etagere.protocol.file import operations as file
from etagere.protocol.queue import operations as queue
from etagere.protocol.table import operations as table

PERMISSIONS: Final[dict[str, Permission]] = {
    f"{service}.{name}": permission
    for service, operations in (
        ("blob", blob.OPERATIONS),
        ("queue", queue.OPERATIONS),
        ("table", table.OPERATIONS),
        ("file", file.OPERATIONS),
    )
    for operation in operations
    for name, permission in operation.permissions.items()
}
