"""Encoding entities: literal bytes at each metadata level, and round trips."""

from __future__ import annotations

import json
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etagere.errors import ERRORS, Refusal
from etagere.model.tables import Edm, Entity, Keys, Properties, Value
from etagere.protocol.codecs.entities import DecodedEntity, decode_entity
from etagere.protocol.codecs.entity_answers import (
    Level,
    Origin,
    encode_entity,
    encode_table,
    encode_tables,
    parse_level,
)
from etagere.protocol.codecs.entity_forms import entity_path
from etagere.rules.entities import DATETIME_MAX, DATETIME_MIN
from tests.protocol.codecs.entity_pages import encode_entities

ORIGIN = Origin("http://127.0.0.1:10002/devstoreaccount1", "devstoreaccount1")
STAMP = 17_044_488_001_234_567
MOMENT = 638_400_456_000_000_000
KEYS = Keys("p", "r")
ENTITY = Entity(
    STAMP,
    Properties(
        ("S", "I", "B", "D", "W", "N", "L", "G", "T", "X"),
        "sibdddlgtx",
        (
            "x",
            1,
            True,
            1.5,
            1.0,
            -math.inf,
            9_007_199_254_740_993,
            bytes.fromhex("c9da6455213d42c99a793e9149a57833"),
            MOMENT,
            b"\x01\x02",
        ),
    ),
)

PLAIN = (
    b'"PartitionKey":"p",'
    b'"RowKey":"r",'
    b'"Timestamp":"2024-01-05T10:00:00.1234567Z",'
    b'"S":"x",'
    b'"I":1,'
    b'"B":true,'
    b'"D":1.5,'
    b'"W":1.0,'
    b'"N":"-Infinity",'
    b'"L":"9007199254740993",'
    b'"G":"c9da6455-213d-42c9-9a79-3e9149a57833",'
    b'"T":"2024-01-05T10:00:00Z",'
    b'"X":"AQI="'
)
TYPED = (
    PLAIN.replace(b'"N":', b'"N@odata.type":"Edm.Double","N":')
    .replace(b'"L":', b'"L@odata.type":"Edm.Int64","L":')
    .replace(b'"G":', b'"G@odata.type":"Edm.Guid","G":')
    .replace(b'"T":', b'"T@odata.type":"Edm.DateTime","T":')
    .replace(b'"X":', b'"X@odata.type":"Edm.Binary","X":')
)
ETAG = b'"odata.etag":"W/\\"datetime\'2024-01-05T10%3A00%3A00.1234567Z\'\\"",'
MINIMAL = ETAG + TYPED
FULL = (
    b'"odata.type":"devstoreaccount1.People",'
    b"\"odata.id\":\"http://127.0.0.1:10002/devstoreaccount1/People(PartitionKey='p',RowKey='r')\","
    + ETAG
    + b"\"odata.editLink\":\"People(PartitionKey='p',RowKey='r')\","
    + TYPED.replace(b'"Timestamp":', b'"Timestamp@odata.type":"Edm.DateTime","Timestamp":')
)
METADATA = b'"odata.metadata":"http://127.0.0.1:10002/devstoreaccount1/$metadata#%b",'


@pytest.mark.parametrize(
    ("level", "metadata", "members"),
    [
        (Level.NO_METADATA, b"", PLAIN),
        (Level.MINIMAL, METADATA, MINIMAL),
        (Level.FULL, METADATA, FULL),
    ],
)
def test_golden(level: Level, metadata: bytes, members: bytes) -> None:
    of_one = metadata and metadata % b"People/@Element"
    assert encode_entity(KEYS, ENTITY, "People", ORIGIN, level) == b"{%b%b}" % (of_one, members)
    of_many = metadata and metadata % b"People"
    pages = [b"", b"{%b}" % members, b"{%b},{%b}" % (members, members)]
    for count, page in enumerate(pages):
        body = encode_entities([(KEYS, ENTITY)] * count, "People", ORIGIN, level)
        assert body == b'{%b"value":[%b]}' % (of_many, page)


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        (["S"], {"S": "x"}),
        (["L", "S", "S"], {"S": "x", "L@odata.type": "Edm.Int64", "L": "9007199254740993"}),
        (["RowKey", "PartitionKey"], {"PartitionKey": "p", "RowKey": "r"}),
        (
            ["Timestamp", "missing", "B"],
            {"Timestamp": "2024-01-05T10:00:00.1234567Z", "B": True, "missing": None},
        ),
        (["s"], {"s": None}),
        ([], {}),
    ],
)
def test_select(select: list[str], expected: dict[str, object]) -> None:
    body = encode_entities([(KEYS, ENTITY)], "People", ORIGIN, Level.MINIMAL, select)
    (members,) = json.loads(body)["value"]
    assert members.pop("odata.etag").startswith("W/")
    assert list(members.items()) == list(expected.items())
    body = encode_entity(KEYS, ENTITY, "People", ORIGIN, Level.NO_METADATA, select)
    plain = {name: value for name, value in expected.items() if "@" not in name}
    assert list(json.loads(body).items()) == list(plain.items())


