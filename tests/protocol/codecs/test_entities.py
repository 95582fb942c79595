"""Decoding entities: types, ignored members, and malformed input."""

from __future__ import annotations

import json
import math
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etagere.errors import ERRORS, Refusal
from etagere.model.tables import Edm, Properties, Value
from etagere.protocol.codecs.entities import DecodedEntity, decode_entity, decode_table
from etagere.rules.entities import parse_datetime

GOLDEN = (
    b'{"odata.etag":"W/\\"datetime\'2024-01-05T10%3A00%3A00.1234567Z\'\\"",'
    b'"PartitionKey":"p",'
    b'"RowKey":"r",'
    b'"Timestamp@odata.type":"Edm.DateTime",'
    b'"Timestamp":"2024-01-05T10:00:00.1234567Z",'
    b'"S":"x",'
    b'"I":1,'
    b'"B":true,'
    b'"D":1.5,'
    b'"L@odata.type":"Edm.Int64",'
    b'"L":"9007199254740993",'
    b'"G@odata.type":"Edm.Guid",'
    b'"G":"c9da6455-213d-42c9-9a79-3e9149a57833",'
    b'"T@odata.type":"Edm.DateTime",'
    b'"T":"2024-01-05T10:00:00Z",'
    b'"X@odata.type":"Edm.Binary",'
    b'"X":"AQI="}'
)
GUID = bytes.fromhex("c9da6455213d42c99a793e9149a57833")
MOMENT = 638_400_456_000_000_000


def test_golden() -> None:
    assert decode_entity(GOLDEN) == DecodedEntity(
        "p",
        "r",
        Properties(
            ("S", "I", "B", "D", "L", "G", "T", "X"),
            "sibdlgtx",
            ("x", 1, True, 1.5, 9_007_199_254_740_993, GUID, MOMENT, b"\x01\x02"),
        ),
    )


def decode(text: str) -> DecodedEntity:
    decoded = decode_entity(text.encode())
    assert isinstance(decoded, DecodedEntity), decoded
    return decoded


def refused(body: str | bytes) -> str:
    refusal = decode_entity(body.encode() if isinstance(body, str) else body)
    assert isinstance(refusal, Refusal), refusal
    assert ERRORS[refusal.code].status == 400
    return refusal.code


def value_of(decoded: DecodedEntity) -> tuple[Edm, Value]:
    (value,) = decoded.properties.values
    return Edm(decoded.properties.types), value


@pytest.mark.parametrize(
    ("written", "edm", "expected"),
    [
        ('""', Edm.STRING, ""),
        ('"\\u00e9\\ud83d\\ude0a\\n"', Edm.STRING, "é😊\n"),
        ('"2024-01-05T10:00:00Z"', Edm.STRING, "2024-01-05T10:00:00Z"),
        ("0", Edm.INT32, 0),
        ("-2147483648", Edm.INT32, -(2**31)),
        ("2147483647", Edm.INT32, 2**31 - 1),
        ("1.0", Edm.DOUBLE, 1.0),
        ("1e2", Edm.DOUBLE, 100.0),
        ("-1.5E-3", Edm.DOUBLE, -0.0015),
        ("1e-999", Edm.DOUBLE, 0.0),
        ("1.7976931348623157e308", Edm.DOUBLE, 1.7976931348623157e308),
        ("true", Edm.BOOLEAN, True),
        ("false", Edm.BOOLEAN, False),
    ],
)
def test_types_inferred_from_json(written: str, edm: Edm, expected: Value) -> None:
    found = value_of(decode(f'{{"p": {written}}}'))
    assert found == (edm, expected)
    assert type(found[1]) is type(expected)


@pytest.mark.parametrize(
    "written",
    ["2147483648", "-2147483649", "1e999", "-1e999", "[]", "[1]", "{}", '{"a": 1}', "9" * 400],
)
def test_values_without_a_type(written: str) -> None:
    assert refused(f'{{"p": {written}}}') == "InvalidInput"


