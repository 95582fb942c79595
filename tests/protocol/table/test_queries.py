"""Queries over REST: pages, continuation tokens, projection, and lists of tables."""

from __future__ import annotations

import base64
from typing import Any, Final
from urllib.parse import quote

import pytest

from tests.protocol.table.fixture import Answer, TableServiceFixture

NO_METADATA: Final = "application/json;odata=nometadata"
BAD: Final = (400, "InvalidInput")


def following(answer: Answer) -> str:
    """Returns the parameters of the next page; empty if there is none."""
    names = ("NextPartitionKey", "NextRowKey", "NextTableName")
    tokens = {name: answer.headers.get(f"x-ms-continuation-{name.lower()}") for name in names}
    return "&".join(f"{name}={quote(token)}" for name, token in tokens.items() if token is not None)


def pages(tables: TableServiceFixture, target: str, query: str) -> list[list[Any]]:
    found, more = [], ""
    while True:
        answer = tables.ask("GET", f"{target}?{query}&{more}", Accept=NO_METADATA)
        assert answer.status == 200, answer
        found.append(answer.json()["value"])
        more = following(answer)
        if not more:
            return found


# Entities


def test_pages_of_every_size(tables: TableServiceFixture) -> None:
    keys = [(partition, row) for partition in ("", "O'Neil", "é&=") for row in ("", " ", "a")]
    for partition, row in keys:
        tables.insert(partition, row)
    for size in range(1, len(keys) + 2):
        found = pages(tables, "People()", f"$top={size}")
        shown = [(each["PartitionKey"], each["RowKey"]) for page in found for each in page]
        assert shown == sorted(keys)
        assert [len(page) for page in found[:-1]] == [size] * (len(found) - 1)


def test_at_most_1000_entities_per_page(tables: TableServiceFixture) -> None:
    for number in range(1_100):
        path = f"People(PartitionKey='{number // 100:02}',RowKey='{number:04}')"
        assert tables.ask("PUT", path, b"{}").status == 204
    answer = tables.ask("GET", "People()")
    assert len(answer.rows) == 1_000
    assert len(tables.ask("GET", f"People()?{following(answer)}").rows) == 100


@pytest.mark.parametrize("top", ["-1", "1001", "x", "1e2", "1.0", "9" * 5_000, "%D9%A3", "1,2"])
def test_invalid_page_sizes(tables: TableServiceFixture, top: str) -> None:
    assert tables.ask("GET", f"People()?$top={top}").refusal == BAD
    assert tables.ask("GET", f"Tables?$top={top}").refusal == BAD


def test_pages_of_size_zero(tables: TableServiceFixture) -> None:
    tables.insert("p", "r")
    for target in ("People()", "Tables", "Tables()"):
        answer = tables.ask("GET", f"{target}?$top=0", Accept=NO_METADATA)
        assert (answer.status, answer.json()) == (200, {"value": []})
        assert not following(answer)


@pytest.mark.parametrize(
    "query", ["", "$filter=TableName%20ge%20'T0'%20and%20TableName%20lt%20'U'"]
)
def test_a_page_of_tables_is_one_snapshot(tables: TableServiceFixture, query: str) -> None:
    """However many tables are read for it."""
    for number in range(1_100):
        assert tables.ask("POST", "Tables", {"TableName": f"T{number:04}"}).status == 201
    tables.ask("GET", "Tables?$top=1")  # caches the service properties
    with tables.counted_reads() as reads:
        answer = tables.ask("GET", f"Tables?{query}", Accept=NO_METADATA)
    assert len(answer.json()["value"]) == 1_000
    assert reads == ["query_tables" if query else "list_tables"]


def _token(text: bytes) -> str:
    encoded = base64.b64encode(text).decode().replace("=", "-")
    return f"1!{len(encoded)}!{encoded}"


@pytest.mark.parametrize(
    "token",
    ["x", "1", "1!", "1!!", "2!4!AAAA", "1!3!AAAA", "1!4!AA*A", "1!5!AAAAA", "1!4!AAAA!",
     "%FF", "1!4!%C3%A9%C3%A9", "1!-1!", "1!04!AAAA", _token(b"\xff"), _token(b"\xed\xa0\x80")],
)  # fmt: skip
def test_invalid_continuation_tokens(tables: TableServiceFixture, token: str) -> None:
    tables.insert("p", "r")
    assert tables.ask("GET", f"People()?NextPartitionKey={token}").refusal == BAD
    row = f"People()?NextPartitionKey={_token(b'p')}&NextRowKey={token}"
    assert tables.ask("GET", row).refusal == BAD
    assert tables.ask("GET", f"Tables?NextTableName={token}").refusal == BAD


@pytest.mark.parametrize("key", ["a", "ab", "abc", "~~~", "ÿÿ", ""])
@pytest.mark.parametrize("unencoded", ["", "!+/-"])
def test_tokens_have_the_form_of_the_service(
    tables: TableServiceFixture, key: str, unencoded: str
) -> None:
    """They are accepted whether a client encodes them or not."""
    tables.insert(key, "1", key)
    answer = tables.ask("GET", "People()?$top=1")
    last = max(key, "1")
    partition, row = _token(key.encode()), _token(last.encode())
    assert answer.headers["x-ms-continuation-nextpartitionkey"] == partition
    assert answer.headers["x-ms-continuation-nextrowkey"] == row
    partition, row = quote(partition, unencoded), quote(row, unencoded)
    query = f"NextPartitionKey={partition}&NextRowKey={row}"
    assert tables.ask("GET", f"People()?{query}").rows == [last]


