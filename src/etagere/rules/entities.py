"""Rules for tables and entities: names, keys, sizes, ETags and the text form of values.

Lengths are counted in UTF-16 units, as the service does. Only keys are limited by their UTF-8 form,
by which they are stored and sorted.
"""

from __future__ import annotations

import re
from binascii import hexlify
from collections.abc import Container
from datetime import date
from functools import lru_cache
from struct import Struct
from typing import Final
from unicodedata import category

from etagere.clock import TICKS_PER_SECOND
from etagere.errors import Refusal
from etagere.model.tables import Edm, Keys, Properties, Value
from etagere.rules.dates import (
    MINUTES,
    MINUTES_PER_DAY,
    SECONDS,
    format_day,
    format_instant,
    parse_instant,
)

TABLE_NAME_LENGTH_MIN: Final = 3
TABLE_NAME_LENGTH_MAX: Final = 63
KEY_BYTES_MAX: Final = 1024
PROPERTY_NAME_LENGTH_MAX: Final = 255
PROPERTIES_MAX: Final = 252
"""Besides PartitionKey, RowKey and Timestamp."""
VALUE_BYTES_MAX: Final = 64 * 1024
ENTITY_BYTES_MAX: Final = 1024 * 1024

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


# Names and keys

_TABLE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_RESERVED_TABLE_NAME: Final = "tables"
"""The resource that lists the tables."""
# A lone surrogate is not a character and has no UTF-8 form.
_NOT_IN_KEYS = re.compile("[/\\\\#?\x00-\x1f\x7f-\x9f\ud800-\udfff]")


_NAME_LENGTH: Final = "The specified resource name length is not within the permissible limits."


def check_table_name(name: str) -> Refusal | None:
    if not TABLE_NAME_LENGTH_MIN <= len(name) <= TABLE_NAME_LENGTH_MAX:
        facts: dict[str, str | int] = {
            "Input": "TableName",
            "Minimum": TABLE_NAME_LENGTH_MIN,
            "Maximum": TABLE_NAME_LENGTH_MAX,
        }
        return Refusal("OutOfRangeInput", facts, message_override=_NAME_LENGTH)
    if _TABLE_NAME.fullmatch(name) is None or name.lower() == _RESERVED_TABLE_NAME:
        return Refusal("InvalidResourceName")
    return None


def check_keys(keys: Keys) -> Refusal | None:
    return _check_key("PartitionKey", keys.partition) or _check_key("RowKey", keys.row)


def _check_key(name: str, key: str) -> Refusal | None:
    if _NOT_IN_KEYS.search(key) is not None:
        return Refusal("OutOfRangeInput", {"Input": name})
    if len(key.encode()) > KEY_BYTES_MAX:
        return Refusal("KeyValueTooLarge", {"PropertyName": name, "BytesMax": KEY_BYTES_MAX})
    return None


# The Unicode categories of C# identifiers (ECMA-334, section 6.4.3).
_LETTERS: Final = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Nl"})
_IDENTIFIER_CATEGORIES: Final = _LETTERS | {"Mn", "Mc", "Nd", "Pc", "Cf"}


def check_property_name(name: str) -> Refusal | None:
    if len(name) > PROPERTY_NAME_LENGTH_MAX:
        facts: dict[str, str | int] = {"PropertyName": name, "Maximum": PROPERTY_NAME_LENGTH_MAX}
        return Refusal("PropertyNameTooLong", facts)
    # ASCII identifiers are the same in C# and Python.
    good = name.isidentifier() if name.isascii() else _is_identifier(name)
    return None if good else Refusal("PropertyNameInvalid", {"PropertyName": name})


def _is_identifier(name: str) -> bool:
    """Returns whether this is a C# identifier. Those consist of UTF-16 units, so all characters are
    in the basic plane."""
    return (
        (name[0] == "_" or category(name[0]) in _LETTERS)
        and all(category(character) in _IDENTIFIER_CATEGORIES for character in name)
        and max(name) <= "\uffff"
    )


# Properties and their size

_ENTITY_BYTES = 4
_PROPERTY_BYTES = 8
_LENGTH_BYTES = 4
_FIXED_BYTES: Final[dict[str, int]] = {
    Edm.INT32.value: 4,
    Edm.INT64.value: 8,
    Edm.DOUBLE.value: 8,
    Edm.BOOLEAN.value: 1,
    Edm.DATETIME.value: 8,
    Edm.GUID.value: 16,
}


SURELY_SMALL_BYTES: Final = 32 * 1024
"""An entity that was sent in at most this many bytes is within all limits: a byte of UTF-8 becomes
at most two of UTF-16, and all other values become shorter."""


