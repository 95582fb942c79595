"""Groups: what the SDKs send, what they are told, and all that makes a group none."""

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
from tests.protocol.table.office import ACCOUNT, ADDRESS, Office

LIMIT_BYTES: Final = 4 << 20
NO_METADATA: Final = "application/json;odata=nometadata"

PARTITION: Final = "O'Neil & Söhne"


def insert(row: str, partition: str = "p", table: str = "People", **values: Any) -> bytes:
    return part("POST", f"/{table}", {"PartitionKey": partition, "RowKey": row, **values})


def entity(row: str, partition: str = "p", table: str = "People") -> str:
    return f"/{table}(PartitionKey='{partition}',RowKey='{row}')"


# What the SDKs send


def golden(name: str) -> tuple[str, bytes]:
    """What an SDK once sent, and its Content-Type: an insert, a merge, a replacement of one
    version, two upserts and two deletions, of rows 1 to 7."""
    body = Path(__file__).with_name(f"{name}_group.http").read_bytes()
    boundary = body.partition(b"\r\n")[0].removeprefix(b"--").decode()
    return f"multipart/mixed; boundary={boundary}", body


@pytest.mark.parametrize("name", ["python", "javascript"])
def test_what_the_sdks_send(office: Office, name: str) -> None:
    office.insert(PARTITION, *"234567", Old=True)
    content_type, body = golden(name)
    path = "People(PartitionKey='O''Neil%20%26%20S%C3%B6hne',RowKey='3')"
    etag = office.ask("GET", path).headers["etag"]
    # The versions that the captured groups ask for are long gone.
    stale = b"W/\"datetime'2026-11-15T02%3A25%3A08.1234567Z'\""
    assert stale in body
    body = body.replace(stale, etag.encode(), 1).replace(stale, b"*")
    answer = office.ask("POST", "$batch", body, Content_Type=content_type)
    assert answer.status == 202
    told = answers_in(answer.headers["content-type"], answer.body)
    created = 204 if name == "javascript" else 201
    assert [each.status for each in told] == [created, 204, 204, 204, 204, 204, 204]
    assert ["etag" in each.headers for each in told] == [True] * 5 + [False] * 2
    found = office.ask("GET", "People()", Accept=NO_METADATA).json()["value"]
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
def test_what_the_sdks_send_is_refused_as_a_whole(office: Office, name: str) -> None:
    office.insert(PARTITION, *"23", Old=True)
    content_type, body = golden(name)
    answer = office.ask("POST", "$batch", body, Content_Type=content_type)
    (told,) = answers_in(answer.headers["content-type"], answer.body)
    assert (told.status, told.code, told.operation) == (412, "UpdateConditionNotSatisfied", 2)
    assert office.rows("$filter=Old%20eq%20true") == office.rows() == ["2", "3"]


# What is answered