@pytest.mark.parametrize(
    ("edm", "written", "expected"),
    [
        ("String", '"x"', "x"),
        ("Int32", "1", 1),
        ("Int32", '"-1"', -1),
        ("Boolean", '"True"', True),
        ("Double", '"1.5e1"', 15.0),
        ("Int64", '"1"', 1),
        ("Int64", "1", 1),
        ("Int64", '"9223372036854775807"', 2**63 - 1),
        ("Int64", '"-9223372036854775808"', -(2**63)),
        ("Int64", "-9223372036854775808", -(2**63)),
        ("Double", "1", 1.0),
        ("Double", "1.5", 1.5),
        ("Double", '"Infinity"', math.inf),
        ("Double", '"-Infinity"', -math.inf),
        ("Boolean", "false", False),
        ("DateTime", '"2024-01-05T11:00:00.5+01:00"', MOMENT + 5_000_000),
        ("DateTime", '"2024-01-05T10:00:00"', MOMENT),
        ("Guid", '"C9DA6455-213D-42C9-9A79-3E9149A57833"', GUID),
        ("Guid", '"c9da6455213d42c99a793e9149a57833"', GUID),
        ("Binary", '""', b""),
        ("Binary", '"AQI="', b"\x01\x02"),
        ("Binary", '"+/+/"', b"\xfb\xff\xbf"),
    ],
)
def test_annotated_types(edm: str, written: str, expected: Value) -> None:
    annotation = f'"p@odata.type": "Edm.{edm}"'
    before = decode(f'{{{annotation}, "p": {written}}}')
    assert value_of(before) == (Edm[edm.upper()], expected)
    assert type(value_of(before)[1]) is type(expected)
    assert decode(f'{{"p": {written}, {annotation}}}') == before


def test_nan() -> None:
    edm, value = value_of(decode('{"p@odata.type": "Edm.Double", "p": "NaN"}'))
    assert edm is Edm.DOUBLE
    assert isinstance(value, float)
    assert math.isnan(value)


@pytest.mark.parametrize(
    ("edm", "written", "code"),
    [
        ('"Edm.String"', "1", "InvalidInput"),
        ('"Edm.Int32"', "2147483648", "InvalidInput"),
        ('"Edm.Int32"', "1.0", "InvalidInput"),
        ('"Edm.Int32"', '"2147483648"', "InvalidInput"),
        ('"Edm.Int32"', '"1.0"', "InvalidInput"),
        ('"Edm.Int32"', "true", "InvalidInput"),
        ('"Edm.Int64"', "9223372036854775808", "InvalidInput"),
        ('"Edm.Int64"', '"-9223372036854775809"', "InvalidInput"),
        ('"Edm.Int64"', '""', "InvalidInput"),
        ('"Edm.Int64"', '"-"', "InvalidInput"),
        ('"Edm.Int64"', '"--1"', "InvalidInput"),
        ('"Edm.Int64"', '"+1"', "InvalidInput"),
        ('"Edm.Int64"', '" 1"', "InvalidInput"),
        ('"Edm.Int64"', '"1_0"', "InvalidInput"),
        ('"Edm.Int64"', '"1.0"', "InvalidInput"),
        ('"Edm.Int64"', '"٣"', "InvalidInput"),
        ('"Edm.Int64"', "true", "InvalidInput"),
        ('"Edm.Int64"', f'"{"9" * 5000}"', "InvalidInput"),
        ('"Edm.Double"', '"1.5f"', "InvalidInput"),
        ('"Edm.Double"', '""', "InvalidInput"),
        ('"Edm.Double"', '"nan"', "InvalidInput"),
        ('"Edm.Double"', "1e999", "InvalidInput"),
        ('"Edm.Double"', "9" * 400, "InvalidInput"),
        ('"Edm.Double"', "true", "InvalidInput"),
        ('"Edm.Boolean"', '"yes"', "InvalidInput"),
        ('"Edm.Boolean"', "1", "InvalidInput"),
        ('"Edm.DateTime"', '"2024-01-05"', "InvalidInput"),
        ('"Edm.DateTime"', '"1600-12-31T00:00:00Z"', "InvalidInput"),
        ('"Edm.DateTime"', "1", "InvalidInput"),
        ('"Edm.Guid"', '"c9da6455"', "InvalidInput"),
        ('"Edm.Guid"', "1", "InvalidInput"),
        ('"Edm.Binary"', '"AQI"', "InvalidInput"),
        ('"Edm.Binary"', '"A-_="', "InvalidInput"),
        ('"Edm.Binary"', '"é"', "InvalidInput"),
        ('"Edm.Binary"', "1", "InvalidInput"),
        ('"Edm.Binary"', "[1]", "InvalidInput"),
        ('"Edm.Decimal"', "1", "InvalidValueType"),
        ('"Edm.int32"', "1", "InvalidValueType"),
        ('""', "1", "InvalidValueType"),
        ("null", "1", "InvalidValueType"),
        ('["Edm.Int32"]', "1", "InvalidValueType"),
        ('"Edm.Other"', "null", "InvalidValueType"),
    ],
)
def test_values_that_do_not_fit(edm: str, written: str, code: str) -> None:
    assert refused(f'{{"p@odata.type": {edm}, "p": {written}}}') == code


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        " {} \r\n",
        '{"p": null}',
        '{"p": null, "p@odata.type": "Edm.Int64"}',
        '{"Timestamp": "whenever"}',
        '{"Timestamp": [1], "Timestamp@odata.type": "Edm.Int32"}',
        '{"Timestamp@odata.type": "Edm.DateTime"}',
        '{"odata.metadata": "x", "odata.type": "a.b", "odata.id": {}, "odata.etag": 1}',
        '{"odata.etag@odata.type": "Edm.String"}',
        '{"p@odata.other": "x", "p": null}',
        '{"PartitionKey": null, "RowKey": null}',
    ],
)
def test_ignored_members(text: str) -> None:
    assert decode(text) == DecodedEntity(None, None, Properties())


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"a": 1, "a": 1}', "DuplicatePropertiesSpecified"),
        ('{"a": 1, "\\u0061": 2}', "DuplicatePropertiesSpecified"),
        ('{"a": null, "a": null}', "DuplicatePropertiesSpecified"),
        ('{"RowKey": "r", "RowKey": "r"}', "DuplicatePropertiesSpecified"),
        ('{"a": 1, "a@odata.type": "x", "a@odata.type": "x"}', "DuplicatePropertiesSpecified"),
        ('{"a@odata.type": "Edm.Int64"}', "PropertiesNeedValue"),
        ('{"PartitionKey": 1}', "InvalidInput"),
        ('{"RowKey": ["r"]}', "InvalidInput"),
        ('{"RowKey": "1", "RowKey@odata.type": "Edm.Int64"}', "InvalidInput"),
    ],
)
def test_refused_members(text: str, code: str) -> None:
    assert refused(text) == code


