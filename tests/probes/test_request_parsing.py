"""Parsing of requests: queries, request targets, and public endpoints in copy sources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

import pytest

from tests.probes.blob.fixture import CONTENT, BlobFixture
from tests.probes.blob.operations import BlobTarget
from tests.probes.client import Answer, Client, Request, shared_key, table_shared_key
from tests.probes.tokens import account_token, service_token
from tests.server import ACCOUNT, KEY, SECOND_ACCOUNT, SECOND_KEYS

SIGN: Final = shared_key(ACCOUNT, KEY)
_CONTAINER: Final = ("restype", "container")
_LIST: Final = (_CONTAINER, ("comp", "list"))


@pytest.fixture(scope="module")
def target(blobs: BlobFixture) -> Iterator[BlobTarget]:
    target = blobs.create()
    for name in ("a%20b", "a%2Bb"):
        put = Request("PUT", _path(target, name), (), (("x-ms-blob-type", "BlockBlob"),), b"x")
        blobs.send_as_owner(put)
    yield target
    blobs.remove(target)


def _path(target: BlobTarget, blob: str = "") -> str:
    return f"/{target.account}/{target.container}" + (f"/{blob}" if blob else "")


def _names(answer: Answer) -> list[str]:
    text = answer.body.decode()
    return [part.partition("</Name>")[0] for part in text.split("<Name>")[1:]]


# Queries


@pytest.mark.parametrize(
    ("prefix", "found"),
    [("a+b", ["a b"]), ("a%20b", ["a b"]), ("a%2Bb", ["a+b"]), ("a", ["a b", "a+b"])],
)
def test_a_plus_in_a_query_is_a_space(
    blobs: BlobFixture, target: BlobTarget, prefix: str, found: list[str]
) -> None:
    listing = Request("GET", _path(target), (*_LIST, ("prefix", prefix)))
    assert _names(blobs.send_as_owner(listing)) == found
    token = account_token(ACCOUNT, KEY)
    assert _names(blobs.client.ask(token.put_on(listing))) == found


def test_a_plus_in_a_parameter_name_is_a_space(blobs: BlobFixture, target: BlobTarget) -> None:
    blobs.send_as_owner(
        Request("GET", _path(target), (*_LIST, ("some+thing", "1+2"), ("pre%66ix", "a+")))
    )


def test_a_plus_in_a_path_is_literal(blobs: BlobFixture, target: BlobTarget) -> None:
    for written, name in (("a+b", "a+b"), ("a%2Bb", "a+b"), ("a%20b", "a b")):
        url = blobs.send_as_owner(Request("GET", _path(target), (*_LIST, ("prefix", written)))).body
        assert blobs.send_as_owner(Request("GET", _path(target, written))).body == b"x", (url, name)


def test_a_plus_in_a_tag_search_is_literal(blobs: BlobFixture, target: BlobTarget) -> None:
    tags = b"<Tags><TagSet><Tag><Key>k</Key><Value>1+1</Value></Tag></TagSet></Tags>"
    blobs.send_as_owner(Request("PUT", _path(target, target.blob), (("comp", "tags"),), (), tags))
    for written in ("%22k%22%20%3D%20'1+1'", "%22k%22%20%3D%20'1%2B1'"):
        found = blobs.send_as_owner(
            Request("GET", f"/{ACCOUNT}", (("comp", "blobs"), ("where", written)))
        )
        assert _names(found) == [target.blob]


def test_a_plus_in_an_entity_filter_is_a_space(blobs: BlobFixture) -> None:
    sign = table_shared_key(ACCOUNT, KEY)
    with Client(blobs.server.endpoints["table"]) as client:
        json = (("Content-Type", "application/json"), ("Accept", "application/json"))
        create = Request("POST", f"/{ACCOUNT}/Tables", (), json, b'{"TableName":"plus"}')
        assert client.ask(sign(create)).status == 201
        entity = b'{"PartitionKey":"p q","RowKey":"r"}'
        assert client.ask(sign(Request("POST", f"/{ACCOUNT}/plus", (), json, entity))).status == 201
        query = (("$filter", "PartitionKey+eq+'p+q'"), ("$top", "1"))
        found = client.ask(sign(Request("GET", f"/{ACCOUNT}/plus()", query, json)))
        assert found.status == 200
        assert b'"p q"' in found.body


# Targets


def _raw(blobs: BlobFixture, line: bytes, *headers: bytes) -> list[Answer]:
    return blobs.client.send_bytes(b"\r\n".join([line, *headers, b"", b""]))


@pytest.mark.parametrize("scheme", ["http", "HTTP", "https"])
@pytest.mark.parametrize("host", [b"Host: 127.0.0.1", b"Host: elsewhere.example:81"])
def test_targets_in_absolute_form(
    blobs: BlobFixture, target: BlobTarget, scheme: str, host: bytes
) -> None:
    token = account_token(ACCOUNT, KEY)
    address = urlsplit(blobs.server.endpoints["blob"]).netloc
    url = f"{scheme}://{address}{_path(target, target.blob)}?{token}"
    (answer,) = _raw(blobs, f"GET {url} HTTP/1.1".encode(), host)
    assert (answer.status, answer.body) == (200, CONTENT)


def test_the_host_of_an_absolute_target_names_the_account(
    blobs: BlobFixture, target: BlobTarget
) -> None:
    token = account_token(ACCOUNT, KEY)
    url = f"http://{ACCOUNT}.blob.localhost/{target.container}/{target.blob}?{token}"
    (answer,) = _raw(blobs, f"GET {url} HTTP/1.1".encode(), b"Host: 127.0.0.1")
    assert (answer.status, answer.body) == (200, CONTENT)


def test_absolute_targets_are_signed_as_their_paths(blobs: BlobFixture, target: BlobTarget) -> None:
    request = SIGN(Request("GET", _path(target, target.blob)))
    raw = request.raw().replace(b"GET /", b"GET http://localhost/", 1)
    (answer,) = blobs.client.send_bytes(raw)
    assert (answer.status, answer.body) == (200, CONTENT)


@pytest.mark.parametrize(
    "target", [b"ftp://localhost/a", b"http://me@localhost/a", b"http:///a", b"https://?a"]
)
def test_other_absolute_targets_are_refused(blobs: BlobFixture, target: bytes) -> None:
    (answer,) = _raw(blobs, b"GET " + target + b" HTTP/1.1", b"Host: 127.0.0.1")
    assert answer.status == 400


@pytest.mark.parametrize("line", [b"GET  /a HTTP/1.1", b"GET /a  HTTP/1.1", b"GET  /a  HTTP/1.1"])
def test_two_spaces_in_a_request_line_are_refused(blobs: BlobFixture, line: bytes) -> None:
    (answer,) = _raw(blobs, line, b"Host: 127.0.0.1")
    assert (answer.status, answer.code) == (400, "InvalidInput")


# The hierarchical namespace


@pytest.mark.parametrize("below", ["", "/", "//", "/some/path"])
@pytest.mark.parametrize("named", ["getAccessControl", "getaccesscontrol"])
def test_accounts_have_no_hierarchical_namespace(
    blobs: BlobFixture, target: BlobTarget, below: str, named: str
) -> None:
    request = Request("HEAD", _path(target) + below, (("action", named), ("upn", "false")))
    container_only = service_token(ACCOUNT, KEY, target.container)
    for sent in (
        SIGN(request),
        account_token(ACCOUNT, KEY).put_on(request),
        container_only.put_on(request),
    ):
        answer = blobs.client.ask(sent)
        assert (answer.status, answer.code) == (400, "HierarchicalNamespaceNotEnabled")
    assert blobs.client.ask(request.having(("x-ms-version", "2021-12-02"))).status == 401


# Sources of copies


def _copied(blobs: BlobFixture, target: BlobTarget, address: str, account: str = ACCOUNT) -> Answer:
    key = KEY if account == ACCOUNT else SECOND_KEYS[0]
    headers = (("x-ms-copy-source", address), ("x-ms-version", "2021-12-02"))
    path = f"/{account}/{target.container}/copied"
    return blobs.client.ask(shared_key(account, key)(Request("PUT", path, (), headers)))


@pytest.mark.parametrize(
    "domain", ["blob.core.windows.net", "BLOB.core.windows.net:443", "blob.core.windows.net."]
)
@pytest.mark.parametrize("suffix", ["", "-secondary"])
def test_the_public_endpoint_of_the_account_is_this_server(
    blobs: BlobFixture, target: BlobTarget, domain: str, suffix: str
) -> None:
    address = f"https://{ACCOUNT}{suffix}.{domain}/{target.container}/{target.blob}"
    answer = _copied(blobs, target, address)
    assert (answer.status, answer.headers.get("x-ms-copy-status")) == (202, "success")
    copied = blobs.send_as_owner(Request("GET", _path(target, "copied")))
    assert copied.body == CONTENT
    assert copied.headers["x-ms-copy-source"] == address.lower().replace(":443", "")


def test_a_token_is_valid_for_the_public_endpoint(blobs: BlobFixture, target: BlobTarget) -> None:
    token = account_token(ACCOUNT, KEY)
    address = f"https://{ACCOUNT}.blob.core.windows.net/{target.container}/{target.blob}"
    headers = (("x-ms-copy-source", f"{address}?{token}"), ("x-ms-blob-type", "BlockBlob"))
    blobs.send_as_owner(Request("PUT", _path(target, "put"), (), headers))
    assert blobs.send_as_owner(Request("GET", _path(target, "put"))).body == CONTENT


@pytest.mark.parametrize(
    "host",
    [
        f"{SECOND_ACCOUNT}.blob.core.windows.net",
        f"{ACCOUNT}.blob.core.windows.net:444",
        f"{ACCOUNT}.queue.core.windows.net",
        f"{ACCOUNT}.blob.core.windows.net.example",
        f"{ACCOUNT}.blob.core.windows.net..",
        f"{ACCOUNT}x.blob.core.windows.net",
        "blob.core.windows.net",
    ],
)
def test_other_public_endpoints_are_not_this_server(
    blobs: BlobFixture, target: BlobTarget, host: str
) -> None:
    answer = _copied(blobs, target, f"https://{host}/{target.container}/{target.blob}")
    assert (answer.status, answer.code) == (403, "CannotVerifyCopySource")
