"""Fast encoding of entities with the same form: the same names and types of properties.

Most entities of a table have the same form, so the constant parts are built once and cached. A page
is encoded column by column, which minimizes the work per value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import repeat
from math import isfinite, isnan
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from etagere.model.tables import Edm, Entity, Keys
from etagere.rules.entities import etag_of, format_datetime, format_guid, format_timestamp

to_json: Final = msgspec.json.Encoder().encode


class Frame(NamedTuple):
    """What is the same for all entities of a response, whatever their form is."""

    select: tuple[str, ...] | None
    """The members to include, each once; None: all."""
    has_metadata: bool = False
    """Whether to include the ETag, and the types that JSON does not show."""
    address: str | None = None
    """The URL of the service, for the links of full metadata."""
    table: str = ""
    type_name: str = ""
    """The type name of the entities."""


def entity_path(table: str, keys: Keys) -> str:
    """Returns the path of an entity, below its service."""
    return f"{table}(PartitionKey='{_in_path(keys.partition)}',RowKey='{_in_path(keys.row)}')"


def _in_path(key: str) -> str:
    if key.isascii() and key.isalnum():
        return key
    return quote(key.replace("'", "''"), safe="")


# Encoding


def write_entity(keys: Keys, entity: Entity, frame: Frame) -> bytes:
    names, types, values = msgspec.structs.astuple(entity.properties)
    form = _form(names, types, frame)
    for at in form.doubles:
        if not isfinite(values[at]):
            form = _form(names, _marked(types, values), frame)
            break
    path = "" if frame.address is None else entity_path(frame.table, keys)
    row = (format_timestamp(entity.stamp), keys.partition, keys.row, path, *values)
    pieces = [*form.pieces]
    pieces[1::2] = [write(row[at]) for at, write in form.holes]
    return b"".join(pieces)


_Entities = Sequence[tuple[Keys, Entity]]


def write_entities(entities: _Entities, frame: Frame) -> list[bytes]:
    groups = _by_form(entities)
    if len(groups) == 1:
        return _write_group(entities, frame)
    written = [b""] * len(entities)
    for places in groups:
        group = [entities[place] for place in places]
        for place, one in zip(places, _write_group(group, frame), strict=True):
            written[place] = one
    return written


def _by_form(entities: _Entities) -> list[list[int]]:
    """Groups the positions of entities by form."""
    groups: dict[tuple[tuple[str, ...], str], list[int]] = {}
    places: list[int] = []
    names: tuple[str, ...] | None = None
    types = ""
    for place, (_, entity) in enumerate(entities):
        properties = entity.properties
        # Mostly it is that of the previous entity, and comparing is cheaper than a lookup.
        if properties.names != names or properties.types != types:
            names, types = properties.names, properties.types
            places = groups.setdefault((names, types), [])
        places.append(place)
    return list(groups.values())


def _write_group(group: _Entities, frame: Frame) -> list[bytes]:
    if len(group) == 1:
        return [write_entity(*group[0], frame)]
    first = group[0][1].properties
    form = _form(first.names, first.types, frame)
    columns = list(zip(*[entity.properties.values for _, entity in group], strict=True))
    if not all(all(map(isfinite, columns[at])) for at in form.doubles):
        return [write_entity(keys, entity, frame) for keys, entity in group]
    table = frame.table
    all_columns: list[Sequence[Any]] = [
        [format_timestamp(entity.stamp) for _, entity in group],
        [keys.partition for keys, _ in group],
        [keys.row for keys, _ in group],
        [] if frame.address is None else [entity_path(table, keys) for keys, _ in group],
        *columns,
    ]
    pieces: list[Iterable[bytes]] = [repeat(piece, len(group)) for piece in form.pieces]
    # Column by column, which is faster than entity by entity.
    pieces[1::2] = [list(map(write, all_columns[at])) for at, write in form.holes]
    return list(map(b"".join, zip(*pieces, strict=True)))


# Forms

_TIMESTAMP, _PARTITION, _ROW, _PATH, _FIRST = range(5)
"""The positions of the values of an entity. Its properties begin at the last one."""

_Write = Callable[[Any], bytes]


class _Form(NamedTuple):
    pieces: tuple[bytes, ...]
    """The parts of an encoded entity. Every second one is a placeholder."""
    holes: tuple[tuple[int, _Write], ...]
    """What fills the placeholders: the position of the value, and its encoder."""
    doubles: tuple[int, ...]
    """The positions of doubles, which are numbers in JSON only if they are finite."""


_HOLE: Final = b""


class _Shape(NamedTuple):
    """How values of a type are encoded."""

    write: _Write = to_json
    before: bytes = b""
    after: bytes = b""
    type_name: bytes = b""
    """The name of the type, if JSON does not show it."""


_Member = tuple[str, int, _Shape]
"""A name, the position of its value, and its encoding."""


# The largest possible form takes 300 KB.
@lru_cache(maxsize=128)
def _form(names: tuple[str, ...], types: str, frame: Frame) -> _Form:
    members = _members(names, types, frame)
    between = b"{"
    if frame.address is not None:
        between += b'"odata.type":%b,' % to_json(frame.type_name)
    pieces: list[bytes] = []
    for name, _, shape in members:
        start = to_json(name)[:-1]
        if shape.type_name and frame.has_metadata:
            between += b'%b@odata.type":"%b",' % (start, shape.type_name)
        pieces += (b'%b%b":%b' % (between, start, shape.before), _HOLE)
        between = shape.after + b","
    for name in _missing(members, frame):
        between += to_json(name) + b":null,"
    pieces.append(between.removesuffix(b",") + b"}")
    holes = [(at, shape.write) for _, at, shape in members]
    doubles = [at for at, letter in enumerate(types) if letter == _DOUBLE]
    return _Form(tuple(pieces), tuple(holes), tuple(doubles))


def _members(names: tuple[str, ...], types: str, frame: Frame) -> list[_Member]:
    """Returns the members to include, in order."""
    members: list[_Member] = [
        ("PartitionKey", _PARTITION, _PLAIN),
        ("RowKey", _ROW, _PLAIN),
        ("Timestamp", _TIMESTAMP, _PLAIN if frame.address is None else _TYPED_TIMESTAMP),
        *zip(
            names,
            range(_FIRST, _FIRST + len(names)),
            [_SHAPES.get(letter, _PLAIN) for letter in types],
            strict=True,
        ),
    ]
    if frame.select is not None:
        selected = frozenset(frame.select)
        members = [member for member in members if member[0] in selected]
    if frame.has_metadata:
        members.insert(0, ("odata.etag", _TIMESTAMP, _ETAG))
    if frame.address is not None:
        address = _Shape(str.encode, to_json(f"{frame.address}/")[:-1], b'"')
        members.insert(0, ("odata.id", _PATH, address))
        members.insert(2, ("odata.editLink", _PATH, _Shape(str.encode, b'"', b'"')))
    return members


def _missing(members: list[_Member], frame: Frame) -> list[str]:
    """Returns the selected names that are missing."""
    if frame.select is None:
        return []
    present = {name for name, _, _ in members}
    if frame.has_metadata:
        present |= {f"{name}@odata.type" for name, _, shape in members if shape.type_name}
    if frame.address is not None:
        present.add("odata.type")
    return [name for name in frame.select if name not in present]


def _marked(types: str, values: tuple[Any, ...]) -> str:
    """Returns the types, with another letter for doubles that are not numbers in JSON."""
    return "".join(
        [
            _NOT_FINITE if type(value) is float and not isfinite(value) else letter
            for letter, value in zip(types, values, strict=True)
        ]
    )


# Shapes


def _etag(timestamp: str) -> bytes:
    return to_json(etag_of(timestamp))


def _not_a_number(value: float) -> bytes:
    return b"NaN" if isnan(value) else b"Infinity" if value > 0 else b"-Infinity"


def _datetime(ticks: int) -> bytes:
    return format_datetime(ticks).encode()


def _guid(guid: bytes) -> bytes:
    return format_guid(guid).encode()


_DOUBLE: Final = Edm.DOUBLE.value
_NOT_FINITE: Final = "D"

_PLAIN: Final = _Shape()
_ETAG: Final = _Shape(_etag)
_TYPED_TIMESTAMP: Final = _Shape(type_name=b"Edm.DateTime")
_SHAPES: Final = {
    Edm.INT64.value: _Shape(to_json, b'"', b'"', b"Edm.Int64"),
    _NOT_FINITE: _Shape(_not_a_number, b'"', b'"', b"Edm.Double"),
    Edm.DATETIME.value: _Shape(_datetime, b'"', b'"', b"Edm.DateTime"),
    Edm.GUID.value: _Shape(_guid, b'"', b'"', b"Edm.Guid"),
    # Bytes become a string in base64.
    Edm.BINARY.value: _Shape(type_name=b"Edm.Binary"),
}
