"""Pages of entities of any shapes, compared with a straightforward encoding."""

from __future__ import annotations

import base64
import json
import math
import uuid
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

from hypothesis import given, settings
from hypothesis import strategies as st

from etagere.model.tables import Entity, Keys, Properties
from etagere.protocol.codecs.entity_answers import Level, Origin, encode_entity
from etagere.protocol.codecs.entity_forms import to_json
from etagere.rules.entities import DATETIME_MAX, DATETIME_MIN
from tests.protocol.codecs.entity_pages import encode_entities

TEXTS: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES: Final[dict[str, st.SearchStrategy[Any]]] = {
    "s": TEXTS | st.sampled_from(['"', "\\", '",', ',"', "%b", "%", "\0\x1f\x7f", "\u2028é🦊"]),
    "i": st.integers(-(2**31), 2**31 - 1),
    "l": st.integers(-(2**63), 2**63 - 1),
    "d": st.floats() | st.sampled_from([1e16, 1e-7, -0.0, 5e-324, 1e22, 123456789012345680.0]),
    "b": st.booleans(),
    "t": st.integers(DATETIME_MIN, DATETIME_MAX)
    | st.integers(DATETIME_MIN // 10_000, DATETIME_MAX // 10_000).map(lambda t: t * 10_000)
    | st.integers(DATETIME_MIN // 10**7, DATETIME_MAX // 10**7).map(lambda t: t * 10**7),
    "g": st.binary(min_size=16, max_size=16),
    "x": st.binary(max_size=40),
}
NAMES: Final = st.sampled_from(["a", "B", "é", "_", "Shelf", "shelf", "a" * 40])
KEYS: Final = st.builds(Keys, TEXTS | st.sampled_from(["1", "O'Neil", '"', "%41"]), TEXTS)
STAMPS: Final = st.integers(0, 10**18)
ORIGINS: Final = st.sampled_from(
    [Origin("http://127.0.0.1:10002/shop", "shop"), Origin('https://a%b"c', "shop")]
)


def entities_of(names: list[str], types: str) -> st.SearchStrategy[Entity]:
    values = st.tuples(*[VALUES[letter] for letter in types])
    return st.builds(
        Entity, STAMPS, st.builds(Properties, st.just(tuple(names)), st.just(types), values)
    )


@st.composite
def pages(draw: st.DrawFn) -> list[tuple[Keys, Entity]]:
    """Generates pages of a few shapes in any order, some with equal names or types."""
    every_name = draw(st.lists(NAMES, unique=True, max_size=7))
    types = st.text("".join(VALUES), min_size=len(every_name), max_size=len(every_name))
    forms = []
    for every_type in draw(st.lists(types, min_size=1, max_size=2)):
        length = draw(st.integers(0, len(every_name)))
        forms += [(every_name, every_type), (every_name[::-1], every_type)]
        forms.append((every_name[:length], every_type[:length]))
    entities = st.one_of([entities_of(*form) for form in forms])
    return draw(st.lists(st.tuples(KEYS, entities), max_size=12))


SELECTS: Final = st.none() | st.lists(
    NAMES
    | st.sampled_from(
        ["PartitionKey", "RowKey", "Timestamp", "odata.etag", "odata.type", "Timestamp@odata.type"]
    )
    | NAMES.map(lambda name: f"{name}@odata.type")
    | st.sampled_from(["nowhere", '%b"', ""]),
    max_size=8,
)


# Expected encoding


def moment(seconds_and_ticks: tuple[int, int], beginning: datetime) -> tuple[str, str]:
    seconds, ticks = seconds_and_ticks
    return (beginning + timedelta(seconds=seconds)).isoformat(), f"{ticks:07}"


def plain(letter: str, value: Any) -> tuple[str, object]:
    """Returns the type annotation, if JSON does not imply the type, and the JSON value."""
    match letter:
        case "l":
            return "Edm.Int64", str(value)
        case "d" if not math.isfinite(value):
            words = {math.inf: "Infinity", -math.inf: "-Infinity"}
            return "Edm.Double", words.get(value, "NaN")
        case "t":
            second, digits = moment(divmod(value, 10**7), datetime(1, 1, 1))
            digits = digits.rstrip("0")
            return "Edm.DateTime", f"{second}.{digits}Z" if digits else f"{second}Z"
        case "g":
            return "Edm.Guid", str(uuid.UUID(bytes=value))
        case "x":
            return "Edm.Binary", base64.b64encode(value).decode()
    return "", value


def expected(
    keys: Keys, entity: Entity, origin: Origin, level: Level, select: list[str] | None
) -> dict[str, object]:
    second, digits = moment(divmod(entity.stamp, 10**7), datetime(1970, 1, 1))
    digits = digits.rstrip("0")
    timestamp = f"{second}.{digits}Z" if digits else f"{second}Z"
    partition, row = (quote(key.replace("'", "''"), safe="") for key in (keys.partition, keys.row))
    path = f"People(PartitionKey='{partition}',RowKey='{row}')"
    lead: dict[str, object] = {
        "odata.type": f"{origin.account}.People",
        "odata.id": f"{origin.address}/{path}",
        "odata.etag": f"W/\"datetime'{timestamp.replace(':', '%3A')}'\"",
        "odata.editLink": path,
    }
    if level is Level.MINIMAL:
        lead = {"odata.etag": lead["odata.etag"]}
    members: dict[str, object] = {} if level is Level.NO_METADATA else lead
    stated = "Edm.DateTime" if level is Level.FULL else ""
    result: dict[str, tuple[str, object]] = {
        "PartitionKey": ("", keys.partition),
        "RowKey": ("", keys.row),
        "Timestamp": (stated, timestamp),
    }
    known = entity.properties
    columns = zip(known.names, known.types, known.values, strict=True)
    result |= {name: plain(letter, value) for name, letter, value in columns}
    for name, (type_name, value) in result.items():
        if select is None or name in select:
            if type_name and level is not Level.NO_METADATA:
                members[f"{name}@odata.type"] = type_name
            members[name] = value
    for name in select or ():
        members.setdefault(name, None)
    return members


def read(body: bytes) -> str:
    """Parses members in order, duplicates included, and numbers exactly."""
    return repr(json.loads(body, object_pairs_hook=list))


def same_as(document: object) -> str:
    return read(json.dumps(document).encode())


@settings(max_examples=300)
@given(pages(), st.sampled_from(Level), SELECTS, ORIGINS)
def test_pages_match_the_straightforward_encoding(
    page: list[tuple[Keys, Entity]], level: Level, select: list[str] | None, origin: Origin
) -> None:
    result = [expected(keys, entity, origin, level, select) for keys, entity in page]
    metadata = f"{origin.address}/$metadata#People"
    projection = "" if select is None else f"&$select={','.join(select)}"
    lead = {} if level is Level.NO_METADATA else {"odata.metadata": metadata + projection}
    body = encode_entities(page, "People", origin, level, select)
    assert read(body) == same_as({**lead, "value": result})
    for (keys, entity), members in zip(page, result, strict=True):
        element = f"{metadata}/@Element{projection}"
        lead = lead and {"odata.metadata": element}
        alone = encode_entity(keys, entity, "People", origin, level, select)
        assert read(alone) == same_as({**lead, **members})
        # What parses equally is also written equally.
        lead_written = b'{"odata.metadata":%b,' % to_json(element)
        assert alone.removeprefix(lead_written if lead else b"{") in body


def test_colliding_names_and_annotations() -> None:
    """Cases that random examples seldom hit: equal names with different types side by side, and a
    selected annotation that is written anyway."""
    origin, keys = Origin("http://127.0.0.1:10002/shop", "shop"), Keys("p", "r")
    number = Entity(1, Properties(("a",), "l", (5,)))
    text = Entity(2, Properties(("a",), "s", ("5",)))
    page = [(keys, number), (keys, text), (keys, number)]
    for select in (None, ["a", "a@odata.type"]):
        result = [expected(*pair, origin, Level.MINIMAL, select) for pair in page]
        body = encode_entities(page, "People", origin, Level.MINIMAL, select)
        assert repr(json.loads(body, object_pairs_hook=list)[1][1]) == same_as(result)
