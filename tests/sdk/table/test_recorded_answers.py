"""Responses that match recordings of the real service: headers, codes, messages and forms of
errors.

Only headers of the service are compared, not those of the connection."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.probes.client import Answer, Request
from tests.protocol.table.batches import BATCH_TYPE, PartAnswer, answers_in, change_set, part
from tests.sdk.harness import refused
from tests.sdk.table.clients import sas_client, table_token, unique_table
from tests.sdk.table.forms import JSON, Place
from tests.sdk.table.sentry import OWNERS, Sentry
from tests.server import ACCOUNT, Server

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


@pytest.fixture(scope="module")
def sentry(server: Server) -> Iterator[Sentry]:
    sentry = Sentry(server)
    with sentry.client:
        yield sentry


@pytest.fixture(scope="module")
def place(sentry: Sentry) -> Iterator[Place]:
    made = sentry.make()
    yield made
    sentry.remove(made)


def ask(
    sentry: Sentry,
    place: Place,
    method: str,
    below: str,
    body: bytes | dict[str, Any] = b"",
    headers: Headers = (),
) -> Answer:
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    path, _, query = f"/{ACCOUNT}/{below.format(table=place.table)}".partition("?")
    pairs = tuple(tuple(pair.split("=", 1)) for pair in query.split("&") if pair)
    if sent and not any(name == "Content-Type" for name, _ in headers):
        headers = (*headers, JSON)
    if not any(name == "x-ms-version" for name, _ in headers):
        headers = (VERSION, *headers)
    request = Request(method, path, pairs, headers, sent)  # type: ignore[arg-type]
    return sentry.client.ask(OWNERS[ACCOUNT](request))


def own_headers(headers: dict[str, str]) -> dict[str, str]:
    """Returns the headers of the service; unpredictable values are replaced by their names."""
    result = {k: v for k, v in headers.items() if k not in OF_CONNECTION | OF_REQUEST}
    for name in ("location", "dataserviceid"):
        if name in result:
            assert result[name].startswith("http://")
            result[name] = name
    if "etag" in result:
        assert ETAG.fullmatch(result["etag"]), result["etag"]
        result["etag"] = "etag"
    return result


def message(answer: Answer | PartAnswer) -> str:
    """Returns the message of an OData error without request ID and time."""
    return str(json.loads(answer.body)["odata.error"]["message"]["value"].partition("\n")[0])


# Response headers

DATA: Final = {**CACHED, "content-type": MINIMAL}
TAGGED: Final = {**CACHED, "etag": "etag"}
MADE: Final = {"location": "location"}
NOT_TOLD: Final = {"dataserviceid": "dataserviceid", "preference-applied": "return-no-content"}


def entity(row: str) -> dict[str, Any]:
    return {"PartitionKey": "p", "RowKey": row, "Age": 5}


@pytest.mark.parametrize(
    ("method", "below", "body", "headers", "status", "expected"),
    [
        ("GET", "Tables", b"", (), 200, DATA),
        ("GET", "{table}()", b"", (), 200, DATA),
        ("GET", ENTITY, b"", (), 200, {**DATA, "etag": "etag"}),
        ("POST", "{table}", entity("1"), (), 201, {**DATA, **MADE, "etag": "etag"}),
        ("POST", "{table}", entity("2"), (NO_CONTENT,), 204, {**TAGGED, **MADE, **NOT_TOLD}),
        ("PUT", ENTITY, {"Age": 1}, (ANY,), 204, TAGGED),
        ("PUT", ENTITY, {"Age": 2}, (), 204, TAGGED),
        ("PATCH", ENTITY, {"Age": 3}, (ANY,), 204, TAGGED),
        ("MERGE", ENTITY, {"Age": 4}, (), 204, TAGGED),
        ("DELETE", "{table}(PartitionKey='p',RowKey='1')", b"", (ANY,), 204, CACHED),
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
    sentry: Sentry,
    place: Place,
    method: str,
    below: str,
    body: bytes | dict[str, Any],
    headers: Headers,
    status: int,
    expected: dict[str, str],
) -> None:
    answer = ask(sentry, place, method, below, body, headers)
    assert (answer.status, own_headers(answer.headers)) == (status, expected), answer


def test_headers_of_create_and_delete_table(sentry: Sentry, place: Place) -> None:
    name = unique_table()
    answer = ask(sentry, place, "POST", "Tables", {"TableName": name})
    assert (answer.status, own_headers(answer.headers)) == (201, {**DATA, **MADE})
    answer = ask(sentry, place, "DELETE", f"Tables('{name}')")
    assert (answer.status, own_headers(answer.headers)) == (204, CACHED)


# Groups

PART: Final = {**CACHED, "dataserviceversion": "3.0;"}
OLD_PART: Final = {**CACHED, "dataserviceversion": "1.0;"}


def group(sentry: Sentry, place: Place, *parts: bytes) -> tuple[Answer, list[PartAnswer]]:
    headers = (("Content-Type", BATCH_TYPE),)
    answer = ask(sentry, place, "POST", "$batch", change_set(parts), headers)
    assert answer.status == 202, answer
    return answer, answers_in(answer.headers["content-type"], answer.body)


def asked(
    place: Place, method: str, row: str, *headers: tuple[str, str], body: str = '{"Age":5}'
) -> bytes:
    if method == "POST":
        address = f"/{place.table}"
        body = json.dumps(entity(row))
    else:
        address = f"/{place.table}(PartitionKey='p',RowKey='{row}')"
    sent = {name.replace("-", "_"): value for name, value in headers}
    return part(method, address, body.encode(), **sent)


def test_headers_of_a_group(sentry: Sentry, place: Place) -> None:
    answer, parts = group(
        sentry,
        place,
        asked(place, "POST", "g1", NO_CONTENT),
        asked(place, "POST", "g2"),
        asked(place, "PUT", "g3"),
        asked(place, "MERGE", "r", ANY),
        asked(place, "DELETE", "2", ANY, body=""),
    )
    outer = own_headers(answer.headers)
    assert outer.pop("content-type").startswith("multipart/mixed; boundary=batchresponse_")
    assert outer == CACHED
    assert [own_headers(result.headers) for result in parts] == [
        {**PART, **MADE, **NOT_TOLD, "etag": "etag"},
        {**PART, **MADE, "content-type": MINIMAL, "etag": "etag"},
        {**OLD_PART, "etag": "etag"},
        {**OLD_PART, "etag": "etag"},
        OLD_PART,
    ]


@pytest.mark.parametrize(
    ("parts", "status", "text"),
    [
        # The index of the only operation of a change set is left out for errors of the entity
        # itself.
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
    sentry: Sentry,
    place: Place,
    parts: list[tuple[str, str, Headers]],
    status: int,
    text: str,
) -> None:
    requests = [asked(place, method, row, *headers) for method, row, headers in parts]
    _, (response,) = group(sentry, place, *requests)
    assert (response.status, message(response)) == (status, text)
    preferred = NO_CONTENT in parts[-1][2]
    preference = {"preference-applied": "return-no-content"} if preferred else {}
    assert own_headers(response.headers) == {**PART, **preference, "content-type": MINIMAL}


def test_a_group_for_a_missing_table(sentry: Sentry, place: Place) -> None:
    _, (response,) = group(sentry, place, asked(Place("Absent"), "POST", "r", NO_CONTENT))
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
        # Values that do not match their types, and keys that are not strings
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
        # Unsupported OData options
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
        # Empty If-Match, and versions without upserts
        *(
            (
                method,
                ENTITY,
                {"Age": 1},
                (("If-Match", ""),),
                (
                    400,
                    "InvalidInput",
                    "The etag value '' specified in one of the request headers is not valid. "
                    "Please make sure only one etag value is specified and is valid.",
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
    sentry: Sentry,
    place: Place,
    method: str,
    below: str,
    body: bytes | dict[str, Any],
    headers: Headers,
    expected: tuple[int, str, str],
) -> None:
    before = ask(sentry, place, "GET", "{table}()").body
    answer = ask(sentry, place, method, below, body, headers)
    status, code, text = expected
    expected = status, code, text.format(table=place.table)
    assert (answer.status, answer.code, message(answer)) == expected
    assert own_headers(answer.headers) == DATA
    assert ask(sentry, place, "GET", "{table}()").body == before


def test_upserts_in_their_first_version(sentry: Sentry, place: Place) -> None:
    for method in ("PUT", "MERGE"):
        headers = (("x-ms-version", "2011-08-18"),)
        assert ask(sentry, place, method, ENTITY, {"Age": 7}, headers).status == 204


def test_an_entity_beyond_the_size_limit(sentry: Sentry, place: Place) -> None:
    body = json.dumps({**entity("long"), "Text": "x" * (4 << 20)}).encode()
    for method, below in (("POST", "{table}"), ("PUT", ENTITY), ("MERGE", ENTITY)):
        answer = ask(sentry, place, method, below, body)
        assert (answer.status, answer.code) == (413, "RequestBodyTooLarge")


def test_a_token_with_a_key_range(sentry: Sentry, server: Server) -> None:
    place = sentry.make()
    token = table_token(
        place.table, start_pk="a", start_rk="a", end_pk="b", end_rk="b", permission="raud"
    )
    with sas_client(server, place.table, token) as table, refused(403, "AuthorizationFailure"):
        table.create_entity({"PartitionKey": "c", "RowKey": "r"})
    with sas_client(server, place.table, token) as table, refused(403, "AuthorizationFailure"):
        table.get_entity("p", "r")
    sentry.remove(place)


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
    sentry: Sentry, place: Place, method: str, below: str, body: bytes, expected: tuple[int, str]
) -> None:
    answer = ask(sentry, place, method, below, body)
    status, code = expected
    headers = {"content-type": "application/xml", "x-ms-error-code": code}
    assert (answer.status, own_headers(answer.headers)) == (status, headers)
    found = XML_ERROR.fullmatch(answer.body.decode())
    assert found is not None, answer.body
    assert found[1] == code


def test_authentication_errors(sentry: Sentry, place: Place) -> None:
    """In JSON if the client accepts that."""
    wrong = ("Authorization", f"SharedKey {ACCOUNT}:AAAA")
    date = ("x-ms-date", "Mon, 01 Jan 2024 00:00:00 GMT")
    text = (
        "Server failed to authenticate the request. Make sure the value of Authorization header is "
        "formed correctly including the signature."
    )
    path = f"/{ACCOUNT}/{place.table}"
    json_accepted = ("Accept", "application/json;odata=minimalmetadata")
    answer = sentry.client.ask(Request("GET", path, (), (VERSION, date, wrong, json_accepted)))
    assert (answer.status, answer.headers["x-ms-error-code"]) == (403, "AuthenticationFailed")
    assert message(answer) == text
    answer = sentry.client.ask(Request("GET", path, (), (VERSION, date, wrong)))
    assert (answer.status, answer.headers["content-type"]) == (403, "application/xml")
    assert text in answer.body.decode()


# Queries


def test_queries_for_no_entities(sentry: Sentry, place: Place) -> None:
    for below in ("{table}()?$top=0", "Tables?$top=0"):
        answer = ask(sentry, place, "GET", below)
        assert (answer.status, json.loads(answer.body)["value"]) == (200, [])
        assert own_headers(answer.headers) == DATA
    assert ask(sentry, place, "GET", "Absent()?$top=0").code == "TableNotFound"


def test_booleans_in_any_case(sentry: Sentry, place: Place) -> None:
    assert ask(sentry, place, "POST", "{table}", {**entity("flag"), "Flag": True}).status == 201
    for condition in ("eq true", "eq True", "eq TRUE", "ne false", "ne False", "ne FALSE"):
        query = f"Flag {condition}".replace(" ", "%20")
        answer = ask(sentry, place, "GET", f"{{table}}()?$filter={query}")
        assert [result["RowKey"] for result in json.loads(answer.body)["value"]] == ["flag"], (
            condition
        )


def test_the_metadata_of_a_projection(sentry: Sentry, place: Place) -> None:
    answer = ask(sentry, place, "GET", "{table}()?$select=Age,RowKey")
    metadata = json.loads(answer.body)["odata.metadata"]
    assert metadata.endswith(f"/$metadata#{place.table}&$select=Age,RowKey")
    answer = ask(sentry, place, "GET", ENTITY + "?$select=Age")
    document = json.loads(answer.body)
    assert document["odata.metadata"].endswith(f"/$metadata#{place.table}/@Element&$select=Age")
    assert set(document) == {"odata.metadata", "odata.etag", "Age"}


# Conditions


def test_an_unmet_condition_returns_the_current_etag(sentry: Sentry, place: Place) -> None:
    current = ask(sentry, place, "GET", ENTITY).headers["etag"]
    details = {"Condition": "If-Match", "Sent": STALE[1], "Current": current}
    for method in ("PUT", "MERGE", "DELETE"):
        answer = ask(sentry, place, method, ENTITY, {"Age": 1}, (STALE,))
        assert (answer.status, json.loads(answer.body)["details"]) == (412, details)
    answer = ask(sentry, place, "POST", "{table}", entity("r"))
    assert (answer.status, json.loads(answer.body)["details"]) == (409, {"Current": current})
    _, (response,) = group(sentry, place, asked(place, "PUT", "r", STALE))
    assert (response.status, json.loads(response.body)["details"]) == (412, details)


def test_the_current_etag_needs_read_permission(
    sentry: Sentry, place: Place, server: Server
) -> None:
    for permission, shown in (("ru", True), ("u", False)):
        token = table_token(place.table, permission=permission)
        path = f"/{ACCOUNT}/{ENTITY.format(table=place.table)}"
        query = tuple(tuple(pair.split("=", 1)) for pair in token.split("&"))
        request = Request("PUT", path, query, (VERSION, JSON, STALE), b"{}")  # type: ignore[arg-type]
        answer = sentry.client.ask(request.framed())
        assert answer.status == 412, answer
        assert ("details" in json.loads(answer.body)) == shown
