"""Parsing of the token in a request.

A token specifies its resource only in part. The rest (the path, a snapshot, the required headers)
is taken from the request, so a valid signature also proves that the token was created for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from etagere.auth.principal import TokenKind
from etagere.auth.request import RestRequest
from etagere.auth.sas import (
    ACCOUNT_LETTERS,
    LETTERS,
    RESOURCE_TYPES,
    SERVICE_LETTERS,
    DelegationKey,
    Sas,
    ipv4,
    iso_time,
)
from etagere.auth.sas_signature import (
    ANSWERS,
    BOUNDS,
    CONTROL,
    KEY,
    Lines,
    signed_lines,
    signed_names,
)
from etagere.auth.shared_key import failed
from etagere.errors import Refusal

VERSION: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_EXTRAS: Final = BOUNDS | frozenset(ANSWERS)
_PARAMETERS: Final = _EXTRAS | frozenset(
    {"sv", "sp", "st", "se", "si", "sr", "sig", "ss", "srt", "tn", "sdd"}
)


def carries_sas(request: RestRequest) -> bool:
    return bool(request.query) and "sig" in request.parameters


def requires_user(request: RestRequest) -> bool:
    """Returns whether a request has a token that needs the bearer token of a user, too."""
    return carries_sas(request) and bool(request.parameters.get("sduoid"))


def parse(request: RestRequest) -> Sas | Refusal:
    """Parses the token of a request, or refuses it."""
    if "sig" not in request.parameters:
        return Refusal("NoAuthenticationInformation")
    given = _given(request.parameters)
    if isinstance(given, Refusal):
        return given
    kind = _kind(given)
    names = _names(kind, request.service, given)
    if isinstance(names, Refusal):
        return names
    return _claimed(request, kind, names, given)


def _given(parameters: Mapping[str, str]) -> dict[str, str] | Refusal:
    """Returns the parameters of the token. Absent and empty ones are signed alike, so they mean the
    same."""
    given = {name: parameters[name] for name in _PARAMETERS & parameters.keys() if parameters[name]}
    for name, value in given.items():
        if not value.isprintable() and CONTROL.search(value):
            return failed(f"The parameter {name} has control characters.")
    return given


def _kind(given: Mapping[str, str]) -> TokenKind:
    if "ss" in given or "srt" in given:
        return TokenKind.ACCOUNT
    return TokenKind.DELEGATION if "skoid" in given else TokenKind.SERVICE


def _names(kind: TokenKind, service: str, given: Mapping[str, str]) -> Lines | Refusal:
    """Returns the lines that the token's version signs. Refuses a token with limits that are not
    signed."""
    version = given.get("sv", "")
    names = signed_names(kind, service, version) if VERSION.fullmatch(version) else None
    if names is None:
        return failed("The parameter sv is missing or names a version without such a token.")
    for name in BOUNDS & given.keys():
        if name not in names:
            return failed(f"The parameter {name} needs a newer sv or another kind of token.")
    return names


def _claimed(
    request: RestRequest, kind: TokenKind, names: Lines, given: Mapping[str, str]
) -> Sas | Refusal:
    place = (
        _account_token_scope(given)
        if kind is TokenKind.ACCOUNT
        else _service_token_scope(request, given)
    )
    if isinstance(place, Refusal):
        return place
    limits = _limits(kind, place.letters, given)
    if isinstance(limits, Refusal):
        return limits
    lines = signed_lines(request, names, given, place.scope, place.timestamp)
    if isinstance(lines, Refusal):
        return lines
    return Sas(
        kind=kind,
        account=request.account,
        service=request.service,
        version=given["sv"],
        signature=given.get("sig", ""),
        lines=lines,
        permissions=limits.permissions,
        start=limits.start,
        expiry=limits.expiry,
        policy_id=given.get("si", ""),
        addresses=limits.addresses,
        https_only=given.get("spr") == "https",
        services=place.services,
        resource_types=place.resource_types,
        resource=place.resource,
        scope=place.scope,
        timestamp=place.timestamp,
        values={name: given[name] for name in _EXTRAS & given.keys() if name in names},
        key=_delegation_key(given) if kind is TokenKind.DELEGATION else None,
        key_start=limits.key_start,
        key_expiry=limits.key_expiry,
    )


def _delegation_key(given: Mapping[str, str]) -> DelegationKey:
    return DelegationKey(*[given.get(name, "") for name in (*KEY, "skdutid")])


# Scope

_RESOURCE_SINCE: Final = {"bs": "2018-11-09", "bv": "2018-11-09", "d": "2020-02-10"}
_TIMESTAMP_PARAMETERS: Final = {"bs": ("snapshot", "versionid"), "bv": ("versionid", "snapshot")}
_DEPTH: Final = re.compile(r"[0-9]{1,4}")


class _TokenScope(NamedTuple):
    """The resources that a token applies to, and the letters that are valid for them."""

    letters: str
    services: str = ""
    resource_types: str = ""
    resource: str = ""
    scope: str = ""
    timestamp: str = ""


def _account_token_scope(given: Mapping[str, str]) -> _TokenScope | Refusal:
    services, types = given.get("ss", ""), given.get("srt", "")
    if not services or not set(services) <= set(SERVICE_LETTERS.values()):
        return failed("The parameter ss needs some of the letters b, q, t and f.")
    if not types or not set(types) <= set(RESOURCE_TYPES):
        return failed("The parameter srt needs some of the letters s, c and o.")
    if "si" in given:
        return failed("An account token has no stored access policy.")
    return _TokenScope(ACCOUNT_LETTERS, services, types)


def _service_token_scope(request: RestRequest, given: Mapping[str, str]) -> _TokenScope | Refusal:
    resource = given.get("sr", "")
    letters = LETTERS.get((request.service, resource))
    if letters is None or given["sv"] < _RESOURCE_SINCE.get(resource, ""):
        return failed("The parameter sr names no resource of this service and version.")
    scope = _signed_scope(request, resource, given)
    if isinstance(scope, Refusal):
        return scope
    timestamp = _timestamp(request, resource) if resource in _TIMESTAMP_PARAMETERS else ""
    if isinstance(timestamp, Refusal):
        return timestamp
    return _TokenScope(letters, resource=resource, scope=scope, timestamp=timestamp)


def _signed_scope(request: RestRequest, resource: str, given: Mapping[str, str]) -> str | Refusal:
    """Returns the resource that the token must have been signed for, to be valid in this
    request."""
    if request.service == "table":
        return _table_scope(request, given)
    container, below = request.resource
    # An encoded slash would turn the path of a blob into the name of a container.
    if not container or "/" in container or CONTROL.search(container):
        return failed("The token applies to a container, queue or share, and none is named.")
    if resource in {"", "c", "s"}:
        return container
    if resource == "d":
        return _directory_scope(request, container, below, given.get("sdd", ""))
    # The name is the only signed field that may contain control characters, except for the newline,
    # which ends a field.
    if not below or "\n" in below:
        return failed("The token applies to a blob or file, and none is named.")
    return f"{container}/{below}"


def _table_scope(request: RestRequest, given: Mapping[str, str]) -> str | Refusal:
    table = given.get("tn", "").lower()
    named = request.resource[0].partition("(")[0].lower()
    # Requests to these have the names of their tables elsewhere.
    if not table or (named != table and named not in {"", "tables", "$batch"}):
        return failed("The parameter tn does not name the table of the request.")
    for row, partition in (("srk", "spk"), ("erk", "epk")):
        if row in given and partition not in given:
            return failed(f"The parameter {row} bounds nothing without {partition}.")
    return table


def _directory_scope(request: RestRequest, container: str, below: str, depth: str) -> str | Refusal:
    """Returns the first `sdd` parts of the path or, for a listing, of the listed directory."""
    if not _DEPTH.fullmatch(depth):
        return failed("The parameter sdd is not a depth.")
    if not below:
        # Blobs are listed by prefix, also through dfs if the request has `restype`; paths are
        # listed by directory. A request with both could be checked as one and executed as the
        # other.
        parameters = request.parameters
        by_prefix = "restype" in parameters
        if by_prefix and "resource" in parameters:
            return failed("A listing names either restype or resource.")
        if by_prefix:
            # Up to the last slash: the rest is the beginning of a name, not a directory.
            below = parameters.get("prefix", "").rpartition("/")[0]
        else:
            below = parameters.get("directory", "")
    parts = below.rstrip("/").split("/") if below else []
    # If a dot or an empty part were resolved, the path would leave the directory that was checked.
    if CONTROL.search(below) or not {"", ".", ".."}.isdisjoint(parts):
        return failed("The token applies to a directory, and the path is not a plain one.")
    count = int(depth)
    if len(parts) < count:
        return failed("The token applies to a directory that does not hold the path.")
    return "/".join([container, *parts[:count]])


def _timestamp(request: RestRequest, resource: str) -> str | Refusal:
    """Returns the snapshot or version, which is in the request, not in the token."""
    wanted, other = _TIMESTAMP_PARAMETERS[resource]
    moment = request.parameters.get(wanted, "")
    if not moment or CONTROL.search(moment) or other in request.parameters:
        return failed(f"The token applies to what the parameter {wanted} alone names.")
    return moment


# Limits


class _Limits(NamedTuple):
    """The limits of a token: permissions, times and addresses. Absent ones may be defined by its
    policy."""

    permissions: str
    start: int | None
    expiry: int | None
    addresses: tuple[int, int] | None
    key_start: int | None
    key_expiry: int | None


# The reference documents only the second; Apache Libcloud sends the third.
_PROTOCOLS: Final = frozenset({"https", "https,http", "http,https"})


def _limits(kind: TokenKind, letters: str, given: Mapping[str, str]) -> _Limits | Refusal:
    permissions = given.get("sp", "")
    if not set(permissions) <= set(letters):
        return failed("The parameter sp has letters that this kind of token does not know.")
    window = _times(given, "st", "se")
    if isinstance(window, Refusal):
        return window
    key_window = _times(given, "skt", "ske")
    if isinstance(key_window, Refusal):
        return key_window
    addresses = _addresses(given["sip"]) if "sip" in given else None
    if isinstance(addresses, Refusal):
        return addresses
    if given.get("spr", "https") not in _PROTOCOLS:
        return failed("The parameter spr is neither https nor https,http.")
    if kind is TokenKind.DELEGATION and ("si" in given or None in key_window):
        return failed("A user delegation token names its key's times, and no policy.")
    return _Limits(permissions, *window, addresses, *key_window)


def _times(
    given: Mapping[str, str], start: str, expiry: str
) -> tuple[int | None, int | None] | Refusal:
    times = []
    for name in (start, expiry):
        at = None
        if name in given:
            at = iso_time(given[name])
            if at is None:
                return failed(f"The parameter {name} is not a UTC time in ISO 8601 form.")
        times.append(at)
    return times[0], times[1]


def _addresses(written: str) -> tuple[int, int] | Refusal:
    """Parses an IPv4 address, or a range of two with a dash."""
    first, dash, last = written.partition("-")
    low, high = ipv4(first), ipv4(last if dash else first)
    if low is None or high is None or low > high:
        return failed("The parameter sip is neither an IPv4 address nor a range of them.")
    return low, high
