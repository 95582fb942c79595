"""Every property type, to the ends of its range."""

from __future__ import annotations

import math
import uuid
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from azure.data.tables import EdmType, EntityProperty, TableClient, UpdateMode

from tests.sdk.harness import refused

KEYS: Final = {"PartitionKey": "p", "RowKey": "r"}


def round_trip(table: TableClient, value: Any) -> Any:
    """Returns the value that the SDK reads after writing it in every way."""
    entity = {**KEYS, "Value": value}
    table.upsert_entity(entity, mode=UpdateMode.REPLACE)
    found = [table.get_entity("p", "r")]
    table.upsert_entity({**entity, "Other": 1}, mode=UpdateMode.MERGE)
    found += table.list_entities()
    table.submit_transaction([("upsert", entity, {"mode": "replace"})])
    found += table.query_entities("PartitionKey eq 'p'", select=["Value"])
    values = [each.get("Value") for each in found]
    assert all(type(each) is type(values[0]) for each in values)
    assert repr(values) == repr([values[0]] * len(values))
    return values[0]


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        "text",
        "O'Neil",
        "é\u2028\ufffd",
        "\U0001f984",
        "\x00\x01\t\r\n",
        '"\\/</b>',
        "null",
    ],
)
def test_texts(table: TableClient, value: str) -> None:
    assert round_trip(table, value) == value


@pytest.mark.parametrize("value", [0, 1, -1, 2**31 - 1, -(2**31)])
def test_int32(table: TableClient, value: int) -> None:
    assert round_trip(table, value) == value


@pytest.mark.parametrize("value", [0, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)])
def test_int64(table: TableClient, value: int) -> None:
    assert round_trip(table, (value, EdmType.INT64)) == EntityProperty(value, EdmType.INT64)


@pytest.mark.parametrize(
    "value",
    [0.0, -0.0, 1.0, -1.5, 0.1, 1e300, 5e-324, 1.7976931348623157e308, math.inf, -math.inf],
)
def test_doubles(table: TableClient, value: float) -> None:
    found = round_trip(table, value)
    assert (found, math.copysign(1, found)) == (value, math.copysign(1, value))
    assert isinstance(found, float)


def test_nan(table: TableClient) -> None:
    assert math.isnan(round_trip(table, math.nan))


@pytest.mark.parametrize("value", [True, False])
def test_booleans(table: TableClient, value: bool) -> None:
    assert round_trip(table, value) is value


@pytest.mark.parametrize("value", [b"", b"\x00", bytes(range(256)), b"x" * (64 << 10)])
def test_binaries(table: TableClient, value: bytes) -> None:
    assert round_trip(table, value) == value


@pytest.mark.parametrize("value", [uuid.UUID(int=0), uuid.UUID(int=2**128 - 1), uuid.uuid4()])
def test_guids(table: TableClient, value: uuid.UUID) -> None:
    assert round_trip(table, value) == value


