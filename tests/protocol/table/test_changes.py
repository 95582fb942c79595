"""Changes of entities over REST: conditions, responses and formats."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.protocol.table.fixture import ACCOUNT, ADDRESS, Answer, TableServiceFixture

ENTITY: Final = "People(PartitionKey='p',RowKey='r')"
ADA: Final = {"PartitionKey": "p", "RowKey": "r", "Age": 36, "Name": "Ada"}
OLD_ETAG: Final = "W/\"datetime'2000-01-01T00%3A00%3A00.0000000Z'\""
NO_METADATA: Final = "application/json;odata=nometadata"

# The error code or the properties afterwards: if the entity existed, and if it did not.
Outcome = dict[str, Any] | str
REPLACED: Final[dict[str, Any]] = {"Age": 37}
MERGED: Final[dict[str, Any]] = {"Age": 37, "Name": "Ada"}
GONE: Final = "ResourceNotFound"
STALE: Final = "UpdateConditionNotSatisfied"
OUTCOMES: Final[dict[tuple[str, str], tuple[Outcome, Outcome]]] = {
    ("PUT", ""): (REPLACED, REPLACED),
    ("MERGE", ""): (MERGED, REPLACED),
    ("PATCH", ""): (MERGED, REPLACED),
    ("DELETE", ""): ("MissingRequiredHeader", "MissingRequiredHeader"),
    **{
        (method, seen): (outcome if seen in ("any", "right") else STALE, GONE)
        for method, outcome in (
            ("PUT", REPLACED),
            ("MERGE", MERGED),
            ("PATCH", MERGED),
            ("DELETE", dict[str, Any]()),
        )
        for seen in ("any", "right", "stale", "wrong")
    },
}


def shown(tables: TableServiceFixture) -> dict[str, Any]:
    """Returns the properties of the entity; none if it does not exist."""
    answer = tables.ask("GET", ENTITY, Accept=NO_METADATA)
    if answer.refusal == (404, GONE):
        return {}
    return {name: answer.json()[name] for name in ("Age", "Name") if name in answer.json()}


@pytest.mark.parametrize("there", [True, False], ids=["there", "missing"])
@pytest.mark.parametrize(("method", "seen"), OUTCOMES)
def test_outcomes(tables: TableServiceFixture, method: str, seen: str, there: bool) -> None:
    tables.insert("p", "r", Age=36, Name="Ada")
    right = tables.ask("GET", ENTITY).headers["etag"]
    if not there:
        tables.ask("DELETE", ENTITY, If_Match="*")
    etags = {"any": "*", "right": right, "stale": OLD_ETAG, "wrong": 'W/"wrong"'}
    headers = {"If_Match": etags[seen]} if seen else {}
    before = shown(tables)
    answer = tables.ask(method, ENTITY, b"" if method == "DELETE" else {"Age": 37}, **headers)
    expected = OUTCOMES[method, seen][0 if there else 1]
    if isinstance(expected, str):
        assert answer.code == expected
        assert answer.status == {GONE: 404, STALE: 412}.get(expected, 400)
        assert shown(tables) == before
    else:
        assert (answer.status, answer.body) == (204, b"")
        assert ("etag" in answer.headers) == (method != "DELETE")
        assert shown(tables) == expected


@pytest.mark.parametrize("etag", ['"0x1"', "wrong", "W/", "*,*", 'W/"a", W/"b"', "W/wrong", '""'])
@pytest.mark.parametrize("method", ["PUT", "MERGE", "DELETE"])
def test_invalid_etags(tables: TableServiceFixture, method: str, etag: str) -> None:
    tables.insert("p", "r", Age=36)
    answer = tables.ask(method, ENTITY, {"Age": 37}, If_Match=etag)
    assert answer.refusal == (400, "InvalidInput")
    assert shown(tables) == {"Age": 36}


def test_every_change_has_a_new_etag(tables: TableServiceFixture) -> None:
    tables.insert("p", "r")
    etags = [tables.ask("MERGE", ENTITY, {}).headers["etag"] for _ in range(20)]
    assert len(set(etags)) == 20
    answer = tables.ask("GET", ENTITY)
    assert answer.headers["etag"] == answer.json()["odata.etag"] == etags[-1]
    timestamp = answer.json()["Timestamp"].replace(":", "%3A")
    assert etags[-1] == f"W/\"datetime'{timestamp}'\""


def test_null_properties_are_not_stored(tables: TableServiceFixture) -> None:
    tables.insert("p", "r", Age=36, Name="Ada")
    tables.ask("MERGE", ENTITY, {"Age": None})
    assert shown(tables) == {"Age": 36, "Name": "Ada"}
    tables.ask("PUT", ENTITY, {"Age": None, "Name": "Ada"})
    assert shown(tables) == {"Name": "Ada"}


# Keys in the URL and in the body


@pytest.mark.parametrize("method", ["PUT", "MERGE", "PATCH"])
def test_keys_in_the_body_must_match_the_url(tables: TableServiceFixture, method: str) -> None:
    assert tables.ask(method, ENTITY, ADA).status == 204
    for name in ("PartitionKey", "RowKey"):
        answer = tables.ask(method, ENTITY, {**ADA, name: "other"})
        assert answer.refusal == (400, "InvalidInput")
        answer = tables.ask(method, ENTITY, {**ADA, name: 5})
        assert answer.refusal == (400, "InvalidInput")


@pytest.mark.parametrize("name", ["PartitionKey", "RowKey"])
def test_an_insert_needs_both_keys(tables: TableServiceFixture, name: str) -> None:
    for entity in ({k: v for k, v in ADA.items() if k != name}, {**ADA, name: None}):
        assert tables.ask("POST", "People", entity).refusal == (400, "PropertiesNeedValue")
    assert tables.rows() == []


@pytest.mark.parametrize("character", ["/", "\\", "#", "?", "\t", "\n", "\x00", "\x7f", "\x9f"])
def test_invalid_characters_in_keys(tables: TableServiceFixture, character: str) -> None:
    for name in ("PartitionKey", "RowKey"):
        answer = tables.ask("POST", "People", {**ADA, name: f"a{character}b"})
        assert answer.refusal == (400, "OutOfRangeInput")
    quoted = f"a%{ord(character):02X}b" if ord(character) < 0x80 else "a%C2%9Fb"
    path = f"People(PartitionKey='{quoted}',RowKey='r')"
    assert tables.ask("GET", path).refusal == (404, GONE)
    assert tables.ask("PUT", path, {}).refusal == (400, "OutOfRangeInput")


def test_keys_of_every_length(tables: TableServiceFixture) -> None:
    for key in ("x" * 1_024, "é" * 512):
        tables.insert(key, key)
    for key in ("x" * 1_025, "é" * 513):
        for name in ("PartitionKey", "RowKey"):
            answer = tables.ask("POST", "People", {**ADA, name: key})
            assert answer.refusal == (400, "KeyValueTooLarge")


# Responses


def inserted(tables: TableServiceFixture, **headers: str) -> Answer:
    answer = tables.ask("POST", "People", ADA, **headers)
    tables.ask("DELETE", ENTITY, If_Match="*")
    return answer


def test_response_to_an_insert(tables: TableServiceFixture) -> None:
    answer = inserted(tables)
    assert answer.status == 201
    assert answer.headers["location"] == f"{ADDRESS}/{ENTITY}"
    assert "preference-applied" not in answer.headers
    document = answer.json()
    assert document["odata.metadata"] == f"{ADDRESS}/$metadata#People/@Element"
    assert document["odata.etag"] == answer.headers["etag"]
    assert {name: document[name] for name in ADA} == ADA


@pytest.mark.parametrize(
    ("prefer", "status", "applied"),
    [
        ("return-no-content", 204, "return-no-content"),
        ("return-content", 201, "return-content"),
        (" Return-No-Content ", 204, "return-no-content"),
        ("respond-async", 201, None),
        ("", 201, None),
    ],
)
def test_preferences(
    tables: TableServiceFixture, prefer: str, status: int, applied: str | None
) -> None:
    for answer in (
        inserted(tables, Prefer=prefer),
        tables.ask("POST", "Tables", {"TableName": "Preferred"}, Prefer=prefer),
    ):
        assert answer.status == status
        assert answer.headers.get("preference-applied") == applied
        assert (answer.body == b"") == (status == 204)
        assert ("content-type" in answer.headers) == (status == 201)
        assert ("dataserviceid" in answer.headers) == (status == 204)


# Metadata levels and formats

LEVELS: Final = ("nometadata", "minimalmetadata", "fullmetadata")


@pytest.mark.parametrize("level", LEVELS)
def test_levels(tables: TableServiceFixture, level: str) -> None:
    tables.insert("p", "r", **{"Big": "5", "Big@odata.type": "Edm.Int64"})
    asked = f"application/json;odata={level}"
    for answer in (
        tables.ask("GET", ENTITY, Accept=asked),
        tables.ask("GET", f"{ENTITY}?$format={asked}", Accept="application/atom+xml"),
        tables.ask("GET", f"{ENTITY}?$format={asked.upper()}"),
        tables.ask("GET", ENTITY, Accept=f"text/html, {asked}"),
    ):
        assert answer.status == 200
        assert answer.headers["content-type"].startswith(asked)
        document = answer.json()
        assert document["Big"] == "5"
        assert ("Big@odata.type" in document) == (level != "nometadata")
        assert ("odata.etag" in document) == (level != "nometadata")
        assert ("odata.type" in document) == (level == "fullmetadata")
        if level == "fullmetadata":
            assert document["odata.type"] == f"{ACCOUNT}.People"
            assert document["odata.editLink"] == ENTITY
            assert document["Timestamp@odata.type"] == "Edm.DateTime"


@pytest.mark.parametrize("accept", ["", "*/*", "application/*", "application/json", "json"])
def test_default_metadata_level(tables: TableServiceFixture, accept: str) -> None:
    tables.insert("p", "r")
    document = tables.ask("GET", "People()", Accept=accept).json()
    assert "odata.etag" in document["value"][0]
    assert "odata.id" not in document["value"][0]


@pytest.mark.parametrize("content_type", ["application/atom+xml", "text/plain", "json", "a/b;c"])
def test_unsupported_content_types(tables: TableServiceFixture, content_type: str) -> None:
    for method, target in (("POST", "People"), ("PUT", ENTITY), ("MERGE", ENTITY)):
        answer = tables.ask(method, target, ADA, Content_Type=content_type)
        assert answer.refusal == (415, "MediaTypeNotSupported")
    assert tables.rows() == []


@pytest.mark.parametrize(
    "content_type", ["", "application/json", "Application/JSON; odata=nometadata; charset=utf-8"]
)
def test_supported_content_types(tables: TableServiceFixture, content_type: str) -> None:
    assert tables.ask("POST", "People", ADA, Content_Type=content_type).status == 201


@pytest.mark.parametrize(
    ("accept", "code"),
    [
        ("application/atom+xml", "AtomFormatNotSupported"),
        ("application/xml", "AtomFormatNotSupported"),
        ("application/json;odata=verbose", "JsonVerboseFormatNotSupported"),
        ("application/json;odata=some", "JsonFormatNotSupported"),
        ("text/html", "MediaTypeNotSupported"),
    ],
)
def test_unsupported_accept_headers(tables: TableServiceFixture, accept: str, code: str) -> None:
    tables.insert("p", "r")
    for answer in (
        tables.ask("GET", "People()", Accept=accept),
        tables.ask("GET", ENTITY, Accept=accept),
        tables.ask("GET", "Tables", Accept=accept),
        tables.ask("POST", "People", {**ADA, "RowKey": "s"}, Accept=accept),
        tables.ask("POST", "Tables", {"TableName": "Another"}, Accept=accept),
    ):
        assert answer.refusal == (415, code)
    assert tables.rows() == ["r"]
    assert len(tables.ask("GET", "Tables").json()["value"]) == 1


def test_a_delete_ignores_the_content_type(tables: TableServiceFixture) -> None:
    tables.insert("p", "r")
    response = tables.ask("DELETE", ENTITY, b"", If_Match="*", Content_Type="text/plain")
    assert response.status == 204
    refused = tables.ask("PUT", ENTITY, b"{}", Content_Type="text/plain")
    assert (refused.status, refused.code) == (415, "MediaTypeNotSupported")
