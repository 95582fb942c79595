"""Raw signed requests that no SDK sends: metadata levels, HEAD, dates and chunked bodies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pytest

from tests.probes.client import (
    VERSION,
    Answer,
    Request,
    http_date,
    table_shared_key,
    table_shared_key_lite,
)
from tests.probes.table.fixture import TableFixture
from tests.probes.table.operations import JSON, TableTarget
from tests.protocol.table.batches import BATCH_TYPE, answers_in, change_set, part
from tests.server import ACCOUNT, KEY

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


@pytest.fixture
def target(tables: TableFixture) -> Iterator[TableTarget]:
    created = tables.create()
    yield created
    tables.remove(created)


def request(
    target: TableTarget, method: str, below: str, body: bytes = b"", **headers: str
) -> Request:
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    path = f"/{ACCOUNT}/{below.format(table=target.table)}"
    path, _, query = path.partition("?")
    pairs = tuple(tuple(pair.split("=", 1)) for pair in query.split("&") if pair)
    version = ("x-ms-version", VERSION)
    return Request(method, path, pairs, (version, *named), body)  # type: ignore[arg-type]


ENTITY: Final = "{table}(PartitionKey='p',RowKey='typed')"


def entity_of(answer: Answer) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(answer.body)
    return document["value"][-1] if "value" in document else document


@pytest.mark.parametrize("level", LEVELS)
def test_levels(tables: TableFixture, target: TableTarget, level: str) -> None:
    accept = f"application/json;odata={level}"
    entity = json.dumps({"PartitionKey": "p", "RowKey": "typed", **TYPED}).encode()
    insert = request(target, "POST", "{table}", entity, Accept=accept).having(JSON)
    for answer in (
        tables.send_as_owner(insert),
        tables.send_as_owner(request(target, "GET", ENTITY, Accept=accept)),
        tables.send_as_owner(request(target, "GET", "{table}()", Accept=accept)),
        tables.send_as_owner(request(target, "GET", f"{{table}}()?$format={accept}")),
    ):
        assert answer.headers["content-type"].startswith(f"{accept};")
        returned = entity_of(answer)
        assert {name: returned[name] for name in VALUES} == VALUES
        types = {name: value for name, value in returned.items() if name.endswith("@odata.type")}
        types.pop("Timestamp@odata.type", None)
        sent = {name: value for name, value in TYPED.items() if "@" in name}
        assert types == ({} if level == "nometadata" else sent)
        assert ("odata.etag" in returned) == (level != "nometadata")
        assert ("odata.editLink" in returned) == (level == "fullmetadata")
    if level == "fullmetadata":
        returned = entity_of(
            tables.send_as_owner(request(target, "GET", "{table}()", Accept=accept))
        )
        assert returned["odata.type"] == f"{ACCOUNT}.{target.table}"
        path = ENTITY.format(table=target.table)
        assert returned["odata.editLink"] == path
        assert returned["odata.id"] == f"http://127.0.0.1/{ACCOUNT}/{path}"


def test_responses_to_head_have_no_bodies(tables: TableFixture, target: TableTarget) -> None:
    for below in ("Tables", "{table}()", "{table}(PartitionKey='p',RowKey='r')"):
        got = tables.send_as_owner(request(target, "GET", below))
        head = tables.send_as_owner(request(target, "HEAD", below))
        assert (head.status, head.body) == (200, b"")
        assert head.headers["content-type"] == got.headers["content-type"]
    missing = request(target, "HEAD", "{table}(PartitionKey='p',RowKey='missing')")
    answer = tables.client.ask(table_shared_key(ACCOUNT, KEY)(missing))
    assert (answer.status, answer.code) == (404, "ResourceNotFound")


@pytest.mark.parametrize("scheme", [table_shared_key, table_shared_key_lite])
def test_either_date_is_signed(tables: TableFixture, target: TableTarget, scheme: Any) -> None:
    query = request(target, "GET", "{table}()")
    for dated in (
        query.having(("Date", http_date())),
        query.having(("x-ms-date", http_date())),
        query.having(("x-ms-date", http_date()), ("Date", http_date(-3600))),
    ):
        assert tables.client.ask(scheme(ACCOUNT, KEY)(dated)).status == 200


def test_errors_are_json(tables: TableFixture, target: TableTarget) -> None:
    missing = request(target, "GET", "{table}(PartitionKey='p',RowKey='missing')")
    answer = tables.client.ask(table_shared_key(ACCOUNT, KEY)(missing))
    error = json.loads(answer.body)["odata.error"]
    # Clients do not accept an error with more fields.
    assert error.keys() == {"code", "message"}
    assert (error["code"], error["message"]["lang"]) == ("ResourceNotFound", "en-US")
    assert answer.headers["content-type"].startswith("application/json;odata=minimalmetadata")


def chunked(request: Request, size: int) -> Request:
    pieces = [request.body[at : at + size] for at in range(0, len(request.body), size)]
    framed = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    signed = table_shared_key(ACCOUNT, KEY)(request.having(("Transfer-Encoding", "chunked")))
    return replace(signed, body=framed + b"0\r\n\r\n")


def test_chunked_bodies(tables: TableFixture, target: TableTarget) -> None:
    insert = part("POST", f"/{target.table}", {"PartitionKey": "p", "RowKey": "chunked"})
    group = request(target, "POST", "$batch", change_set([insert]), Content_Type=BATCH_TYPE)
    answer = tables.client.ask(chunked(group, 7))
    (response,) = answers_in(answer.headers["content-type"], answer.body)
    assert response.status == 201
    long = replace(group, body=group.body + b"-" * (4 << 20))
    (refused,) = tables.client.send_bytes(chunked(long, 1 << 18).raw())
    assert (refused.status, refused.code) == (413, "RequestBodyTooLarge")
