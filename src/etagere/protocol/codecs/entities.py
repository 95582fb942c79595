"""Decoding of entities and tables from JSON.

The type of a property is that of its JSON value, unless another member, before or after it,
specifies one:

    "Born@odata.type": "Edm.DateTime", "Born": "1815-12-10T00:00:00Z"

Members that the service adds to entities are ignored, so that clients can send back what they
received: the timestamp, and all names that begin with `odata.`.

Duplicate members are refused. Only the parser of the standard library reports them, and it is
slower, so it is used only if counting quotes is not enough.
"""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Callable
from functools import lru_cache
from math import inf
from operator import itemgetter
from typing import Any, Final, NamedTuple, NoReturn

import msgspec

from etagere.errors import Refusal
from etagere.model.tables import Edm, Properties, Value
from etagere.rules.entities import (
    INT32_MAX,
    INT32_MIN,
    INT64_MAX,
    INT64_MIN,
    PROPERTIES_MAX,
    parse_datetime,
    parse_guid,
)

MEMBERS_MAX: Final = 1_024
"""The maximum number of members of an entity: properties with their types, keys, members that the
service adds, and null properties, which are not stored."""


class DecodedEntity(msgspec.Struct, frozen=True):
    """A decoded entity. Its keys may be missing if the address of the request has them."""

    partition: str | None
    row: str | None
    properties: Properties


def decode_entity(body: bytes, *, is_addressed: bool = False) -> DecodedEntity | Refusal:
    """Decodes an entity; the rules check its limits. If the address has the keys, the types of keys
    in the body are ignored."""
    try:
        _check_structure(body)
        members = _members(body)
        if len(members) > MEMBERS_MAX:
            raise _Unreadable(_too_many())
        names = tuple(members)
        layout = _known_layout(names) if len(body) <= _KNOWN_BYTES_MAX else _layout_of(names)
        partition = _key(members, layout.partition, is_addressed)
        row = _key(members, layout.row, is_addressed)
        return DecodedEntity(partition, row, _properties(members, layout))
    except _Unreadable as unreadable:
        return unreadable.refusal


def decode_table(body: bytes) -> str | Refusal:
    """Decodes the name of a table."""
    try:
        members = _members(body)
    except _Unreadable as unreadable:
        return unreadable.refusal
    members = {name: value for name, value in members.items() if not _is_service_annotation(name)}
    name = members.pop("TableName", None)
    if name is None:
        return Refusal("PropertiesNeedValue", {"PropertyName": "TableName"})
    if not isinstance(name, str):
        return _wrong_type("TableName")
    if members:
        return _invalid_input("A table has no such property.", next(iter(members)))
    return name