def test_selected_timestamps_have_their_type() -> None:
    body = encode_entity(KEYS, ENTITY, "People", ORIGIN, Level.FULL, ["Timestamp"])
    names = [name for name in json.loads(body) if not name.startswith("odata.")]
    assert names == ["Timestamp@odata.type", "Timestamp"]


def test_keys_in_paths() -> None:
    keys = Keys("O'Neil & é", "")
    path = "People(PartitionKey='O%27%27Neil%20%26%20%C3%A9',RowKey='')"
    assert entity_path("People", keys) == path
    members = json.loads(encode_entity(keys, ENTITY, "People", ORIGIN, Level.FULL))
    assert members["odata.id"] == f"{ORIGIN.address}/{path}"


# Tables


def test_golden_tables() -> None:
    none, minimal, full = Level
    assert encode_table("People", ORIGIN, none) == b'{"TableName":"People"}'
    assert encode_tables(["People"], ORIGIN, none) == b'{"value":[{"TableName":"People"}]}'
    of_one, of_many = METADATA % b"Tables/@Element", METADATA % b"Tables"
    assert encode_table("People", ORIGIN, minimal) == b'{%b"TableName":"People"}' % of_one
    assert encode_tables([], ORIGIN, minimal) == b'{%b"value":[]}' % of_many
    assert (
        encode_tables(["People", "Pets"], ORIGIN, minimal)
        == b'{%b"value":[{"TableName":"People"},{"TableName":"Pets"}]}' % of_many
    )
    members = (
        b'"odata.type":"devstoreaccount1.Tables",'
        b'"odata.id":"http://127.0.0.1:10002/devstoreaccount1/Tables(\'People\')",'
        b'"odata.editLink":"Tables(\'People\')",'
        b'"TableName":"People"'
    )
    assert encode_table("People", ORIGIN, full) == b"{%b%b}" % (of_one, members)
    assert encode_tables(["People"], ORIGIN, full) == b'{%b"value":[{%b}]}' % (of_many, members)


# Levels


@pytest.mark.parametrize(
    ("accept", "query_format", "expected"),
    [
        (None, None, Level.MINIMAL),
        ("", None, Level.MINIMAL),
        ("*/*", None, Level.MINIMAL),
        ("application/*", None, Level.MINIMAL),
        ("application/json", None, Level.MINIMAL),
        ("application/json;charset=utf-8", None, Level.MINIMAL),
        ("application/json;odata=nometadata", None, Level.NO_METADATA),
        ("application/json;odata=minimalmetadata", None, Level.MINIMAL),
        ("application/json;odata=fullmetadata", None, Level.FULL),
        ('Application/JSON; OData = "FullMetadata" ; q=0.5', None, Level.FULL),
        ("application/json;streaming=true;odata=nometadata", None, Level.NO_METADATA),
        ("text/html,application/xml;q=0.9,*/*;q=0.8", None, Level.MINIMAL),
        ("application/atom+xml, application/json;odata=nometadata", None, Level.NO_METADATA),
        ("application/atom+xml", "application/json;odata=fullmetadata", Level.FULL),
        (None, "json", Level.MINIMAL),
        ("application/json", "atom", "AtomFormatNotSupported"),
        ("application/atom+xml", None, "AtomFormatNotSupported"),
        ("application/atom+xml,application/xml", None, "AtomFormatNotSupported"),
        ("application/json;odata=verbose", None, "JsonVerboseFormatNotSupported"),
        ("application/json;odata=other", None, "JsonFormatNotSupported"),
        ("application/json;odata=", None, "JsonFormatNotSupported"),
        ("text/html", None, "MediaTypeNotSupported"),
        ("text/html, application/atom+xml", None, "MediaTypeNotSupported"),
        (",", None, "MediaTypeNotSupported"),
    ],
)
def test_levels(accept: str | None, query_format: str | None, expected: Level | str) -> None:
    level = parse_level(accept, query_format)
    if isinstance(level, Refusal):
        assert ERRORS[level.code].status == 415
    assert (level.code if isinstance(level, Refusal) else level) == expected


