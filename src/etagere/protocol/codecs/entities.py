"""Entities and tables as JSON, as far as it is sent to us.

A property's type is that of its JSON, unless a member beside it says otherwise, which may come
before or after it:

    "Born@odata.type": "Edm.DateTime", "Born": "1815-12-10T00:00:00Z"

What the service itself says of an entity is not read, so that clients can send back what they got:
its timestamp, and all that begins with `odata.`.

The standard library reads JSON more slowly than others, but tells of members that come twice.
"""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Callable
from math import inf
from typing import Final, NamedTuple, NoReturn

from etagere.errors import Refusal
from etagere.model.tables import Edm, Properties, Value
from etagere.rules.entities import (
    INT32_MAX,
    INT32_MIN,
    INT64_MAX,
    INT64_MIN,
    parse_datetime,
    parse_guid,
)


class DecodedEntity(NamedTuple):
    """What a body says of an entity. Requests that name it in their address need no keys here."""

    partition: str | None
    row: str | None
    properties: Properties


def decode_entity(body: bytes, *, is_addressed: bool = False) -> DecodedEntity | Refusal:
    """What a body says, of the right form. Whether an entity may be so, the rules say. Where an
    address names it, the types of its keys in the body are not looked at."""
    try:
        members = _members(body)
        types = _take_types(members)
        if is_addressed:
            types.pop("PartitionKey", None)
            types.pop("RowKey", None)
        partition = _take_key(members, types, "PartitionKey")
        row = _take_key(members, types, "RowKey")
        return DecodedEntity(partition, row, _properties(members, types))
    except _Unreadable as unreadable:
        return unreadable.refusal


def decode_table(body: bytes) -> str | Refusal:
    """The name of the table that a body asks for."""
    try:
        members = _members(body)
        _take_types(members)
    except _Unreadable as unreadable:
        return unreadable.refusal
    name = members.pop("TableName", None)
    if name is None:
        return Refusal("PropertiesNeedValue", {"PropertyName": "TableName"})
    if not isinstance(name, str):
        return _invalid_input("The value does not fit its type.", "TableName")
    if members:
        return _invalid_input("A table has no such property.", next(iter(members)))
    return name


