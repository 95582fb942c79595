"""How a request is read before anything is done: its target, its query, and what it is asked of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

import pytest

from tests.probes.client import Answer, Client, Request, shared_key
from tests.probes.operations import Place
from tests.probes.stage import CONTENT, Stage
from tests.probes.tokens import account_token, service_token
from tests.sdk.table.forms import table_key
from tests.server import ACCOUNT, KEY, SECOND_ACCOUNT, SECOND_KEYS

SIGN: Final = shared_key(ACCOUNT, KEY)
_CONTAINER: Final = ("restype", "container")
_LIST: Final = (_CONTAINER, ("comp", "list"))


@pytest.fixture(scope="module")
def place(stage: Stage) -> Iterator[Place]:
    place = stage.make()
    for name in ("a%20b", "a%2Bb"):
        put = Request("PUT", _path(place, name), (), (("x-ms-blob-type", "BlockBlob"),), b"x")
        stage.own(put)
    yield place
    stage.remove(place)


def _path(place: Place, blob: str = "") -> str:
    return f"/{place.account}/{place.container}" + (f"/{blob}" if blob else "")


def _names(answer: Answer) -> list[str]:
    text = answer.body.decode()
    return [part.partition("</Name>")[0] for part in text.split("<Name>")[1:]]


# Queries


@pytest.mark.parametrize(
    ("prefix", "found"),
    [("a+b", ["a b"]), ("a%20b", ["a b"]), ("a%2Bb", ["a+b"]), ("a", ["a b", "a+b"])],
)
def test_a_plus_in_a_query_is_a_space(
    stage: Stage, place: Place, prefix: str, found: list[str]
) -> None:
    listing = Request("GET", _path(place), (*_LIST, ("prefix", prefix)))
    assert _names(stage.own(listing)) == found
    token = account_token(ACCOUNT, KEY)
    assert _names(stage.client.ask(token.put_on(listing))) == found


def test_a_plus_in_a_name_of_a_query_is_a_space(stage: Stage, place: Place) -> None:
    stage.own(Request("GET", _path(place), (*_LIST, ("some+thing", "1+2"), ("pre%66ix", "a+"))))


def test_a_plus_in_a_path_stays(stage: Stage, place: Place) -> None:
    for written, name in (("a+b", "a+b"), ("a%2Bb", "a+b"), ("a%20b", "a b")):
        url = stage.own(Request("GET", _path(place), (*_LIST, ("prefix", written)))).body
        assert stage.own(Request("GET", _path(place, written))).body == b"x", (url, name)


def test_a_plus_in_a_search_for_tags_stays(stage: Stage, place: Place) -> None:
    tags = b"<Tags><TagSet><Tag><Key>k</Key><Value>1+1</Value></Tag></TagSet></Tags>"
    stage.own(Request("PUT", _path(place, place.blob), (("comp", "tags"),), (), tags))
    for written in ("%22k%22%20%3D%20'1+1'", "%22k%22%20%3D%20'1%2B1'"):
        found = stage.own(Request("GET", f"/{ACCOUNT}", (("comp", "blobs"), ("where", written))))
        assert _names(found) == [place.blob]


def test_a_plus_in_a_filter_of_entities_is_a_space(stage: Stage) -> None:
    sign = table_key(ACCOUNT, KEY)
    with Client(stage.server.endpoints["table"]) as client:
        json = (("Content-Type", "application/json"), ("Accept", "application/json"))
        made = Request("POST", f"/{ACCOUNT}/Tables", (), json, b'{"TableName":"plus"}')
        assert client.ask(sign(made)).status == 201
        entity = b'{"PartitionKey":"p q","RowKey":"r"}'
        assert client.ask(sign(Request("POST", f"/{ACCOUNT}/plus", (), json, entity))).status == 201
        query = (("$filter", "PartitionKey+eq+'p+q'"), ("$top", "1"))
        found = client.ask(sign(Request("GET", f"/{ACCOUNT}/plus()", query, json)))
        assert found.status == 200
        assert b'"p q"' in found.body


# Targets


def _raw(stage: Stage, line: bytes, *headers: bytes) -> list[Answer]:
    return stage.client.send_bytes(b"\r\n".join([line, *headers, b"", b""]))


@pytest.mark.parametrize("scheme", ["http", "HTTP", "https"])
@pytest.mark.parametrize("host", [b"Host: 127.0.0.1", b"Host: elsewhere.example:81"])
def test_targets_in_absolute_form(stage: Stage, place: Place, scheme: str, host: bytes) -> None:
    token = account_token(ACCOUNT, KEY)
    address = urlsplit(stage.server.endpoints["blob"]).netloc
    target = f"{scheme}://{address}{_path(place, place.blob)}?{token}"
    (answer,) = _raw(stage, f"GET {target} HTTP/1.1".encode(), host)
    assert (answer.status, answer.body) == (200, CONTENT)


def test_the_host_of_an_absolute_target_names_the_account(stage: Stage, place: Place) -> None:
    token = account_token(ACCOUNT, KEY)
    target = f"http://{ACCOUNT}.blob.localhost/{place.container}/{place.blob}?{token}"
    (answer,) = _raw(stage, f"GET {target} HTTP/1.1".encode(), b"Host: 127.0.0.1")
    assert (answer.status, answer.body) == (200, CONTENT)


def test_absolute_targets_are_signed_as_their_paths(stage: Stage, place: Place) -> None:
    request = SIGN(Request("GET", _path(place, place.blob)))
    raw = request.raw().replace(b"GET /", b"GET http://localhost/", 1)
    (answer,) = stage.client.send_bytes(raw)
    assert (answer.status, answer.body) == (200, CONTENT)


@pytest.mark.parametrize(
    "target", [b"ftp://localhost/a", b"http://me@localhost/a", b"http:///a", b"https://?a"]
)
def test_other_absolute_targets_are_refused(stage: Stage, target: bytes) -> None:
    (answer,) = _raw(stage, b"GET " + target + b" HTTP/1.1", b"Host: 127.0.0.1")
    assert answer.status == 400


@pytest.mark.parametrize("line", [b"GET  /a HTTP/1.1", b"GET /a  HTTP/1.1", b"GET  /a  HTTP/1.1"])
def test_two_spaces_in_a_request_line_are_refused(stage: Stage, line: bytes) -> None:
    (answer,) = _raw(stage, line, b"Host: 127.0.0.1")
    assert (answer.status, answer.code) == (400, "InvalidInput")


# The namespace


@pytest.mark.parametrize("below", ["", "/", "//", "/some/path"])
@pytest.mark.parametrize("named", ["getAccessControl", "getaccesscontrol"])
def test_accounts_are_flat(stage: Stage, place: Place, below: str, named: str) -> None:
    request = Request("HEAD", _path(place) + below, (("action", named), ("upn", "false")))
    container_only = service_token(ACCOUNT, KEY, place.container)
    for sent in (
        SIGN(request),
        account_token(ACCOUNT, KEY).put_on(request),
        container_only.put_on(request),
    ):
        answer = stage.client.ask(sent)
        assert (answer.status, answer.code) == (400, "HierarchicalNamespaceNotEnabled")
    assert stage.client.ask(request.having(("x-ms-version", "2021-12-02"))).status == 401


# Sources of copies


def _copied(stage: Stage, place: Place, address: str, account: str = ACCOUNT) -> Answer:
    key = KEY if account == ACCOUNT else SECOND_KEYS[0]
    headers = (("x-ms-copy-source", address), ("x-ms-version", "2021-12-02"))
    path = f"/{account}/{place.container}/copied"
    return stage.client.ask(shared_key(account, key)(Request("PUT", path, (), headers)))


@pytest.mark.parametrize("domain", ["blob.core.windows.net", "BLOB.core.windows.net:443"])
@pytest.mark.parametrize("suffix", ["", "-secondary"])
def test_the_public_endpoint_of_ones_own_account_is_here(
    stage: Stage, place: Place, domain: str, suffix: str
) -> None:
    address = f"https://{ACCOUNT}{suffix}.{domain}/{place.container}/{place.blob}"
    answer = _copied(stage, place, address)
    assert (answer.status, answer.headers.get("x-ms-copy-status")) == (202, "success")
    copied = stage.own(Request("GET", _path(place, "copied")))
    assert copied.body == CONTENT
    assert copied.headers["x-ms-copy-source"] == address.lower().replace(":443", "")


def test_a_token_is_good_for_the_public_endpoint(stage: Stage, place: Place) -> None:
    token = account_token(ACCOUNT, KEY)
    address = f"https://{ACCOUNT}.blob.core.windows.net/{place.container}/{place.blob}"
    headers = (("x-ms-copy-source", f"{address}?{token}"), ("x-ms-blob-type", "BlockBlob"))
    stage.own(Request("PUT", _path(place, "put"), (), headers))
    assert stage.own(Request("GET", _path(place, "put"))).body == CONTENT


@pytest.mark.parametrize(
    "host",
    [
        f"{SECOND_ACCOUNT}.blob.core.windows.net",
        f"{ACCOUNT}.blob.core.windows.net:444",
        f"{ACCOUNT}.queue.core.windows.net",
        f"{ACCOUNT}.blob.core.windows.net.example",
        f"{ACCOUNT}x.blob.core.windows.net",
        "blob.core.windows.net",
    ],
)
def test_other_public_endpoints_are_elsewhere(stage: Stage, place: Place, host: str) -> None:
    answer = _copied(stage, place, f"https://{host}/{place.container}/{place.blob}")
    assert (answer.status, answer.code) == (403, "CannotVerifyCopySource")