@given(st.text())
def test_any_level(accept: str) -> None:
    parse_level(accept, None)
    parse_level(f"application/json;{accept}", None)


def test_content_types() -> None:
    assert [level.content_type for level in Level] == [
        b"application/json;odata=nometadata;streaming=true;charset=utf-8",
        b"application/json;odata=minimalmetadata;streaming=true;charset=utf-8",
        b"application/json;odata=fullmetadata;streaming=true;charset=utf-8",
    ]


# Round trips

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.one_of(
    st.tuples(st.just("s"), TEXTS),
    st.tuples(st.just("i"), st.integers(-(2**31), 2**31 - 1)),
    st.tuples(st.just("l"), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just("d"), st.floats(allow_nan=False)),
    st.tuples(st.just("b"), st.booleans()),
    st.tuples(st.just("t"), st.integers(DATETIME_MIN, DATETIME_MAX)),
    st.tuples(st.just("g"), st.binary(min_size=16, max_size=16)),
    st.tuples(st.just("x"), st.binary(max_size=20)),
)
NAMES = st.text("abcdé_", min_size=1, max_size=5)


def properties(columns: dict[str, tuple[str, Value]]) -> Properties:
    return Properties(
        tuple(columns),
        "".join(letter for letter, _ in columns.values()),
        tuple(value for _, value in columns.values()),
    )


@given(
    st.builds(Keys, TEXTS, TEXTS),
    st.dictionaries(NAMES, VALUES, max_size=10).map(properties),
    st.sampled_from([Level.MINIMAL, Level.FULL]),
)
def test_round_trip(keys: Keys, sent: Properties, level: Level) -> None:
    expected = DecodedEntity(keys.partition, keys.row, sent)
    entity = Entity(STAMP, sent)
    assert decode_entity(encode_entity(keys, entity, "People", ORIGIN, level)) == expected
    page = json.loads(encode_entities([(keys, entity)], "People", ORIGIN, level))
    assert decode_entity(json.dumps(page["value"][0]).encode()) == expected


def test_nan() -> None:
    entity = Entity(STAMP, Properties(("n",), "d", (math.nan,)))
    body = encode_entity(KEYS, entity, "People", ORIGIN, Level.MINIMAL)
    assert body.endswith(b',"n@odata.type":"Edm.Double","n":"NaN"}')


@given(st.dictionaries(NAMES, VALUES, max_size=5).map(properties))
def test_no_metadata_is_none(sent: Properties) -> None:
    body = encode_entity(KEYS, Entity(STAMP, sent), "People", ORIGIN, Level.NO_METADATA)
    assert list(json.loads(body)) == ["PartitionKey", "RowKey", "Timestamp", *sent.names]


@pytest.mark.parametrize("level", Level)
def test_speed(level: Level) -> None:
    """About 5 ms; the limit leaves room for a busy machine and for the cycle collector, which has
    the objects of all other tests to visit."""
    assert set(ENTITY.properties.types) == {edm.value for edm in Edm}
    page = [(KEYS, ENTITY)] * 1_000
    seconds = []
    for _ in range(3):
        began = time.process_time()
        encode_entities(page, "People", ORIGIN, level)
        seconds.append(time.process_time() - began)
    assert min(seconds) < 0.1
