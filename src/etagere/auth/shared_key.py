"""SharedKey and SharedKeyLite: requests signed with a key of the account.

Clients disagree about a few lines of the text to sign. `strings_to_sign` gives the form most of
them use first, so a valid request costs one HMAC; the others follow only after a mismatch.
Every accepted form still covers the same facts of the request.
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
        """A key as configuration and user delegation keys write it; ValueError if it is not one."""
        try:
            return cls(base64.b64decode(encoded, validate=True))
        except binascii.Error:
            # Without the cause, which may show the key.
            raise ValueError("an account key is not valid base64") from None

    def __repr__(self) -> str:
        return "<account key>"

    def signature(self, message: bytes) -> bytes:
        """The signature in base64, as it is sent."""
        inner = self._inner.copy()
        inner.update(message)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return binascii.b2a_base64(outer.digest(), newline=False)

    def signed(self, message: bytes, signature: bytes) -> bool:
        """Compares the encoded forms: base64 has several spellings of the same bytes."""
        return hmac.compare_digest(self.signature(message), signature)


_INNER_PAD: Final = bytes(octet ^ 0x36 for octet in range(256))
_OUTER_PAD: Final = bytes(octet ^ 0x5C for octet in range(256))


# The Authorization header


class Claim(NamedTuple):
    """What an Authorization header says."""

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
    if any(_reads_as_another(name, value) for name, value in request.parameters.items()):
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


# A colon ends a name and a line end a value, so neither may stand where it would be mistaken.
_AMBIGUOUS_NAME: Final = re.compile(r"[:\n]")
_AMBIGUOUS_VALUE: Final = re.compile(r"\n[^\n]*:")


def _reads_as_another(name: str, value: str) -> bool:
    """Whether a parameter has the same text to sign as other parameters would have."""
    return _AMBIGUOUS_NAME.search(name) is not None or _AMBIGUOUS_VALUE.search(value) is not None


def failed(detail: str) -> Refusal:
    """What every scheme answers to credentials that do not hold."""
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
    """A string to sign without what may be secret: keys, tokens, lease ids, receipts."""
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
    """Ticks since 1970. Requests of one second carry the same date, hence the cache."""
    match = _HTTP_DATE.fullmatch(written)
    if match is None:
        return None
    day, month, year, hour, minute, second = match.groups()
    month_number = _MONTHS.get(month, 0)
    return utc_ticks(int(year), month_number, int(day), int(hour), int(minute), int(second))


def utc_ticks(year: int, month: int, day: int, hour: int, minute: int, second: int) -> int | None:
    """Ticks since 1970, None for a day that the calendar does not have."""
    try:
        days = date(year, month, day).toordinal() - _EPOCH_DAY
    except ValueError:
        return None
    return (days * 86_400 + hour * 3_600 + minute * 60 + second) * TICKS_PER_SECOND


def check_date(request: RestRequest, now: int) -> Refusal | None:
    """A signature is good for a quarter of an hour around its date, which it must have."""
    written = request.fields.get("x-ms-date")
    if written is None:
        written = request.fields.get("date", "")
    # A longer one is no date, and not worth a place in the cache.
    at = http_date(written) if len(written) <= 40 else None
    if at is None:
        return failed("The request has no valid x-ms-date or Date header.")
    if abs(now - at) > SKEW_TICKS:
        return failed(f"The date of the request, {written}, is not within 15 minutes of now.")
    return None


# Canonicalized headers

# The service compares names as a phone book does: by letters and digits first, as if dashes
# and apostrophes were not there.
_ORDER: Final = b"!#$%&*.^_`|~+0123456789abcdefghijklmnopqrstuvwxyz"
_LEFT_OUT: Final = bytes(octet for octet in range(256) if octet not in b"\n" + _ORDER)
_WEIGHTS: Final = bytes(_ORDER.find(octet) + 1 for octet in range(256))
# On a tie what was left out decides: none before an apostrophe before a dash, from the left.
_TIES: Final = bytes({ord("'"): 1, ord("-"): 2}.get(octet, 0) for octet in range(256))


def _weight_and_tie(name: str) -> tuple[bytes, bytes]:
    written = octets(name)
    return written.translate(_WEIGHTS, _LEFT_OUT), written.translate(_TIES)


def header_order(names: list[str]) -> list[str]:
    """Lower-cased header names in the order in which the service signs them.

    The names that clients send are nearly always in that order once their bytes are, and a
    single translation of all of them tells: the line ends between them become zeros.
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
    """Every accepted text of a request, the usual one first."""
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

    # Only what the request makes ambiguous is tried again; the first product is the one above.
    orders = [(encoding, language)]
    if encoding != language:
        # An SDK lists these two the other way round.
        orders.append((language, encoding))
    # Before version 2015-02-21 a length of zero was signed as it stands.
    lengths = ["", "0"] if length == "0" else [length]
    dates = [""] if stamped else [date_line]
    if stamped and date_line:
        # Some send both dates and sign both.
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
    """Tables sign no x-ms- headers, so the date that is checked must be the one that is signed."""
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
    """Not every client knows the service's order of names; some keep that of their bytes."""
    plain = _canonical_headers(fields, sorted)
    return [usual] if plain == usual else [usual, plain]


def _canonical_paths(request: RestRequest) -> list[str]:
    """The resource without its query; the path stays as it was sent, account included."""
    path = request.path or "/"
    paths = [f"/{request.account}{path}"]
    if request.secondary and request.path_style:
        # The client took the suffix off the second account as well.
        marked = f"/{request.account}{SECONDARY}"
        paths.append(f"/{request.account}/{request.account}{path[len(marked) :]}")
    return paths


def _canonical_query(request: RestRequest) -> str:
    parameters = request.parameters
    return "".join([f"\n{name}:{parameters[name]}" for name in sorted(parameters)])


def _comp(request: RestRequest) -> str:
    """All that SharedKeyLite and tables sign of a query."""
    comp = request.parameters.get("comp") if request.query else None
    return "" if comp is None else f"?comp={comp}"
