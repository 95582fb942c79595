"""Entities and tables as JSON, as far as it is sent by us.

A client chooses how much is said of them beside what they are:

    nometadata          nothing
    minimalmetadata     the ETag, and the types that JSON does not show
    fullmetadata        besides, what they are and where they can be changed

A number of 64 bits is a string at every level, because many clients have none that is as exact.
"""

from __future__ import annotations

import enum
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from math import isfinite, isnan
from operator import itemgetter
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from etagere.errors import Refusal
from etagere.model.tables import Edm, Entity, Keys
from etagere.rules.dates import format_instant
from etagere.rules.entities import etag_of, format_datetime, format_guid

# Levels


class Level(enum.Enum):
    """How much is said, in the words in which it is asked for."""

    NO_METADATA = "nometadata"
    MINIMAL = "minimalmetadata"
    FULL = "fullmetadata"

    @property
    def content_type(self) -> bytes:
        return _CONTENT_TYPES[self]


_CONTENT_TYPES: Final = {
    level: f"application/json;odata={level.value};streaming=true;charset=utf-8".encode()
    for level in Level
}
_LEVELS: Final = {level.value: level for level in Level}
_JSON: Final = frozenset({"application/json", "application/*", "*/*", "json"})
_ATOM: Final = frozenset(
    {"application/atom+xml", "application/atomsvc+xml", "application/xml", "text/xml", "atom"}
)


def parse_level(accept: str | None, query_format: str | None) -> Level | Refusal:
    """What Accept asks for, or `$format`, which goes before it: the first that we can do."""
    asked = query_format or accept or "*/*"
    return _known_level(asked) if len(asked) <= _KNOWN_LENGTH_MAX else _level_of(asked)


_KNOWN_LENGTH_MAX: Final = 256


def _level_of(asked: str) -> Level | Refusal:
    refusal: Refusal | None = None
    for media_range in asked.lower().split(","):
        level = _level(media_range)
        if isinstance(level, Level):
            return level
        refusal = refusal or level
    assert refusal is not None
    return refusal


def _level(media_range: str) -> Level | Refusal:
    media_type, *parameters = (piece.strip() for piece in media_range.split(";"))
    if media_type in _ATOM:
        return Refusal("AtomFormatNotSupported")
    if media_type not in _JSON:
        return Refusal("MediaTypeNotSupported")
    for parameter in parameters:
        name, _, word = parameter.partition("=")
        if name.rstrip() == "odata":
            word = word.strip(' "')
            if word == "verbose":
                return Refusal("JsonVerboseFormatNotSupported")
            return _LEVELS.get(word) or Refusal("JsonFormatNotSupported")
    return Level.MINIMAL


_known_level = lru_cache(maxsize=64)(_level_of)


# Addresses


class Origin(NamedTuple):
    """Which service answers, for the addresses in its answers."""

    address: str
    """As the client reaches it, without a slash at the end."""
    account: str

    def metadata(self, of: str) -> str:
        return f"{self.address}/$metadata#{of}"


_TABLES: Final = "Tables"


def entity_path(table: str, keys: Keys) -> str:
    """Where an entity is, below its service."""
    return f"{table}(PartitionKey='{_in_path(keys.partition)}',RowKey='{_in_path(keys.row)}')"


def table_path(table: str) -> str:
    """Where a table is as an object of its own, below its service."""
    return f"{_TABLES}('{table}')"


def _in_path(key: str) -> str:
    return quote(key.replace("'", "''"), safe="")


# Entities

_Members = dict[str, object]


def encode_entity(
    keys: Keys,
    entity: Entity,
    table: str,
    origin: Origin,
    level: Level,
    select: Sequence[str] | None = None,
) -> bytes:
    members = _Writer(table, origin, level, select).members(keys, entity)
    if level is not Level.NO_METADATA:
        members = {"odata.metadata": origin.metadata(f"{table}/@Element"), **members}
    return msgspec.json.encode(members)


def encode_entities(
    entities: Iterable[tuple[Keys, Entity]],
    table: str,
    origin: Origin,
    level: Level,
    select: Sequence[str] | None = None,
) -> bytes:
    """A page of entities. Of those that lack a selected property, it is null."""
    members = _Writer(table, origin, level, select).members
    return _set([members(keys, entity) for keys, entity in entities], table, origin, level)


def _set(items: list[_Members], of: str, origin: Origin, level: Level) -> bytes:
    if level is Level.NO_METADATA:
        return msgspec.json.encode({"value": items})
    return msgspec.json.encode({"odata.metadata": origin.metadata(of), "value": items})


class _Form(NamedTuple):
    """How entities with properties of the same names and types are told. Most of a table have the
    same, so this is found out once."""

    names: tuple[str, ...]
    """Of all members."""
    pick: Callable[[tuple[Any, ...]], tuple[Any, ...]]
    """Their values, of what is told of an entity and the constants."""
    constants: tuple[str | None, ...]
    writes: tuple[tuple[int, Callable[[Any], str]], ...]
    """The properties that are not written as they are."""
    doubles: tuple[int, ...]
    """Those that are numbers in JSON only if they are finite."""


