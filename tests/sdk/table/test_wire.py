"""Raw signed requests that no SDK sends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pytest

from tests.probes.client import VERSION, Answer, Request, http_date
from tests.protocol.table.batches import BATCH_TYPE, answers_in, change_set, part
from tests.sdk.table.forms import JSON, Place, table_key, table_key_lite
from tests.sdk.table.sentry import Sentry
from tests.server import ACCOUNT, KEY, Server

LEVELS: Final = ("nometadata", "minimalmetadata", "fullmetadata")
TYPED: Final[dict[str, Any]] = {
    "Text": "text",
    "Int": 36,
    "Double": 1.5,
    "Flag": True,
    "Long": "5",
    "Long@odata.type": "Edm.Int64",
    "Far": "Infinity",
    "Far@odata.type": "Edm.Double",
    "Born": "1815-12-10T00:00:00Z",
    "Born@odata.type": "Edm.DateTime",
    "Id": "c9da6455-213d-42c9-9a79-3e9149a57833",
    "Id@odata.type": "Edm.Guid",
    "Raw": "AP8=",
    "Raw@odata.type": "Edm.Binary",
}
VALUES: Final = {name: value for name, value in TYPED.items() if "@" not in name}


@pytest.fixture(scope="module")
def sentry(server: Server) -> Iterator[Sentry]:
    sentry = Sentry(server)
    with sentry.client:
        yield sentry


@pytest.fixture
def place(sentry: Sentry) -> Iterator[Place]:
    made = sentry.make()
    yield made
    sentry.remove(made)


def request(place: Place, method: str, below: str, body: bytes = b"", **headers: str) -> Request:
    sent = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    path = f"/{ACCOUNT}/{below.format(table=place.table)}"
    target, _, query = path.partition("?")
    pairs = tuple(tuple(pair.split("=", 1)) for pair in query.split("&") if pair)
    version = ("x-ms-version", VERSION)
    return Request(method, target, pairs, (version, *sent), body)  # type: ignore[arg-type]


ENTITY: Final = "{table}(PartitionKey='p',RowKey='typed')"


def of_entity(answer: Answer) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(answer.body)
    return document["value"][-1] if "value" in document else document


@pytest.mark.parametrize("level", LEVELS)
def test_levels(sentry: Sentry, place: Place, level: str) -> None:
    accept = f"application/json;odata={level}"
    entity = json.dumps({"PartitionKey": "p", "RowKey": "typed", **TYPED}).encode()
    insert = request(place, "POST", "{table}", entity, Accept=accept).having(JSON)
    for answer in (
        sentry.own(insert),
        sentry.own(request(place, "GET", ENTITY, Accept=accept)),
        sentry.own(request(place, "GET", "{table}()", Accept=accept)),
        sentry.own(request(place, "GET", f"{{table}}()?$format={accept}")),
    ):
        assert answer.headers["content-type"].startswith(f"{accept};")
        result = of_entity(answer)
        assert {name: result[name] for name in VALUES} == VALUES
        types = {name: value for name, value in result.items() if name.endswith("@odata.type")}
        types.pop("Timestamp@odata.type", None)
        given = {name: value for name, value in TYPED.items() if "@" in name}
        assert types == ({} if level == "nometadata" else given)
        assert ("odata.etag" in result) == (level != "nometadata")
        assert ("odata.editLink" in result) == (level == "fullmetadata")
    if level == "fullmetadata":
        shown = of_entity(sentry.own(request(place, "GET", "{table}()", Accept=accept)))
        assert shown["odata.type"] == f"{ACCOUNT}.{place.table}"
        path = ENTITY.format(table=place.table)
        assert shown["odata.editLink"] == path
        assert shown["odata.id"] == f"http://127.0.0.1/{ACCOUNT}/{path}"


def test_head_responses_have_no_body(sentry: Sentry, place: Place) -> None:
    for below in ("Tables", "{table}()", "{table}(PartitionKey='p',RowKey='r')"):
        got = sentry.own(request(place, "GET", below))
        head = sentry.own(request(place, "HEAD", below))
        assert (head.status, head.body) == (200, b"")
        assert head.headers["content-type"] == got.headers["content-type"]
    missing = request(place, "HEAD", "{table}(PartitionKey='p',RowKey='missing')")
    answer = sentry.client.ask(table_key(ACCOUNT, KEY)(missing))
    assert (answer.status, answer.code) == (404, "ResourceNotFound")


@pytest.mark.parametrize("scheme", [table_key, table_key_lite])
def test_either_date_header_can_be_signed(sentry: Sentry, place: Place, scheme: Any) -> None:
    query = request(place, "GET", "{table}()")
    for dated in (
        query.having(("Date", http_date())),
        query.having(("x-ms-date", http_date())),
        query.having(("x-ms-date", http_date()), ("Date", http_date(-3600))),
    ):
        assert sentry.client.ask(scheme(ACCOUNT, KEY)(dated)).status == 200


def test_errors_in_json(sentry: Sentry, place: Place) -> None:
    missing = request(place, "GET", "{table}(PartitionKey='p',RowKey='missing')")
    answer = sentry.client.ask(table_key(ACCOUNT, KEY)(missing))
    error = json.loads(answer.body)["odata.error"]
    # Clients accept no other members in an error.
    assert error.keys() == {"code", "message"}
    assert (error["code"], error["message"]["lang"]) == ("ResourceNotFound", "en-US")
    assert answer.headers["content-type"].startswith("application/json;odata=minimalmetadata")


def chunked(asked: Request, size: int) -> Request:
    pieces = [asked.body[at : at + size] for at in range(0, len(asked.body), size)]
    framed = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    signed = table_key(ACCOUNT, KEY)(asked.having(("Transfer-Encoding", "chunked")))
    return replace(signed, body=framed + b"0\r\n\r\n")


def test_chunked_bodies(sentry: Sentry, place: Place) -> None:
    insert = part("POST", f"/{place.table}", {"PartitionKey": "p", "RowKey": "chunked"})
    group = request(place, "POST", "$batch", change_set([insert]), Content_Type=BATCH_TYPE)
    answer = sentry.client.ask(chunked(group, 7))
    (response,) = answers_in(answer.headers["content-type"], answer.body)
    assert response.status == 201
    long = replace(group, body=group.body + b"-" * (4 << 20))
    (refused,) = sentry.client.send_bytes(chunked(long, 1 << 18).raw())
    assert (refused.status, refused.code) == (413, "RequestBodyTooLarge")
