"""Roles: the rights of a user in each service.

A right is what a user needs for a kind of operation; `permissions` states the right of each
operation. Roles grant the rights that the roles of the same name grant in Azure. Azure has no data
role for the properties of a service or for shares, and none that owns queues, tables or files; the
owner of a service has all rights in it here.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Final

from etagere.settings.oauth import Role


class Right(enum.Flag):
    """What a user may do in a service."""

    READ = enum.auto()
    """Read and list data and the resources that contain it."""
    PEEK = enum.auto()
    """Read messages without receiving them."""
    ADD = enum.auto()
    """Add messages and entities."""
    WRITE = enum.auto()
    """Create and change data and the resources that contain it."""
    DELETE = enum.auto()
    PROCESS = enum.auto()
    """Receive and delete messages."""
    TAGS = enum.auto()
    """Read, set and search tags of blobs."""
    ACCESS_POLICIES = enum.auto()
    """Read and set public access and stored access policies."""
    PROPERTIES = enum.auto()
    """Read and set the properties of the service, and read its statistics and the kind of the
    account."""
    DELEGATE = enum.auto()
    """Get a user delegation key."""
    SHARES = enum.auto()
    """List, create, change and delete shares; not the files in them."""


NO_RIGHT: Final = Right(0)
ALL_RIGHTS: Final = ~NO_RIGHT

Rights = Mapping[str, Right]
"""The rights of a user by service."""

SERVICES: Final = ("blob", "queue", "table", "file")
ALL_RIGHTS_EVERYWHERE: Final[Rights] = dict.fromkeys(SERVICES, ALL_RIGHTS)

_READER: Final = Right.READ | Right.PEEK | Right.DELEGATE
_CONTRIBUTOR: Final = _READER | Right.ADD | Right.WRITE | Right.DELETE | Right.PROCESS

RIGHTS_OF_ROLES: Final[Mapping[Role, Rights]] = {
    Role.OWNER: ALL_RIGHTS_EVERYWHERE,
    Role.BLOB_READER: {"blob": _READER},
    Role.BLOB_CONTRIBUTOR: {"blob": _CONTRIBUTOR},
    Role.BLOB_OWNER: {"blob": ALL_RIGHTS},
    Role.BLOB_DELEGATOR: {"blob": Right.DELEGATE},
    Role.QUEUE_READER: {"queue": _READER},
    Role.QUEUE_CONTRIBUTOR: {"queue": _CONTRIBUTOR},
    Role.QUEUE_OWNER: {"queue": ALL_RIGHTS},
    Role.QUEUE_MESSAGE_SENDER: {"queue": Right.ADD},
    Role.QUEUE_MESSAGE_PROCESSOR: {"queue": Right.PEEK | Right.PROCESS},
    Role.QUEUE_DELEGATOR: {"queue": Right.DELEGATE},
    Role.TABLE_READER: {"table": _READER},
    Role.TABLE_CONTRIBUTOR: {"table": _CONTRIBUTOR},
    Role.TABLE_OWNER: {"table": ALL_RIGHTS},
    Role.TABLE_DELEGATOR: {"table": Right.DELEGATE},
    Role.FILE_READER: {"file": _READER},
    Role.FILE_CONTRIBUTOR: {"file": _CONTRIBUTOR},
    Role.FILE_OWNER: {"file": ALL_RIGHTS},
    Role.FILE_DELEGATOR: {"file": Right.DELEGATE},
}


def rights_of(roles: Iterable[Role]) -> Rights:
    """Returns the rights that several roles grant together."""
    rights: dict[str, Right] = {}
    for role in roles:
        for service, granted in RIGHTS_OF_ROLES[role].items():
            rights[service] = rights.get(service, NO_RIGHT) | granted
    return rights
