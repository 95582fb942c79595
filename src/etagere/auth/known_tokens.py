"""A cache of verified tokens: clients send the same token with every request.

An entry says that the signature is valid and what the token grants. The time and the address of
the client are checked for each request, and so are the user delegation key that a token was signed
with, the rights of its user, and the bearer token that it may require. A token is cached only if
its verification depended on nothing else but the cache key: the account with its keys, the whole
query and, unless it is an account token, the container or share. So tokens that name a stored
policy, one blob or file, or headers and parameters of the request are not cached.
"""

from __future__ import annotations

from typing import NamedTuple

from etagere.auth.principal import TokenHolder, TokenKind
from etagere.auth.request import RestRequest
from etagere.auth.sas import Effective, Sas
from etagere.auth.shared_key import AccountKey

_QUERY_CHARACTERS_MAX = 2_048


class KnownToken(NamedTuple):
    """A token with a valid signature, and what it grants."""

    sas: Sas
    granted: Effective
    holder: TokenHolder
    delegation_key: AccountKey | None = None
    """The user delegation key that verified it; None for other tokens."""


class KnownTokens:
    """A cache of bounded size; the oldest entry is evicted first."""

    def __init__(self, count_max: int = 1_024) -> None:
        self._count_max = count_max
        self._kept: dict[tuple[str, ...], tuple[tuple[AccountKey, ...], KnownToken]] = {}

    def find(self, request: RestRequest, keys: tuple[AccountKey, ...]) -> KnownToken | None:
        """Returns the token of a request, or None if these keys have not verified it."""
        # As `_account_token_key`, without the call.
        kept = self._kept.get((request.service, request.account, request.query))
        if kept is None:
            kept = self._kept.get(_container_token_key(request))
        return kept[1] if kept is not None and kept[0] == keys else None

    def add(self, request: RestRequest, keys: tuple[AccountKey, ...], token: KnownToken) -> None:
        if len(request.query) > _QUERY_CHARACTERS_MAX or not _is_cacheable(token.sas):
            return
        # What an account token grants does not depend on the container of the request.
        key_of = _account_token_key if token.sas.kind is TokenKind.ACCOUNT else _container_token_key
        key = key_of(request)
        if len(self._kept) >= self._count_max and key not in self._kept:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = keys, token


def _account_token_key(request: RestRequest) -> tuple[str, ...]:
    return request.service, request.account, request.query


def _container_token_key(request: RestRequest) -> tuple[str, ...]:
    return request.service, request.account, request.query, request.resource[0]


def _is_cacheable(sas: Sas) -> bool:
    if sas.policy_id or not sas.values.keys().isdisjoint(("srh", "srq")):
        return False
    return sas.kind is TokenKind.ACCOUNT or sas.resource in {"c", "s"}