def test_keys_may_be_annotated_as_strings() -> None:
    text = '{"PartitionKey@odata.type": "Edm.String", "PartitionKey": "", "RowKey": "r"}'
    assert decode(text) == DecodedEntity("", "r", Properties())


def test_names_are_not_checked_here() -> None:
    names = decode('{"a": 1, "A": 2, "": 3, "a.odata.b": 4}').properties.names
    assert names == ("a", "A", "", "a.odata.b")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"null",
        b"1",
        b'"a"',
        b"[]",
        b'[["a", 1]]',
        b"{",
        b'{"a": 1,}',
        b'{"a"}',
        b"{'a': 1}",
        b'{"a": 01}',
        b'{"a": .5}',
        b'{"a": 1} x',
        b"{} {}",
        b'{"a": "\n"}',
        b'{"a": "\xff"}',
        b'{"a": "\xed\xa0\xbd"}',
        b'{"a": "\\ud83d"}',
        b'{"\\ude0a": 1}',
        b'{"PartitionKey": "\\ud83d"}',
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": -Infinity}',
        b'\xef\xbb\xbf{"a": 1}',
        '{"a": 1}'.encode("utf-16"),
        b'{"a": ' + b"1" * 5000 + b"}",
        b'{"a": ' + b"1" * 1_000_000 + b"}",
        b"[" * 1_000_000,
        b'{"a":' * 200_000,
        b'{"a": ' + b"[" * 500_000 + b"]" * 500_000 + b"}",
    ],
    ids=lambda body: repr(body[:20]),
)
def test_malformed_entities(body: bytes) -> None:
    began = time.process_time()
    assert refused(body) == "InvalidInput"
    assert time.process_time() - began < 1


def test_null_properties_are_limited() -> None:
    nulls = ",".join(f'"P{number}": null' for number in range(1_000))
    decoded = decode(f'{{{nulls}, "A": 1}}')
    assert decoded.properties.names == ("A",)
    for count in (1_100, 40_000, 300_000):
        nulls = ",".join(f'"P{number}":null' for number in range(count))
        began = time.process_time()
        assert refused(f"{{{nulls}}}".encode()) == "TooManyProperties"
        assert time.process_time() - began < 0.2


