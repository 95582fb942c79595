"""SharedKey and SharedKeyLite: requests signed with a key of the account.

Clients differ in a few lines of the string to sign. `strings_to_sign` yields the most common form
first, so that a valid request costs one HMAC; the others are tried only after a mismatch. Every
accepted form covers the same parts of the request.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Final, NamedTuple

from etagere.auth.request import SECONDARY, RestRequest, octets
from etagere.clock import TICKS_PER_SECOND
from etagere.errors import Refusal

if TYPE_CHECKING:
    from hashlib import _Hash

SKEW_TICKS: Final = 15 * 60 * TICKS_PER_SECOND
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()


# Keys


class AccountKey:
    """A key with its HMAC-SHA256 prepared: the two padded blocks are hashed once, not per use."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, secret: bytes) -> None:
        block = (secret if len(secret) <= 64 else hashlib.sha256(secret).digest()).ljust(64, b"\0")
        self._inner: _Hash = hashlib.sha256(block.translate(_INNER_PAD))
        self._outer: _Hash = hashlib.sha256(block.translate(_OUTER_PAD))

    @classmethod
    def from_base64(cls, encoded: str) -> AccountKey:
        """Decodes a key from base64; raises ValueError if it is invalid."""
        try:
            return cls(base64.b64decode(encoded, validate=True))
        except binascii.Error:
            # Without the cause, which may contain the key.
            raise ValueError("an account key is not valid base64") from None

    def __repr__(self) -> str:
        return "<account key>"

    def signature(self, message: bytes) -> bytes:
        """Returns the signature in base64."""
        inner = self._inner.copy()
        inner.update(message)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return binascii.b2a_base64(outer.digest(), newline=False)

    def signed(self, message: bytes, signature: bytes) -> bool:
        """Verifies a signature in its encoded form, because base64 has several encodings of the
        same bytes."""
        return hmac.compare_digest(self.signature(message), signature)


_INNER_PAD: Final = bytes(octet ^ 0x36 for octet in range(256))
_OUTER_PAD: Final = bytes(octet ^ 0x5C for octet in range(256))


# The Authorization header


class Claim(NamedTuple):
    """A parsed Authorization header."""

    lite: bool
    account: str
    signature: bytes


_LITE: Final = {"sharedkey": False, "sharedkeylite": True}
_SIGNATURE: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}")


def parse_authorization(header: str) -> Claim | Refusal:
    scheme, _, rest = header.partition(" ")
    lite = _LITE.get(scheme.lower())
    account, _, signature = rest.strip(" ").partition(":")
    if lite is None or not account or not _SIGNATURE.fullmatch(signature):
        return Refusal("InvalidAuthenticationInfo")
    return Claim(lite, account, signature.encode())


# Verification


def verify(request: RestRequest, keys: Sequence[AccountKey], now: int) -> Refusal | None:
    """Checks the Authorization header of a request against the keys of its account."""
    header = request.fields.get("authorization")
    if header is None:
        return Refusal("NoAuthenticationInformation")
    claim = parse_authorization(header)
    if isinstance(claim, Refusal):
        return claim
    if claim.account != request.account:
        return failed("The account of the Authorization header is not the one addressed.")
    late = check_date(request, now)
    if late is not None:
        return late
    # The other forms sign only `comp` of a query, and nothing follows it.
    signs_parameters = not claim.lite and request.service != "table"
    if signs_parameters and any(_reads_as_another(*pair) for pair in request.parameters.items()):
        return failed("A parameter reads as if it were another, or several.")
    for string in strings_to_sign(request, lite=claim.lite):
        message = octets(string)
        for key in keys:
            if key.signed(message, claim.signature):
                return _refuse_chunked_body(request, lite=claim.lite)
    shown = _shown(next(strings_to_sign(request, lite=claim.lite)))
    return failed(
        "The signature in the Authorization header is not the one of the string to sign, which "
        f"the server reads as {shown!r}."
    )


def _refuse_chunked_body(request: RestRequest, *, lite: bool) -> Refusal | None:
    """Refuses a chunked body where a signature covers the length: it reads as one of length zero,
    so a body could be added to any signed request that has none."""
    if "transfer-encoding" not in request.fields or lite or request.service == "table":
        return None
    return Refusal(
        "MissingContentLengthHeader",
        {"Reason": "SharedKey signs the length of a body, and a chunked one has none."},
    )


# A colon ends a name, and a newline a value, so neither may occur where it would be ambiguous.
_AMBIGUOUS_NAME: Final = re.compile(r"[:\n]")
_AMBIGUOUS_VALUE: Final = re.compile(r"\n[^\n]*:")


