"""Responses of the table service as recorded: headers, codes, messages and formats of errors.

Headers of the connection are not compared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.probes.client import Answer, Request
from tests.probes.table.fixture import TableFixture
from tests.probes.table.operations import JSON, TableTarget
from tests.probes.tokens import table_token
from tests.protocol.table.batches import BATCH_TYPE, PartAnswer, answers_in, change_set, part
from tests.server import ACCOUNT, KEY, unique

VERSION: Final = ("x-ms-version", "2019-02-02")
ENTITY: Final = "{table}(PartitionKey='p',RowKey='r')"
ABSENT: Final = "{table}(PartitionKey='p',RowKey='absent')"
NO_CONTENT: Final = ("Prefer", "return-no-content")
ANY: Final = ("If-Match", "*")
STALE: Final = ("If-Match", "W/\"datetime'2020-01-01T00%3A00%3A00Z'\"")
MINIMAL: Final = "application/json;odata=minimalmetadata;streaming=true;charset=utf-8"
CACHED: Final = {"cache-control": "no-cache", "x-content-type-options": "nosniff"}
OF_CONNECTION: Final = frozenset(
    {"date", "server", "content-length", "transfer-encoding", "connection", "keep-alive"}
)
OF_REQUEST: Final = frozenset({"x-ms-request-id", "x-ms-version", "x-ms-client-request-id"})
ETAG: Final = re.compile(r"W/\"datetime'[0-9-]+T[0-9]{2}%3A[0-9]{2}%3A[0-9]{2}(\.[0-9]*[1-9])?Z'\"")

Headers = tuple[tuple[str, str], ...]


@pytest.fixture
def target(tables: TableFixture) -> Iterator[TableTarget]:
    created = tables.create()
    yield created
    tables.remove(created)


def ask(
    tables: TableFixture,
    target: TableTarget,
    method: str,
    below: str,
    body: bytes | dict[str, Any] = b"",
    headers: Headers = (),
) -> Answer:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    path, _, query = f"/{ACCOUNT}/{below.format(table=target.table)}".partition("?")
    pairs = tuple(tuple(pair.split("=", 1)) for pair in query.split("&") if pair)
    if content and not any(name == "Content-Type" for name, _ in headers):
        headers = (*headers, JSON)
    if not any(name == "x-ms-version" for name, _ in headers):
        headers = (VERSION, *headers)
    request = Request(method, path, pairs, headers, content)  # type: ignore[arg-type]
    return tables.client.ask(tables.sign_as_owner(request))


def own_headers(headers: dict[str, str]) -> dict[str, str]:
    """Returns the headers of the service, with unpredictable values replaced by their names."""
    own = {k: v for k, v in headers.items() if k not in OF_CONNECTION | OF_REQUEST}
    for name in ("location", "dataserviceid"):
        if name in own:
            assert own[name].startswith("http://")
            own[name] = name
    if "etag" in own:
        assert ETAG.fullmatch(own["etag"]), own["etag"]
        own["etag"] = "etag"
    return own


def message(answer: Answer | PartAnswer) -> str:
    """The text of an OData error, without request id and time."""
    return str(json.loads(answer.body)["odata.error"]["message"]["value"].partition("\n")[0])


# Headers of answers

DATA: Final = {**CACHED, "content-type": MINIMAL}
TAGGED: Final = {**CACHED, "etag": "etag"}
CREATED: Final = {"location": "location"}
WITHOUT_BODY: Final = {"dataserviceid": "dataserviceid", "preference-applied": "return-no-content"}


def entity(row: str) -> dict[str, Any]:
    return {"PartitionKey": "p", "RowKey": row, "Age": 5}


@pytest.mark.parametrize(
    ("method", "below", "body", "headers", "status", "expected"),
    [
        ("GET", "Tables", b"", (), 200, DATA),
        ("GET", "{table}()", b"", (), 200, DATA),
        ("GET", ENTITY, b"", (), 200, {**DATA, "etag": "etag"}),
        ("POST", "{table}", entity("1"), (), 201, {**DATA, **CREATED, "etag": "etag"}),
        ("POST", "{table}", entity("2"), (NO_CONTENT,), 204, {**TAGGED, **CREATED, **WITHOUT_BODY}),
        ("PUT", ENTITY, {"Age": 1}, (ANY,), 204, TAGGED),
        ("PUT", ENTITY, {"Age": 2}, (), 204, TAGGED),
        ("PATCH", ENTITY, {"Age": 3}, (ANY,), 204, TAGGED),
        ("MERGE", ENTITY, {"Age": 4}, (), 204, TAGGED),
        ("DELETE", ENTITY, b"", (ANY,), 204, CACHED),
        ("GET", "{table}?comp=acl", b"", (), 200, {"content-type": "application/xml"}),
        ("PUT", "{table}?comp=acl", b"<SignedIdentifiers />", (), 204, {}),
        (
            "GET",
            "?restype=service&comp=properties",
            b"",
            (),
            200,
            {"content-type": "application/xml"},
        ),
        # Errors
        ("GET", ABSENT, b"", (), 404, DATA),
        ("GET", "Absent()", b"", (), 404, DATA),
        ("GET", "{table}()?$filter=oops", b"", (), 200, DATA),
        ("GET", "{table}()?$filter=oops%20eq", b"", (), 400, DATA),
        ("POST", "{table}", entity("r"), (), 409, DATA),
        ("PUT", ENTITY, {"Age": 1}, (STALE,), 412, DATA),
        ("DELETE", ENTITY, b"", (STALE,), 412, DATA),
        ("DELETE", "Tables('Absent')", b"", (), 404, DATA),
    ],
)
def test_headers(
    tables: TableFixture,
    target: TableTarget,
    method: str,
    below: str,
    body: bytes | dict[str, Any],
    headers: Headers,
    status: int,
    expected: dict[str, str],
) -> None:
    answer = ask(tables, target, method, below, body, headers)
    assert (answer.status, own_headers(answer.headers)) == (status, expected), answer


def test_headers_of_creating_and_deleting_a_table(
    tables: TableFixture, target: TableTarget
) -> None:
    name = unique("Table").replace("-", "x")
    answer = ask(tables, target, "POST", "Tables", {"TableName": name})
    assert (answer.status, own_headers(answer.headers)) == (201, {**DATA, **CREATED})
    answer = ask(tables, target, "DELETE", f"Tables('{name}')")
    assert (answer.status, own_headers(answer.headers)) == (204, CACHED)


# Groups

PART: Final = {**CACHED, "dataserviceversion": "3.0;"}
OLD_PART: Final = {**CACHED, "dataserviceversion": "1.0;"}


def group(
    tables: TableFixture, target: TableTarget, *parts: bytes
) -> tuple[Answer, list[PartAnswer]]:
    headers = (("Content-Type", BATCH_TYPE),)
    answer = ask(tables, target, "POST", "$batch", change_set(parts), headers)
    assert answer.status == 202, answer
    return answer, answers_in(answer.headers["content-type"], answer.body)


def group_part(
    target: TableTarget, method: str, row: str, *headers: tuple[str, str], body: str = '{"Age":5}'
) -> bytes:
    if method == "POST":
        address = f"/{target.table}"
        body = json.dumps(entity(row))
    else:
        address = f"/{target.table}(PartitionKey='p',RowKey='{row}')"
    named = {name.replace("-", "_"): value for name, value in headers}
    return part(method, address, body.encode(), **named)


def test_headers_of_a_group(tables: TableFixture, target: TableTarget) -> None:
    assert ask(tables, target, "POST", "{table}", entity("2")).status == 201
    answer, parts = group(
        tables,
        target,
        group_part(target, "POST", "g1", NO_CONTENT),
        group_part(target, "POST", "g2"),
        group_part(target, "PUT", "g3"),
        group_part(target, "MERGE", "r", ANY),
        group_part(target, "DELETE", "2", ANY, body=""),
    )
    outer = own_headers(answer.headers)
    assert outer.pop("content-type").startswith("multipart/mixed; boundary=batchresponse_")
    assert outer == CACHED
    assert [own_headers(response.headers) for response in parts] == [
        {**PART, **CREATED, **WITHOUT_BODY, "etag": "etag"},
        {**PART, **CREATED, "content-type": MINIMAL, "etag": "etag"},
        {**OLD_PART, "etag": "etag"},
        {**OLD_PART, "etag": "etag"},
        OLD_PART,
    ]


@pytest.mark.parametrize(
    ("parts", "status", "text"),
    [
        # The message has no operation number if the error concerns the only entity of the set.
        (
            [("PUT", "r", (STALE,))],
            412,
            "The update condition specified in the request was not satisfied.",
        ),
        ([("MERGE", "absent", (ANY,))], 404, "The specified resource does not exist."),
        ([("DELETE", "absent", (ANY,))], 404, "The specified resource does not exist."),
        ([("POST", "r", (NO_CONTENT,))], 409, "0:The specified entity already exists."),
        (
            [("PUT", "r", ()), ("PUT", "other", (ANY,))],
            404,
            "1:The specified resource does not exist.",
        ),
        (
            [("PUT", "r", ()), ("PUT", "r", ())],
            400,
            "1:The batch request contains multiple changes with same row key. An entity can appear "
            "only once in a batch request.",
        ),
        (
            [("POST", f"{number}", (NO_CONTENT,)) for number in range(101)],
            400,
            "99:The batch request operation exceeds the maximum 100 changes per change set.",
        ),
    ],
)
def test_refused_groups(
    tables: TableFixture,
    target: TableTarget,
    parts: list[tuple[str, str, Headers]],
    status: int,
    text: str,
) -> None:
    requests = [group_part(target, method, row, *headers) for method, row, headers in parts]
    _, (response,) = group(tables, target, *requests)
    assert (response.status, message(response)) == (status, text)
    preferred = NO_CONTENT in parts[-1][2]
    preference = {"preference-applied": "return-no-content"} if preferred else {}
    assert own_headers(response.headers) == {**PART, **preference, "content-type": MINIMAL}


def test_a_group_for_a_missing_table(tables: TableFixture, target: TableTarget) -> None:
    _, (response,) = group(
        tables, target, group_part(TableTarget("Absent"), "POST", "r", NO_CONTENT)
    )
    assert (response.status, message(response)) == (404, "0:The table specified does not exist.")
    assert own_headers(response.headers) == {**PART, "content-type": MINIMAL}


# Codes and messages

LONG_NAME: Final = {"PartitionKey": "p", "RowKey": "long", "a" * 256: 1}
MANY: Final = {"PartitionKey": "p", "RowKey": "many", **{f"p{n}": n for n in range(253)}}
UNREADABLE: Final = "An error occurred while processing this request."
WRONG_INPUT: Final = "One of the request inputs is not valid."


@pytest.mark.parametrize(
    ("method", "below", "body", "headers", "expected"),
    [
        (
            "POST",
            "Tables",
            {"TableName": "1abc"},
            (),
            (
                400,
                "InvalidResourceName",
                "The specifed resource name contains invalid characters.",
            ),
        ),
        (
            "POST",
            "Tables",
            {"TableName": "ab"},
            (),
            (
                400,
                "OutOfRangeInput",
                "The specified resource name length is not within the permissible limits.",
            ),
        ),
        (
            "POST",
            "{table}",
            LONG_NAME,
            (),
            (
                400,
                "PropertyNameTooLong",
                "The property name exceeds the maximum allowed length (255).",
            ),
        ),
        (
            "POST",
            "{table}",
            MANY,
            (),
            (
                400,
                "TooManyProperties",
                "The entity contains more properties than allowed. Each entity can include up to "
                "252 properties to store data. Each entity also has 3 system properties.",
            ),
        ),
        (
            "GET",
            "{table}()?$filter=aaa%20bbb%20ccc",
            b"",
            (),
            (400, "InvalidInput", "Syntax error at position 7 in 'aaa bbb ccc'."),
        ),
        (
            "DELETE",
            "{table}/Tables('x')",
            b"",
            (),
            (
                400,
                "InvalidInput",
                "The number of keys specified in the URI does not match number of key properties "
                f"for the resource '{ACCOUNT}.{{table}}'.",
            ),
        ),
        # Values that do not fit their types, and keys that are not strings
        *(
            ("MERGE", ENTITY, {"X": value, "X@odata.type": name}, (), (400, "InvalidInput", text))
            for name, value, text in (
                ("Edm.Boolean", "maybe", UNREADABLE),
                ("Edm.Int64", "9223372036854775808", UNREADABLE),
                ("Edm.Int32", "2147483648", UNREADABLE),
                ("Edm.Double", "one", UNREADABLE),
                ("Edm.DateTime", "yesterday", UNREADABLE),
                ("Edm.Guid", "1", UNREADABLE),
                ("Edm.Binary", "1", UNREADABLE),
            )
        ),
        ("POST", "{table}", {**entity("x"), "X": 2**31}, (), (400, "InvalidInput", UNREADABLE)),
        ("POST", "{table}", {**entity("x"), "RowKey": 5}, (), (400, "InvalidInput", WRONG_INPUT)),
        (
            "POST",
            "{table}",
            {**entity("x"), "RowKey@odata.type": "Edm.Int32"},
            (),
            (400, "InvalidInput", WRONG_INPUT),
        ),
        (
            "POST",
            "{table}",
            {**entity("x"), "PartitionKey": True},
            (),
            (400, "InvalidInput", WRONG_INPUT),
        ),
        # OData options that the service does not support
        *(
            (
                "GET",
                f"{target}?{option}=1",
                b"",
                (),
                (
                    501,
                    "NotImplemented",
                    "The requested operation is not implemented on the specified resource.",
                ),
            )
            for target in ("Tables", "{table}()", ENTITY)
            for option in ("$skip", "$orderby", "$expand", "$inlinecount")
        ),
        ("GET", "{table}()?NextRowKey=1!4!cg--", b"", (), (400, "InvalidInput", WRONG_INPUT)),
        # Values of If-Match that are not one weak ETag, and versions without upserts
        *(
            (
                method,
                ENTITY,
                {"Age": 1},
                (("If-Match", etag),),
                (
                    400,
                    "InvalidInput",
                    f"The etag value '{etag}' specified in one of the request headers is not "
                    "valid. Please make sure only one etag value is specified and is valid.",
                ),
            )
            for method in ("PUT", "MERGE", "PATCH", "DELETE")
            for etag in ("", "MalformedETag", '"0"', "*,x")
        ),
        *(
            (
                method,
                ENTITY,
                {"Age": 1},
                (("If-Match", 'W/"wrong"'),),
                (
                    412,
                    "UpdateConditionNotSatisfied",
                    "The update condition specified in the request was not satisfied.",
                ),
            )
            for method in ("PUT", "MERGE", "PATCH", "DELETE")
        ),
        *(
            (
                method,
                ENTITY,
                {"Age": 1},
                (("x-ms-version", "2009-09-19"),),
                (
                    400,
                    "MissingRequiredHeader",
                    "An HTTP header that's mandatory for this request is not specified.",
                ),
            )
            for method in ("PUT", "MERGE")
        ),
    ],
)
def test_refusals(
    tables: TableFixture,
    target: TableTarget,
    method: str,
    below: str,
    body: bytes | dict[str, Any],
    headers: Headers,
    expected: tuple[int, str, str],
) -> None:
    before = ask(tables, target, "GET", "{table}()").body
    answer = ask(tables, target, method, below, body, headers)
    status, code, text = expected
    expected = status, code, text.format(table=target.table)
    assert (answer.status, answer.code, message(answer)) == expected
    assert own_headers(answer.headers) == DATA
    assert ask(tables, target, "GET", "{table}()").body == before


def test_an_upsert_with_the_first_version_that_supports_it(
    tables: TableFixture, target: TableTarget
) -> None:
    for method in ("PUT", "MERGE"):
        headers = (("x-ms-version", "2011-08-18"),)
        assert ask(tables, target, method, ENTITY, {"Age": 7}, headers).status == 204


def test_an_entity_beyond_the_size_limit(tables: TableFixture, target: TableTarget) -> None:
    body = json.dumps({**entity("long"), "Text": "x" * (4 << 20)}).encode()
    for method, below in (("POST", "{table}"), ("PUT", ENTITY), ("MERGE", ENTITY)):
        answer = ask(tables, target, method, below, body)
        assert (answer.status, answer.code) == (413, "RequestBodyTooLarge")


def test_entities_outside_the_key_range_of_a_token(tables: TableFixture) -> None:
    target = tables.create()
    token = table_token(ACCOUNT, KEY, target.table, spk="a", srk="a", epk="b", erk="b")
    body = b'{"PartitionKey":"c","RowKey":"r"}'
    for request in (
        Request("POST", f"/{ACCOUNT}/{target.table}", (), (VERSION, JSON), body),
        Request("GET", f"/{ACCOUNT}/{ENTITY.format(table=target.table)}", (), (VERSION,)),
    ):
        answer = tables.client.ask(token.put_on(request))
        assert (answer.status, answer.code) == (403, "AuthorizationFailure")
    tables.remove(target)


# Errors in XML

XML_ERROR: Final = re.compile(
    r'<\?xml version="1\.0" encoding="utf-8"\?>'
    r'<m:error xmlns:m="http://schemas\.microsoft\.com/ado/2007/08/dataservices/metadata">'
    r"<m:code>(\w+)</m:code>"
    r'<m:message xml:lang="en-US">(.*)\nRequestId:[0-9a-f-]{36}\nTime:[0-9-]+T[0-9:]+\.[0-9]{7}Z'
    r"</m:message></m:error>"
)


@pytest.mark.parametrize(
    ("method", "below", "body", "expected"),
    [
        ("GET", "Absent?comp=acl", b"", (404, "ResourceNotFound")),
        ("PUT", "Absent?comp=acl", b"<SignedIdentifiers />", (404, "ResourceNotFound")),
        ("GET", "1abc?comp=acl", b"", (400, "InvalidResourceName")),
        ("GET", "ab?comp=acl", b"", (400, "OutOfRangeInput")),
        ("PUT", "{table}?comp=acl", b"<SignedIdentifiers>", (400, "InvalidXmlDocument")),
        ("PUT", "?restype=service&comp=properties", b"<", (400, "InvalidXmlDocument")),
        (
            "GET",
            "{table}?restype=service&comp=properties",
            b"",
            (400, "InvalidQueryParameterValue"),
        ),
    ],
)
def test_errors_in_xml(
    tables: TableFixture,
    target: TableTarget,
    method: str,
    below: str,
    body: bytes,
    expected: tuple[int, str],
) -> None:
    answer = ask(tables, target, method, below, body)
    status, code = expected
    headers = {"content-type": "application/xml", "x-ms-error-code": code}
    assert (answer.status, own_headers(answer.headers)) == (status, headers)
    error = XML_ERROR.fullmatch(answer.body.decode())
    assert error is not None, answer.body
    assert error[1] == code


def test_authentication_errors_are_json_if_accepted(
    tables: TableFixture, target: TableTarget
) -> None:
    wrong = ("Authorization", f"SharedKey {ACCOUNT}:AAAA")
    date = ("x-ms-date", "Mon, 01 Jan 2024 00:00:00 GMT")
    text = (
        "Server failed to authenticate the request. Make sure the value of Authorization header is "
        "formed correctly including the signature."
    )
    path = f"/{ACCOUNT}/{target.table}"
    json_accepted = ("Accept", "application/json;odata=minimalmetadata")
    answer = tables.client.ask(Request("GET", path, (), (VERSION, date, wrong, json_accepted)))
    assert (answer.status, answer.headers["x-ms-error-code"]) == (403, "AuthenticationFailed")
    assert message(answer) == text
    answer = tables.client.ask(Request("GET", path, (), (VERSION, date, wrong)))
    assert (answer.status, answer.headers["content-type"]) == (403, "application/xml")
    assert text in answer.body.decode()


# Queries


def test_top_zero(tables: TableFixture, target: TableTarget) -> None:
    for below in ("{table}()?$top=0", "Tables?$top=0"):
        answer = ask(tables, target, "GET", below)
        assert (answer.status, json.loads(answer.body)["value"]) == (200, [])
        assert own_headers(answer.headers) == DATA
    assert ask(tables, target, "GET", "Absent()?$top=0").code == "TableNotFound"


def test_booleans_in_any_case(tables: TableFixture, target: TableTarget) -> None:
    assert ask(tables, target, "POST", "{table}", {**entity("flag"), "Flag": True}).status == 201
    for condition in ("eq true", "eq True", "eq TRUE", "ne false", "ne False", "ne FALSE"):
        query = f"Flag {condition}".replace(" ", "%20")
        answer = ask(tables, target, "GET", f"{{table}}()?$filter={query}")
        assert [entity["RowKey"] for entity in json.loads(answer.body)["value"]] == ["flag"], (
            condition
        )


def test_the_metadata_of_a_projection(tables: TableFixture, target: TableTarget) -> None:
    answer = ask(tables, target, "GET", "{table}()?$select=Age,RowKey")
    metadata = json.loads(answer.body)["odata.metadata"]
    assert metadata.endswith(f"/$metadata#{target.table}&$select=Age,RowKey")
    answer = ask(tables, target, "GET", ENTITY + "?$select=Age")
    projected = json.loads(answer.body)
    assert projected["odata.metadata"].endswith(f"/$metadata#{target.table}/@Element&$select=Age")
    assert set(projected) == {"odata.metadata", "odata.etag", "Age"}


# Conditions


def test_an_unmet_condition_has_the_current_etag(tables: TableFixture, target: TableTarget) -> None:
    current = ask(tables, target, "GET", ENTITY).headers["etag"]
    details = {"Condition": "If-Match", "Sent": STALE[1], "Current": current}
    for method in ("PUT", "MERGE", "DELETE"):
        answer = ask(tables, target, method, ENTITY, {"Age": 1}, (STALE,))
        assert (answer.status, json.loads(answer.body)["details"]) == (412, details)
    answer = ask(tables, target, "POST", "{table}", entity("r"))
    assert (answer.status, json.loads(answer.body)["details"]) == (409, {"Current": current})
    _, (response,) = group(tables, target, group_part(target, "PUT", "r", STALE))
    assert (response.status, json.loads(response.body)["details"]) == (412, details)


def test_the_current_etag_needs_the_permission_to_read(
    tables: TableFixture, target: TableTarget
) -> None:
    for permission, shown in (("ru", True), ("u", False)):
        token = table_token(ACCOUNT, KEY, target.table, permissions=permission)
        path = f"/{ACCOUNT}/{ENTITY.format(table=target.table)}"
        request = Request("PUT", path, (), (VERSION, JSON, STALE), b"{}")
        answer = tables.client.ask(token.put_on(request))
        assert answer.status == 412, answer
        assert ("details" in json.loads(answer.body)) == shown
