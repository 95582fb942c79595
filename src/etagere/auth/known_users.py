"""A cache of verified bearer tokens: clients send the same token with every request.

An entry says who the user is in one account and service. The token is known by its digest, so that
the process does not keep tokens. An entry is valid for the set of keys that verified it; the times
of the token are checked for each request.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from etagere.auth.bearer import Claims
from etagere.auth.key_set import KeySet
from etagere.auth.principal import User

UserKey = tuple[bytes, str, str, bool]
"""The digest of a token, the service, the account, and whether the request is for backup."""


class KnownUser(NamedTuple):
    """The bearer of a verified token."""

    times: Claims
    """The claims about times; the others, which may be long, are not kept."""
    user: User


def digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


class KnownUsers:
    """A cache of bounded size; the oldest entry is evicted first."""

    def __init__(self, count_max: int = 1_024) -> None:
        self._count_max = count_max
        self._kept: dict[UserKey, tuple[KeySet | None, KnownUser]] = {}

    def find(self, key: UserKey, keys: KeySet | None) -> KnownUser | None:
        """Returns the user of a token, or None if these keys have not verified it."""
        kept = self._kept.get(key)
        return kept[1] if kept is not None and kept[0] is keys else None

    def add(self, key: UserKey, keys: KeySet | None, user: KnownUser) -> None:
        if len(self._kept) >= self._count_max and key not in self._kept:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = keys, user
