"""Encoding of entities and tables as JSON.

A client chooses how much is said of them beside what they are:

    nometadata          nothing
    minimalmetadata     the ETag, and the types that JSON does not show
    fullmetadata        besides, what they are and where they can be changed

A number of 64 bits is a string at every level, because many clients have none that is as exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from etagere.errors import Refusal
from etagere.model.base import KeyEnum
from etagere.model.tables import Entity, Keys
from etagere.protocol.codecs.entity_forms import Frame, to_json, write_entities, write_entity

# Levels


class Level(KeyEnum):
    """The level of metadata, as requested."""

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
    """Parses Accept, or `$format`, which takes precedence; returns the first supported level."""
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


class Origin(msgspec.Struct, frozen=True, gc=False):
    """The service, for URLs in responses."""

    address: str
    """The URL of the service for the client, without a trailing slash."""
    account: str

    def metadata(self, of: str) -> str:
        return f"{self.address}/$metadata#{of}"


_TABLES: Final = "Tables"


def table_path(table: str) -> str:
    """Returns the path of a table, below its service."""
    return f"{_TABLES}('{table}')"


# Entities


def encode_entity(
    keys: Keys,
    entity: Entity,
    table: str,
    origin: Origin,
    level: Level,
    select: Sequence[str] | None = None,
) -> bytes:
    written = write_entity(keys, entity, _frame(table, origin, level, select))
    if level is Level.NO_METADATA:
        return written
    # At least the ETag follows.
    metadata = to_json(origin.metadata(f"{table}/@Element{_projection(select)}"))
    return b'{"odata.metadata":%b,%b' % (metadata, written[1:])


class EntityEncoder:
    """Encodes a page of entities in several steps. A selected property that an entity lacks is
    null."""

    def __init__(
        self, table: str, origin: Origin, level: Level, select: Sequence[str] | None
    ) -> None:
        self._table = table
        self._origin = origin
        self._level = level
        self._frame = _frame(table, origin, level, select)
        self._projection = _projection(select)
        self._encoded: list[bytes] = []
        self._bytes = 0

    def add(self, entities: Sequence[tuple[Keys, Entity]]) -> int:
        """Adds entities; returns how many fit on the page. The first one always fits."""
        encoded = write_entities(entities, self._frame)
        encoded_bytes = sum(map(len, encoded)) + len(encoded)
        if self._bytes + encoded_bytes > PAGE_BYTES_MAX:
            return self._add_some(encoded)
        self._encoded += encoded
        self._bytes += encoded_bytes
        return len(encoded)

    def _add_some(self, encoded: list[bytes]) -> int:
        for added, one in enumerate(encoded):
            if self._encoded and self._bytes + len(one) + 1 > PAGE_BYTES_MAX:
                return added
            self._encoded.append(one)
            self._bytes += len(one) + 1
        return len(encoded)

    def page(self) -> bytes:
        of = f"{self._table}{self._projection}"
        return _set(self._encoded, of, self._origin, self._level)


PAGE_BYTES_MAX: Final = (12 << 20) - (4 << 10)
"""Of all entities of a page; what is around them takes less than 4 KiB. What is stored of them is
limited too, but may become many times as long in JSON: characters that are escaped, types that are
named, and properties that are selected and not there."""


def select_bytes(select: Sequence[str] | None) -> int:
    """Returns the maximum size of null properties that are selected."""
    if select is None:
        return 0
    return sum([len(name.encode()) for name in select]) + len('"":null,') * len(select)


def _projection(select: Sequence[str] | None) -> str:
    """Returns the part of the metadata URL for a selection of properties."""
    return "" if select is None else f"&$select={','.join(select)}"


def _frame(table: str, origin: Origin, level: Level, select: Sequence[str] | None) -> Frame:
    if level is Level.MINIMAL and select is None:
        return _USUAL_FRAME
    asked = None if select is None else tuple(dict.fromkeys(select))
    if level is Level.FULL:
        return Frame(asked, True, origin.address, table, f"{origin.account}.{table}")
    return Frame(asked, level is Level.MINIMAL)


_USUAL_FRAME: Final = Frame(None, True)


def _set(items: list[bytes], of: str, origin: Origin, level: Level) -> bytes:
    value = b",".join(items)
    if level is Level.NO_METADATA:
        return b'{"value":[%b]}' % value
    return b'{"odata.metadata":%b,"value":[%b]}' % (to_json(origin.metadata(of)), value)


# Tables


def encode_table(name: str, origin: Origin, level: Level) -> bytes:
    members = _table(name, origin, level)
    if level is not Level.NO_METADATA:
        members = {"odata.metadata": origin.metadata(f"{_TABLES}/@Element"), **members}
    return to_json(members)


def encode_tables(names: Iterable[str], origin: Origin, level: Level) -> bytes:
    tables = [to_json(_table(name, origin, level)) for name in names]
    return _set(tables, _TABLES, origin, level)


def _table(name: str, origin: Origin, level: Level) -> dict[str, str]:
    if level is not Level.FULL:
        return {"TableName": name}
    path = table_path(name)
    return {
        "odata.type": f"{origin.account}.{_TABLES}",
        "odata.id": f"{origin.address}/{path}",
        "odata.editLink": path,
        "TableName": name,
    }
