"""Bearer tokens, which are not accepted yet: how a request that carries one is refused."""

from __future__ import annotations

from typing import Final

from etagere.auth.shared_key import failed
from etagere.errors import Refusal

CHALLENGED_SINCE: Final = {"blob": "2021-12-02", "queue": "2021-12-02", "table": "2020-12-06"}
"""The version of each service from which on it answers an unusable token with a challenge."""


class Challenge(Refusal, frozen=True):
    """A refusal that asks for another token: 401 with a WWW-Authenticate header."""


def is_bearer(authorization: str) -> bool:
    return authorization.partition(" ")[0].lower() == "bearer"


def refuse_bearer(service: str, version: str) -> Refusal:
    """The refusal of a token that cannot be used, as each service words it in a version."""
    if version >= CHALLENGED_SINCE[service]:
        return Challenge(
            "InvalidAuthenticationInfo",
            {"AuthenticationErrorDetail": "The access token was missing or malformed."},
            said="Server failed to authenticate the request. Please refer to the information in "
            "the www-authenticate header.",
        )
    if service == "table":
        return failed("Bearer tokens are not accepted.")
    return Refusal("InvalidAuthenticationInfo")