def test_answers_are_those_to_the_requests_alone(office: Office) -> None:
    created, quiet, merged = office.group(
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
    shown = office.ask("GET", entity("3")[1:])
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
def test_addresses_may_begin_at_any_level(office: Office, address: str) -> None:
    (told,) = office.group(part("POST", address, {"PartitionKey": "p", "RowKey": "r"}))
    assert told.status == 201
    assert office.rows() == ["r"]


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
def test_a_part_that_is_refused_refuses_all(
    office: Office, request_: bytes, status: int, code: str
) -> None:
    office.insert("p", "there")
    for at in (0, 1, 2):
        parts = [insert("1"), insert("2")]
        parts.insert(at, request_)
        (told,) = office.group(*parts)
        assert (told.status, told.code, told.operation) == (status, code, at)
        assert office.rows() == ["there"]


def test_a_method_inside_of_a_part(office: Office) -> None:
    office.insert("p", "r")
    tunnelled = part("POST", entity("r"), X_HTTP_Method="DELETE", If_Match="*")
    assert [each.status for each in office.group(insert("s"), tunnelled)] == [201, 204]
    assert office.rows() == ["s"]


# What a group is about


def test_one_partition(office: Office) -> None:
    (told,) = office.group(insert("1"), insert("2"), insert("3", "q"), insert("4", "q"))
    assert (told.status, told.code) == (400, "CommandsInBatchActOnDifferentPartitions")
    assert told.operation == 2
    assert office.rows() == []


def test_no_entity_twice(office: Office) -> None:
    for second in (insert("1"), part("DELETE", entity("1"), If_Match="*")):
        (told,) = office.group(insert("1"), insert("2"), second)
        assert (told.status, told.code) == (400, "InvalidDuplicateRow")
        assert told.operation == 2
        assert office.rows() == []


def test_rows_that_differ_in_case_are_two(office: Office) -> None:
    assert len(office.group(insert("a"), insert("A"))) == 2


def test_one_table(office: Office) -> None:
    office.ask("POST", "Tables", {"TableName": "Others"})
    (told,) = office.group(insert("1"), insert("2", table="Others"))
    assert (told.status, told.code, told.operation) == (400, "InvalidInput", 1)
    assert office.rows() == office.rows(table="Others") == []
    assert len(office.group(insert("1"), insert("2", table="pEOPLE"))) == 2


def test_a_table_that_is_not_there(office: Office) -> None:
    (told,) = office.group(insert("1", table="Nobody"), insert("2", table="Nobody"))
    assert (told.status, told.code, told.operation) == (404, "TableNotFound", 0)


def test_a_name_that_no_table_has(office: Office) -> None:
    """The answer is that to the part, as for every other mistake in it."""
    (told,) = office.group(insert("1", table="a-b"))
    assert (told.status, told.code, told.operation) == (400, "InvalidResourceName", 0)


# Sizes


def test_a_hundred_are_enough(office: Office) -> None:
    told = office.group(*(insert(f"{number:03}") for number in range(100)))
    assert [each.status for each in told] == [201] * 100
    many = change_set(insert(f"x{number:03}") for number in range(101))
    (refused,) = office.batch(many)
    assert (refused.status, refused.code) == (400, "InvalidInput")
    assert len(office.rows()) == 100


def test_four_mebibytes_are_enough(office: Office) -> None:
    """To the byte, wherever they stand."""
    rows = [insert(f"{number}", Long="x" * 32_768, More="y" * 32_768) for number in range(60)]
    body = change_set(rows)
    filled = body + b"-" * (LIMIT_BYTES - len(body))
    assert len(office.batch(filled)) == 60
    answer = office.ask("POST", "$batch", filled + b"-", Content_Type=BATCH_TYPE)
    assert answer.refusal == (413, "RequestBodyTooLarge")


# What is no group


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
def test_what_is_no_group(office: Office, body: bytes) -> None:
    answer = office.ask("POST", "$batch", body, Content_Type=BATCH_TYPE)
    assert answer.refusal == (400, "InvalidInput")
    assert office.rows() == []


@pytest.mark.parametrize("content_type", ["application/json", "multipart/mixed", "text/plain; a=b"])
def test_types_that_no_group_has(office: Office, content_type: str) -> None:
    answer = office.ask("POST", "$batch", change_set([insert("1")]), Content_Type=content_type)
    assert answer.refusal == (400, "InvalidInput")
    assert office.ask("POST", "$batch").refusal == (400, "MissingRequiredHeader")


# A query instead


def test_a_single_query(office: Office) -> None:
    office.insert("p", "1", "2", "3", Age=36)
    query = "/People()?$filter=RowKey%20ge%20'2'&$select=RowKey,Age&$top=1"
    (told,) = office.batch(single_query(part("GET", query, Accept=NO_METADATA)))
    assert told.status == 200
    assert json.loads(told.body) == {"value": [{"RowKey": "2", "Age": 36}]}
    assert "x-ms-continuation-nextrowkey" in told.headers
    (point,) = office.batch(single_query(part("GET", f"{ADDRESS}{entity('3')}")))
    assert (point.status, json.loads(point.body)["RowKey"]) == (200, "3")
    assert "etag" in point.headers


@pytest.mark.parametrize("address", ["/People()", "People()", f"{ADDRESS}/People()"])
def test_a_single_query_about_an_address(office: Office, address: str) -> None:
    """What looks like the beginning of an address is none in a filter."""
    office.insert("p", "1", Site="http://example.org/x")
    office.insert("p", "2", Site="http://example.org/y")
    query = f"{address}?$filter=Site%20eq%20'http://example.org/x'"
    (told,) = office.batch(single_query(part("GET", query, Accept=NO_METADATA)))
    assert told.status == 200, told
    assert [each["RowKey"] for each in json.loads(told.body)["value"]] == ["1"]


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
    office: Office, address: str, status: int, code: str
) -> None:
    (told,) = office.batch(single_query(part("GET", address)))
    assert (told.status, told.code) == (status, code)
    message = json.loads(told.body)["odata.error"]["message"]["value"]
    assert not message.startswith("0:"), "only changes have an index"
