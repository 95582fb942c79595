"""Shared access signatures: tokens in the query that grant a part of what their signer may do.

`parse` reads what a token claims and checks its form; nothing in it is trusted until `verify`
has compared the signature. `effective` then merges the token with its stored policy, which a
transaction has to load. Every field that is signed is either of a strict form or free of control
characters, so the lines of a string to sign cannot be divided in another way than its signer did.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from ipaddress import IPv4Address
from typing import Final

import msgspec

from etagere.auth.principal import KeyRange, Kind, TokenHolder
from etagere.auth.request import SignedRequest, octets
from etagere.auth.shared_key import AccountKey, failed, utc_ticks
from etagere.errors import Refusal

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
"""The permission letters a token may have, by service and `sr`: which is all that `sr` may be."""
ACCOUNT_LETTERS: Final = "rwdxylacupfti"
SERVICE_LETTERS: Final = {"blob": "b", "dfs": "b", "queue": "q", "table": "t", "file": "f"}
RESOURCE_TYPES: Final = "sco"

_RESOURCE_SINCE: Final = {"bs": "2018-11-09", "bv": "2018-11-09", "d": "2020-02-10"}
_TIMESTAMP_PARAMETERS: Final = {"bs": ("snapshot", "versionid"), "bv": ("versionid", "snapshot")}

# What is signed: the lines of the string to sign, by service and the version they begin with.

Lines = tuple[str, ...]
Formats = tuple[tuple[str, Lines], ...]

_TOKEN: Final = ("sp", "st", "se", "canon")
_GATES: Final = ("sip", "spr", "sv")
_ANSWERS: Final = ("rscc", "rscd", "rsce", "rscl", "rsct")
_KEY_RANGE: Final = ("spk", "srk", "epk", "erk")
_KEY: Final = ("skoid", "sktid", "skt", "ske", "sks", "skv")
_AGENTS: Final = ("saoid", "suoid", "scid")
_DELEGATED: Final = ("skdutid", "sduoid")

_ACCOUNT_FORMATS: Final[Formats] = (
    # The empty last line is the newline that ends an account token's text.
    ("2020-12-06", ("account", "sp", "ss", "srt", "st", "se", *_GATES, "ses", "")),
    ("2015-04-05", ("account", "sp", "ss", "srt", "st", "se", *_GATES, "")),
)
_BLOB_FORMATS: Final[Formats] = (
    ("2020-12-06", (*_TOKEN, "si", *_GATES, "sr", "timestamp", "ses", *_ANSWERS)),
    ("2018-11-09", (*_TOKEN, "si", *_GATES, "sr", "timestamp", *_ANSWERS)),
    ("2015-04-05", (*_TOKEN, "si", *_GATES, *_ANSWERS)),
    ("2013-08-15", (*_TOKEN, "si", "sv", *_ANSWERS)),
    ("2012-02-12", (*_TOKEN, "si", "sv")),
)
_SERVICE_FORMATS: Final[dict[str, Formats]] = {
    "blob": _BLOB_FORMATS,
    "dfs": _BLOB_FORMATS,
    "file": (
        ("2015-04-05", (*_TOKEN, "si", *_GATES, *_ANSWERS)),
        ("2014-02-14", (*_TOKEN, "si", "sv", *_ANSWERS)),
    ),
    "queue": (
        ("2015-04-05", (*_TOKEN, "si", *_GATES)),
        ("2012-02-12", (*_TOKEN, "si", "sv")),
    ),
    "table": (
        ("2015-04-05", (*_TOKEN, "si", *_GATES, *_KEY_RANGE)),
        ("2012-02-12", (*_TOKEN, "si", "sv", *_KEY_RANGE)),
    ),
}
_BLOB_TAIL: Final = (*_GATES, "sr", "timestamp")
_BLOB_DELEGATION_FORMATS: Final[Formats] = (
    (
        "2026-04-06",
        (*_TOKEN, *_KEY, *_AGENTS, *_DELEGATED, *_BLOB_TAIL, "ses", "srh", "srq", *_ANSWERS),
    ),
    ("2025-07-05", (*_TOKEN, *_KEY, *_AGENTS, *_DELEGATED, *_BLOB_TAIL, "ses", *_ANSWERS)),
    ("2020-12-06", (*_TOKEN, *_KEY, *_AGENTS, *_BLOB_TAIL, "ses", *_ANSWERS)),
    ("2020-02-10", (*_TOKEN, *_KEY, *_AGENTS, *_BLOB_TAIL, *_ANSWERS)),
    ("2018-11-09", (*_TOKEN, *_KEY, *_BLOB_TAIL, *_ANSWERS)),
)
_DELEGATION_FORMATS: Final[dict[str, Formats]] = {
    "blob": _BLOB_DELEGATION_FORMATS,
    "dfs": _BLOB_DELEGATION_FORMATS,
    "file": (("2025-07-05", (*_TOKEN, *_KEY, *_DELEGATED, *_GATES, *_ANSWERS)),),
    "queue": (("2025-07-05", (*_TOKEN, *_KEY, *_DELEGATED, *_GATES)),),
    # There is none for tables.
    "table": (),
}
_CANON_NAMES_SERVICE_SINCE: Final = "2015-02-21"
_OVERRIDES: Final = {
    "rscc": "cache-control",
    "rscd": "content-disposition",
    "rsce": "content-encoding",
    "rscl": "content-language",
    "rsct": "content-type",
}
# A bound that the format of the token's version does not sign is no bound: whoever holds the
# token could take it off. Better to say so than to leave its issuer in a wrong belief.
_BOUNDS: Final = frozenset(
    {"sip", "spr", "ses", "srh", "srq", *_KEY_RANGE, *_KEY, *_AGENTS, *_DELEGATED}
)


_EXTRAS: Final = _BOUNDS | frozenset(_ANSWERS)


# What a token claims


class DelegationKey(msgspec.Struct, frozen=True):
    """The user delegation key that a token names, in the words that it was issued in."""

    object_id: str
    tenant_id: str
    start: str
    expiry: str
    service: str
    version: str
    delegated_tenant_id: str


class Sas(msgspec.Struct, frozen=True, kw_only=True):
    """A token as it claims to be, with the part of the request that its signature covers."""

    kind: Kind
    account: str
    service: str
    version: str
    signature: str
    # The text of each line that is signed, as the client wrote it.
    lines: tuple[str, ...]
    # Letters, and times in ticks; absent ones are left to the policy.
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
    # What the token says besides, by parameter; only what is signed.
    values: dict[str, str]
    key: DelegationKey | None
    key_start: int | None
    key_expiry: int | None

    def string_to_sign(self) -> str:
        return "\n".join(self.lines)


class Policy(msgspec.Struct, frozen=True):
    """A stored access policy: what it leaves open, the token must say."""

    start: int | None = None
    expiry: int | None = None
    permissions: str = ""


class Effective(msgspec.Struct, frozen=True):
    """What token and policy grant together, and when: both ends included."""

    permissions: str
    start: int | None
    expiry: int


def carries_sas(request: SignedRequest) -> bool:
    return bool(request.query) and "sig" in request.parameters


# Parsing

_VERSION: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_DEPTH: Final = re.compile(r"[0-9]{1,4}")
_PARAMETERS: Final = frozenset(
    {
        *("sv", "sp", "st", "se", "sip", "spr", "si", "sr", "sig", "ss", "srt", "tn", "ses", "sdd"),
        *("srh", "srq", *_KEY_RANGE, *_ANSWERS, *_KEY, *_AGENTS, *_DELEGATED),
    }
)


def parse(request: SignedRequest) -> Sas | Refusal:
    """What the token of a request claims, or why it cannot be one."""
    parameters = request.parameters
    if "sig" not in parameters:
        return Refusal("NoAuthenticationInformation")
    # Absent and empty are signed alike, so they have to mean the same.
    given = {name: parameters[name] for name in _PARAMETERS & parameters.keys() if parameters[name]}
    for name, value in given.items():
        if not value.isprintable() and _CONTROL.search(value):
            return failed(f"The parameter {name} has control characters.")

    kind = _kind(given)
    version = given.get("sv", "")
    names = _format(kind, request.service, version) if _VERSION.fullmatch(version) else None
    if names is None:
        return failed("The parameter sv is missing or names a version without such a token.")
    for name in _BOUNDS & given.keys():
        if name not in names:
            return failed(f"The parameter {name} needs a newer sv or another kind of token.")

    letters = ACCOUNT_LETTERS
    scope = timestamp = ""
    resource = given.get("sr", "")
    if kind is Kind.ACCOUNT:
        refusal = _check_account(given)
        if refusal is not None:
            return refusal
    else:
        found = LETTERS.get((request.service, resource))
        if found is None or version < _RESOURCE_SINCE.get(resource, ""):
            return failed("The parameter sr names no resource of this service and version.")
        letters = found
        place = _scope(request, resource, given)
        if isinstance(place, Refusal):
            return place
        scope = place
        if resource in _TIMESTAMP_PARAMETERS:
            moment = _timestamp(request, resource)
            if isinstance(moment, Refusal):
                return moment
            timestamp = moment

    permissions = given.get("sp", "")
    if not set(permissions) <= set(letters):
        return failed("The parameter sp has letters that this kind of token does not know.")
    window = _times(given, "st", "se")
    key_window = _times(given, "skt", "ske")
    if isinstance(window, Refusal):
        return window
    if isinstance(key_window, Refusal):
        return key_window
    addresses = _addresses(given["sip"]) if "sip" in given else None
    if isinstance(addresses, Refusal):
        return addresses
    if given.get("spr", "https") not in {"https", "https,http"}:
        return failed("The parameter spr is neither https nor https,http.")
    key = None
    if kind is Kind.DELEGATION:
        if "si" in given or None in key_window:
            return failed("A user delegation token names its key's times, and no policy.")
        key = _delegation_key(given)

    lines = _lines(request, names, given, version, scope, timestamp)
    if isinstance(lines, Refusal):
        return lines
    return Sas(
        kind=kind,
        account=request.account,
        service=request.service,
        version=version,
        signature=given.get("sig", ""),
        lines=lines,
        permissions=permissions,
        start=window[0],
        expiry=window[1],
        policy_id=given.get("si", ""),
        addresses=addresses,
        https_only=given.get("spr") == "https",
        services=given.get("ss", "") if kind is Kind.ACCOUNT else "",
        resource_types=given.get("srt", "") if kind is Kind.ACCOUNT else "",
        resource=resource if kind is not Kind.ACCOUNT else "",
        scope=scope,
        timestamp=timestamp,
        values={name: given[name] for name in _EXTRAS & given.keys() if name in names},
        key=key,
        key_start=key_window[0],
        key_expiry=key_window[1],
    )


def _kind(given: Mapping[str, str]) -> Kind:
    if "ss" in given or "srt" in given:
        return Kind.ACCOUNT
    return Kind.DELEGATION if "skoid" in given else Kind.SERVICE


@lru_cache(maxsize=256)
def _format(kind: Kind, service: str, version: str) -> Lines | None:
    """The lines of a version; one newer than all we know is read as the newest."""
    if kind is Kind.ACCOUNT:
        formats = _ACCOUNT_FORMATS
    else:
        table = _DELEGATION_FORMATS if kind is Kind.DELEGATION else _SERVICE_FORMATS
        formats = table.get(service, ())
    return next((names for since, names in formats if version >= since), None)


def _check_account(given: Mapping[str, str]) -> Refusal | None:
    services, types = given.get("ss", ""), given.get("srt", "")
    if not services or not set(services) <= set(SERVICE_LETTERS.values()):
        return failed("The parameter ss needs some of the letters b, q, t and f.")
    if not types or not set(types) <= set(RESOURCE_TYPES):
        return failed("The parameter srt needs some of the letters s, c and o.")
    if "si" in given:
        return failed("An account token has no stored access policy.")
    return None


def _delegation_key(given: Mapping[str, str]) -> DelegationKey:
    return DelegationKey(*[given.get(name, "") for name in (*_KEY, "skdutid")])


def _lines(
    request: SignedRequest,
    names: Lines,
    given: Mapping[str, str],
    version: str,
    scope: str,
    timestamp: str,
) -> tuple[str, ...] | Refusal:
    family = "blob" if request.service == "dfs" else request.service
    prefix = f"/{family}" if version >= _CANON_NAMES_SERVICE_SINCE else ""
    made = {
        "account": request.account,
        "canon": f"{prefix}/{request.account}/{scope}",
        "timestamp": timestamp,
    }
    if "srh" in given:
        block = _required("srh", given["srh"], request.fields, "{}:{}\n")
        if isinstance(block, Refusal):
            return block
        made["srh"] = block
    if "srq" in given:
        block = _required("srq", given["srq"], request.parameters, "\n{}:{}")
        if isinstance(block, Refusal):
            return block
        made["srq"] = block
    lines = []
    for name in names:
        line = made.get(name)
        lines.append(given.get(name, "") if line is None else line)
    return tuple(lines)


def _required(parameter: str, listed: str, sent: Mapping[str, str], form: str) -> str | Refusal:
    """Headers or parameters that the request must carry, as they are signed."""
    parts = []
    for name in listed.split(","):
        value = sent.get(name.lower())
        if value is None or _CONTROL.search(value):
            return failed(f"The request lacks something that the parameter {parameter} names.")
        parts.append(form.format(name, value))
    return "".join(parts)


# Where a token applies


def _scope(request: SignedRequest, resource: str, given: Mapping[str, str]) -> str | Refusal:
    """The resource that the token must have been signed for, to be of use in this request."""
    if request.service == "table":
        return _table_scope(request, given)
    container, below = request.resource
    # A slash that came encoded would make the name of a container out of a blob's path.
    if not container or "/" in container or _CONTROL.search(container):
        return failed("The token applies to a container, queue or share, and none is named.")
    if resource in {"", "c", "s"}:
        return container
    if resource == "d":
        return _directory_scope(request, container, below, given.get("sdd", ""))
    if not below or _CONTROL.search(below):
        return failed("The token applies to a blob or file, and none is named.")
    return f"{container}/{below}"


def _table_scope(request: SignedRequest, given: Mapping[str, str]) -> str | Refusal:
    table = given.get("tn", "").lower()
    named = request.resource[0].partition("(")[0].lower()
    # Requests to these carry the names of their tables elsewhere.
    if not table or (named != table and named not in {"", "tables", "$batch"}):
        return failed("The parameter tn does not name the table of the request.")
    return table


def _directory_scope(
    request: SignedRequest, container: str, below: str, depth: str
) -> str | Refusal:
    """The first `sdd` parts of the path; where a container is listed, of the directory listed."""
    if not _DEPTH.fullmatch(depth):
        return failed("The parameter sdd is not a depth.")
    if not below:
        # Blobs are listed by prefix, also through dfs where the request says `restype`; paths by
        # directory. A request that says both could be checked as one and listed as the other.
        parameters = request.parameters
        by_prefix = "restype" in parameters
        if by_prefix and "resource" in parameters:
            return failed("A listing names either restype or resource.")
        if by_prefix:
            # Up to the last slash: what follows is the beginning of a name, not a directory.
            below = parameters.get("prefix", "").rpartition("/")[0]
        else:
            below = parameters.get("directory", "")
    parts = below.rstrip("/").split("/") if below else []
    # Whoever resolves a dot, or an empty part, would leave the directory that was checked.
    if _CONTROL.search(below) or not {"", ".", ".."}.isdisjoint(parts):
        return failed("The token applies to a directory, and the path is not a plain one.")
    count = int(depth)
    if len(parts) < count:
        return failed("The token applies to a directory that does not hold the path.")
    return "/".join([container, *parts[:count]])


def _timestamp(request: SignedRequest, resource: str) -> str | Refusal:
    """Which snapshot or version is meant stands in the request, not in the token."""
    wanted, other = _TIMESTAMP_PARAMETERS[resource]
    moment = request.parameters.get(wanted, "")
    if not moment or _CONTROL.search(moment) or other in request.parameters:
        return failed(f"The token applies to what the parameter {wanted} alone names.")
    return moment


# Times and places

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
    """A UTC time in ticks since 1970, in one of the forms that tokens and policies may use."""
    return _parse_time(written) if len(written) <= _TIME_CHARACTERS_MAX else None


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
    """An IPv4 address, or two of them that a dash joins."""
    first, dash, last = written.partition("-")
    low, high = _address(first), _address(last if dash else first)
    if low is None or high is None or low > high:
        return failed("The parameter sip is neither an IPv4 address nor a range of them.")
    return low, high


@lru_cache(maxsize=256)
def _parse_address(written: str) -> int | None:
    try:
        return int(IPv4Address(written))
    except ValueError:
        return None


def _address(written: str) -> int | None:
    written = written.removeprefix("::ffff:")
    return _parse_address(written) if len(written) <= len("255.255.255.255") else None


def check_origin(sas: Sas, request: SignedRequest) -> Refusal | None:
    """Whether the token may be used over this connection."""
    if sas.https_only and request.scheme != "https":
        return Refusal("AuthorizationProtocolMismatch")
    if sas.addresses is not None:
        low, high = sas.addresses
        client = _address(request.client)
        if client is None or not low <= client <= high:
            return Refusal("AuthorizationSourceIPMismatch", {"SourceIP": request.client})
    return None


# Signature

_SHOWN_CHARACTERS_MAX: Final = 2048


def verify(
    sas: Sas,
    keys: Sequence[AccountKey],
    delegated: Callable[[DelegationKey], AccountKey | None] = lambda _: None,
) -> Refusal | None:
    """Compares the signature: with the account's keys, or the key that a delegation token names.

    `delegated` makes that key from a secret of the server, or has kept it.
    """
    if sas.key is not None:
        made = delegated(sas.key)
        keys = () if made is None else (made,)
    message = octets(sas.string_to_sign())
    signature = octets(sas.signature)
    for key in keys:
        if key.signed(message, signature):
            return None
    if not sas.values.keys().isdisjoint({"srh", "srq"}):
        # Which headers these name is up to the client, and one may be secret.
        return failed("The signature did not match.")
    return failed(
        "The signature did not match. The server reads the string to sign as "
        f"{sas.string_to_sign()[:_SHOWN_CHARACTERS_MAX]!r}."
    )


# What it grants


def effective(sas: Sas, policy: Policy | None) -> Effective | Refusal:
    """Token and policy together: each of start, expiry and permissions stands in one of them.

    `policy` is the one the token names, None if there is none of that name any more.
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
            # A policy serves tokens of several kinds; those of this one get what they know.
            known = LETTERS[sas.service, sas.resource]
            permissions = "".join(filter(known.__contains__, policy.permissions))
        start = policy.start if start is None else start
        expiry = policy.expiry if expiry is None else expiry
    if expiry is None or not permissions:
        return failed("Neither the token nor a policy gives both an expiry and permissions.")
    if sas.key_start is not None and sas.key_expiry is not None:
        # A token is never worth more than the key that signed it.
        start = sas.key_start if start is None else max(start, sas.key_start)
        expiry = min(expiry, sas.key_expiry)
    return Effective(permissions, start, expiry)


