"""Refusals of bearer tokens, and the challenge that asks for another token."""

from __future__ import annotations

import enum
from typing import Final

from etagere.auth.shared_key import failed
from etagere.errors import Refusal

SCHEME: Final = "bearer"
CHALLENGED_SINCE: Final = {
    "blob": "2019-12-12",
    "queue": "2019-12-12",
    "file": "2024-11-04",
    "table": "2020-12-06",
}
"""The first version of each service that answers an unusable token with a challenge."""
ACCEPTED_SINCE: Final = {
    "blob": "2017-11-09",
    "queue": "2017-11-09",
    "file": "2022-11-02",
    "table": "2017-11-09",
}
"""The first version of each service that accepts bearer tokens."""
RESOURCE: Final = "https://storage.azure.com"
"""The resource for which clients request tokens."""
NO_TENANT: Final = "00000000-0000-0000-0000-000000000000"
"""The tenant in the challenge of a server without a directory. The JavaScript SDKs follow only
challenges whose tenant is a GUID."""


class TokenFault(enum.Enum):
    """Why a token cannot be used. The values are shown to the client."""

    MALFORMED = "The access token was missing or malformed."
    ALGORITHM = "Signature validation failed. The algorithm is not accepted for this key."
    UNKNOWN_KEY = "Signature validation failed. The signing key was not found."
    SIGNATURE = "Signature validation failed. The signature does not match."
    ISSUER = "Issuer validation failed. Issuer did not match."
    AUDIENCE = "Audience validation failed. Audience did not match."
    NO_EXPIRATION = "Lifetime validation failed. The token has no expiration time."
    EXPIRED = "Lifetime validation failed. The token is expired."
    NOT_YET_VALID = "Lifetime validation failed. The token is not yet valid."


class BearerChallenge(Refusal, frozen=True):
    """A refusal that asks for another token: 401 with a WWW-Authenticate header."""


def is_bearer(authorization: str) -> bool:
    return authorization.partition(" ")[0].lower() == SCHEME


def bearer_token(authorization: str) -> str:
    return authorization.partition(" ")[2].strip(" ")


def check_authorization(service: str, version: str, authorization: str) -> Refusal | None:
    """Refuses a bearer token in a version that does not have them, and a header that is not made up
    of the scheme and one token. `version` is "" if the request names none."""
    if version < ACCEPTED_SINCE[service]:
        return failed("Authentication scheme Bearer is not supported in this version.")
    # To Table, every unusable token is the same.
    if service != "table" and " " in bearer_token(authorization):
        return Refusal("InvalidAuthenticationInfo")
    return None


def refuse_bearer(service: str, version: str, fault: TokenFault = TokenFault.MALFORMED) -> Refusal:
    """Returns the refusal of an unusable token, which depends on the service and the version."""
    if version >= CHALLENGED_SINCE[service]:
        return BearerChallenge(
            "InvalidAuthenticationInfo",
            {"AuthenticationErrorDetail": fault.value},
            message_override="Server failed to authenticate the request. Please refer to the "
            "information in the www-authenticate header.",
        )
    return failed(fault.value)


def challenge(authority: str) -> str:
    """Returns the value of WWW-Authenticate, in the form that the storage SDKs parse. They take the
    first segment of the path as the tenant."""
    return f"Bearer authorization_uri={authority}/oauth2/authorize resource_id={RESOURCE}"