_LEADS: Final[dict[Level, tuple[str, ...]]] = {
    Level.NO_METADATA: (),
    Level.MINIMAL: ("odata.etag",),
    Level.FULL: ("odata.type", "odata.id", "odata.etag", "odata.editLink"),
}
"""The members that an answer begins with."""


class _Writer:
    """Puts together what is said of each entity of one answer."""

    def __init__(
        self, table: str, origin: Origin, level: Level, select: Sequence[str] | None
    ) -> None:
        self._table = table
        self._origin = origin
        self._level = level
        self._select = None if select is None else tuple(dict.fromkeys(select))

    def members(self, keys: Keys, entity: Entity) -> _Members:
        names, types, values = msgspec.structs.astuple(entity.properties)
        form = _form(names, types, self._level, self._select)
        for at in form.doubles:
            if not isfinite(values[at]):
                form = _form(names, _marked(types, values), self._level, self._select)
                break
        written = [*values]
        for at, write in form.writes:
            written[at] = write(written[at])
        timestamp = format_instant(entity.stamp)
        keys_told = (keys.partition, keys.row, timestamp)
        told = (*self._lead(keys, timestamp), *keys_told, *written, *form.constants)
        return dict(zip(form.names, form.pick(told), strict=True))

    def _lead(self, keys: Keys, timestamp: str) -> tuple[str, ...]:
        if self._level is Level.NO_METADATA:
            return ()
        etag = etag_of(timestamp)
        if self._level is Level.MINIMAL:
            return (etag,)
        path = entity_path(self._table, keys)
        said = f"{self._origin.account}.{self._table}"
        return said, f"{self._origin.address}/{path}", etag, path


@lru_cache(maxsize=256)
def _form(
    names: tuple[str, ...], types: str, level: Level, select: tuple[str, ...] | None
) -> _Form:
    lead = _LEADS[level]
    always = (*lead, "PartitionKey", "RowKey", "Timestamp")
    told = (*always, *names)
    constants: list[str | None] = []
    members: dict[str, int] = {}

    def add_constant(name: str, constant: str | None) -> None:
        members[name] = len(told) + len(constants)
        constants.append(constant)

    for at, (name, letter) in enumerate(zip(told, _AS_IT_IS * len(always) + types, strict=True)):
        if select is not None and name not in select and name not in lead:
            continue
        type_name, _ = _WRITTEN.get(letter, ("", None))
        if level is Level.FULL and name == "Timestamp":
            type_name = "Edm.DateTime"
        if type_name and level is not Level.NO_METADATA:
            add_constant(f"{name}@odata.type", type_name)
        members[name] = at
    for name in select or ():
        if name not in members:
            add_constant(name, None)
    writes = [(at, _WRITTEN[letter][1]) for at, letter in enumerate(types) if letter in _WRITTEN]
    doubles = [at for at, letter in enumerate(types) if letter == _DOUBLE]
    places = tuple(members.values())
    return _Form(tuple(members), _picker(places), tuple(constants), tuple(writes), tuple(doubles))


def _picker(places: tuple[int, ...]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    if len(places) > 1:
        return itemgetter(*places)
    return lambda told: tuple([told[place] for place in places])


def _marked(types: str, values: tuple[Any, ...]) -> str:
    """Types in which the doubles that are no numbers in JSON have a letter of their own."""
    return "".join(
        [
            _NOT_FINITE if type(value) is float and not isfinite(value) else letter
            for letter, value in zip(types, values, strict=True)
        ]
    )


def _not_a_number(value: float) -> str:
    return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _base64(value: bytes) -> str:
    return b2a_base64(value, newline=False).decode()


_AS_IT_IS: Final = Edm.STRING.value
_DOUBLE: Final = Edm.DOUBLE.value
_NOT_FINITE: Final = "D"

_WRITTEN: Final[dict[str, tuple[str, Callable[[Any], str]]]] = {
    Edm.INT64.value: ("Edm.Int64", str),
    _NOT_FINITE: ("Edm.Double", _not_a_number),
    Edm.DATETIME.value: ("Edm.DateTime", format_datetime),
    Edm.GUID.value: ("Edm.Guid", format_guid),
    Edm.BINARY.value: ("Edm.Binary", _base64),
}
"""The types that JSON does not show, and their values as strings."""


# Tables


def encode_table(name: str, origin: Origin, level: Level) -> bytes:
    members = _table(name, origin, level)
    if level is not Level.NO_METADATA:
        members = {"odata.metadata": origin.metadata(f"{_TABLES}/@Element"), **members}
    return msgspec.json.encode(members)


def encode_tables(names: Iterable[str], origin: Origin, level: Level) -> bytes:
    return _set([_table(name, origin, level) for name in names], _TABLES, origin, level)


def _table(name: str, origin: Origin, level: Level) -> _Members:
    if level is not Level.FULL:
        return {"TableName": name}
    path = table_path(name)
    return {
        "odata.type": f"{origin.account}.{_TABLES}",
        "odata.id": f"{origin.address}/{path}",
        "odata.editLink": path,
        "TableName": name,
    }