class _Unreadable(Exception):
    """A body that cannot be decoded. Only used within this module."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.code)
        self.refusal = refusal


def _invalid_input(reason: str, name: str | None = None) -> Refusal:
    facts: dict[str, str | int] = {} if name is None else {"PropertyName": name}
    return Refusal("InvalidInput", {**facts, "Reason": reason})


def _wrong_type(name: str) -> Refusal:
    """Returns the refusal of a value that does not have its type."""
    facts: dict[str, str | int] = {"PropertyName": name}
    facts["Reason"] = "The value does not fit its type."
    return Refusal(
        "InvalidInput", facts, message_override="An error occurred while processing this request."
    )


def _too_many() -> Refusal:
    return Refusal("TooManyProperties", {"Maximum": PROPERTIES_MAX})


# The work that a document causes
#
# Long texts cost little, but each member, number or nested value costs about a microsecond of the
# event loop. So how many of them a long document has is found out before it is parsed.

_UNCHECKED_BYTES_MAX: Final = 64 << 10
_QUOTES_MAX: Final = 4 * MEMBERS_MAX
"""Two for each name, and two for each string value."""
_NESTED_MAX: Final = 1_024
_OUTSIDE_STRINGS_BYTES_MAX: Final = 2 << 20
"""Numbers, punctuation and whitespace. Without the whitespace, an entity has less than 32 KiB of
these."""


def _check_structure(body: bytes) -> None:
    """Refuses a long document that has more values than an entity can have."""
    if len(body) <= _UNCHECKED_BYTES_MAX:
        return
    if b"\\" in body:
        # Without escapes, every quote begins or ends a string.
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    pieces = body.split(b'"', _QUOTES_MAX)
    has_too_many = len(pieces) > _QUOTES_MAX
    # The text behind the last quote is not checked.
    outside = b"".join(pieces[: _QUOTES_MAX if has_too_many else None : 2])
    nested = outside.count(b"{") + outside.count(b"[")
    if nested > _NESTED_MAX or len(outside) > _OUTSIDE_STRINGS_BYTES_MAX:
        raise _Unreadable(_invalid_input("The document is not that of an entity."))
    if has_too_many or outside.count(b",") > MEMBERS_MAX:
        raise _Unreadable(_too_many())


# Members

_Members = dict[str, object]


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


# As tuples of pairs, objects can be distinguished from arrays, and keep duplicate members.
_read_pairs: Final = json.JSONDecoder(
    object_pairs_hook=tuple, parse_constant=_refuse_constant
).decode
_read_quickly: Final = msgspec.json.Decoder(dict[str, Any]).decode

_SYSTEM_PREFIX: Final = "odata."
_ANNOTATION: Final = "@odata."
_TYPE: Final = "@odata.type"
_TIMESTAMP: Final = "Timestamp"


def _members(body: bytes) -> _Members:
    """Returns the members of an object without duplicates."""
    if b"\\" not in body:
        # Without escapes, every quote begins or ends a name or a string.
        try:
            members: _Members = _read_quickly(body)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return _members_strictly(body)
        texts = list(map(type, members.values())).count(str)
        if body.count(b'"') == 2 * (len(members) + texts):
            return members
    return _members_strictly(body)


def _members_strictly(body: bytes) -> _Members:
    try:
        text = body.decode()
        pairs = _read_pairs(text)
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
    """Refuses lone surrogates, which escapes can contain: they are not characters and have no UTF-8
    form."""
    for name, value in members.items():
        try:
            name.encode()
            if isinstance(value, str):
                value.encode()
        except UnicodeEncodeError:
            reason = "Half of a surrogate pair is no character."
            raise _Unreadable(_invalid_input(reason)) from None


# Layout


class _Named(NamedTuple):
    """A value, and the member with its type, if there is one."""

    name: str
    typed_by: str | None


class _Layout(NamedTuple):
    """The meaning of the members of an object, by their names. Cached, because most entities of a
    table have the same names."""

    partition: _Named
    row: _Named
    properties: tuple[_Named, ...]
    names: tuple[str, ...]
    """The names of the properties."""
    values_of: Callable[[tuple[object, ...]], tuple[object, ...]]
    """Selects their values from those of all members."""
    typed: tuple[int, ...]
    """The properties that have a member with their type,"""
    types_of: Callable[[tuple[object, ...]], tuple[object, ...]]
    """and a function that selects the values of those members."""
    without_value: tuple[_Named, ...]
    """Names that have a type but no value."""


_KNOWN_BYTES_MAX: Final = 64 << 10


def _layout_of(names: tuple[str, ...]) -> _Layout:
    types = {name.removesuffix(_TYPE): name for name in names if _is_type(name)}
    types.pop(_TIMESTAMP, None)
    keys = [_Named(name, types.pop(name, None)) for name in ("PartitionKey", "RowKey")]
    values = [name for name in names if not _is_service_annotation(name) and name not in _KEYS]
    properties = tuple([_Named(name, types.pop(name, None)) for name in values])
    without_value = tuple([_Named(*pair) for pair in types.items()])
    places = {name: place for place, name in enumerate(names)}
    return _Layout(
        keys[0],
        keys[1],
        properties,
        names=tuple(values),
        values_of=_picker([places[name] for name in values]),
        typed=tuple([at for at, named in enumerate(properties) if named.typed_by is not None]),
        types_of=_picker([places[typed_by] for _, typed_by in properties if typed_by is not None]),
        without_value=without_value,
    )


def _picker(places: list[int]) -> Callable[[tuple[object, ...]], tuple[object, ...]]:
    """Returns a function that selects the items at these positions of a tuple."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda items: tuple([items[place] for place in places])


_KEYS: Final = frozenset({"PartitionKey", "RowKey"})
_known_layout = lru_cache(maxsize=256)(_layout_of)


def _is_type(name: str) -> bool:
    if name.startswith(_SYSTEM_PREFIX) or not name.endswith(_TYPE):
        return False
    return _ANNOTATION not in name.removesuffix(_TYPE)


def _is_service_annotation(name: str) -> bool:
    """Returns whether a member was added by the service; also annotations of annotations, which
    some clients send."""
    return name == _TIMESTAMP or name.startswith(_SYSTEM_PREFIX) or _ANNOTATION in name


