"""The cache of verified tokens: which requests a cached token is valid for."""

from __future__ import annotations

from typing import Any

import pytest

from etagere.auth.known_tokens import KnownToken, KnownTokens
from etagere.auth.principal import TokenKind
from etagere.auth.request import RestRequest
from etagere.auth.sas import effective, principal
from etagere.auth.sas_parsing import parse
from etagere.auth.shared_key import AccountKey
from etagere.errors import Refusal
from tests.auth.samples import KEY
from tests.auth.sas_samples import TOKENS, built, parameters_of

KEYS = (KEY,)


def known(request: RestRequest) -> KnownToken | None:
    """Returns the cache entry of a request, as if its signature were right."""
    token = parse(request)
    if isinstance(token, Refusal):
        return None
    granted = effective(token, None)
    if isinstance(granted, Refusal):
        return None
    return KnownToken(token, granted, principal(token, granted))


def other_place(vector: dict[str, Any], container: str) -> RestRequest:
    """Returns a request with the same token for another resource."""
    return built(vector, parameters_of(vector), name=f"{container}/else")


@pytest.mark.parametrize("vector", TOKENS, ids=lambda vector: vector["token"][:40])
@pytest.mark.parametrize("container", ["elsewhere", "*", "box"])
def test_only_account_tokens_are_valid_for_other_resources(
    vector: dict[str, Any], container: str
) -> None:
    request = built(vector)
    token = known(request)
    if token is None:
        return
    tokens = KnownTokens()
    tokens.add(request, KEYS, token)
    found = tokens.find(request, KEYS)
    other = other_place(vector, container)
    if other.query != request.query:
        return
    elsewhere = tokens.find(other, KEYS)
    if token.sas.kind is TokenKind.ACCOUNT:
        assert elsewhere == found
    elif other.resource[0] != request.resource[0]:
        assert elsewhere is None


def test_share_tokens_are_cached_and_file_tokens_are_not() -> None:
    for resource, is_cached in (("s", True), ("f", False)):
        vector = next(
            each
            for each in TOKENS
            if each["service"] == "file"
            and f"sr={resource}" in each["token"]
            and "skoid=" not in each["token"]
        )
        request = built(vector)
        token = known(request)
        assert token is not None
        tokens = KnownTokens()
        tokens.add(request, KEYS, token)
        assert (tokens.find(request, KEYS) is not None) is is_cached


def test_container_names_do_not_collide_with_account_scope() -> None:
    """A token for a container with an odd name is not taken for an account token."""
    vector = next(v for v in TOKENS if "sr=c" in v["token"] and "si=" not in v["token"])
    odd = built(vector, parameters_of(vector), name="*")
    token = known(built(vector))
    assert token is not None
    tokens = KnownTokens()
    tokens.add(odd, KEYS, token)
    assert tokens.find(odd, KEYS) is not None
    assert tokens.find(built(vector, parameters_of(vector), name="box"), KEYS) is None


def test_a_token_is_verified_again_with_another_key() -> None:
    vector = next(v for v in TOKENS if v["service"] == "account")
    request = built(vector)
    token = known(request)
    assert token is not None
    tokens = KnownTokens()
    tokens.add(request, KEYS, token)
    assert tokens.find(request, KEYS) is token
    assert tokens.find(request, (AccountKey(b"other" * 8),)) is None


def test_the_cache_is_bounded() -> None:
    vector = next(v for v in TOKENS if v["service"] == "account")
    request = built(vector)
    token = known(request)
    assert token is not None
    tokens = KnownTokens(count_max=2)
    for account in ("one", "two", "three"):
        tokens.add(built(vector, account=account), KEYS, token)
    assert tokens.find(built(vector, account="one"), KEYS) is None
    assert tokens.find(built(vector, account="three"), KEYS) is token
