"""User delegation keys: their derivation, and the tokens that are signed with them.

A key is not stored. It is derived from the secret of its account and from the fields that every
token repeats, so a token whose fields were changed has another key, and does not match.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from etagere.auth.principal import TokenHolder, User
from etagere.auth.request import octets
from etagere.auth.roles import NO_RIGHT, Right, Rights
from etagere.auth.sas import SERVICE_LETTERS, DelegationKey, Sas, iso_time
from etagere.auth.sas_parsing import VERSION
from etagere.auth.shared_key import AccountKey, failed
from etagere.clock import TICKS_PER_SECOND
from etagere.errors import Refusal
from etagere.model.delegation import ServiceRights
from etagere.rules.dates import format_second
from etagere.rules.delegation import check_user_ids

_LABEL: Final = "user delegation key"
_GUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def key_time(ticks: int) -> str:
    """Formats a time of a key, to the second: SDKs discard fractions."""
    return f"{format_second(ticks // TICKS_PER_SECOND)}Z"


def derive(secret: bytes, key: DelegationKey) -> bytes:
    """Returns the value of a key. No field contains a newline."""
    fields = (
        _LABEL,
        key.object_id,
        key.tenant_id,
        _normalized(key.start),
        _normalized(key.expiry),
        key.service,
        key.version,
        key.delegated_tenant_id,
    )
    return hmac.digest(secret, octets("\n".join(fields)), hashlib.sha256)


def _normalized(written: str) -> str:
    """Returns a time of a key in the form in which it was issued: clients write it in others."""
    ticks = iso_time(written)
    if ticks is None or ticks % TICKS_PER_SECOND:
        return written
    return key_time(ticks)


@lru_cache(maxsize=1_024)
def signing_key(secret: bytes, key: DelegationKey) -> AccountKey:
    """Caches keys with their HMAC states: a client signs many tokens with one key."""
    return AccountKey(derive(secret, key))


def check_key(sas: Sas) -> Refusal | None:
    """Refuses a token whose key is for another service, or that requires a check of access control
    lists, which blobs of a flat namespace do not have."""
    key = sas.key
    if key is None:
        return None
    if key.service != SERVICE_LETTERS[sas.service]:
        return failed("The parameter sks names another service.")
    # Keys are cached, so their fields must not be longer than those of a key that was issued.
    if not VERSION.fullmatch(key.version) or (
        key.delegated_tenant_id and check_user_ids(key.delegated_tenant_id) is not None
    ):
        return failed("The parameters skv and skdutid are not of a user delegation key.")
    if "suoid" in sas.values:
        return failed("The parameter suoid needs a hierarchical namespace.")
    return None


def check_required_user(holder: TokenHolder, user: User | None) -> Refusal | None:
    """Refuses a token that needs the bearer token of another user."""
    if user is None:
        return failed("The token is valid only together with the bearer token of a user.")
    if not (
        _is_same(user.object_id, holder.required_user)
        and _is_same(user.tenant_id, holder.required_tenant)
    ):
        return failed("The bearer token is not of the user that the parameter sduoid names.")
    return None


def _is_same(one: str, other: str) -> bool:
    """Compares two ids. GUIDs have no case, but the subjects of other issuers do."""
    return one == other or (_GUID.fullmatch(one) is not None and one.lower() == other.lower())


# Rights

_NAMED_RIGHTS: Final = {right.name: right for right in Right}


def rights_to_store(rights: Rights) -> tuple[ServiceRights, ...]:
    return tuple(
        ServiceRights(service, tuple(str(right.name) for right in Right if right in granted))
        for service, granted in sorted(rights.items())
        if granted
    )


def stored_rights(stored: Iterable[ServiceRights], service: str) -> Right:
    """Returns the rights of a user in a service."""
    return _parse_rights(next((one.rights for one in stored if one.service == service), ()))


@lru_cache(maxsize=256)
def _parse_rights(names: tuple[str, ...]) -> Right:
    rights = NO_RIGHT
    for name in names:
        rights |= _NAMED_RIGHTS.get(name, NO_RIGHT)
    return rights
