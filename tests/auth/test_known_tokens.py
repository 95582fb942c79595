"""What is remembered of tokens, and for which requests it counts."""

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
    """What can be remembered of a request, as if its signature were right."""
    token = parse(request)
    if isinstance(token, Refusal):
        return None
    granted = effective(token, None)
    if isinstance(granted, Refusal):
        return None
    return KnownToken(token, granted, principal(token, granted))


def other_place(vector: dict[str, Any], container: str) -> RestRequest:
    """The same token, for something else."""
    return built(vector, parameters_of(vector), name=f"{container}/else")


@pytest.mark.parametrize("vector", TOKENS, ids=lambda vector: vector["token"][:40])
@pytest.mark.parametrize("container", ["elsewhere", "*", "box"])
def test_only_tokens_of_an_account_are_good_elsewhere(
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


def test_a_container_may_be_called_anything() -> None:
    """A token for one with an odd name is not taken for an account's."""
    vector = next(v for v in TOKENS if "sr=c" in v["token"] and "si=" not in v["token"])
    odd = built(vector, parameters_of(vector), name="*")
    token = known(built(vector))
    assert token is not None
    tokens = KnownTokens()
    tokens.add(odd, KEYS, token)
    assert tokens.find(odd, KEYS) is not None
    assert tokens.find(built(vector, parameters_of(vector), name="box"), KEYS) is None


def test_other_keys_have_not_verified_it() -> None:
    vector = next(v for v in TOKENS if v["service"] == "account")
    request = built(vector)
    token = known(request)
    assert token is not None
    tokens = KnownTokens()
    tokens.add(request, KEYS, token)
    assert tokens.find(request, KEYS) is token
    assert tokens.find(request, (AccountKey(b"other" * 8),)) is None


def test_so_many_and_no_more() -> None:
    vector = next(v for v in TOKENS if v["service"] == "account")
    request = built(vector)
    token = known(request)
    assert token is not None
    tokens = KnownTokens(count_max=2)
    for account in ("one", "two", "three"):
        tokens.add(built(vector, account=account), KEYS, token)
    assert tokens.find(built(vector, account="one"), KEYS) is None
    assert tokens.find(built(vector, account="three"), KEYS) is token