def test_long_texts() -> None:
    for text in ('"{[,]}"' * 8_000, "\\" * 30_001, '\\"' * 20_000, "\u00e9" * 32_000):
        members = {f"P{number}": text for number in range(3)}
        decoded = decode(json.dumps(members))
        assert decoded.properties.values == (text,) * 3


def test_long_fractions_are_fast() -> None:
    began = time.process_time()
    assert value_of(decode(f'{{"p": 1.{"3" * 1_000_000}}}')) == (Edm.DOUBLE, 4 / 3)
    assert time.process_time() - began < 1


# Tables


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"TableName":"People"}', "People"),
        (b'{"odata.type":"a.Tables","TableName":""}', ""),
        (b'{"TableName@odata.type":"Edm.String","TableName":"People"}', "People"),
        (b"{}", "PropertiesNeedValue"),
        (b'{"TableName":null}', "PropertiesNeedValue"),
        (b'{"tablename":"People"}', "PropertiesNeedValue"),
        (b'{"TableName":1}', "InvalidInput"),
        (b'{"TableName":"People","Other":1}', "InvalidInput"),
        (b'{"TableName":"a","TableName":"a"}', "DuplicatePropertiesSpecified"),
        (b'{"TableName":"\\ud83d"}', "InvalidInput"),
        (b"People", "InvalidInput"),
    ],
)
def test_tables(body: bytes, expected: str) -> None:
    name = decode_table(body)
    assert (name.code if isinstance(name, Refusal) else name) == expected


# Arbitrary input


@given(st.binary(max_size=200))
def test_arbitrary_bytes(body: bytes) -> None:
    decode_entity(body)
    decode_table(body)


NAMES = st.sampled_from(
    ["a", "b", "PartitionKey", "Timestamp", "a@odata.type", "b@odata.type", "odata.etag", "a@b"]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["Edm.String", "Edm.Int32", "Edm.Int64", "Edm.Double", "Edm.Boolean"])
    | st.sampled_from(["Edm.DateTime", "Edm.Guid", "Edm.Binary", "NaN", "AQI=", "12"])
)
TREES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2)
)


@given(st.lists(st.tuples(NAMES, TREES), max_size=6))
def test_arbitrary_members(members: list[tuple[str, object]]) -> None:
    body = ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in members)
    decoded = decode_entity(f"{{{body}}}".encode())
    if isinstance(decoded, Refusal):
        assert ERRORS[decoded.code].status == 400
        return
    # Decoded values can be stored and match their type.
    properties = decoded.properties
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(properties), type=Properties) is not None
    assert len(properties.names) == len(properties.types) == len(properties.values)
    for letter, value in zip(properties.types, properties.values, strict=True):
        assert type(value) is PYTHON_TYPES[Edm(letter)]


@given(st.lists(st.tuples(NAMES, TREES), max_size=6), st.sampled_from(["", " ", "\n\t"]))
def test_both_decoders_agree(members: list[tuple[str, object]], blank: str) -> None:
    """An escape, even in an ignored member, selects the slower decoder."""
    written = [
        f"{blank}{json.dumps(name)}{blank}:{blank}{json.dumps(value, ensure_ascii=False)}"
        for name, value in members
    ]
    quick = decode_entity("{{{}}}".format(",".join(written)).encode())
    escaped = ['"odata.ignored":"\\n"', *written]
    careful = decode_entity("{{{}}}".format(",".join(escaped)).encode())
    assert repr(quick) == repr(careful)


PYTHON_TYPES: dict[Edm, type] = {
    Edm.STRING: str,
    Edm.INT32: int,
    Edm.INT64: int,
    Edm.DOUBLE: float,
    Edm.BOOLEAN: bool,
    Edm.DATETIME: int,
    Edm.GUID: bytes,
    Edm.BINARY: bytes,
}


@given(st.text(max_size=40))
def test_datetimes_match_the_rules(text: str) -> None:
    body = json.dumps({"p": text, "p@odata.type": "Edm.DateTime"})
    decoded = decode_entity(body.encode())
    assert isinstance(decoded, Refusal) is (parse_datetime(text) is None)


def test_speed() -> None:
    """About 15 µs each; the limit leaves room for a busy machine."""
    began = time.process_time()
    for _ in range(1_000):
        decode_entity(GOLDEN)
    assert time.process_time() - began < 0.15
