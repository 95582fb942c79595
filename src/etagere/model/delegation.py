"""User delegation: the secret of an account from which the keys of users are derived, and the
users who have such keys."""

from __future__ import annotations

import os
from typing import Final

from etagere.model.base import Command, Part, Record, Result

SECRET_BYTES: Final = 32


def new_secret() -> bytes:
    """Returns a random secret. Like ids, secrets are generated before an operation."""
    return os.urandom(SECRET_BYTES)


class DelegationSecret(Record, frozen=True):
    """The secret of an account. Without it, or with another one, no earlier key is valid."""

    secret: bytes

    def __repr__(self) -> str:
        return "DelegationSecret(…)"


class ServiceRights(Part, frozen=True):
    """The rights of a user in one service, by the names of `auth.roles.Right`."""

    service: str
    rights: tuple[str, ...]


class DelegatingUser(Record, frozen=True):
    """A user with a user delegation key, under (account, tenant, object id)."""

    rights: tuple[ServiceRights, ...]
    """The rights that the user last had. Tokens that were signed with a key of the user grant
    nothing else."""
    expires: int
    """When the last of the keys expires, as a date in ticks."""
    token_issued: int = 0
    """When the token with these rights was issued, in seconds since 1970."""


class ExpiringDelegatingUser(Record, frozen=True):
    """A user whose last key expires, under (expiry, account, tenant, object id)."""


class UserName(Part, frozen=True):
    """The identity of a user of an account."""

    account: str
    tenant_id: str
    object_id: str

    @property
    def key(self) -> tuple[str, str, str]:
        return self.account, self.tenant_id, self.object_id


class IssueDelegationKey(Command, frozen=True):
    """Record that a user gets a key, and return what it is derived from."""

    user: UserName
    rights: tuple[ServiceRights, ...]
    start: int | None
    """The start of the key, as a date in ticks; None: now."""
    expiry: int
    secret: bytes
    """The secret of the account, if it has none yet."""
    token_issued: int = 0

    def __repr__(self) -> str:
        return f"IssueDelegationKey({self.user!r}, {self.start!r}, {self.expiry!r}, …)"


class IssuedKey(Result, frozen=True):
    """What a key is derived from, in addition to its user and service."""

    secret: bytes
    start: int
    expiry: int

    def __repr__(self) -> str:
        return f"IssuedKey(…, {self.start!r}, {self.expiry!r})"


class SetUserRights(Command, frozen=True):
    """Replace the rights of a user, if the user has keys."""

    user: UserName
    rights: tuple[ServiceRights, ...]
    token_issued: int = 0


class RevokeDelegationKeys(Command, frozen=True):
    """Make all user delegation keys of an account invalid."""

    account: str


class Delegation(Result, frozen=True):
    """What the token of a user is verified with: the secret of the account, and the rights of the
    user."""

    secret: bytes
    rights: tuple[ServiceRights, ...]

    def __repr__(self) -> str:
        return f"Delegation(…, {self.rights!r})"