def check_entity(
    keys: Keys, properties: Properties, *, sent_bytes: int | None = None
) -> Refusal | None:
    """Refuses properties that exceed the limits of an entity, whose keys have been checked.
    `sent_bytes` is the length of the request body, if it contains nothing else."""
    count = len(properties.names)
    if count > PROPERTIES_MAX:
        return Refusal("TooManyProperties", {"Properties": count, "Maximum": PROPERTIES_MAX})
    names_bytes = _names_bytes(properties.names)
    if isinstance(names_bytes, Refusal):
        return names_bytes
    if sent_bytes is not None and sent_bytes <= SURELY_SMALL_BYTES:
        return None
    size_bytes = _ENTITY_BYTES + 2 * (utf16_length(keys.partition) + utf16_length(keys.row))
    size_bytes += names_bytes
    for name, letter, value in zip(
        properties.names, properties.types, properties.values, strict=True
    ):
        fixed_bytes = _FIXED_BYTES.get(letter)
        if fixed_bytes is not None:
            size_bytes += fixed_bytes
            continue
        value_bytes = _value_bytes(value)
        if value_bytes > VALUE_BYTES_MAX:
            facts: dict[str, str | int] = {"PropertyName": name, "Bytes": value_bytes}
            return Refusal("PropertyValueTooLarge", facts | {"BytesMax": VALUE_BYTES_MAX})
        size_bytes += _LENGTH_BYTES + value_bytes
    if size_bytes > ENTITY_BYTES_MAX:
        return Refusal("EntityTooLarge", {"Bytes": size_bytes, "BytesMax": ENTITY_BYTES_MAX})
    return None


@lru_cache(maxsize=256)
def _names_bytes(names: tuple[str, ...]) -> int | Refusal:
    """Returns the size of properties without their values. Cached, because most entities of a table
    have the same names."""
    for name in names:
        refusal = check_property_name(name)
        if refusal is not None:
            return refusal
    return sum([_PROPERTY_BYTES + 2 * len(name) for name in names])


def _value_bytes(value: Value) -> int:
    """Returns the size of a value of variable length."""
    if isinstance(value, str):
        return 2 * utf16_length(value)
    assert isinstance(value, bytes)
    return len(value)


def utf16_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def check_in_group(keys: Keys, first: Keys, rows: Container[str]) -> Refusal | None:
    """Refuses an entity in a group that is in another partition than the first, or whose row is in
    the group already."""
    if keys.partition != first.partition:
        return Refusal("CommandsInBatchActOnDifferentPartitions")
    return Refusal("InvalidDuplicateRow") if keys.row in rows else None


def merge(old: Properties, new: Properties) -> Properties:
    """Merges properties: new ones replace those of the same name or are appended."""
    merged = dict(zip(old.names, zip(old.types, old.values, strict=True), strict=True))
    merged.update(zip(new.names, zip(new.types, new.values, strict=True), strict=True))
    types = "".join([letter for letter, _ in merged.values()])
    return Properties(tuple(merged), types, tuple([value for _, value in merged.values()]))


# ETags

IfMatch = int | None
"""The stamp that an entity must have, as in `EntityChange`."""
ANY: Final = None
"""The value of `*`: the entity must exist."""
NEVER: Final = -1
"""A stamp that no entity has, for ETags that the server never sent."""

_WEAK_ETAG = re.compile(r'[Ww]/"([^"]*)"')
_STAMP_IN_ETAG = re.compile(r"datetime'(.*)'")
_COLON_IN_ETAG: Final = "%3A"
_QUOTED_MAX = 256
"""The most characters of an invalid value that a refusal repeats."""


def format_etag(stamp: int) -> str:
    return etag_of(format_timestamp(stamp))


def format_timestamp(stamp: int) -> str:
    """Formats the Timestamp of an entity, without trailing zeros."""
    written = format_instant(stamp)
    if written[-2] != "0":
        return written
    return f"{written[:-1].rstrip('0').rstrip('.')}Z"


def check_match(if_match: IfMatch, stamp: int) -> Refusal | None:
    """Refuses a change if the stamp of the entity does not match."""
    if if_match is ANY or if_match == stamp:
        return None
    facts: dict[str, str | int] = {"Condition": "If-Match", "Current": format_etag(stamp)}
    return Refusal("UpdateConditionNotSatisfied", facts)


def etag_of(timestamp: str) -> str:
    """Returns the ETag for a formatted Timestamp."""
    return f"W/\"datetime'{timestamp.replace(':', _COLON_IN_ETAG)}'\""


def parse_etag(text: str) -> IfMatch | Refusal:
    """Parses If-Match; returns a stamp, `ANY` or `NEVER`.

    Anything but one weak ETag is refused as a mistake, whereas an unknown ETag may be a version
    that is gone.
    """
    text = text.strip()
    if text == "*":
        return ANY
    found = _WEAK_ETAG.fullmatch(text)
    if found is None:
        facts: dict[str, str | int] = {"HeaderName": "If-Match", "HeaderValue": text}
        message = (
            f"The etag value '{text[:_QUOTED_MAX]}' specified in one of the request headers is not "
            "valid. Please make sure only one etag value is specified and is valid."
        )
        return Refusal("InvalidInput", facts, message_override=message)
    moment = _STAMP_IN_ETAG.fullmatch(found[1])
    stamp = None
    if moment is not None:
        stamp = parse_instant(moment[1].replace("%3a", ":").replace(_COLON_IN_ETAG, ":"))
    return NEVER if stamp is None else stamp


