"""Values of the settings for OAuth: the keys of the issuer and the roles of users."""

from __future__ import annotations

import enum
import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from etagere.settings.values import ACCOUNT_NAME_SYNTAX, PORT_MAX, is_account_name

# URLs


@dataclass(frozen=True)
class KeySetSource:
    """Where the public keys of the issuer come from: a file or a URL; the other is empty."""

    path: Path | None = None
    url: str = ""


# What a URL may contain in a header, where blanks and commas separate values.
_URL: Final = re.compile(r"https?://[!-+\--~]+", re.ASCII | re.IGNORECASE)


def parse_url(text: str) -> str:
    """Returns an absolute URL without user and fragment. Raises ValueError if it is none."""
    parts = urlsplit(text)
    if _URL.fullmatch(text) is None or not parts.hostname or "@" in parts.netloc or parts.fragment:
        raise ValueError("is not an http or https URL")
    if parts.port is not None and not 1 <= parts.port <= PORT_MAX:
        raise ValueError("is not an http or https URL")
    return text


def parse_key_set_source(text: str) -> KeySetSource:
    """Parses a path or a URL. Raises ValueError if it cannot be used."""
    if "://" not in text:
        if not text or "\0" in text:
            raise ValueError("is not a path")
        return KeySetSource(Path(text))
    parts = urlsplit(parse_url(text))
    # Whoever can change the keys on their way can sign tokens.
    if parts.scheme.lower() == "http" and not _is_loopback(parts.hostname or ""):
        raise ValueError("must be an https URL, unless it is on this machine")
    return KeySetSource(url=text)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


# Roles


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


CLAIMS: Final = ("roles", "groups", "scp", "oid", "appid")
"""The claims on which the roles of a user can depend."""
ANY_VALUE: Final = "*"


@dataclass(frozen=True)
class RoleAssignment:
    """A role that callers have whose token contains a value."""

    claim: str
    """The claim that must have the value; "" is any of `CLAIMS`."""
    value: str
    """The value; `*` is any, which every token of the issuer has."""
    role: Role
    account: str = ""
    """The only account in which they have the role; "" is every account."""


def parse_role_assignments(text: str) -> tuple[RoleAssignment, ...]:
    """Parses `[CLAIM:]VALUE=ROLE[@ACCOUNT][,ROLE…]`; raises ValueError if it has another form.

    The value may contain `=` and `:`; roles do not.
    """
    value, separator, roles = text.rpartition("=")
    if not separator:
        raise ValueError("must be VALUE=ROLE or VALUE=ROLE,ROLE")
    return assign_roles(value, roles.split(","))


def assign_roles(value: str, roles: list[str]) -> tuple[RoleAssignment, ...]:
    """Parses `[CLAIM:]VALUE` and `ROLE[@ACCOUNT]`. Raises ValueError if a text has another form."""
    claim, separator, rest = value.strip().partition(":")
    if separator and claim.lower() in CLAIMS:
        claim, value = claim.lower(), rest.strip()
    else:
        claim, value = "", value.strip()
    if not value:
        raise ValueError("has no value of a claim")
    return tuple(_parse_role(claim, value, role) for role in roles)


def _parse_role(claim: str, value: str, text: str) -> RoleAssignment:
    name, separator, account = text.strip().partition("@")
    role = _BY_NAME.get(name.strip().lower())
    if role is None:
        raise ValueError(f"has an unknown role, {name.strip()!r}")
    account = account.strip()
    if separator and not is_account_name(account):
        raise ValueError(f"limits a role to an account whose name is not {ACCOUNT_NAME_SYNTAX}")
    return RoleAssignment(claim, value, role, account)
