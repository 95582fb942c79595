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
from math import isfinite, isnan
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
    def content_type(self) -> str:
        return f"application/json;odata={self.value};streaming=true;charset=utf-8"


_LEVELS: Final = {level.value: level for level in Level}
_JSON: Final = frozenset({"application/json", "application/*", "*/*", "json"})
_ATOM: Final = frozenset(
    {"application/atom+xml", "application/atomsvc+xml", "application/xml", "text/xml", "atom"}
)


def parse_level(accept: str | None, query_format: str | None) -> Level | Refusal:
    """What Accept asks for, or `$format`, which goes before it: the first that we can do."""
    refusal: Refusal | None = None
    for media_range in (query_format or accept or "*/*").lower().split(","):
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


class _Writer:
    """Puts together what is said of each entity of one answer."""

    def __init__(
        self, table: str, origin: Origin, level: Level, select: Sequence[str] | None
    ) -> None:
        self._table = table
        self._origin = origin
        self._level = level
        self._typed = level is not Level.NO_METADATA
        self._select = None if select is None else dict.fromkeys(select)

    def members(self, keys: Keys, entity: Entity) -> _Members:
        timestamp = format_instant(entity.stamp)
        members = self._metadata(keys, timestamp)
        properties = entity.properties
        select = self._select
        if select is None or "PartitionKey" in select:
            members["PartitionKey"] = keys.partition
        if select is None or "RowKey" in select:
            members["RowKey"] = keys.row
        if select is None or "Timestamp" in select:
            if self._level is Level.FULL:
                members["Timestamp@odata.type"] = "Edm.DateTime"
            members["Timestamp"] = timestamp
        for name, letter, value in zip(
            properties.names, properties.types, properties.values, strict=True
        ):
            if select is not None and name not in select:
                continue
            if letter in _AS_IN_JSON or (isinstance(value, float) and isfinite(value)):
                members[name] = value
                continue
            type_name, write = _WRITTEN[letter]
            if self._typed:
                members[f"{name}@odata.type"] = type_name
            members[name] = write(value)
        if select is not None:
            for name in select:
                members.setdefault(name)
        return members

    def _metadata(self, keys: Keys, timestamp: str) -> _Members:
        if self._level is Level.NO_METADATA:
            return {}
        etag = etag_of(timestamp)
        if self._level is Level.MINIMAL:
            return {"odata.etag": etag}
        path = entity_path(self._table, keys)
        return {
            "odata.type": f"{self._origin.account}.{self._table}",
            "odata.id": f"{self._origin.address}/{path}",
            "odata.etag": etag,
            "odata.editLink": path,
        }


def _not_a_number(value: float) -> str:
    return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _base64(value: bytes) -> str:
    return b2a_base64(value, newline=False).decode()


_AS_IN_JSON: Final = frozenset({Edm.STRING.value, Edm.INT32.value, Edm.BOOLEAN.value})

_WRITTEN: Final[dict[str, tuple[str, Callable[[Any], str]]]] = {
    Edm.INT64.value: ("Edm.Int64", str),
    Edm.DOUBLE.value: ("Edm.Double", _not_a_number),
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
