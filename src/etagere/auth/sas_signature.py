"""Signatures of tokens: the strings to sign, and their verification.

Which lines a string to sign has depends on the kind of token, the service and `sv`: one table for
each kind, the newest version first. Every field that is signed is either of a strict form or free
of control characters, so the lines of a string cannot be divided in another way than its signer
did.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from etagere.auth.principal import TokenKind
from etagere.auth.request import RestRequest, octets
from etagere.auth.sas import ENTITY_RANGE_PARAMETERS, DelegationKey, Sas
from etagere.auth.shared_key import AccountKey, failed
from etagere.errors import Refusal

CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
"""Characters that no signed field may contain."""

# The lines of each string to sign, by service and the version they begin with.

Lines = tuple[str, ...]
Formats = tuple[tuple[str, Lines], ...]

ANSWERS: Final = ("rscc", "rscd", "rsce", "rscl", "rsct")
"""Response headers that the token replaces."""
KEY: Final = ("skoid", "sktid", "skt", "ske", "sks", "skv")
"""The user delegation key, in the order of `DelegationKey`."""
_TOKEN: Final = ("sp", "st", "se", "canon")
_GATES: Final = ("sip", "spr", "sv")
_AGENTS: Final = ("saoid", "suoid", "scid")
_DELEGATED: Final = ("skdutid", "sduoid")

_ACCOUNT_FORMATS: Final[Formats] = (
    # The empty last line is the newline that ends an account token's text.
    ("2020-12-06", ("account", "sp", "ss", "srt", "st", "se", *_GATES, "ses", "")),
    ("2015-04-05", ("account", "sp", "ss", "srt", "st", "se", *_GATES, "")),
)
_BLOB_FORMATS: Final[Formats] = (
    ("2020-12-06", (*_TOKEN, "si", *_GATES, "sr", "timestamp", "ses", *ANSWERS)),
    ("2018-11-09", (*_TOKEN, "si", *_GATES, "sr", "timestamp", *ANSWERS)),
    ("2015-04-05", (*_TOKEN, "si", *_GATES, *ANSWERS)),
    ("2013-08-15", (*_TOKEN, "si", "sv", *ANSWERS)),
    ("2012-02-12", (*_TOKEN, "si", "sv")),
)
_SERVICE_FORMATS: Final[dict[str, Formats]] = {
    "blob": _BLOB_FORMATS,
    "dfs": _BLOB_FORMATS,
    "file": (
        ("2015-04-05", (*_TOKEN, "si", *_GATES, *ANSWERS)),
        # Older formats do not name the service: a token for a container would also be valid for a
        # share of the same name.
        ("2015-02-21", (*_TOKEN, "si", "sv", *ANSWERS)),
    ),
    "queue": (
        ("2015-04-05", (*_TOKEN, "si", *_GATES)),
        ("2012-02-12", (*_TOKEN, "si", "sv")),
    ),
    "table": (
        ("2015-04-05", (*_TOKEN, "si", *_GATES, *ENTITY_RANGE_PARAMETERS)),
        ("2012-02-12", (*_TOKEN, "si", "sv", *ENTITY_RANGE_PARAMETERS)),
    ),
}
_BLOB_TAIL: Final = (*_GATES, "sr", "timestamp")
_BLOB_DELEGATION_FORMATS: Final[Formats] = (
    (
        "2026-04-06",
        (*_TOKEN, *KEY, *_AGENTS, *_DELEGATED, *_BLOB_TAIL, "ses", "srh", "srq", *ANSWERS),
    ),
    ("2025-07-05", (*_TOKEN, *KEY, *_AGENTS, *_DELEGATED, *_BLOB_TAIL, "ses", *ANSWERS)),
    ("2020-12-06", (*_TOKEN, *KEY, *_AGENTS, *_BLOB_TAIL, "ses", *ANSWERS)),
    ("2020-02-10", (*_TOKEN, *KEY, *_AGENTS, *_BLOB_TAIL, *ANSWERS)),
    ("2018-11-09", (*_TOKEN, *KEY, *_BLOB_TAIL, *ANSWERS)),
)
_DELEGATION_FORMATS: Final[dict[str, Formats]] = {
    "blob": _BLOB_DELEGATION_FORMATS,
    "dfs": _BLOB_DELEGATION_FORMATS,
    "file": (("2025-07-05", (*_TOKEN, *KEY, *_DELEGATED, *_GATES, *ANSWERS)),),
    "queue": (("2025-07-05", (*_TOKEN, *KEY, *_DELEGATED, *_GATES)),),
    # There is none for tables.
    "table": (),
}
_CANON_NAMES_SERVICE_SINCE: Final = "2015-02-21"

BOUNDS: Final = frozenset(
    {"sip", "spr", "ses", "srh", "srq", *ENTITY_RANGE_PARAMETERS, *KEY, *_AGENTS, *_DELEGATED}
)
"""Parameters that limit a token, and that not every format signs.

A limit that the format of the token's version does not sign has no effect, because the holder of
the token could remove it. Such a token is refused, so that its issuer notices.
"""


# Strings to sign


@lru_cache(maxsize=256)
def signed_names(kind: TokenKind, service: str, version: str) -> Lines | None:
    """Returns the lines of a version; an unknown newer version is treated as the newest.

    Returns None if there is no such token.
    """
    if kind is TokenKind.ACCOUNT:
        formats = _ACCOUNT_FORMATS
    else:
        table = _DELEGATION_FORMATS if kind is TokenKind.DELEGATION else _SERVICE_FORMATS
        formats = table.get(service, ())
    return next((names for since, names in formats if version >= since), None)


def signed_lines(
    request: RestRequest,
    names: Lines,
    given: Mapping[str, str],
    scope: str,
    timestamp: str,
) -> Lines | Refusal:
    """Returns the text of each line, as sent in the token or derived from the request."""
    family = "blob" if request.service == "dfs" else request.service
    prefix = f"/{family}" if given["sv"] >= _CANON_NAMES_SERVICE_SINCE else ""
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
    """Returns the required headers or parameters in the form in which they are signed."""
    parts = []
    for name in listed.split(","):
        # A colon ends the name. Otherwise, a part of the value could be moved into the name.
        value = sent.get(name.lower()) if ":" not in name else None
        if value is None or CONTROL.search(value):
            return failed(f"The request lacks something that the parameter {parameter} names.")
        parts.append(form.format(name, value))
    return "".join(parts)


# Verification

_SHOWN_CHARACTERS_MAX: Final = 2048


def verify(
    sas: Sas,
    keys: Sequence[AccountKey],
    delegated: Callable[[DelegationKey], AccountKey | None] = lambda _: None,
) -> Refusal | None:
    """Verifies the signature with the account's keys, or with the key that a delegation token
    names.

    `delegated` returns that key, if the server can derive or has stored it.
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
        # The client chooses these headers, and one may be secret.
        return failed("The signature did not match.")
    return failed(
        "The signature did not match. The server reads the string to sign as "
        f"{sas.string_to_sign()[:_SHOWN_CHARACTERS_MAX]!r}."
    )