# Values as text

_DATETIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,7}))?"
    r"(?:Z|([+-])([0-9]{2}):([0-9]{2}))?"
)
_SECONDS_PER_DAY = 86_400
_OFFSET_SECONDS_MAX = 14 * 3600
DATETIME_MIN: Final = (date(1601, 1, 1).toordinal() - 1) * _SECONDS_PER_DAY * TICKS_PER_SECOND
DATETIME_MAX: Final = date.max.toordinal() * _SECONDS_PER_DAY * TICKS_PER_SECOND - 1
"""The first and last time that a property can have, in ticks since the beginning of year 1."""

_GUID = re.compile(r"[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}|[0-9A-Fa-f]{32}")
_GUID_DIGITS = Struct("8s4s4s4s12s")


def parse_datetime(text: str) -> int | None:
    """Returns ticks since the beginning of year 1; None if a property cannot have this value. The
    default time zone is UTC."""
    ticks = _parse_utc(text)
    if ticks is None:
        ticks = _parse_any_zone(text)
    return ticks if ticks is not None and DATETIME_MIN <= ticks <= DATETIME_MAX else None


def _parse_utc(text: str) -> int | None:
    """Parses the most common form; returns None for others. Looking up the parts takes less than
    half of the time of the regular expression."""
    minute, second = _MINUTES_BY_TEXT.get(text[11:17]), _SECONDS_BY_TEXT.get(text[17:19])
    if minute is None or second is None or text[10] != "T" or text[-1] != "Z":
        return None
    days = _days_until(text[:10])
    fraction = text[20:-1]
    if days is None or (fraction and text[19] != ".") or not fraction.isascii():
        return None
    ticks = ((days * MINUTES_PER_DAY + minute) * 60 + second) * TICKS_PER_SECOND
    if len(text) == _WHOLE_SECONDS_LENGTH:
        return ticks
    if not fraction.isdigit() or len(fraction) > _FRACTION_DIGITS:
        return None
    return ticks + int(fraction.ljust(_FRACTION_DIGITS, "0"))


_WHOLE_SECONDS_LENGTH = len("2001-02-03T04:05:06Z")
_FRACTION_DIGITS = 7
_MINUTES_BY_TEXT = {text: minute for minute, text in enumerate(MINUTES)}
_SECONDS_BY_TEXT = {text: second for second, text in enumerate(SECONDS)}
_DAY = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")


@lru_cache(maxsize=1024)
def _days_until(day: str) -> int | None:
    """Returns days since the beginning of year 1; None if the text is not a valid day."""
    found = _DAY.fullmatch(day)
    return None if found is None else _days(*found.groups())


def _parse_any_zone(text: str) -> int | None:
    found = _DATETIME.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction, sign, offset_hours, offset_minutes = (
        found.groups()
    )
    if hour > "23" or minute > "59" or second > "59":
        return None
    seconds = int(hour) * 3600 + int(minute) * 60 + int(second)
    if sign is not None:
        offset = int(offset_hours) * 3600 + int(offset_minutes) * 60
        if offset > _OFFSET_SECONDS_MAX or offset_minutes > "59":
            return None
        seconds -= offset if sign == "+" else -offset
    days = _days(year, month, day)
    if days is None:
        return None
    ticks = (days * _SECONDS_PER_DAY + seconds) * TICKS_PER_SECOND
    if fraction is not None:
        ticks += int(fraction.ljust(7, "0"))
    return ticks


@lru_cache(maxsize=1024)
def _days(year: str, month: str, day: str) -> int | None:
    """Returns days since the beginning of year 1; None for an invalid day."""
    try:
        return date(int(year), int(month), int(day)).toordinal() - 1
    except ValueError:
        return None


def format_datetime(ticks: int) -> str:
    """Formats ticks since the beginning of year 1, without trailing zeros."""
    seconds, fraction = divmod(ticks, TICKS_PER_SECOND)
    minutes, second = divmod(seconds, 60)
    days, minute = divmod(minutes, MINUTES_PER_DAY)
    milliseconds, rest = divmod(fraction, 10_000)
    if rest:
        end = f".{str(TICKS_PER_SECOND + fraction)[1:].rstrip('0')}Z"
    else:
        end = _MILLISECONDS[milliseconds]
    return f"{format_day(days + 1)}T{MINUTES[minute]}{SECONDS[second]}{end}"


# Few times are more precise.
_MILLISECONDS = ["Z", *[f".{number:03}".rstrip("0") + "Z" for number in range(1, 1_000)]]


def parse_guid(text: str) -> bytes | None:
    """Parses a GUID, with or without hyphens, in either case."""
    return bytes.fromhex(text.replace("-", "")) if _GUID.fullmatch(text) is not None else None


def format_guid(guid: bytes) -> str:
    return b"-".join(_GUID_DIGITS.unpack(hexlify(guid))).decode()