def _key(members: _Members, named: _Named, is_addressed: bool) -> str | None:
    key = members.get(named.name)
    typed = None if is_addressed or named.typed_by is None else members[named.typed_by]
    if not (key is None or isinstance(key, str)) or typed not in (None, "Edm.String"):
        raise _Unreadable(_invalid_input("A key is a string.", named.name))
    return key


# Values


def _properties(members: _Members, layout: _Layout) -> Properties:
    written = tuple(members.values())
    values: list[Any] = list(layout.values_of(written))
    try:
        form = _known_form(layout.typed, layout.types_of(written), tuple(map(type, values)))
    except TypeError:  # the type may be any value, even one without a hash
        form = None
    if form is None or layout.without_value:
        return _properties_one_by_one(members, layout)
    for at, read in form.reads:
        value = read(values[at])
        if value is None:
            raise _Unreadable(_wrong_type(layout.names[at]))
        values[at] = value
    return Properties(layout.names, form.letters, tuple(values))


class _Form(NamedTuple):
    """How values of known types are converted. Cached, because most entities of a table have the
    same form; values that are stored as they are need no conversion."""

    letters: str
    reads: tuple[tuple[int, Callable[[object], Value | None]], ...]
    """The positions of the others, and their converters."""


def _form_of(
    typed: tuple[int, ...], said: tuple[object, ...], kinds: tuple[type, ...]
) -> _Form | None:
    """Returns None if a type or a value is unknown, or a value is absent."""
    types = dict(zip(typed, said, strict=True))
    letters: list[str] = []
    reads: list[tuple[int, Callable[[object], Value | None]]] = []
    for at, kind in enumerate(kinds):
        type_name = types.get(at)
        if at not in types:
            reader = _UNTYPED.get(kind)
        else:
            reader = _TYPED.get(type_name) if isinstance(type_name, str) else None
        if reader is None or kind is type(None):
            return None
        letter, read = reader
        letters.append(letter)
        if (letter, kind) not in _AS_STORED:
            reads.append((at, read))
    return _Form("".join(letters), tuple(reads))


_known_form = lru_cache(maxsize=256)(_form_of)
_AS_STORED: Final = frozenset({(Edm.STRING.value, str), (Edm.BOOLEAN.value, bool)})


def _properties_one_by_one(members: _Members, layout: _Layout) -> Properties:
    letters: list[str] = []
    values: list[Value] = []
    absent: list[str] = []
    for name, typed_by in layout.properties:
        written = members[name]
        if typed_by is not None:
            letter, read = _typed_reader(name, members[typed_by])
        else:
            letter, read = _UNTYPED.get(type(written), _NO_VALUE)
        if written is None:
            absent.append(name)
            continue
        value = read(written)
        if value is None:
            raise _Unreadable(_wrong_type(name))
        letters.append(letter)
        values.append(value)
    if layout.without_value:
        name = layout.without_value[0].name
        raise _Unreadable(Refusal("PropertiesNeedValue", {"PropertyName": name}))
    names = layout.names
    if absent:
        left_out = frozenset(absent)
        names = tuple([name for name in names if name not in left_out])
    return Properties(names, "".join(letters), tuple(values))


_Reader = tuple[str, Callable[[object], Value | None]]
"""The letter of a type, and the converter from JSON values, which returns None for invalid ones."""


def _typed_reader(name: str, type_name: object) -> _Reader:
    reader = _TYPED.get(type_name) if isinstance(type_name, str) else None
    if reader is None:
        raise _Unreadable(Refusal("InvalidValueType", {"PropertyName": name}))
    return reader


def _string(written: object) -> str | None:
    return written if isinstance(written, str) else None


_BOOLEANS: Final = {"true": True, "false": False}


def _boolean(written: object) -> bool | None:
    """Converts a boolean. With an explicit type, a value may also be a string, here and below."""
    if isinstance(written, str):
        return _BOOLEANS.get(written.lower())
    return written if isinstance(written, bool) else None


def _int32(written: object) -> int | None:
    number = _integer(written)
    return number if number is not None and INT32_MIN <= number <= INT32_MAX else None


def _int64(written: object) -> int | None:
    """Converts an Int64. Mostly a string, because numbers of many clients have less precision."""
    number = _integer(written)
    return number if number is not None and INT64_MIN <= number <= INT64_MAX else None


_INTEGER = re.compile(r"-?[0-9]{1,19}")


def _integer(written: object) -> int | None:
    if isinstance(written, str):
        return int(written) if _INTEGER.fullmatch(written) is not None else None
    # Not isinstance: true is not a number in JSON.
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
    # Digits that result in infinity are out of range.
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
