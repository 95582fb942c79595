"""Tables and entities: names, keys and sizes at and beyond their limits, ETags, values as text."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etagere.clock import TICKS_PER_SECOND
from etagere.errors import Refusal
from etagere.model.tables import Edm, Keys, Properties, Value
from etagere.rules import entities
from etagere.rules.entities import (
    ANY,
    DATETIME_MAX,
    DATETIME_MIN,
    ENTITY_BYTES_MAX,
    NEVER,
    check_entity,
    check_in_group,
    check_keys,
    check_property_name,
    check_table_name,
    format_datetime,
    format_etag,
    format_guid,
    merge,
    parse_datetime,
    parse_etag,
    parse_guid,
)

INVALID = "InvalidResourceName"
RANGE = "OutOfRangeInput"
KEYS = Keys("", "")


def code(refusal: Refusal | None) -> str | None:
    return refusal.code if refusal is not None else None


def properties(*columns: tuple[str, Edm, Value]) -> Properties:
    return Properties(
        tuple(name for name, _, _ in columns),
        "".join(edm.value for _, edm, _ in columns),
        tuple(value for _, _, value in columns),
    )


# Names and keys


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("abc", None),
        ("People", None),
        ("t12", None),
        ("a" * 63, None),
        ("Tables1", None),
        ("", RANGE),
        ("ab", RANGE),
        ("a" * 64, RANGE),
        ("1ab", INVALID),
        ("a-b", INVALID),
        ("a_b", INVALID),
        ("äöü", INVALID),
        ("a٣٣", INVALID),
        ("abc\n", INVALID),
        ("tables", INVALID),
        ("TABLES", INVALID),
        ("$MetricsTransactionsBlob", INVALID),
    ],
)
def test_table_names(name: str, expected: str | None) -> None:
    assert code(check_table_name(name)) == expected


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("", None),
        (" ", None),
        ("a'b\"%&+é", None),
        ("\xa0", None),
        ("a" * 1024, None),
        ("é" * 512, None),
        ("😊" * 256, None),
        ("a" * 1025, "KeyValueTooLarge"),
        ("é" * 512 + "a", "KeyValueTooLarge"),
        ("😊" * 256 + "a", "KeyValueTooLarge"),
        ("a/b", RANGE),
        ("a\\b", RANGE),
        ("a#b", RANGE),
        ("a?b", RANGE),
        ("\x00", RANGE),
        ("\t", RANGE),
        ("\x1f", RANGE),
        ("\x7f", RANGE),
        ("\x9f", RANGE),
        ("\ud83d", RANGE),
    ],
)
def test_keys(key: str, expected: str | None) -> None:
    assert code(check_keys(Keys(key, "good"))) == expected
    assert code(check_keys(Keys("good", key))) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a", None),
        ("_", None),
        ("Name1", None),
        ("class", None),
        ("naïve", None),
        ("名前", None),
        ("e\u0301", None),
        ("a\u200d", None),
        ("a\u203f", None),
        ("Ⅷ", None),
        ("a" * 255, None),
        ("é" * 255, None),
        ("a" * 256, "PropertyNameTooLong"),
        ("é" * 256, "PropertyNameTooLong"),
        ("", "PropertyNameInvalid"),
        ("1a", "PropertyNameInvalid"),
        ("a-b", "PropertyNameInvalid"),
        ("a.b", "PropertyNameInvalid"),
        ("a b", "PropertyNameInvalid"),
        ("a\n", "PropertyNameInvalid"),
        ("@a", "PropertyNameInvalid"),
        ("\u0301e", "PropertyNameInvalid"),
        ("\u203fa", "PropertyNameInvalid"),
        ("é€", "PropertyNameInvalid"),
        ("\U0001d4b3", "PropertyNameInvalid"),
        ("x😊", "PropertyNameInvalid"),
        ("x\ud83d", "PropertyNameInvalid"),
    ],
)
def test_property_names(name: str, expected: str | None) -> None:
    assert code(check_property_name(name)) == expected
    assert code(check_entity(KEYS, properties((name, Edm.INT32, 1)))) == expected


# Sizes


@pytest.mark.parametrize(("count", "expected"), [(252, None), (253, "TooManyProperties")])
def test_the_number_of_properties(count: int, expected: str | None) -> None:
    columns = [(f"p{number}", Edm.BOOLEAN, True) for number in range(count)]
    assert code(check_entity(KEYS, properties(*columns))) == expected


@pytest.mark.parametrize(
    ("edm", "value", "good"),
    [
        (Edm.STRING, "a" * 32_768, True),
        (Edm.STRING, "a" * 32_769, False),
        (Edm.STRING, "é" * 32_768, True),
        (Edm.STRING, "é" * 32_769, False),
        (Edm.STRING, "😊" * 16_384, True),
        (Edm.STRING, "😊" * 16_384 + "a", False),
        (Edm.BINARY, bytes(65_536), True),
        (Edm.BINARY, bytes(65_537), False),
    ],
)
def test_the_size_of_values(edm: Edm, value: Value, good: bool) -> None:
    refusal = check_entity(KEYS, properties(("p", edm, value)))
    assert code(refusal) == (None if good else "PropertyValueTooLarge")


def fill(size_bytes: int) -> list[tuple[str, Edm, Value]]:
    """Returns binary properties that count as so many bytes in total: 8, and 2 * 3 and 4 around
    each."""
    columns: list[tuple[str, Edm, Value]] = []
    while size_bytes:
        length = min(60_000, size_bytes - 18)
        columns.append((f"f{len(columns):02}", Edm.BINARY, bytes(length)))
        size_bytes -= length + 18
    return columns


@pytest.mark.parametrize(
    ("edm", "value", "size_bytes"),
    [
        (Edm.STRING, "", 4),
        (Edm.STRING, "abc", 10),
        (Edm.STRING, "é😊", 10),
        (Edm.INT32, 1, 4),
        (Edm.INT64, 1, 8),
        (Edm.DOUBLE, 1.0, 8),
        (Edm.BOOLEAN, True, 1),
        (Edm.DATETIME, DATETIME_MIN, 8),
        (Edm.GUID, bytes(16), 16),
        (Edm.BINARY, b"abc", 7),
    ],
)
def test_the_size_of_entities(edm: Edm, value: Value, size_bytes: int) -> None:
    keys = Keys("é", "😊")
    rest = ENTITY_BYTES_MAX - (4 + 2 * 3) - (8 + 2 * 4 + size_bytes)
    column = ("näme", edm, value)
    assert check_entity(keys, properties(column, *fill(rest))) is None
    assert check_entity(keys, properties(column, *fill(rest + 1))) == Refusal(
        "EntityTooLarge", {"Bytes": ENTITY_BYTES_MAX + 1, "BytesMax": ENTITY_BYTES_MAX}
    )


# Merging


def test_merge() -> None:
    old = properties(("a", Edm.INT32, 1), ("b", Edm.STRING, "x"), ("c", Edm.BOOLEAN, True))
    new = properties(("d", Edm.INT64, 4), ("b", Edm.DOUBLE, 1.5), ("A", Edm.INT32, 2))
    assert merge(old, new) == properties(
        ("a", Edm.INT32, 1),
        ("b", Edm.DOUBLE, 1.5),
        ("c", Edm.BOOLEAN, True),
        ("d", Edm.INT64, 4),
        ("A", Edm.INT32, 2),
    )
    nothing = Properties()
    assert merge(old, nothing) == merge(nothing, old) == old
    assert merge(nothing, nothing) == nothing


COLUMNS = st.dictionaries(
    st.sampled_from("abcdef"),
    st.tuples(st.just(Edm.INT32), st.integers(0, 9)) | st.tuples(st.just(Edm.STRING), st.text()),
).map(lambda columns: properties(*[(name, *column) for name, column in columns.items()]))


@given(COLUMNS, COLUMNS)
def test_merge_matches_a_model(old: Properties, new: Properties) -> None:
    def columns(of: Properties) -> dict[str, tuple[str, Value]]:
        return dict(zip(of.names, zip(of.types, of.values, strict=True), strict=True))

    merged = merge(old, new)
    assert columns(merged) == columns(old) | columns(new)
    assert merged.names[: len(old.names)] == old.names
    assert merge(merged, new) == merged


# ETags

STAMP = 17_947_095_081_234_567
ETAG = "W/\"datetime'2026-11-15T02%3A25%3A08.1234567Z'\""


def test_golden_etag() -> None:
    assert format_etag(STAMP) == ETAG
    assert parse_etag(ETAG) == STAMP


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*", ANY),
        (" * ", ANY),
        (f" {ETAG} ", STAMP),
        ("w/\"datetime'2026-11-15T02%3a25%3a08.1234567Z'\"", STAMP),
        ("W/\"datetime'2026-11-15T02:25:08.1234567Z'\"", STAMP),
        ("W/\"datetime'2026-11-15T02%3A25%3A08Z'\"", STAMP - 1_234_567),
        ('W/"wrong"', NEVER),
        ('W/""', NEVER),
        ('W/"*"', NEVER),
        ("W/\"datetime'2026-11-15'\"", NEVER),
        ("W/\"datetime'1969-12-31T23%3A59%3A59.0000000Z'\"", NEVER),
        ("W/\"datetime'2026-13-15T02%3A25%3A08.1234567Z'\"", NEVER),
        ('W/"0x8D1234567890ABC"', NEVER),
    ],
)
def test_etags(text: str, expected: int | None) -> None:
    assert parse_etag(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "wrong",
        '"strong"',
        ETAG[2:],
        ETAG[:-1],
        "W/wrong",
        f"{ETAG}, {ETAG}",
        f"{ETAG}, *",
        "**",
    ],
)
def test_invalid_etags(text: str) -> None:
    refusal = parse_etag(text)
    assert isinstance(refusal, Refusal)
    assert refusal.code == "InvalidInput"


@given(st.integers(0, 253_402_300_800 * TICKS_PER_SECOND - 1))
def test_etags_round_trip(stamp: int) -> None:
    assert parse_etag(format_etag(stamp)) == stamp


@given(st.text())
def test_any_etag(text: str) -> None:
    for written in (text, f'W/"{text}"', f"W/\"datetime'{text}'\""):
        parse_etag(written)


# Values as text

YEAR_1 = datetime(1, 1, 1, tzinfo=UTC)
NOON = 638_400_528_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-01-05T12:00:00Z", NOON),
        ("2024-01-05T12:00:00", NOON),
        ("2024-01-05T12:00:00.0000000Z", NOON),
        ("2024-01-05T12:00:00.1Z", NOON + 1_000_000),
        ("2024-01-05T12:00:00.0000001", NOON + 1),
        ("2024-01-05T12:00:00.1234567+00:00", NOON + 1_234_567),
        ("2024-01-05T13:00:00+01:00", NOON),
        ("2024-01-05T06:30:00-05:30", NOON),
        ("2024-01-06T02:00:00+14:00", NOON),
        ("1601-01-01T00:00:00Z", DATETIME_MIN),
        ("1601-01-01T01:00:00+01:00", DATETIME_MIN),
        ("9999-12-31T23:59:59.9999999Z", DATETIME_MAX),
        ("2024-02-29T00:00:00Z", NOON + (54 * 24 + 12) * 3600 * TICKS_PER_SECOND),
        ("1600-12-31T23:59:59.9999999Z", None),
        ("1601-01-01T00:00:00+00:01", None),
        ("9999-12-31T23:59:59.9999999-00:01", None),
        ("0000-01-01T00:00:00Z", None),
        ("2023-02-29T00:00:00Z", None),
        ("2024-13-01T00:00:00Z", None),
        ("2024-01-05T24:00:00Z", None),
        ("2024-01-05T12:60:00Z", None),
        ("2024-01-05T12:00:60Z", None),
        ("2024-01-05T12:00:00.12345678Z", None),
        ("2024-01-05T12:00:00.Z", None),
        ("2024-01-05T12:00:00+14:01", None),
        ("2024-01-05T12:00:00+01:60", None),
        ("2024-01-05T12:00:00+0100", None),
        ("2024-01-05T12:00:00z", None),
        ("2024-01-05 12:00:00Z", None),
        ("2024-01-05T12:00Z", None),
        ("2024-01-05", None),
        ("2024-1-5T12:00:00Z", None),
        ("٢٠٢٤-01-05T12:00:00Z", None),
        ("2024-01-05T12:00:00Z\n", None),
        ("", None),
    ],
)
def test_datetimes(text: str, expected: int | None) -> None:
    assert parse_datetime(text) == expected


@pytest.mark.parametrize(
    ("ticks", "expected"),
    [
        (NOON, "2024-01-05T12:00:00Z"),
        (NOON + 1, "2024-01-05T12:00:00.0000001Z"),
        (NOON + 1_000_000, "2024-01-05T12:00:00.1Z"),
        (NOON + 1_230_000, "2024-01-05T12:00:00.123Z"),
        (DATETIME_MIN, "1601-01-01T00:00:00Z"),
        (DATETIME_MAX, "9999-12-31T23:59:59.9999999Z"),
    ],
)
def test_written_datetimes(ticks: int, expected: str) -> None:
    assert format_datetime(ticks) == expected


@given(st.integers(DATETIME_MIN, DATETIME_MAX))
def test_datetimes_round_trip(ticks: int) -> None:
    assert parse_datetime(format_datetime(ticks)) == ticks


@given(
    st.datetimes(datetime(1601, 1, 2), datetime(9999, 12, 30)),
    st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes))),
)
def test_datetimes_match_the_standard_library(moment: datetime, zone: timezone) -> None:
    moment = moment.replace(tzinfo=zone)
    assert parse_datetime(moment.isoformat()) == (moment - YEAR_1) // timedelta(microseconds=1) * 10


@given(st.text(alphabet="0123456789-T:.Z+", max_size=30))
def test_any_datetime(text: str) -> None:
    ticks = parse_datetime(text)
    assert ticks is None or DATETIME_MIN <= ticks <= DATETIME_MAX


@given(st.uuids())
def test_guids(guid: uuid.UUID) -> None:
    assert format_guid(guid.bytes) == str(guid)
    for text in (str(guid), str(guid).upper(), guid.hex):
        assert parse_guid(text) == guid.bytes


@pytest.mark.parametrize(
    "text",
    [
        "",
        "c9da6455",
        "{c9da6455-213d-42c9-9a79-3e9149a57833}",
        "c9da6455-213d-42c9-9a793e9149a57833",
        "c9da-6455213d42c99a793e9149a57833---",
        "g9da6455-213d-42c9-9a79-3e9149a57833",
        "c9da6455-213d-42c9-9a79-3e9149a57833\n",
        "٣9da6455-213d-42c9-9a79-3e9149a57833",
    ],
)
def test_invalid_guids(text: str) -> None:
    assert parse_guid(text) is None


def test_groups_have_one_partition_and_distinct_entities() -> None:
    first = Keys("p", "1")
    assert check_in_group(first, first, set()) is None
    assert check_in_group(Keys("p", "2"), first, {"1"}) is None
    for keys, code in (
        (Keys("q", "2"), "CommandsInBatchActOnDifferentPartitions"),
        (Keys("p", "1"), "InvalidDuplicateRow"),
    ):
        refusal = check_in_group(keys, first, {"1"})
        assert refusal is not None
        assert refusal.code == code


@given(
    st.from_regex(
        r"(1601|2001|9999|0001|20x1)-(02|12|13)-(03|30|31)[Tt](04|24):(05|60):(06|60)"
        r"(\.[0-9]{0,8}|\.٣|,5)?(Z|\+01:00|)",
        fullmatch=True,
    )
)
def test_times_in_utc_and_in_other_zones(text: str) -> None:
    ticks = entities._parse_utc(text)
    assert ticks is None or ticks == entities._parse_any_zone(text)
    if text.endswith("Z") and entities._parse_any_zone(text) is not None:
        assert ticks is not None
