"""Entity groups over REST: requests of the SDKs, responses, limits and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.protocol.table.batches import (
    BATCH_TYPE,
    answers_in,
    batch,
    change_set,
    part,
    single_query,
)
from tests.protocol.table.fixture import ACCOUNT, ADDRESS, TableServiceFixture

LIMIT_BYTES: Final = 4 << 20
NO_METADATA: Final = "application/json;odata=nometadata"

PARTITION: Final = "O'Neil & Söhne"


def insert(row: str, partition: str = "p", table: str = "People", **values: Any) -> bytes:
    return part("POST", f"/{table}", {"PartitionKey": partition, "RowKey": row, **values})


def entity(row: str, partition: str = "p", table: str = "People") -> str:
    return f"/{table}(PartitionKey='{partition}',RowKey='{row}')"


# Requests of the SDKs


def golden(name: str) -> tuple[str, bytes]:
    """Returns a recorded request of an SDK and its Content-Type: an insert, a merge, a conditional
    replacement, two upserts and two deletions, of rows 1 to 7."""
    body = Path(__file__).with_name(f"{name}_group.http").read_bytes()
    boundary = body.partition(b"\r\n")[0].removeprefix(b"--").decode()
    return f"multipart/mixed; boundary={boundary}", body


@pytest.mark.parametrize("name", ["python", "javascript"])
def test_requests_of_the_sdks(tables: TableServiceFixture, name: str) -> None:
    tables.insert(PARTITION, *"234567", Old=True)
    content_type, body = golden(name)
    path = "People(PartitionKey='O''Neil%20%26%20S%C3%B6hne',RowKey='3')"
    etag = tables.ask("GET", path).headers["etag"]
    # The recorded ETags no longer match.
    stale = b"W/\"datetime'2026-11-15T02%3A25%3A08.1234567Z'\""
    assert stale in body
    body = body.replace(stale, etag.encode(), 1).replace(stale, b"*")
    answer = tables.ask("POST", "$batch", body, Content_Type=content_type)
    assert answer.status == 202
    responses = answers_in(answer.headers["content-type"], answer.body)
    created = 204 if name == "javascript" else 201
    assert [each.status for each in responses] == [created, 204, 204, 204, 204, 204, 204]
    assert ["etag" in each.headers for each in responses] == [True] * 5 + [False] * 2
    found = tables.ask("GET", "People()", Accept=NO_METADATA).json()["value"]
    assert [(each["RowKey"], "Old" in each) for each in found] == [
        ("1", False),
        ("2", True),
        ("3", False),
        ("4", True),
        ("5", False),
    ]
    first, second = found[:2]
    assert (first["Age"], first["Big"], first["Raw"]) == (36, "1099511627776", "AP8=")
    assert first["Born"] == "1815-12-10T00:00:00Z"
    assert (first["PartitionKey"], second["Name"]) == (PARTITION, "é")


@pytest.mark.parametrize("name", ["python", "javascript"])
def test_requests_of_the_sdks_are_atomic(tables: TableServiceFixture, name: str) -> None:
    tables.insert(PARTITION, *"23", Old=True)
    content_type, body = golden(name)
    answer = tables.ask("POST", "$batch", body, Content_Type=content_type)
    (response,) = answers_in(answer.headers["content-type"], answer.body)
    assert (response.status, response.code, response.operation) == (
        412,
        "UpdateConditionNotSatisfied",
        2,
    )
    assert tables.rows("$filter=Old%20eq%20true") == tables.rows() == ["2", "3"]


# Responses


def test_responses_equal_those_of_single_requests(tables: TableServiceFixture) -> None:
    created, quiet, merged = tables.group(
        insert("1"),
        part("POST", "/People", {"PartitionKey": "p", "RowKey": "2"}, Prefer="return-no-content"),
        part("MERGE", entity("3"), {"Age": 36}),
    )
    assert (created.status, json.loads(created.body)["RowKey"]) == (201, "1")
    assert created.headers["location"] == f"{ADDRESS}{entity('1')}"
    assert quiet.status == 204
    assert quiet.headers["preference-applied"] == "return-no-content"
    assert quiet.headers["dataserviceid"] == f"{ADDRESS}{entity('2')}"
    assert (merged.status, merged.body) == (204, b"")
    shown = tables.ask("GET", entity("3")[1:])
    assert merged.headers["etag"] == shown.headers["etag"]


@pytest.mark.parametrize(
    "address",
    [
        "/People",
        "People",
        f"/{ACCOUNT}/People",
        f"{ADDRESS}/People",
        f"https://elsewhere.example/{ACCOUNT}/People",
        f"{ADDRESS}/People()?$format=application/json",
    ],
)
def test_urls_may_be_absolute_or_relative(tables: TableServiceFixture, address: str) -> None:
    (response,) = tables.group(part("POST", address, {"PartitionKey": "p", "RowKey": "r"}))
    assert response.status == 201
    assert tables.rows() == ["r"]


@pytest.mark.parametrize(
    ("request_", "status", "code"),
    [
        (part("DELETE", entity("r")), 400, "MissingRequiredHeader"),
        (part("DELETE", entity("r"), If_Match="*"), 404, "ResourceNotFound"),
        (part("PUT", entity("r"), {}, If_Match="*"), 404, "ResourceNotFound"),
        (part("PUT", entity("there"), {}, If_Match='W/"x"'), 412, "UpdateConditionNotSatisfied"),
        (part("PUT", entity("r"), {}, If_Match="x"), 400, "InvalidInput"),
        (part("MERGE", entity("r"), b"{"), 400, "InvalidInput"),
        (part("MERGE", entity("r"), {"RowKey": "s"}), 400, "InvalidInput"),
        (part("MERGE", entity("r"), {"a b": 1}), 400, "PropertyNameInvalid"),
        (part("MERGE", entity("r"), {"A": "x" * 32_769}), 400, "PropertyValueTooLarge"),
        (part("POST", "/People", {"PartitionKey": "p"}), 400, "PropertiesNeedValue"),
        (insert("there"), 409, "EntityAlreadyExists"),
        (insert("a/b"), 400, "OutOfRangeInput"),
        (insert("x" * 1_025), 400, "KeyValueTooLarge"),
        (part("POST", entity("r"), {}), 400, "InvalidInput"),
        (part("POST", entity("r"), {}, X_HTTP_Method="GET"), 400, "XMethodIncorrectValue"),
        (part("POST", "/Tables", {"TableName": "Another"}), 400, "InvalidInput"),
        (part("DELETE", "/Tables('People')"), 400, "InvalidInput"),
        (part("POST", "/$batch", {}), 400, "InvalidInput"),
        (part("PUT", "/People?comp=acl", b"<SignedIdentifiers/>"), 400, "InvalidInput"),
        (part("PUT", "/People('p')", {}), 400, "InvalidInput"),
    ],
)
def test_a_refused_part_refuses_the_group(
    tables: TableServiceFixture, request_: bytes, status: int, code: str
) -> None:
    tables.insert("p", "there")
    for at in (0, 1, 2):
        parts = [insert("1"), insert("2")]
        parts.insert(at, request_)
        (response,) = tables.group(*parts)
        assert (response.status, response.code, response.operation) == (status, code, at)
        assert tables.rows() == ["there"]


def test_method_override_in_a_part(tables: TableServiceFixture) -> None:
    tables.insert("p", "r")
    tunnelled = part("POST", entity("r"), X_HTTP_Method="DELETE", If_Match="*")
    assert [each.status for each in tables.group(insert("s"), tunnelled)] == [201, 204]
    assert tables.rows() == ["s"]


# Rules of a group


def test_a_group_has_one_partition(tables: TableServiceFixture) -> None:
    (response,) = tables.group(insert("1"), insert("2"), insert("3", "q"), insert("4", "q"))
    assert (response.status, response.code) == (400, "CommandsInBatchActOnDifferentPartitions")
    assert response.operation == 2
    assert tables.rows() == []


def test_a_group_has_distinct_entities(tables: TableServiceFixture) -> None:
    for second in (insert("1"), part("DELETE", entity("1"), If_Match="*")):
        (response,) = tables.group(insert("1"), insert("2"), second)
        assert (response.status, response.code) == (400, "InvalidDuplicateRow")
        assert response.operation == 2
        assert tables.rows() == []


def test_row_keys_are_case_sensitive(tables: TableServiceFixture) -> None:
    assert len(tables.group(insert("a"), insert("A"))) == 2


def test_a_group_has_one_table(tables: TableServiceFixture) -> None:
    tables.ask("POST", "Tables", {"TableName": "Others"})
    (response,) = tables.group(insert("1"), insert("2", table="Others"))
    assert (response.status, response.code, response.operation) == (400, "InvalidInput", 1)
    assert tables.rows() == tables.rows(table="Others") == []
    assert len(tables.group(insert("1"), insert("2", table="pEOPLE"))) == 2


def test_a_missing_table(tables: TableServiceFixture) -> None:
    (response,) = tables.group(insert("1", table="Nobody"), insert("2", table="Nobody"))
    assert (response.status, response.code, response.operation) == (404, "TableNotFound", 0)


def test_an_invalid_table_name(tables: TableServiceFixture) -> None:
    """The part gets the error, as for every other mistake in it."""
    (response,) = tables.group(insert("1", table="a-b"))
    assert (response.status, response.code, response.operation) == (400, "InvalidResourceName", 0)


# Sizes


def test_at_most_100_changes(tables: TableServiceFixture) -> None:
    responses = tables.group(*(insert(f"{number:03}") for number in range(100)))
    assert [each.status for each in responses] == [201] * 100
    many = change_set(insert(f"x{number:03}") for number in range(101))
    (refused,) = tables.batch(many)
    assert (refused.status, refused.code) == (400, "InvalidInput")
    assert len(tables.rows()) == 100


def test_at_most_4_mib(tables: TableServiceFixture) -> None:
    """To the byte, wherever they are."""
    rows = [insert(f"{number}", Long="x" * 32_768, More="y" * 32_768) for number in range(60)]
    body = change_set(rows)
    filled = body + b"-" * (LIMIT_BYTES - len(body))
    assert len(tables.batch(filled)) == 60
    answer = tables.ask("POST", "$batch", filled + b"-", Content_Type=BATCH_TYPE)
    assert answer.refusal == (413, "RequestBodyTooLarge")


# Malformed groups


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--batch_1--\r\n",
        change_set([]),
        change_set([insert("1")])[:-40],
        batch(b"Content-Type: application/http\r\n\r\n" + insert("1")),
        change_set([part("GET", "/People()")]),
        change_set([insert("1"), part("GET", "/People()")]),
        change_set([insert("1")]).replace(b"application/http", b"text/plain"),
        change_set([insert("1")]).replace(b"POST /People HTTP/1.1", b"POST"),
        change_set([insert("1")]).removesuffix(b"--batch_1--\r\n") + change_set([insert("2")]),
        single_query(part("GET", "/People()")).removesuffix(b"--batch_1--\r\n")
        + change_set([insert("2")]),
    ],
)
def test_malformed_groups(tables: TableServiceFixture, body: bytes) -> None:
    answer = tables.ask("POST", "$batch", body, Content_Type=BATCH_TYPE)
    assert answer.refusal == (400, "InvalidInput")
    assert tables.rows() == []


@pytest.mark.parametrize("content_type", ["application/json", "multipart/mixed", "text/plain; a=b"])
def test_invalid_content_types(tables: TableServiceFixture, content_type: str) -> None:
    answer = tables.ask("POST", "$batch", change_set([insert("1")]), Content_Type=content_type)
    assert answer.refusal == (400, "InvalidInput")
    assert tables.ask("POST", "$batch").refusal == (400, "MissingRequiredHeader")


# Queries


def test_a_single_query(tables: TableServiceFixture) -> None:
    tables.insert("p", "1", "2", "3", Age=36)
    query = "/People()?$filter=RowKey%20ge%20'2'&$select=RowKey,Age&$top=1"
    (response,) = tables.batch(single_query(part("GET", query, Accept=NO_METADATA)))
    assert response.status == 200
    assert json.loads(response.body) == {"value": [{"RowKey": "2", "Age": 36}]}
    assert "x-ms-continuation-nextrowkey" in response.headers
    (point,) = tables.batch(single_query(part("GET", f"{ADDRESS}{entity('3')}")))
    assert (point.status, json.loads(point.body)["RowKey"]) == (200, "3")
    assert "etag" in point.headers


@pytest.mark.parametrize("address", ["/People()", "People()", f"{ADDRESS}/People()"])
def test_a_single_query_with_a_url_in_its_filter(tables: TableServiceFixture, address: str) -> None:
    """A prefix of a URL inside a filter is not taken for one."""
    tables.insert("p", "1", Site="http://example.org/x")
    tables.insert("p", "2", Site="http://example.org/y")
    query = f"{address}?$filter=Site%20eq%20'http://example.org/x'"
    (response,) = tables.batch(single_query(part("GET", query, Accept=NO_METADATA)))
    assert response.status == 200, response
    assert [each["RowKey"] for each in json.loads(response.body)["value"]] == ["1"]


@pytest.mark.parametrize(
    ("address", "status", "code"),
    [
        (entity("nobody"), 404, "ResourceNotFound"),
        ("/Nobody()", 404, "TableNotFound"),
        ("/People()?$filter=oops%20eq", 400, "InvalidInput"),
        ("/People()?$top=1001", 400, "InvalidInput"),
        ("/People()?$skip=1", 501, "NotImplemented"),
        ("/Tables", 400, "InvalidInput"),
        ("/?comp=properties", 400, "InvalidInput"),
        ("/People('p')", 400, "InvalidInput"),
        ("/a-b()", 400, "InvalidResourceName"),
    ],
)
def test_a_single_query_that_is_refused(
    tables: TableServiceFixture, address: str, status: int, code: str
) -> None:
    (response,) = tables.batch(single_query(part("GET", address)))
    assert (response.status, response.code) == (status, code)
    message = json.loads(response.body)["odata.error"]["message"]["value"]
    assert not message.startswith("0:"), "only changes have an index"