def check_time(granted: Effective, now: int) -> Refusal | None:
    if granted.start is not None and now < granted.start:
        return failed("The token is not valid yet.")
    if now > granted.expiry:
        return failed("The token is not valid any more.")
    return None


def principal(sas: Sas, granted: Effective) -> TokenHolder:
    """The holder of a token that has passed every check."""
    values = sas.values
    keys = None
    if not values.keys().isdisjoint(_KEY_RANGE):
        keys = KeyRange(*[values.get(name) for name in _KEY_RANGE])
    return TokenHolder(
        account=sas.account,
        kind=sas.kind,
        version=sas.version,
        permissions=granted.permissions,
        services=sas.services,
        resource_types=sas.resource_types,
        service=sas.service if sas.kind is not Kind.ACCOUNT else "",
        resource=sas.resource,
        scope=sas.scope,
        timestamp=sas.timestamp,
        keys=keys,
        overrides={_OVERRIDES[name]: values[name] for name in _ANSWERS if name in values},
        encryption_scope=values.get("ses", ""),
        delegating_user="" if sas.key is None else sas.key.object_id,
        required_user=values.get("sduoid", ""),
        authorized_user=values.get("saoid", ""),
        unauthorized_user=values.get("suoid", ""),
        correlation_id=values.get("scid", ""),
    )