def test_a_token_without_a_row(tables: TableServiceFixture) -> None:
    tables.insert("p", "1", "2")
    tables.insert("q", "3")
    assert tables.ask("GET", f"People()?NextPartitionKey={_token(b'p')}").rows == ["1", "2", "3"]
    assert tables.ask("GET", f"People()?NextPartitionKey={_token(b'q')}").rows == ["3"]
    assert tables.ask("GET", f"People()?NextPartitionKey={_token(b'q' + bytes(1))}").rows == []


def test_the_first_entity_of_the_next_page_is_deleted(tables: TableServiceFixture) -> None:
    tables.insert("p", "1", "2", "4")
    first = tables.ask("GET", "People()?$top=1")
    tables.ask("DELETE", "People(PartitionKey='p',RowKey='2')", If_Match="*")
    tables.insert("p", "0", "3")
    assert tables.ask("GET", f"People()?{following(first)}").rows == ["3", "4"]


# Projection


def test_select(tables: TableServiceFixture) -> None:
    tables.insert("p", "r", Age=36, Name="Ada")

    def selected(names: str, address: str = "People()") -> dict[str, Any]:
        answer = tables.ask("GET", f"{address}?$select={names}", Accept=NO_METADATA).json()
        found: dict[str, Any]
        (found,) = answer.get("value", [answer])
        return found

    for address in ("People()", "People(PartitionKey='p',RowKey='r')"):
        assert selected("Age", address) == {"Age": 36}
        assert selected("Age,%20RowKey", address) == {"Age": 36, "RowKey": "r"}
        # Missing properties are null; names are case-sensitive.
        assert selected("age,Age", address) == {"age": None, "Age": 36}
        assert set(selected("*", address)) == {"PartitionKey", "RowKey", "Timestamp", "Age", "Name"}
        assert selected("", address) == selected("*", address)
        assert selected("Age,Age", address) == {"Age": 36}


# Tables


@pytest.fixture
def many(tables: TableServiceFixture) -> list[str]:
    names = ["People", "apple", "Banana", "APricot", "cherry", "Zoo9", "zoo10"]
    for name in names[1:]:
        assert tables.ask("POST", "Tables", {"TableName": name}).status == 201
    return sorted(names, key=str.lower)


def test_lists_of_tables(tables: TableServiceFixture, many: list[str]) -> None:
    for size in range(1, len(many) + 2):
        found = pages(tables, "Tables", f"$top={size}")
        assert [each["TableName"] for page in found for each in page] == many
        assert all(page for page in found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TableName eq 'People'", ["People"]),
        ("TableName eq 'people'", []),
        ("TableName ge 'a' and TableName lt 'b'", ["apple"]),
        ("TableName ge 'A' and TableName lt 'B'", ["APricot"]),
        ("not (TableName gt 'a')", ["APricot", "Banana", "People", "Zoo9"]),
        ("TableName eq 'apple' or TableName eq 'cherry'", ["apple", "cherry"]),
        ("TableName eq 5", []),
    ],
)
def test_filters_of_tables(
    tables: TableServiceFixture, many: list[str], text: str, expected: list[str]
) -> None:
    for size in (1, 2, 1_000):
        found = pages(tables, "Tables", f"$top={size}&$filter={quote(text)}")
        assert [each["TableName"] for page in found for each in page] == expected
    assert set(expected) <= set(many)


def test_more_tables_than_one_transaction_reads(
    tables: TableServiceFixture, many: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etagere.operations.table.tables._QUERIED_ROWS_MAX", 2)
    last = quote("TableName ge 'z'")
    for size in (1, 2, 3, 1_000):
        found = pages(tables, "Tables", f"$top={size}")
        assert [each["TableName"] for page in found for each in page] == many
        found = pages(tables, "Tables", f"$top={size}&$filter={last}")
        assert [each["TableName"] for page in found for each in page] == ["zoo10"]


@pytest.mark.parametrize("level", ["nometadata", "minimalmetadata", "fullmetadata"])
def test_metadata_levels_of_tables(tables: TableServiceFixture, level: str) -> None:
    accept = f"application/json;odata={level}"
    answer = tables.ask("GET", "Tables", Accept=accept).json()
    (table,) = answer["value"]
    assert table["TableName"] == "People"
    assert ("odata.metadata" in answer) == (level != "nometadata")
    assert ("odata.editLink" in table) == (level == "fullmetadata")
    made = tables.ask("POST", "Tables", {"TableName": "Another"}, Accept=accept).json()
    assert made["TableName"] == "Another"
    assert ("odata.metadata" in made) == (level != "nometadata")


def test_a_table_by_its_name(tables: TableServiceFixture) -> None:
    shown = tables.ask("GET", "Tables('PEOPLE')")
    assert (shown.status, shown.json()["TableName"]) == (200, "People")
    for name in ("Nobody", "a-b", "x" * 100):
        answer = tables.ask("GET", f"Tables('{name}')")
        assert (answer.status, answer.code) == (404, "ResourceNotFound")
