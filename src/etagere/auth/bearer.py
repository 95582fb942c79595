"""Verification of bearer tokens: signed JSON Web Tokens (RFC 7519) of a directory.

PyJWT parses tokens and verifies signatures. The claims are checked here, because times and
audiences depend on the request: a token that is known to be signed is checked again with every
request.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any, Final

import jwt
import msgspec

from etagere.auth.challenges import RESOURCE, TokenFault
from etagere.auth.key_set import KeySet

TOKEN_CHARACTERS_MAX: Final = 16_384
CLOCK_SKEW_SECONDS: Final = 30
"""How far the clocks of the issuer and of this machine may differ."""

# Headers that would make the verifier trust a key of the sender, or that it would have to
# understand.
_REFUSED_HEADERS: Final = ("jku", "jwk", "x5u", "crit", "b64", "zip", "enc")
_TYPES: Final = frozenset({"jwt", "at+jwt", "application/at+jwt"})
_SEGMENTS: Final = 3

STORAGE_APPLICATION: Final = "e406a681-f3d4-42a8-90b6-c2b029497af1"
"""The application id of the storage service, which some tokens have as their audience."""
_PLAUSIBLE_AUDIENCE: Final = re.compile(
    r"https://[a-z0-9-]{1,63}\.(?:blob|queue|table|file|dfs)\.[a-z0-9.-]{1,255}(?::[0-9]{1,5})?"
)

_JWS: Final = jwt.PyJWS()


class Claims(msgspec.Struct, frozen=True):
    """The claims of a token that are evaluated."""

    iss: str = ""
    aud: str | list[str] | None = None
    exp: int | float | None = None
    nbf: int | float | None = None
    iat: int | float | None = None
    oid: str = ""
    sub: str = ""
    tid: str = ""
    appid: str = ""
    azp: str = ""
    roles: str | list[str] = []
    groups: str | list[str] = []
    scp: str | list[str] = []
    scope: str | list[str] = []
    upn: str = ""
    unique_name: str = ""
    preferred_username: str = ""

    @property
    def audiences(self) -> list[str]:
        aud = self.aud
        return [] if aud is None else [aud] if isinstance(aud, str) else aud

    def identities(self) -> Iterator[tuple[str, str]]:
        """Yields what the roles of a user can depend on: names of claims, and values.

        Issuers other than Entra ID have the standard claims instead: `scope` is for `scp`, `azp`
        for `appid` and `sub` for `oid`. Entra ID has both, and its `sub` identifies no user.
        """
        for name, value in (
            ("roles", self.roles),
            ("groups", self.groups),
            ("scp", self.scp or self.scope),
            ("oid", self.oid or self.sub),
            ("appid", self.appid or self.azp),
        ):
            values = value
            if isinstance(value, str):
                values = value.split() if name == "scp" else [value]
            yield from ((name, one) for one in values if one)


def parse(token: str) -> Claims | TokenFault:
    """Returns the claims of a token without verifying its signature."""
    if not _is_plausible(token):
        return TokenFault.MALFORMED
    try:
        parsed = _JWS.decode_complete(token, options={"verify_signature": False})
    except jwt.PyJWTError:
        return TokenFault.MALFORMED
    if not _is_acceptable(parsed["header"]):
        return TokenFault.MALFORMED
    return _claims(parsed["payload"])


def verify(token: str, keys: KeySet, issuers: Collection[str]) -> Claims | TokenFault:
    """Returns the claims of a token that one of the keys signed for one of the issuers."""
    if not _is_plausible(token):
        return TokenFault.MALFORMED
    try:
        # Of the header alone: the parser looks at every character, so a long token would cost
        # twice as much.
        header = _JWS.get_unverified_header(f"{token.partition('.')[0]}..")
    except jwt.PyJWTError:
        return TokenFault.MALFORMED
    if not _is_acceptable(header):
        return TokenFault.MALFORMED
    key = keys.find(header.get("kid"))
    if key is None:
        return TokenFault.UNKNOWN_KEY
    algorithm = header.get("alg")
    if algorithm not in key.algorithms:
        return TokenFault.ALGORITHM
    try:
        parsed = _JWS.decode_complete(token, key.key, [algorithm])
    except jwt.InvalidSignatureError:
        return TokenFault.SIGNATURE
    except jwt.PyJWTError:
        return TokenFault.MALFORMED
    claims = _claims(parsed["payload"])
    if isinstance(claims, TokenFault):
        return claims
    if claims.exp is None:
        return TokenFault.NO_EXPIRATION
    return claims if claims.iss in issuers else TokenFault.ISSUER


def _is_plausible(token: str) -> bool:
    return (
        len(token) <= TOKEN_CHARACTERS_MAX and token.isascii() and token.count(".") == _SEGMENTS - 1
    )


def _is_acceptable(header: dict[str, Any]) -> bool:
    kid, kind = header.get("kid"), header.get("typ", "JWT")
    return (
        isinstance(header.get("alg"), str)
        and (kid is None or isinstance(kid, str))
        and isinstance(kind, str)
        and kind.lower() in _TYPES
        and not any(name in header for name in _REFUSED_HEADERS)
    )


def _claims(payload: bytes) -> Claims | TokenFault:
    try:
        return msgspec.json.decode(payload, type=Claims)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return TokenFault.MALFORMED


# Checks for every request


def check_time(claims: Claims, now: float, skew_seconds: float) -> TokenFault | None:
    """`now` is in seconds since 1970."""
    expires, begins = claims.exp, claims.nbf
    # The times in a token may be integers of any size, which can be compared with floats but not
    # added to them.
    if expires is not None and now - skew_seconds >= expires:
        return TokenFault.EXPIRED
    if begins is not None and now + skew_seconds < begins:
        return TokenFault.NOT_YET_VALID
    return None


def check_audience(
    claims: Claims, service: str, account: str, configured: Collection[str]
) -> TokenFault | None:
    """Refuses tokens that were not issued for this account or this server."""
    own = f"https://{account}.{service}.core.windows.net"
    for audience in claims.audiences:
        if audience in configured or audience.removesuffix("/") in {RESOURCE, own}:
            return None
        if audience == STORAGE_APPLICATION:
            return None
    return TokenFault.AUDIENCE


def check_plausible_audience(claims: Claims, configured: Collection[str]) -> TokenFault | None:
    """Refuses tokens that were issued for something else than storage, whatever its account is."""
    audiences = claims.audiences
    if not audiences or any(_is_for_storage(audience, configured) for audience in audiences):
        return None
    return TokenFault.AUDIENCE


def _is_for_storage(audience: str, configured: Collection[str]) -> bool:
    if audience in configured or audience == STORAGE_APPLICATION:
        return True
    audience = audience.removesuffix("/")
    return audience == RESOURCE or _PLAUSIBLE_AUDIENCE.fullmatch(audience) is not None
