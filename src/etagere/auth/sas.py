"""Shared access signatures: tokens in the query that grant limited access.

A `Sas` is what `sas_parsing.parse` reads from a request; nothing in it is trusted until
`sas_signature.verify` has compared the signature. Then `check_origin` asks where it comes from,
and `effective` merges it with its stored policy, which a transaction has to load.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv4Address
from typing import Final

import msgspec

from etagere.auth.principal import EntityRange, TokenHolder, TokenKind
from etagere.auth.request import RestRequest
from etagere.auth.shared_key import failed, utc_ticks
from etagere.clock import TICKS_PER_SECOND
from etagere.errors import Refusal
from etagere.rules.dates import format_http_date

# Letters

_BLOB_LETTERS: Final = "racwdxyltmeiop"
LETTERS: Final[dict[tuple[str, str], str]] = {
    ("blob", "b"): _BLOB_LETTERS,
    ("blob", "bs"): _BLOB_LETTERS,
    ("blob", "bv"): _BLOB_LETTERS,
    ("blob", "c"): _BLOB_LETTERS + "f",
    ("blob", "d"): _BLOB_LETTERS,
    ("dfs", "b"): _BLOB_LETTERS,
    ("dfs", "bs"): _BLOB_LETTERS,
    ("dfs", "bv"): _BLOB_LETTERS,
    ("dfs", "c"): _BLOB_LETTERS + "f",
    ("dfs", "d"): _BLOB_LETTERS,
    ("file", "f"): "rcwd",
    ("file", "s"): "rcwdl",
    ("queue", ""): "raup",
    ("table", ""): "raud",
}
"""The permission letters that a token may have, by service and `sr`. Other values of `sr` are
invalid."""
ACCOUNT_LETTERS: Final = "rwdxylacupfti"
SERVICE_LETTERS: Final = {"blob": "b", "dfs": "b", "queue": "q", "table": "t", "file": "f"}
RESOURCE_TYPES: Final = "sco"


# Tokens


class DelegationKey(msgspec.Struct, frozen=True):
    """The user delegation key that a token names, in the form in which it was issued."""

    object_id: str
    tenant_id: str
    start: str
    expiry: str
    service: str
    version: str
    delegated_tenant_id: str


class Sas(msgspec.Struct, frozen=True, kw_only=True):
    """A token as sent, with the part of the request that its signature covers."""

    kind: TokenKind
    account: str
    service: str
    version: str
    signature: str
    # The signed lines, as the client wrote them.
    lines: tuple[str, ...]
    # Letters, and times in ticks; absent ones are defined by the policy.
    permissions: str
    start: int | None
    expiry: int | None
    policy_id: str
    addresses: tuple[int, int] | None
    https_only: bool
    services: str
    resource_types: str
    resource: str
    scope: str
    timestamp: str
    # The other signed parameters of the token.
    values: dict[str, str]
    key: DelegationKey | None
    key_start: int | None
    key_expiry: int | None

    def string_to_sign(self) -> str:
        return "\n".join(self.lines)


# Times and addresses

_TIME: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:T([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9])(?:\.([0-9]{1,7}))?)?Z)?"
)
_TIME_CHARACTERS_MAX: Final = len("2000-01-01T00:00:00.0000000Z")


@lru_cache(maxsize=256)
def _parse_time(written: str) -> int | None:
    match = _TIME.fullmatch(written)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction = match.groups(default="")
    ticks = utc_ticks(
        int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0)
    )
    return None if ticks is None else ticks + int(fraction.ljust(7, "0"))


def iso_time(written: str) -> int | None:
    """Parses a UTC time in any form that tokens and policies may use; returns ticks since 1970."""
    return _parse_time(written) if len(written) <= _TIME_CHARACTERS_MAX else None


@lru_cache(maxsize=256)
def _parse_address(written: str) -> int | None:
    try:
        return int(IPv4Address(written))
    except ValueError:
        return None


def ipv4(written: str) -> int | None:
    """Parses an IPv4 address, possibly mapped to IPv6; returns it as a number."""
    written = written.removeprefix("::ffff:")
    return _parse_address(written) if len(written) <= len("255.255.255.255") else None


def check_origin(sas: Sas, request: RestRequest) -> Refusal | None:
    """Refuses a token that may not be used over this connection."""
    if sas.https_only and request.scheme != "https":
        return Refusal("AuthorizationProtocolMismatch")
    if sas.addresses is not None:
        low, high = sas.addresses
        client = ipv4(request.client)
        if client is None or not low <= client <= high:
            return Refusal("AuthorizationSourceIPMismatch", {"SourceIP": request.client})
    return None


# Grants


class Policy(msgspec.Struct, frozen=True):
    """A stored access policy. The token must specify what the policy does not."""

    start: int | None = None
    expiry: int | None = None
    permissions: str = ""


class Effective(msgspec.Struct, frozen=True):
    """The grant of a token merged with its policy; times are inclusive."""

    permissions: str
    start: int | None
    expiry: int


def effective(sas: Sas, policy: Policy | None) -> Effective | Refusal:
    """Merges a token with its policy: each of start, expiry and permissions is defined in only one
    of them.

    `policy` is the policy that the token names; None if it does not exist.
    """
    permissions, start, expiry = sas.permissions, sas.start, sas.expiry
    if sas.policy_id:
        if policy is None:
            return failed("The stored access policy that the token names does not exist.")
        for name, ours, theirs in (
            ("sp", permissions or None, policy.permissions or None),
            ("st", start, policy.start),
            ("se", expiry, policy.expiry),
        ):
            if ours is not None and theirs is not None:
                return failed(f"Both the token and its stored access policy give {name}.")
        if not permissions:
            # A policy may be used by several kinds of tokens; this kind gets the letters that apply
            # to it.
            known = LETTERS[sas.service, sas.resource]
            permissions = "".join(filter(known.__contains__, policy.permissions))
        start = policy.start if start is None else start
        expiry = policy.expiry if expiry is None else expiry
    if expiry is None or not permissions:
        return failed("Neither the token nor a policy gives both an expiry and permissions.")
    if sas.key_start is not None and sas.key_expiry is not None:
        # A token is limited to the lifetime of the key that signed it.
        start = sas.key_start if start is None else max(start, sas.key_start)
        expiry = min(expiry, sas.key_expiry)
    return Effective(permissions, start, expiry)


def check_time(granted: Effective, now: int) -> Refusal | None:
    start, expiry = granted.start, granted.expiry
    if now <= expiry and (start is None or now >= start):
        return None
    if start is None:
        # A token without a start is valid from the time of the request.
        return failed(
            f"Signed expiry time [{_http_date(expiry)}] must be after signed start time "
            f"[{_http_date(now)}]"
        )
    # Clients search for these words to know when they need another token.
    return failed(
        f"Signature not valid in the specified time frame: Start [{_http_date(start)}] - "
        f"Expiry [{_http_date(expiry)}] - Current [{_http_date(now)}]"
    )


def _http_date(ticks: int) -> str:
    return format_http_date(ticks // TICKS_PER_SECOND)


# Holders

ENTITY_RANGE_PARAMETERS: Final = ("spk", "srk", "epk", "erk")
"""The parameters of an `EntityRange`, in the order of its fields."""
_OVERRIDES: Final = {
    "rscc": "cache-control",
    "rscd": "content-disposition",
    "rsce": "content-encoding",
    "rscl": "content-language",
    "rsct": "content-type",
}


def principal(sas: Sas, granted: Effective) -> TokenHolder:
    """Returns the holder of a token that has passed every check, except for the rights of the user
    who delegated it."""
    values = sas.values
    key = sas.key
    keys = None
    if not values.keys().isdisjoint(ENTITY_RANGE_PARAMETERS):
        keys = EntityRange(*[values.get(name) for name in ENTITY_RANGE_PARAMETERS])
    return TokenHolder(
        account=sas.account,
        kind=sas.kind,
        version=sas.version,
        permissions=granted.permissions,
        services=sas.services,
        resource_types=sas.resource_types,
        service=sas.service if sas.kind is not TokenKind.ACCOUNT else "",
        resource=sas.resource,
        scope=sas.scope,
        timestamp=sas.timestamp,
        keys=keys,
        overrides={header: values[name] for name, header in _OVERRIDES.items() if name in values},
        encryption_scope=values.get("ses", ""),
        delegating_user="" if key is None else key.object_id,
        required_user=values.get("sduoid", ""),
        required_tenant="" if key is None else key.delegated_tenant_id or key.tenant_id,
        authorized_user=values.get("saoid", ""),
        unauthorized_user=values.get("suoid", ""),
        correlation_id=values.get("scid", ""),
    )
