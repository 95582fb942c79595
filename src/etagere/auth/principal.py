"""The sender of a request, as determined by authentication and used by `permissions`."""

from __future__ import annotations

import enum

import msgspec

from etagere.auth.roles import NO_RIGHT, Right, Rights


class TokenKind(enum.Enum):
    """The kinds of shared access signature."""

    ACCOUNT = "account"
    SERVICE = "service"
    DELEGATION = "delegation"


class KeyOwner(msgspec.Struct, frozen=True):
    """A caller with an account key, who may do anything in the account."""

    account: str


class Anonymous(msgspec.Struct, frozen=True):
    """A caller without credentials."""

    account: str
    account_exists: bool = True


class EntityRange(msgspec.Struct, frozen=True):
    """The entities of a table that a token grants access to, ends included; None is no bound."""

    start_partition: str | None = None
    start_row: str | None = None
    end_partition: str | None = None
    end_row: str | None = None


class TokenHolder(msgspec.Struct, frozen=True, kw_only=True):
    """A caller with a shared access signature.

    `permissions` are letters, merged with the stored policy. An account token has `services` and
    `resource_types`. Other tokens have one `service` and a `resource`, the value of `sr`; `scope`
    is the container, share, queue or (in lower case) table with the path below it, and `timestamp`
    is the snapshot or version, if the token is for only one.
    """

    account: str
    kind: TokenKind
    version: str
    permissions: str
    services: str = ""
    resource_types: str = ""
    service: str = ""
    resource: str = ""
    scope: str = ""
    timestamp: str = ""
    keys: EntityRange | None = None
    # Response headers that the token replaces, by lower-cased name.
    overrides: dict[str, str] = {}
    # Writes must be encrypted with this scope.
    encryption_scope: str = ""
    # The user whose rights limit a user delegation token, and these rights in the service; None:
    # no user limits the token.
    delegating_user: str = ""
    rights: Right | None = None
    # The user whose bearer token is required, and the tenant of that user.
    required_user: str = ""
    required_tenant: str = ""
    # The user who was authorized when the token was created, or whose ACL entries are to be
    # checked.
    authorized_user: str = ""
    unauthorized_user: str = ""
    correlation_id: str = ""

    def may(self, letter: str, right: Right) -> bool:
        """Returns whether both the token and the user who delegated it grant something."""
        return letter in self.permissions and (self.rights is None or right in self.rights)


class User(msgspec.Struct, frozen=True, kw_only=True):
    """A caller with a bearer token."""

    account: str
    """The account of the request, in which the user has these rights."""
    object_id: str
    tenant_id: str
    name: str = ""
    rights: Rights
    token_issued: int = 0
    """When the token was issued, in seconds since 1970; 0 if it does not say so."""
    intends_backup: bool = False
    """Whether the request is for backup: the file service accepts no other from users."""

    def may(self, right: Right, service: str) -> bool:
        return right in self.rights.get(service, NO_RIGHT)


Principal = KeyOwner | TokenHolder | User | Anonymous


def covers(holder: TokenHolder, target: str) -> bool:
    """Returns whether a token covers `target`: the name of a container, optionally with a path
    below it."""
    if holder.kind is TokenKind.ACCOUNT:
        return True
    if holder.service == "table":
        target = target.lower()
    if target == holder.scope:
        return True
    return holder.resource in WHOLE and target.startswith(f"{holder.scope}/")


WHOLE = frozenset({"", "c", "d", "s"})
"""Resources that include everything below them."""
