"""Users: the rights that the configuration gives to the bearer of a token."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from etagere.auth.bearer import Claims
from etagere.auth.principal import User
from etagere.auth.roles import Rights, rights_of
from etagere.settings.oauth import ANY_VALUE, Role, RoleAssignment

NO_ID: Final = "00000000-0000-0000-0000-000000000000"
"""The object id of a token of development mode, and the tenant of a token, that names none."""
_SECONDS_MAX: Final = 1 << 40


class RoleMap:
    """The roles of users by the values of their claims."""

    def __init__(self, assignments: Iterable[RoleAssignment]) -> None:
        self._assigned = defaultdict[tuple[str, str], list[RoleAssignment]](list)
        for assignment in assignments:
            self._assigned[assignment.claim, assignment.value].append(assignment)

    def rights(self, claims: Claims, account: str) -> Rights | None:
        """Returns the rights of a user in an account; None if nothing is assigned to the user in
        any account."""
        found = [*self._find("", ANY_VALUE)]
        for claim, value in claims.identities():
            for name in ("", claim):
                found += self._find(name, value)
                found += self._find(name, ANY_VALUE) if name else ()
        if not found:
            return None
        return rights_of(_roles_in(account, found))

    def _find(self, claim: str, value: str) -> list[RoleAssignment]:
        return self._assigned.get((claim, value), [])


def _roles_in(account: str, found: Iterable[RoleAssignment]) -> set[Role]:
    return {assigned.role for assigned in found if assigned.account in {"", account}}


def user(
    claims: Claims, account: str, rights: Rights, *, intends_backup: bool, default_id: str = ""
) -> User:
    """`default_id` is the object id of a token that names no user. Users with an empty one get no
    user delegation keys: all of them would share the same keys, and the rights of each other."""
    return User(
        account=account,
        object_id=claims.oid or claims.sub or default_id,
        tenant_id=claims.tid or _tenant_of(claims.iss),
        name=claims.upn or claims.preferred_username or claims.unique_name,
        rights=rights,
        token_issued=_seconds(claims.iat),
        intends_backup=intends_backup,
    )


def _seconds(time: float | None) -> int:
    """Returns a time of a token, which may be any number, as one that can be stored."""
    return 0 if time is None else int(min(max(time, 0), _SECONDS_MAX))


def _tenant_of(issuer: str) -> str:
    """Returns the tenant of users whose tokens name none. Other issuers may have users with the
    same subject."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, issuer)) if issuer else NO_ID
