"""Refusals of requests with a bearer token, which the server does not accept yet."""

from __future__ import annotations

from typing import Final

from etagere.auth.shared_key import failed
from etagere.errors import Refusal

CHALLENGED_SINCE: Final = {
    "blob": "2021-12-02",
    "queue": "2021-12-02",
    "file": "2021-12-02",
    "table": "2020-12-06",
}
"""The first version of each service that answers an unusable token with a challenge."""


class BearerChallenge(Refusal, frozen=True):
    """A refusal that asks for another token: 401 with a WWW-Authenticate header."""


def is_bearer(authorization: str) -> bool:
    return authorization.partition(" ")[0].lower() == "bearer"


def refuse_bearer(service: str, version: str) -> Refusal:
    """Returns the refusal of an unusable token, which depends on the service and the version."""
    if version >= CHALLENGED_SINCE[service]:
        return BearerChallenge(
            "InvalidAuthenticationInfo",
            {"AuthenticationErrorDetail": "The access token was missing or malformed."},
            message_override="Server failed to authenticate the request. Please refer to the "
            "information in the www-authenticate header.",
        )
    if service == "table":
        return failed("Bearer tokens are not accepted.")
    return Refusal("InvalidAuthenticationInfo")