@pytest.mark.parametrize(
    "value",
    [
        datetime(1601, 1, 1, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2026, 11, 15, 2, 25, 8, 123456, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ],
)
def test_datetimes(table: TableClient, value: datetime) -> None:
    assert round_trip(table, value) == value


def test_datetimes_are_stored_to_the_tick(table: TableClient) -> None:
    for written, shown in (
        ("2026-11-15T02:25:08.1234567Z", "2026-11-15T02:25:08.1234567Z"),
        ("2026-11-15T03:25:08+01:00", "2026-11-15T02:25:08Z"),
        ("9999-12-31T23:59:59.9999999Z", "9999-12-31T23:59:59.9999999Z"),
    ):
        table.upsert_entity({**KEYS, "Value": (written, EdmType.DATETIME)})
        assert table.get_entity("p", "r")["Value"].tables_service_value == shown


@pytest.mark.parametrize(
    ("written", "edm"),
    [
        ("1600-12-31T23:59:59Z", EdmType.DATETIME),
        ("10000-01-01T00:00:00Z", EdmType.DATETIME),
        ("2026-02-30T00:00:00Z", EdmType.DATETIME),
        ("yesterday", EdmType.DATETIME),
        ("not-a-guid", EdmType.GUID),
        ("many", EdmType.DOUBLE),
    ],
)
def test_values_out_of_range(table: TableClient, written: str, edm: EdmType) -> None:
    with refused(400, "InvalidInput"):
        table.create_entity({**KEYS, "Value": (written, edm)})


def test_null_properties_are_not_stored(table: TableClient) -> None:
    table.create_entity({**KEYS, "Age": 36, "Name": None})
    assert "Name" not in table.get_entity("p", "r")
    table.update_entity({**KEYS, "Age": None, "Name": "Ada"}, mode=UpdateMode.MERGE)
    assert table.get_entity("p", "r")["Age"] == 36
    table.update_entity({**KEYS, "Age": None, "Name": "Ada"}, mode=UpdateMode.REPLACE)
    assert set(table.get_entity("p", "r")) == {*KEYS, "Name"}


def test_the_timestamp_is_set_by_the_server(table: TableClient) -> None:
    stolen = datetime(2000, 1, 1, tzinfo=UTC)
    table.create_entity({**KEYS, "Timestamp": stolen})
    entity = table.get_entity("p", "r")
    timestamp = entity.metadata["timestamp"]
    assert timestamp is not None
    assert timestamp > datetime(2020, 1, 1, tzinfo=UTC)


def test_property_names_are_case_sensitive(table: TableClient) -> None:
    table.create_entity({**KEYS, "age": 1, "Age": 2, "AGE": 3, "é": 4, "_x9": 5})
    entity = table.get_entity("p", "r")
    assert (entity["age"], entity["Age"], entity["AGE"], entity["é"], entity["_x9"]) == (
        (1, 2, 3, 4, 5)
    )


# Limits


def test_maximum_number_of_properties(table: TableClient) -> None:
    full = {**KEYS, **{f"P{number}": number for number in range(252)}}
    table.create_entity(full)
    assert len(table.get_entity("p", "r")) == 254
    with refused(400, "TooManyProperties"):
        table.create_entity({**full, "RowKey": "s", "More": 1})
    with refused(400, "TooManyProperties"):
        table.update_entity({**KEYS, "More": 1}, mode=UpdateMode.MERGE)


def test_maximum_size_of_values(table: TableClient) -> None:
    for longest, longer in (
        (b"x" * 65_536, b"x" * 65_537),
        ("x" * 32_768, "x" * 32_769),
        ("\U0001f984" * 16_384, "\U0001f984" * 16_384 + "x"),
    ):
        table.upsert_entity({**KEYS, "Value": longest})
        assert table.get_entity("p", "r")["Value"] == longest
        with refused(400, "PropertyValueTooLarge"):
            table.upsert_entity({**KEYS, "Value": longer})


def test_maximum_size_of_entities(table: TableClient) -> None:
    long = b"x" * 65_536
    fifteen = {**KEYS, **{f"P{number:02}": long for number in range(15)}}
    # 4 for the entity, 2 per character of its keys, and for each property 8, 4 for a length and 2
    # per character of its name.
    rest = (1 << 20) - 4 - 2 * 2 - 16 * (8 + 4 + 2 * 3) - 15 * len(long)
    table.create_entity({**fifteen, "P15": b"x" * rest})
    with refused(400, "EntityTooLarge"):
        table.upsert_entity({**fifteen, "P15": b"x" * (rest + 1)}, mode=UpdateMode.REPLACE)
    assert len(table.get_entity("p", "r")["P15"]) == rest


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("x" * 256, "PropertyNameTooLong"),
        ("a b", "PropertyNameInvalid"),
        ("1a", "PropertyNameInvalid"),
        ("a-b", "PropertyNameInvalid"),
        ("\U0001f984", "PropertyNameInvalid"),
    ],
)
def test_invalid_property_names(table: TableClient, name: str, code: str) -> None:
    with refused(400, code):
        table.create_entity({**KEYS, name: 1})


@pytest.mark.parametrize("key", ["", "x" * 1_024, "é" * 512, "O'Neil", "100%", "a b", "\U0001f984"])
def test_keys(table: TableClient, key: str) -> None:
    entity = {"PartitionKey": key, "RowKey": key, "Age": 36}
    etag = table.create_entity(entity)["etag"]
    assert table.get_entity(key, key).metadata["etag"] == etag
    quoted = key.replace("'", "''")
    found = table.query_entities(f"PartitionKey eq '{quoted}' and RowKey eq '{quoted}'")
    assert [each["Age"] for each in found] == [36]
    table.submit_transaction([("update", {**entity, "Age": 37})])
    assert table.get_entity(key, key)["Age"] == 37
    table.delete_entity(key, key)
    assert list(table.list_entities()) == []


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("x" * 1_025, "KeyValueTooLarge"),
        ("a/b", "OutOfRangeInput"),
        ("a\\b", "OutOfRangeInput"),
        ("a#b", "OutOfRangeInput"),
        ("a?b", "OutOfRangeInput"),
        ("a\tb", "OutOfRangeInput"),
    ],
)
def test_invalid_keys(table: TableClient, key: str, code: str) -> None:
    for entity in ({"PartitionKey": key, "RowKey": "r"}, {"PartitionKey": "p", "RowKey": key}):
        with refused(400, code):
            table.create_entity(entity)
