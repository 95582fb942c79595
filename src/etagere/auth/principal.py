"""Who a request comes from: data only, made by the schemes and judged by `permissions`."""

from __future__ import annotations

import enum

import msgspec


class Kind(enum.Enum):
    """The kinds of shared access signature."""

    ACCOUNT = "account"
    SERVICE = "service"
    DELEGATION = "delegation"


class KeyOwner(msgspec.Struct, frozen=True):
    """Someone who holds a key of the account, and so may do anything in it."""

    account: str


class Anonymous(msgspec.Struct, frozen=True):
    """Nobody in particular."""

    account: str
    account_exists: bool = True


class KeyRange(msgspec.Struct, frozen=True):
    """The entities of a table that a token reaches, both ends included; None is no bound."""

    start_partition: str | None = None
    start_row: str | None = None
    end_partition: str | None = None
    end_row: str | None = None


class TokenHolder(msgspec.Struct, frozen=True, kw_only=True):
    """Someone who holds a shared access signature.

    `permissions` are letters, after the stored policy had its say. An account token names
    `services` and `resource_types`; the others name one `service` and a `resource` of it:
    the letters of `sr`, with `scope` the container, share, queue or (in lower case) table and
    what lies below, and `timestamp` the snapshot or version where the token reaches only one.
    """

    account: str
    kind: Kind
    version: str
    permissions: str
    services: str = ""
    resource_types: str = ""
    service: str = ""
    resource: str = ""
    scope: str = ""
    timestamp: str = ""
    keys: KeyRange | None = None
    # Response headers that the token replaces, by lower-cased name.
    overrides: dict[str, str] = {}
    # What is written must be encrypted with this scope.
    encryption_scope: str = ""
    # Whose rights bound a user delegation token, and who has to show a bearer token with it.
    delegating_user: str = ""
    required_user: str = ""
    # Who was authorized before the token was made, or is to be checked against the ACLs.
    authorized_user: str = ""
    unauthorized_user: str = ""
    correlation_id: str = ""


Principal = KeyOwner | TokenHolder | Anonymous


def covers(holder: TokenHolder, target: str) -> bool:
    """Whether a token reaches `target`: a container's name, or that and a path below it."""
    if holder.kind is Kind.ACCOUNT:
        return True
    if holder.service == "table":
        target = target.lower()
    if target == holder.scope:
        return True
    return holder.resource in WHOLE and target.startswith(f"{holder.scope}/")


WHOLE = frozenset({"", "c", "d", "s"})
"""Resources that reach all that lies below them."""