def _reads_as_another(name: str, value: str) -> bool:
    """Returns whether a parameter has the same string to sign as other parameters could have."""
    return _AMBIGUOUS_NAME.search(name) is not None or _AMBIGUOUS_VALUE.search(value) is not None


def failed(detail: str) -> Refusal:
    """Returns the refusal of invalid credentials, for all schemes."""
    return Refusal("AuthenticationFailed", {"AuthenticationErrorDetail": detail})


_SHOWN_HEADERS: Final = frozenset(
    {
        "x-ms-blob-type",
        "x-ms-client-request-id",
        "x-ms-date",
        "x-ms-range",
        "x-ms-version",
        "x-ms-write",
    }
)
_HIDDEN_PARAMETERS: Final = frozenset({"popreceipt", "sig"})
_SHOWN_CHARACTERS_MAX: Final = 2048


def _shown(string: str) -> str:
    """Returns a string to sign without possible secrets: keys, tokens, lease ids and pop
    receipts."""
    lines = []
    for line in string.split("\n"):
        name, colon, _ = line.partition(":")
        hidden = (
            name not in _SHOWN_HEADERS if name.startswith("x-ms-") else name in _HIDDEN_PARAMETERS
        )
        lines.append(f"{name}:…" if colon and hidden else line)
    return "\n".join(lines)[:_SHOWN_CHARACTERS_MAX]


# Dates

_HTTP_DATE: Final = re.compile(
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), ([0-9]{1,2}) ([A-Z][a-z]{2}) ([0-9]{4}) "
    r"([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9]) GMT"
)
_MONTHS: Final = {
    month: number
    for number, month in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1
    )
}


@lru_cache(maxsize=64)
def http_date(written: str) -> int | None:
    """Returns ticks since 1970. Cached, because requests in the same second have the same date."""
    match = _HTTP_DATE.fullmatch(written)
    if match is None:
        return None
    day, month, year, hour, minute, second = match.groups()
    month_number = _MONTHS.get(month, 0)
    return utc_ticks(int(year), month_number, int(day), int(hour), int(minute), int(second))


def utc_ticks(year: int, month: int, day: int, hour: int, minute: int, second: int) -> int | None:
    """Returns ticks since 1970; None for an invalid day."""
    try:
        days = date(year, month, day).toordinal() - _EPOCH_DAY
    except ValueError:
        return None
    return (days * 86_400 + hour * 3_600 + minute * 60 + second) * TICKS_PER_SECOND


def check_date(request: RestRequest, now: int) -> Refusal | None:
    """Requires a date within a quarter of an hour of the current time."""
    written = request.fields.get("x-ms-date")
    if written is None:
        written = request.fields.get("date", "")
    # Longer values are not dates, and must not fill the cache.
    at = http_date(written) if len(written) <= 40 else None
    if at is None:
        return failed("The request has no valid x-ms-date or Date header.")
    if abs(now - at) > SKEW_TICKS:
        return failed(f"The date of the request, {written}, is not within 15 minutes of now.")
    return None


# Canonicalized headers

# The service compares names by letters and digits first, ignoring dashes and apostrophes.
_ORDER: Final = b"!#$%&*.^_`|~+0123456789abcdefghijklmnopqrstuvwxyz"
_LEFT_OUT: Final = bytes(octet for octet in range(256) if octet not in b"\n" + _ORDER)
_WEIGHTS: Final = bytes(_ORDER.find(octet) + 1 for octet in range(256))
# Ties are decided by the ignored characters, from the left: none, then an apostrophe, then a dash.
_TIES: Final = bytes({ord("'"): 1, ord("-"): 2}.get(octet, 0) for octet in range(256))


def _weight_and_tie(name: str) -> tuple[bytes, bytes]:
    written = octets(name)
    return written.translate(_WEIGHTS, _LEFT_OUT), written.translate(_TIES)


def header_order(names: list[str]) -> list[str]:
    """Returns lower-cased header names in the order in which the service signs them.

    Names that are sorted by bytes are nearly always in that order. One translation of all names
    verifies that: the newlines between them become zeros.
    """
    names = sorted(names)
    weights = octets("\n".join(names)).translate(_WEIGHTS, _LEFT_OUT).split(b"\0")
    if weights == sorted(set(weights)):
        return names
    return sorted(names, key=_weight_and_tie)


_FOLD: Final = re.compile(r"[ \t]*\r?\n[ \t]*")


