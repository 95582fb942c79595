"""Queries: every operator and type, parameters, projection and pages."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from azure.data.tables import EdmType, TableClient, TableServiceClient

from tests.sdk.harness import refused
from tests.sdk.table.clients import row_keys, unique_table

# For each type, values in ascending order; row 0 has the first, and so on.
VALUES: Final[dict[str, list[Any]]] = {
    "Text": ["", "Z", "a", "é", "\U0001f984"],
    "Int": [-(2**31), -1, 0, 1, 2**31 - 1],
    "Long": [(n, EdmType.INT64) for n in (-(2**63), -(2**40), 0, 2**40, 2**63 - 1)],
    "Double": [-math.inf, -0.5, 0.0, 1e300, math.inf],
    "Moment": [datetime(year, 1, 1, 0, 0, 0, 7, UTC) for year in (1601, 1970, 2000, 2026, 9999)],
    "Id": [uuid.UUID(int=number) for number in (0, 1, 2**64, 2**100, 2**128 - 1)],
    "Raw": [b"", b"\x00", b"\x00\x01", b"a", b"\xff"],
}
OPERATORS: Final = {
    "eq": lambda row, at: row == at,
    "ne": lambda row, at: row != at,
    "gt": lambda row, at: row > at,
    "ge": lambda row, at: row >= at,
    "lt": lambda row, at: row < at,
    "le": lambda row, at: row <= at,
}


@pytest.fixture(scope="module")
def kinds(tables: TableServiceClient) -> Iterator[TableClient]:
    """A table with five entities that have a value of each type, and one without any."""
    table = tables.create_table(unique_table("Kinds"))
    for row in range(5):
        values = {name: of_type[row] for name, of_type in VALUES.items()}
        entity = {"PartitionKey": "p", "RowKey": str(row), "Flag": row == 4, **values}
        table.create_entity(entity)
    table.create_entity({"PartitionKey": "q", "RowKey": "bare"})
    yield table
    table.delete_table()


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("name", VALUES)
def test_operators(kinds: TableClient, name: str, operator: str) -> None:
    for at, written in enumerate(VALUES[name]):
        value = written[0] if isinstance(written, tuple) else written
        if isinstance(value, float) and math.isinf(value):
            # The SDK writes infinities as Python does; filters have their own keyword.
            query = f"{name} {operator} {'INF' if value > 0 else '-INF'}"
            found = row_keys(kinds, query)
        else:
            query = f"{name} {operator} @value"
            found = row_keys(kinds, query, parameters={"value": value})
        expected = [str(row) for row in range(5) if OPERATORS[operator](row, at)]
        assert found == expected, (query, value)


def test_booleans(kinds: TableClient) -> None:
    assert row_keys(kinds, "Flag eq @flag", parameters={"flag": True}) == ["4"]
    assert row_keys(kinds, "Flag eq false") == ["0", "1", "2", "3"]
    assert row_keys(kinds, "Flag ne true") == ["0", "1", "2", "3"]
    assert row_keys(kinds, "not Flag") == ["0", "1", "2", "3", "bare"]
    assert row_keys(kinds, "Flag") == ["4"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("PartitionKey eq 'p' and RowKey eq '3'", ["3"]),
        ("PartitionKey eq 'q'", ["bare"]),
        ("RowKey ge '2' and RowKey lt '4'", ["2", "3"]),
        ("PartitionKey gt 'p'", ["bare"]),
        ("Int eq 0 or Int eq 1", ["2", "3"]),
        ("Int eq 0 or Int eq 1 and Flag eq true", ["2"]),
        ("(Int eq 0 or Int eq 1) and Flag eq true", []),
        ("not (Int ge 0)", ["0", "1", "bare"]),
        ("not Int ge 0 and PartitionKey eq 'p'", ["0", "1"]),
        ("0 lt Int", ["3", "4"]),
        # Numbers are compared by value.
        ("Int eq 1.0", ["3"]),
        ("Long eq 0", ["2"]),
        ("Double gt 5L", ["3", "4"]),
        # Absent properties and those of another type never match, not even with ne.
        ("Nothing eq 5", []),
        ("Nothing ne 5", []),
        ("Text eq 5", []),
        ("Int ne 'a'", []),
        ("Timestamp gt datetime'2020-01-01T00:00:00Z'", ["0", "1", "2", "3", "4", "bare"]),
        ("Timestamp gt datetime'2100-01-01T00:00:00Z'", []),
        ("Raw eq binary'0001'", ["2"]),
        ("Text eq 'it''s'", []),
        ("int eq 0", []),
        (" or ".join(f"Int eq {number}" for number in range(40)), ["2", "3"]),
    ],
)
def test_filters(kinds: TableClient, query: str, expected: list[str]) -> None:
    assert row_keys(kinds, query) == expected


@pytest.mark.parametrize(
    "query",
    ["Int", "Int eq", "eq 5", "Int is 5", "Int eq 5 and", "(Int eq 5", "Int eq 5)", "Int eq 'a",
     "Int eq datetime'x'", "Int eq guid'x'", "Int eq X'0'", "Int eq 5 Int eq 6", "not", "5 eq 5",
     "Int == 5", "Int eq 1e999", "Int eq 99999999999999999999L", "substringof('a', Text)"],
)  # fmt: skip
def test_malformed_filters(kinds: TableClient, query: str) -> None:
    if query == "Int":
        # A property on its own is a boolean condition.
        assert row_keys(kinds, query) == []
        return
    with refused(400, "InvalidInput"):
        row_keys(kinds, query)


def test_parameters_cannot_break_out(kinds: TableClient) -> None:
    for value in ("x' or Int ge 0 or Text eq 'x", "'", "''", "' or true or '"):
        assert row_keys(kinds, "Text eq @value", parameters={"value": value}) == []


def test_a_filter_may_contain_any_text(table: TableClient) -> None:
    """Even that of a string to sign, which does not contain filters."""
    text = "first line\ncomp:list\n\nlast: + %2B & # é"
    table.create_entity({"PartitionKey": "p", "RowKey": "r", "Text": text})
    assert row_keys(table, "Text eq @value", parameters={"value": text}) == ["r"]


# Projection


def test_select(kinds: TableClient) -> None:
    (entity,) = kinds.query_entities("RowKey eq '3'", select=["Int", "Nothing"])
    assert entity["Int"] == 1
    assert set(entity) == {"Int", "Nothing"}
    assert entity["Nothing"] is None
    alone = kinds.get_entity("p", "3", select=["RowKey", "Raw"])
    assert dict(alone) == {"RowKey": "3", "Raw": b"a"}
    assert alone.metadata["etag"] is not None


# Pages


def test_pages(table: TableClient) -> None:
    all_rows = [f"{number:03}" for number in range(250)]
    for first in range(0, 250, 100):
        share = all_rows[first : first + 100]
        table.submit_transaction(
            [
                ("create", {"PartitionKey": "p", "RowKey": row, "Odd": int(row) % 2 == 1})
                for row in share
            ]
        )
    for size in (1, 7, 249, 250, 251):
        pages = [
            [entity["RowKey"] for entity in page]
            for page in table.list_entities(results_per_page=size).by_page()
        ]
        assert [row for page in pages for row in page] == all_rows
        assert all(len(page) == size for page in pages[:-1])
    assert row_keys(table, "Odd eq true", results_per_page=9) == all_rows[1::2]


def test_a_page_can_be_fetched_again_by_its_token(table: TableClient) -> None:
    for row in "abcdef":
        table.create_entity({"PartitionKey": "p'&=", "RowKey": row})
    pages: Any = table.list_entities(results_per_page=2).by_page()
    next(pages)
    token = pages.continuation_token
    again = table.list_entities(results_per_page=2).by_page(continuation_token=token)
    assert [[entity["RowKey"] for entity in page] for page in again] == [["c", "d"], ["e", "f"]]


def test_pages_continue_during_changes(table: TableClient) -> None:
    for row in range(0, 20, 2):
        table.create_entity({"PartitionKey": "p", "RowKey": f"{row:02}"})
    found: list[str] = []
    for number, page in enumerate(table.list_entities(results_per_page=3).by_page()):
        found += [entity["RowKey"] for entity in page]
        table.create_entity({"PartitionKey": "p", "RowKey": f"{2 * number + 1:02}"})
        # The first entity of the next page, if any.
        table.delete_entity("p", f"{int(found[-1]) + 2:02}")
    assert found == sorted(set(found))
    assert found[0] == "00"


def test_more_than_a_thousand(table: TableClient) -> None:
    for partition in range(11):
        table.submit_transaction(
            [
                ("create", {"PartitionKey": f"{partition:02}", "RowKey": f"{row:02}"})
                for row in range(100)
            ]
        )
    pages = [len(list(page)) for page in table.list_entities().by_page()]
    assert pages == [1_000, 100]
    # Beyond what is read in one step.
    assert len(row_keys(table, "RowKey eq '42'")) == 11


def test_pages_of_large_entities_are_short(table: TableClient) -> None:
    """A thousand of the largest would be more than a server can buffer per client."""
    large = {f"P{number:02}": b"x" * 65_000 for number in range(16)}
    all_rows = [f"{number:02}" for number in range(24)]
    for row in all_rows:
        table.create_entity({"PartitionKey": "p", "RowKey": row, **large})
    for query in ("PartitionKey eq 'p'", "P00 ne X'00'"):
        pages = [
            [entity["RowKey"] for entity in page] for page in table.query_entities(query).by_page()
        ]
        assert [row for page in pages for row in page] == all_rows
        assert max(map(len, pages)) <= 16