class _Unreadable(Exception):
    """A body that does not say what it should. Never leaves this module."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.code)
        self.refusal = refusal


def _invalid_input(reason: str, name: str | None = None) -> Refusal:
    facts: dict[str, str | int] = {} if name is None else {"PropertyName": name}
    return Refusal("InvalidInput", {**facts, "Reason": reason})


# Members

_Members = dict[str, object]


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


# With objects as tuples of pairs, they can be told from arrays, and have all of their members.
_read: Final = json.JSONDecoder(object_pairs_hook=tuple, parse_constant=_refuse_constant).decode

_SYSTEM_PREFIX: Final = "odata."
_ANNOTATION: Final = "@odata."
_TYPE: Final = "@odata.type"
_TIMESTAMP: Final = "Timestamp"


def _members(body: bytes) -> _Members:
    """The members of an object, each of which is there once."""
    try:
        text = body.decode()
        pairs = _read(text)
    except (ValueError, RecursionError):  # Numbers of very many digits are a ValueError, too.
        raise _Unreadable(_invalid_input("Not well-formed JSON.")) from None
    if not isinstance(pairs, tuple):
        raise _Unreadable(_invalid_input("Not a JSON object."))
    members = dict(pairs)
    if len(members) < len(pairs):
        raise _Unreadable(Refusal("DuplicatePropertiesSpecified"))
    if "\\u" in text:
        _refuse_halves(members)
    return members


def _refuse_halves(members: _Members) -> None:
    """Escapes can write half of a surrogate pair, which is no character and has no UTF-8."""
    for name, value in members.items():
        try:
            name.encode()
            if isinstance(value, str):
                value.encode()
        except UnicodeEncodeError:
            reason = "Half of a surrogate pair is no character."
            raise _Unreadable(_invalid_input(reason)) from None


def _take_types(members: _Members) -> _Members:
    """Removes what is not of the entity itself; returns the types that are given, by name."""
    types: _Members = {}
    members.pop(_TIMESTAMP, None)
    for name in [name for name in members if _SYSTEM_PREFIX in name]:
        if name.startswith(_SYSTEM_PREFIX):
            del members[name]
        elif name.endswith(_TYPE) and _ANNOTATION not in name.removesuffix(_TYPE):
            types[name.removesuffix(_TYPE)] = members.pop(name)
        elif _ANNOTATION in name:  # Also what is said of an annotation, as some clients do.
            del members[name]
    types.pop(_TIMESTAMP, None)
    return types


def _take_key(members: _Members, types: _Members, name: str) -> str | None:
    key = members.pop(name, None)
    if not (key is None or isinstance(key, str)) or types.pop(name, "Edm.String") != "Edm.String":
        raise _Unreadable(Refusal("PrimaryKeyPropertyIsInvalidType", {"PropertyName": name}))
    return key


# Values


def _properties(members: _Members, types: _Members) -> Properties:
    names: list[str] = []
    letters: list[str] = []
    values: list[Value] = []
    for name, written in members.items():
        if types and name in types:
            reader = _typed_reader(name, types.pop(name))
        else:
            reader = _UNTYPED.get(type(written), _NO_VALUE)
        if written is None:
            continue
        letter, read = reader
        value = read(written)
        if value is None:
            raise _Unreadable(_invalid_input("The value does not fit its type.", name))
        names.append(name)
        letters.append(letter)
        values.append(value)
    if types:
        raise _Unreadable(Refusal("PropertiesNeedValue", {"PropertyName": next(iter(types))}))
    return Properties(tuple(names), "".join(letters), tuple(values))


_Reader = tuple[str, Callable[[object], Value | None]]
"""The letter of a type, and what makes one of its values of what JSON has; None if that is none."""


def _typed_reader(name: str, type_name: object) -> _Reader:
    reader = _TYPED.get(type_name) if isinstance(type_name, str) else None
    if reader is None:
        raise _Unreadable(Refusal("InvalidValueType", {"PropertyName": name}))
    return reader


def _string(written: object) -> str | None:
    return written if isinstance(written, str) else None


_BOOLEANS: Final = {"true": True, "false": False}


def _boolean(written: object) -> bool | None:
    """Where its type is given, a value may also be written as a string: here and below."""
    if isinstance(written, str):
        return _BOOLEANS.get(written.lower())
    return written if isinstance(written, bool) else None


def _int32(written: object) -> int | None:
    number = _integer(written)
    return number if number is not None and INT32_MIN <= number <= INT32_MAX else None


def _int64(written: object) -> int | None:
    """Mostly a string, because the numbers of many clients are not as exact."""
    number = _integer(written)
    return number if number is not None and INT64_MIN <= number <= INT64_MAX else None


_INTEGER = re.compile(r"-?[0-9]{1,19}")


def _integer(written: object) -> int | None:
    if isinstance(written, str):
        return int(written) if _INTEGER.fullmatch(written) is not None else None
    # Not isinstance: JSON's true is no number.
    return written if type(written) is int else None


_NOT_NUMBERS: Final = {"NaN": float("nan"), "Infinity": inf, "-Infinity": -inf}
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[Ee][+-]?[0-9]+)?")
_NUMBER_CHARACTERS_MAX: Final = 400


def _double(written: object) -> float | None:
    if isinstance(written, str):
        if len(written) > _NUMBER_CHARACTERS_MAX or _NUMBER.fullmatch(written) is None:
            return _NOT_NUMBERS.get(written)
        written = float(written)
    if type(written) is int:
        try:
            return float(written)
        except OverflowError:
            return None
    # What was written with digits and came out infinite was too large.
    return written if isinstance(written, float) and -inf < written < inf else None


def _datetime(written: object) -> int | None:
    return parse_datetime(written) if isinstance(written, str) else None


def _guid(written: object) -> bytes | None:
    return parse_guid(written) if isinstance(written, str) else None


def _binary(written: object) -> bytes | None:
    if not isinstance(written, str):
        return None
    try:
        return binascii.a2b_base64(written, strict_mode=True)
    except ValueError:
        return None


def _nothing(_written: object) -> None:
    return None


_NO_VALUE: Final[_Reader] = ("", _nothing)
"""For arrays and objects."""

_UNTYPED: Final[dict[type, _Reader]] = {
    str: (Edm.STRING.value, _string),
    int: (Edm.INT32.value, _int32),
    float: (Edm.DOUBLE.value, _double),
    bool: (Edm.BOOLEAN.value, _boolean),
}

_TYPED: Final[dict[str, _Reader]] = {
    "Edm.String": (Edm.STRING.value, _string),
    "Edm.Int32": (Edm.INT32.value, _int32),
    "Edm.Int64": (Edm.INT64.value, _int64),
    "Edm.Double": (Edm.DOUBLE.value, _double),
    "Edm.Boolean": (Edm.BOOLEAN.value, _boolean),
    "Edm.DateTime": (Edm.DATETIME.value, _datetime),
    "Edm.Guid": (Edm.GUID.value, _guid),
    "Edm.Binary": (Edm.BINARY.value, _binary),
}