def _canonical_headers(
    fields: Mapping[str, str], order: Callable[[list[str]], list[str]] = header_order
) -> str:
    names = order([name for name in fields if name.startswith("x-ms-")])
    return "".join([f"{name}:{_canonical_value(fields[name])}\n" for name in names])


def _canonical_value(value: str) -> str:
    if "\n" in value:
        value = _FOLD.sub(" ", value)
    return value.strip(" \t")


# Strings to sign


def strings_to_sign(request: RestRequest, *, lite: bool) -> Iterator[str]:
    """Yields every accepted string to sign of a request, the most common one first."""
    if request.service == "table":
        return _table_strings(request, lite)
    return _lite_strings(request) if lite else _strings(request)


def _strings(request: RestRequest) -> Iterator[str]:
    fields = request.fields
    get = fields.get
    encoding = get("content-encoding", "")
    language = get("content-language", "")
    length = get("content-length", "")
    stamped = "x-ms-date" in fields
    date_line = get("date", "")
    before = f"{get('content-md5', '')}\n{get('content-type', '')}\n"
    after = (
        f"\n{get('if-modified-since', '')}\n{get('if-match', '')}\n{get('if-none-match', '')}"
        f"\n{get('if-unmodified-since', '')}\n{get('range', '')}\n"
    )
    headers = _canonical_headers(fields)
    query = _canonical_query(request) if request.query else ""
    yield (
        f"{request.method}\n{encoding}\n{language}\n{'' if length == '0' else length}\n{before}"
        f"{'' if stamped else date_line}{after}{headers}/{request.account}{request.path or '/'}"
        f"{query}"
    )

    # Only ambiguous parts are varied; the first combination is the one above.
    orders = [(encoding, language)]
    if encoding != language:
        # One SDK swaps these two.
        orders.append((language, encoding))
    # Before version 2015-02-21 a length of zero was signed as "0".
    lengths = ["", "0"] if length == "0" else [length]
    dates = [""] if stamped else [date_line]
    if stamped and date_line:
        # Some clients send both dates and sign both.
        dates.append(date_line)
    blocks = _header_blocks(fields, headers)
    variants = product(orders, lengths, dates, blocks, _canonical_paths(request))
    next(variants)
    for (first, second), length_line, dated, block, path in variants:
        yield (
            f"{request.method}\n{first}\n{second}\n{length_line}\n{before}{dated}{after}{block}"
            f"{path}{query}"
        )


def _lite_strings(request: RestRequest) -> Iterator[str]:
    fields = request.fields
    date_line = fields.get("date", "")
    dates = [date_line]
    if "x-ms-date" in fields:
        dates = ["", date_line] if date_line else [""]
    head = f"{request.method}\n{fields.get('content-md5', '')}\n{fields.get('content-type', '')}\n"
    blocks = _header_blocks(fields, _canonical_headers(fields))
    comp = _comp(request)
    for dated, block, path in product(dates, blocks, _canonical_paths(request)):
        yield f"{head}{dated}\n{block}{path}{comp}"


def _table_strings(request: RestRequest, lite: bool) -> Iterator[str]:
    """Yields the strings to sign of a table request. They contain no x-ms- headers, so the date
    that is checked must be the one that is signed."""
    fields = request.fields
    head = f"{request.method}\n{fields.get('content-md5', '')}\n{fields.get('content-type', '')}\n"
    if lite:
        head = ""
    dated = fields.get("x-ms-date")
    if dated is None:
        dated = fields.get("date", "")
    comp = _comp(request)
    for path in _canonical_paths(request):
        yield f"{head}{dated}\n{path}{comp}"


def _header_blocks(fields: Mapping[str, str], usual: str) -> list[str]:
    """Returns the canonicalized headers in the service's order and, since some clients use it, in
    byte order."""
    plain = _canonical_headers(fields, sorted)
    return [usual] if plain == usual else [usual, plain]


def _canonical_paths(request: RestRequest) -> list[str]:
    """Returns the resource without its query; the path is unchanged, account included."""
    path = request.path or "/"
    paths = [f"/{request.account}{path}"]
    if request.secondary and request.path_style:
        # The client removed the suffix from both accounts.
        marked = f"/{request.account}{SECONDARY}"
        paths.append(f"/{request.account}/{request.account}{path[len(marked) :]}")
    return paths


def _canonical_query(request: RestRequest) -> str:
    parameters = request.parameters
    return "".join([f"\n{name}:{parameters[name]}" for name in sorted(parameters)])


def _comp(request: RestRequest) -> str:
    """Returns the part of the query that SharedKeyLite and tables sign."""
    comp = request.parameters.get("comp") if request.query else None
    return "" if comp is None else f"?comp={comp}"
