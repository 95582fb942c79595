"""Values of the settings for OAuth: the roles of users."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from etagere.settings.values import ACCOUNT_NAME_SYNTAX, is_account_name


class Role(enum.Enum):
    """A role that the configuration gives to users. The rights of each are in `auth.roles`."""

    OWNER = "owner"
    BLOB_READER = "blob-reader"
    BLOB_CONTRIBUTOR = "blob-contributor"
    BLOB_OWNER = "blob-owner"
    BLOB_DELEGATOR = "blob-delegator"
    QUEUE_READER = "queue-reader"
    QUEUE_CONTRIBUTOR = "queue-contributor"
    QUEUE_OWNER = "queue-owner"
    QUEUE_MESSAGE_SENDER = "queue-message-sender"
    QUEUE_MESSAGE_PROCESSOR = "queue-message-processor"
    QUEUE_DELEGATOR = "queue-delegator"
    TABLE_READER = "table-reader"
    TABLE_CONTRIBUTOR = "table-contributor"
    TABLE_OWNER = "table-owner"
    TABLE_DELEGATOR = "table-delegator"
    FILE_READER = "file-reader"
    FILE_CONTRIBUTOR = "file-contributor"
    FILE_OWNER = "file-owner"
    FILE_DELEGATOR = "file-delegator"


AZURE_NAMES: Final = {
    Role.BLOB_READER: "Storage Blob Data Reader",
    Role.BLOB_CONTRIBUTOR: "Storage Blob Data Contributor",
    Role.BLOB_OWNER: "Storage Blob Data Owner",
    Role.BLOB_DELEGATOR: "Storage Blob Delegator",
    Role.QUEUE_READER: "Storage Queue Data Reader",
    Role.QUEUE_CONTRIBUTOR: "Storage Queue Data Contributor",
    Role.QUEUE_MESSAGE_SENDER: "Storage Queue Data Message Sender",
    Role.QUEUE_MESSAGE_PROCESSOR: "Storage Queue Data Message Processor",
    Role.QUEUE_DELEGATOR: "Storage Queue Delegator",
    Role.TABLE_READER: "Storage Table Data Reader",
    Role.TABLE_CONTRIBUTOR: "Storage Table Data Contributor",
    Role.TABLE_DELEGATOR: "Storage Table Delegator",
    Role.FILE_READER: "Storage File Data Privileged Reader",
    Role.FILE_CONTRIBUTOR: "Storage File Data Privileged Contributor",
    Role.FILE_DELEGATOR: "Storage File Delegator",
}
"""The names of the roles that Azure has, too; the configuration accepts both names."""

_BY_NAME: Final = {role.value: role for role in Role} | {
    name.lower(): role for role, name in AZURE_NAMES.items()
}


@dataclass(frozen=True)
class RoleAssignment:
    """A role that callers have whose token contains a value."""

    value: str
    """A value of one of the claims that identify users, as in `auth.roles`."""
    role: Role
    account: str = ""
    """The only account in which they have the role; "" is every account."""


def parse_role_assignments(text: str) -> tuple[RoleAssignment, ...]:
    """Parses `VALUE=ROLE[@ACCOUNT][,ROLE…]`. Raises ValueError if the text has another form.

    The value may contain `=`; roles do not.
    """
    value, separator, roles = text.rpartition("=")
    value = value.strip()
    if not separator or not value:
        raise ValueError("must be VALUE=ROLE or VALUE=ROLE,ROLE")
    return tuple(_parse_role(value, role) for role in roles.split(","))


def _parse_role(value: str, text: str) -> RoleAssignment:
    name, separator, account = text.strip().partition("@")
    role = _BY_NAME.get(name.strip().lower())
    if role is None:
        raise ValueError(f"has an unknown role, {name.strip()!r}")
    account = account.strip()
    if separator and not is_account_name(account):
        raise ValueError(f"limits a role to an account whose name is not {ACCOUNT_NAME_SYNTAX}")
    return RoleAssignment(value, role, account)
