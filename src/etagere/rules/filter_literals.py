"""The constants in filters, by the types of properties:

    String      'it''s'
    Int32       12, and -12; a larger one is an Int64, and an even larger one a Double
    Int64       12L
    Double      12.5, 1e3, 12d, NaN, INF, -INF
    Boolean     true, false, in any case
    DateTime    datetime'2024-01-05T10:00:00.1234567Z'
    Guid        guid'00112233-4455-6677-8899-aabbccddeeff'
    Binary      X'0aff', binary'0aff'

A property with the name of one of these constants cannot be used in a filter.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from math import inf, isfinite, nan
from typing import Final

import msgspec

from etagere.clock import TICKS_PER_SECOND
from etagere.model.tables import Edm, Value


class Literal(msgspec.Struct, frozen=True):
    type: Edm
    value: Value


def _parse_text(text: str) -> str:
    return text.replace("''", "'")


_DATETIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:T(\d\d):(\d\d)(?::(\d\d)(?:\.(\d+))?)?(?:Z|([+-])(\d\d):(\d\d))?)?",
    re.ASCII,
)


def parse_datetime(text: str) -> int | None:
    """Returns ticks since the beginning of year 1; None if this is not a valid time. The default
    time zone is UTC. Digits beyond a tick are ignored."""
    found = _DATETIME.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    zone_hours, zone_minutes = int(found[9] or 0), int(found[10] or 0)
    if max(hour, zone_hours) > 23 or max(minute, zone_minutes, second) > 59:
        return None
    try:
        days = date(year, month, day).toordinal() - 1
    except ValueError:
        return None
    zone = (zone_hours * 60 + zone_minutes) * (-1 if found[8] == "-" else 1)
    minutes = (days * 24 + hour) * 60 + minute - zone
    fraction = (found[7] or "")[:7].ljust(7, "0")
    return (minutes * 60 + second) * TICKS_PER_SECOND + int(fraction)


_GUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def parse_guid(text: str) -> bytes | None:
    """Returns the 16 bytes in the order in which they are written; None if this is not a GUID."""
    return bytes.fromhex(text.replace("-", "")) if _GUID.fullmatch(text) else None


_HEXADECIMAL = re.compile(r"(?:[0-9a-fA-F]{2})*")


def _parse_binary(text: str) -> bytes | None:
    return bytes.fromhex(text) if _HEXADECIMAL.fullmatch(text) else None


_QUOTED: Final[dict[str, tuple[Edm, Callable[[str], Value | None]]]] = {
    "": (Edm.STRING, _parse_text),
    "datetime": (Edm.DATETIME, parse_datetime),
    "guid": (Edm.GUID, parse_guid),
    "x": (Edm.BINARY, _parse_binary),
    "binary": (Edm.BINARY, _parse_binary),
}
NAMED: Final = {
    "true": Literal(Edm.BOOLEAN, True),
    "false": Literal(Edm.BOOLEAN, False),
    "NaN": Literal(Edm.DOUBLE, nan),
    "INF": Literal(Edm.DOUBLE, inf),
}


def parse_named(text: str) -> Literal | None:
    """Returns None if this is not a constant. Booleans may have any case, since clients write them
    as their language does."""
    return NAMED.get(text) or _BOOLEANS.get(text.lower())


_BOOLEANS: Final = {name: NAMED[name] for name in ("true", "false")}

_INT32_END = 2**31
_INT64_END = 2**63
_INT64_CHARACTERS_MAX = 20
"""Including the sign. Python refuses to parse thousands of digits as an integer."""
_INTEGER = re.compile(r"-?[0-9]+")


def parse_quoted(text: str) -> Literal | None:
    """Parses a constant from its prefix to the closing quote; returns None if it is invalid."""
    prefix, _, content = text.partition("'")
    if prefix.lower() not in _QUOTED:
        return None
    edm, parse = _QUOTED[prefix.lower()]
    value = parse(content.removesuffix("'"))
    return None if value is None else Literal(edm, value)


def parse_number(text: str) -> Literal | None:
    """Returns None if the number does not fit into any type, or into the one of its suffix."""
    if text == "-INF":
        return Literal(Edm.DOUBLE, -inf)
    digits, suffix = (text[:-1], text[-1].lower()) if text[-1].isalpha() else (text, "")
    if suffix != "d" and _INTEGER.fullmatch(digits) and len(digits) <= _INT64_CHARACTERS_MAX:
        integer = int(digits)
        if not suffix and -_INT32_END <= integer < _INT32_END:
            return Literal(Edm.INT32, integer)
        if -_INT64_END <= integer < _INT64_END:
            return Literal(Edm.INT64, integer)
    double = float(digits)
    return Literal(Edm.DOUBLE, double) if suffix != "l" and isfinite(double) else None
