"""Tokens that were verified before: clients send the same one with every request.

What is kept is that a signature was right, and what the token means. Whether it may be used from
here, and now, is asked each time. A token is kept only if nothing that decided about it lies
outside of what it is found by: the account and its keys, the whole query and, if it is not for the
whole account, the container. So those that name a stored policy, one blob, or headers and
parameters of the request are not.
"""

from __future__ import annotations

from typing import NamedTuple

from etagere.auth.principal import Kind, TokenHolder
from etagere.auth.request import RestRequest
from etagere.auth.sas import Effective, Sas
from etagere.auth.shared_key import AccountKey

_QUERY_CHARACTERS_MAX = 2_048


class KnownToken(NamedTuple):
    """A token with a signature that was right, and what it grants."""

    sas: Sas
    granted: Effective
    holder: TokenHolder


class KnownTokens:
    """A bounded number of them; the oldest goes first."""

    def __init__(self, count_max: int = 1_024) -> None:
        self._count_max = count_max
        self._kept: dict[tuple[str, ...], tuple[tuple[AccountKey, ...], KnownToken]] = {}

    def find(self, request: RestRequest, keys: tuple[AccountKey, ...]) -> KnownToken | None:
        """None if these keys have not verified it, be it that they are new."""
        kept = self._kept.get(_anywhere(request)) or self._kept.get(_in_container(request))
        return kept[1] if kept is not None and kept[0] == keys else None

    def keep(self, request: RestRequest, keys: tuple[AccountKey, ...], token: KnownToken) -> None:
        if len(request.query) > _QUERY_CHARACTERS_MAX or not _stands_alone(token.sas):
            return
        if len(self._kept) >= self._count_max:
            del self._kept[next(iter(self._kept))]
        # What an account's token is good for does not depend on what a request is about.
        found_by = _anywhere if token.sas.kind is Kind.ACCOUNT else _in_container
        self._kept[found_by(request)] = keys, token


def _anywhere(request: RestRequest) -> tuple[str, ...]:
    return request.service, request.account, request.query


def _in_container(request: RestRequest) -> tuple[str, ...]:
    return request.service, request.account, request.query, request.resource[0]


def _stands_alone(sas: Sas) -> bool:
    if sas.policy_id or not sas.values.keys().isdisjoint(("srh", "srq")):
        return False
    return sas.kind is Kind.ACCOUNT or (sas.kind is Kind.SERVICE and sas.resource == "c")
