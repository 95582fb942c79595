"""Authentication in all services: bearer tokens, unknown accounts, host names and framing."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest

from tests.probes.blob.fixture import CONTENT, BlobFixture
from tests.probes.client import (
    Answer,
    Client,
    Pairs,
    Request,
    Signer,
    http_date,
    shared_key,
    shared_key_lite,
    table_shared_key,
)
from tests.probes.tokens import account_token
from tests.server import ACCOUNT, KEY, SECOND_ACCOUNT, SECOND_KEYS, WRONG_KEY, served

SIGN: Final = shared_key(ACCOUNT, KEY)
VERSION: Final = ("x-ms-version", "2021-12-02")
OF_SERVICE: Final = (("restype", "service"), ("comp", "properties"))
# The JavaScript SDKs follow only challenges with a GUID as the first segment of the path.
CHALLENGE: Final = re.compile(
    r"Bearer authorization_uri=http://[^/ ]+/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"/oauth2/authorize resource_id=https://storage\.azure\.com"
)


# Bearer tokens


@pytest.mark.parametrize("token", ["Bearer x", "bearer eyJ.eyJ.x", "Bearer", "BEARER a:b"])
@pytest.mark.parametrize(
    ("service", "version", "status", "code"),
    [
        ("blob", "2017-07-29", 403, "AuthenticationFailed"),
        ("blob", "2019-02-02", 403, "AuthenticationFailed"),
        ("blob", "2019-12-12", 401, "InvalidAuthenticationInfo"),
        ("blob", "2026-10-06", 401, "InvalidAuthenticationInfo"),
        ("queue", "2019-07-07", 403, "AuthenticationFailed"),
        ("queue", "2019-12-12", 401, "InvalidAuthenticationInfo"),
        ("file", "2021-12-02", 403, "AuthenticationFailed"),
        ("file", "2023-11-03", 403, "AuthenticationFailed"),
        ("file", "2024-11-04", 401, "InvalidAuthenticationInfo"),
        ("table", "2019-02-02", 403, "AuthenticationFailed"),
        ("table", "2019-07-07", 403, "AuthenticationFailed"),
        ("table", "2020-12-06", 401, "InvalidAuthenticationInfo"),
        ("table", "2021-12-02", 401, "InvalidAuthenticationInfo"),
    ],
)
def test_bearer_tokens(
    blobs: BlobFixture, token: str, service: str, version: str, status: int, code: str
) -> None:
    headers = (("Authorization", token), ("x-ms-version", version), ("x-ms-date", "never"))
    request = Request("GET", f"/{ACCOUNT}/", OF_SERVICE, headers)
    with Client(blobs.server.endpoints[service]) as client:
        answer = client.ask(request)
    assert (answer.status, answer.code) == (status, code)
    challenged = CHALLENGE.fullmatch(answer.headers.get("www-authenticate", "")) is not None
    assert challenged is (status == 401)
    if status == 401:
        assert b"www-authenticate header." in answer.body


@pytest.mark.parametrize("version", ["2019-02-02", "2021-08-06", "2026-10-06"])
def test_bearer_tokens_of_several_words(blobs: BlobFixture, version: str) -> None:
    headers = (("Authorization", "Bearer NOT A TOKEN"), ("x-ms-version", version))
    answer = blobs.client.ask(Request("GET", f"/{ACCOUNT}/", OF_SERVICE, headers))
    assert (answer.status, answer.code) == (400, "InvalidAuthenticationInfo")
    assert answer.error()["Message"].startswith("Authentication information is not given in the")


# Accounts that do not exist


def _comparable(answer: Answer) -> tuple[object, ...]:
    """Returns the answer without what differs from request to request."""
    headers = {
        name: value
        for name, value in answer.headers.items()
        if name not in ("date", "x-ms-request-id", "content-length")
    }
    error = answer.error()
    return answer.status, headers, error.get("Message", "").partition("\n")[0], sorted(error)


@pytest.mark.parametrize("scheme", [shared_key, shared_key_lite])
def test_an_unknown_account_looks_like_a_wrong_signature(
    blobs: BlobFixture, scheme: Callable[[str, str], Signer]
) -> None:
    headers = (VERSION, ("x-ms-date", http_date()))
    answers = {
        account: blobs.client.ask(
            scheme(account, WRONG_KEY)(Request("GET", f"/{account}/c/b", (), headers))
        )
        for account in (ACCOUNT, SECOND_ACCOUNT, "unknown", "Unknown", "x")
    }
    detail = answers[ACCOUNT].error()["AuthenticationErrorDetail"]
    assert "string to sign" in detail
    assert f"/{ACCOUNT}/{ACCOUNT}/c/b" in detail
    expected = _comparable(answers[ACCOUNT])
    assert expected[0] == 403
    for account, answer in answers.items():
        assert _comparable(answer) == expected
        named = answer.error()["AuthenticationErrorDetail"]
        assert named == detail.replace(ACCOUNT, account)


@pytest.mark.parametrize("version", ["2017-11-09", "2021-12-02"])
@pytest.mark.parametrize(
    ("below", "query"),
    [
        ("/container/blob", ()),
        ("/c/b", ()),
        ("/container", (("restype", "container"), ("comp", "list"))),
        ("/", (("comp", "list"),)),
    ],
)
def test_unknown_accounts_look_like_private_ones(
    blobs: BlobFixture, version: str, below: str, query: Pairs
) -> None:
    answers = {
        account: _comparable(
            blobs.client.ask(
                Request("GET", f"/{account}{below}", query, (("x-ms-version", version),))
            )
        )
        for account in (ACCOUNT, SECOND_ACCOUNT, "unknown")
    }
    assert answers == dict.fromkeys(answers, answers[ACCOUNT])


def test_invalid_account_names(blobs: BlobFixture) -> None:
    for account in ("Unknown", "%ff", "x", "a" * 25):
        answer = blobs.client.ask(Request("GET", f"/{account}/container/blob", (), (VERSION,)))
        assert (answer.status, answer.code) == (401, "NoAuthenticationInformation")


@pytest.mark.parametrize("version", ["2017-11-09", "2021-12-02"])
@pytest.mark.parametrize(
    ("below", "query"),
    [
        ("/share/file", ()),
        ("/share", (("restype", "share"),)),
        ("/share", (("restype", "directory"), ("comp", "list"))),
        ("/", (("comp", "list"),)),
    ],
)
def test_unknown_accounts_look_like_those_with_files(
    blobs: BlobFixture, version: str, below: str, query: Pairs
) -> None:
    with Client(blobs.server.endpoints["file"]) as client:
        answers = {
            account: _comparable(
                client.ask(
                    Request("GET", f"/{account}{below}", query, (("x-ms-version", version),))
                )
            )
            for account in (ACCOUNT, SECOND_ACCOUNT, "unknown")
        }
    assert answers == dict.fromkeys(answers, answers[ACCOUNT])


def test_tokens_of_unknown_accounts_look_like_invalid_ones(blobs: BlobFixture) -> None:
    unknown, known = (
        blobs.client.ask(
            account_token(account, WRONG_KEY).put_on(Request("GET", f"/{account}/c/b"))
        )
        for account in ("unknown", ACCOUNT)
    )
    assert _comparable(unknown) == _comparable(known)
    assert (known.status, known.code) == (403, "AuthenticationFailed")


# Host names of the development account

LOOPBACK_HOSTS: Final = [
    "localhost",
    "localhost:10000",
    "LocalHost:10000",
    "localhost.",
    "127.0.0.1",
    "127.0.0.1:10000",
    "127.1.2.3:80",
    "[::1]",
    "[::1]:10000",
    "[::ffff:127.0.0.1]:10000",
    "storage.localhost:10000",
]
OTHER_HOSTS: Final = [
    "rebound.example",
    "rebound.example:10000",
    "localhost.rebound.example",
    "127.0.0.1.rebound.example:10000",
    "notlocalhost",
    "etagere:10000",
    "10.0.0.1:10000",
    "0.0.0.0:10000",
    "[::2]:10000",
    "[::1",
    "::1",
    "",
    "localhost:10000:10000",
]


@pytest.mark.parametrize("host", LOOPBACK_HOSTS)
def test_the_development_account_under_loopback_hosts(blobs: BlobFixture, host: str) -> None:
    target = blobs.create()
    path = f"/{ACCOUNT}/{target.container}/{target.blob}"
    assert blobs.send_as_owner(Request("GET", path, (), (("Host", host),))).body == CONTENT
    blobs.remove(target)


@pytest.mark.parametrize("host", [f"{ACCOUNT}.blob.localhost:10000", f"{ACCOUNT}.blob.localhost"])
def test_the_development_account_in_a_loopback_host_name(blobs: BlobFixture, host: str) -> None:
    answer = blobs.send_as_owner(Request("GET", "/", (("comp", "list"),), (("Host", host),)))
    assert b"<Containers>" in answer.body


@pytest.mark.parametrize("host", OTHER_HOSTS)
def test_the_development_account_under_other_hosts(blobs: BlobFixture, host: str) -> None:
    """DNS rebinding gives a web page the origin of this server, so CORS does not stop it."""
    target = blobs.create(access="container")
    path = f"/{ACCOUNT}/{target.container}/{target.blob}"
    request = Request("GET", path, (), (("Host", host), VERSION))
    for sent in (request, SIGN(request), account_token(ACCOUNT, KEY).put_on(request)):
        answer = blobs.client.ask(sent)
        assert (answer.status, answer.code) == (403, "AuthorizationFailure")
    with blobs.unchanged():
        delete = Request("DELETE", path, (), (("Host", host),))
        assert blobs.client.ask(SIGN(delete)).status == 403
    blobs.remove(target)


def test_the_development_account_in_another_host_name(blobs: BlobFixture) -> None:
    host = ("Host", f"{ACCOUNT}.blob.rebound.example:10000")
    answer = blobs.client.ask(SIGN(Request("GET", "/", (("comp", "list"),), (host,))))
    assert (answer.status, answer.code) == (403, "AuthorizationFailure")


def test_other_accounts_under_any_host(blobs: BlobFixture) -> None:
    sign = shared_key(SECOND_ACCOUNT, SECOND_KEYS[0])
    for host in ("etagere:10000", "storage.example"):
        request = Request("GET", f"/{SECOND_ACCOUNT}/", (("comp", "list"),), (("Host", host),))
        assert blobs.client.ask(sign(request)).status == 200


def test_a_source_in_the_development_account_under_another_host(blobs: BlobFixture) -> None:
    target = blobs.create(access="container")
    own = blobs.create(account=SECOND_ACCOUNT)
    token = account_token(ACCOUNT, KEY)
    address = f"http://127.0.0.1:{urlsplit(blobs.server.endpoints['blob']).port}"
    source = f"{address}/{ACCOUNT}/{target.container}/{target.blob}?{token}"
    sign = shared_key(SECOND_ACCOUNT, SECOND_KEYS[0])
    path = f"/{SECOND_ACCOUNT}/{own.container}/stolen"
    for host, status in (("rebound.example", 403), ("localhost", 202)):
        copy = Request("PUT", path, (), (("x-ms-copy-source", source), ("Host", host)))
        assert blobs.client.ask(sign(copy)).status == status
    blobs.remove(target)
    blobs.remove(own)


def test_the_development_account_anywhere(tmp_path: Path) -> None:
    with served(tmp_path / "data", "--development-account-anywhere") as server:
        request = Request("GET", f"/{ACCOUNT}/", (("comp", "list"),), (("Host", "etagere:10000"),))
        with Client(server.endpoints["blob"]) as client:
            assert client.ask(SIGN(request)).status == 200
        assert "WARNING" in server.log()
        assert "--development-account-anywhere" in server.log()


def test_no_warning_otherwise(blobs: BlobFixture) -> None:
    assert "--development-account-anywhere" not in blobs.server.log()


# Protocols that a token allows


@pytest.mark.parametrize(
    ("protocols", "status"),
    [("https,http", 200), ("http,https", 200), ("https", 403), ("http", 403), ("https,https", 403)],
)
def test_the_protocols_of_a_token(blobs: BlobFixture, protocols: str, status: int) -> None:
    token = account_token(ACCOUNT, KEY, spr=protocols)
    answer = blobs.client.ask(token.put_on(Request("GET", f"/{ACCOUNT}/", (("comp", "list"),))))
    assert answer.status == status


# Chunked bodies

CHUNKED: Final = ("Transfer-Encoding", "chunked")
ACL: Final = (("restype", "container"), ("comp", "acl"))
POLICIES: Final = (
    b"<SignedIdentifiers><SignedIdentifier><Id>added</Id></SignedIdentifier></SignedIdentifiers>"
)


def _chunked(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


@pytest.mark.parametrize("chunks", [_chunked(POLICIES), b"0\r\n\r\n"], ids=["some", "none"])
def test_a_scheme_that_signs_the_length_refuses_chunked_bodies(
    blobs: BlobFixture, chunks: bytes
) -> None:
    target = blobs.create()
    request = Request("PUT", f"/{ACCOUNT}/{target.container}", ACL)
    swapped = SIGN(request).lacking("Content-Length").having(CHUNKED)
    signed = SIGN(request.having(CHUNKED))
    with blobs.unchanged():
        for sent in (swapped, signed):
            (answer,) = blobs.client.send_bytes(replace(sent, body=chunks).raw())
            assert (answer.status, answer.code) == (411, "MissingContentLengthHeader")
    for service, query in (("queue", ()), ("file", (("restype", "share"),))):
        with Client(blobs.server.endpoints[service]) as client:
            signed = SIGN(Request("PUT", f"/{ACCOUNT}/chunked", query, (CHUNKED,), chunks))
            (answer,) = client.send_bytes(signed.raw())
            assert (answer.status, answer.code) == (411, "MissingContentLengthHeader")
    blobs.remove(target)


def test_schemes_that_do_not_sign_the_length_accept_chunked_bodies(blobs: BlobFixture) -> None:
    target = blobs.create()
    path = f"/{ACCOUNT}/{target.container}/{target.blob}"
    body = _chunked(b"<BlockList/>")
    request = Request("PUT", path, (("comp", "blocklist"),), (CHUNKED, VERSION), body)
    token = account_token(ACCOUNT, KEY)
    for sent in (shared_key_lite(ACCOUNT, KEY)(request), token.put_on(request)):
        assert blobs.client.ask(sent).status == 201
    assert blobs.send_as_owner(Request("GET", path)).body == b""
    with Client(blobs.server.endpoints["table"]) as client:
        headers = (CHUNKED, ("Content-Type", "application/json"))
        body = _chunked(b'{"TableName":"chunked"}')
        request = Request("POST", f"/{ACCOUNT}/Tables", (), headers, body)
        assert client.ask(table_shared_key(ACCOUNT, KEY)(request)).status == 201
    blobs.remove(target)


# Errors to HEAD


def _head(endpoint: str, request: Request) -> bytes:
    """Returns all bytes of the response, up to the end of the connection."""
    where = urlsplit(endpoint)
    with socket.create_connection((where.hostname, where.port), 5) as connection:
        connection.sendall(request.having(("Connection", "close")).raw())
        with connection.makefile("rb") as stream:
            return stream.read()


@pytest.mark.parametrize(
    ("service", "path", "query", "signed", "status"),
    [
        ("blob", f"/{ACCOUNT}/nowhere/nothing", (), True, 404),
        ("blob", f"/{ACCOUNT}/nowhere", (("restype", "container"),), True, 404),
        ("blob", f"/{ACCOUNT}/nowhere/nothing", (), False, 401),
        ("blob", f"/{ACCOUNT}/nowhere/nothing", (("comp", "nonsense"),), True, 400),
        ("queue", f"/{ACCOUNT}/nowhere", (("comp", "metadata"),), True, 404),
        ("file", f"/{ACCOUNT}/nowhere/nothing", (), True, 404),
        ("file", f"/{ACCOUNT}/nowhere", (("restype", "share"),), True, 404),
        ("file", f"/{ACCOUNT}/nowhere/nothing", (), False, 401),
        ("table", f"/{ACCOUNT}/nowhere", (), False, 401),
    ],
)
def test_errors_to_head_have_no_content_headers(
    blobs: BlobFixture, service: str, path: str, query: tuple[()], signed: bool, status: int
) -> None:
    request = Request("HEAD", path, query, (VERSION,))
    raw = _head(blobs.server.endpoints[service], SIGN(request) if signed else request)
    head, _, body = raw.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert lines[0].split(b" ")[1] == str(status).encode()
    assert body == b""
    assert not [line for line in lines if line.startswith((b"content-type", b"content-length"))]
    assert b"transfer-encoding: chunked" in lines
    assert any(line.startswith(b"x-ms-error-code: ") for line in lines)


def test_a_connection_stays_usable_after_an_error_to_head(blobs: BlobFixture) -> None:
    request = SIGN(Request("HEAD", f"/{ACCOUNT}/nowhere/nothing")).raw()
    answers = b"".join(
        [_head(blobs.server.endpoints["blob"], Request("HEAD", f"/{ACCOUNT}/nowhere/nothing"))]
    )
    assert answers.count(b"HTTP/1.1") == 1
    where = urlsplit(blobs.server.endpoints["blob"])
    with socket.create_connection((where.hostname, where.port), 5) as connection:
        for _ in range(3):
            connection.sendall(request)
            received = b""
            while not received.endswith(b"\r\n\r\n"):
                received += connection.recv(65_536)
            assert received.startswith(b"HTTP/1.1 404 ")
            assert received.count(b"\r\n\r\n") == 1


def test_other_responses_to_head_have_the_content_length(blobs: BlobFixture) -> None:
    target = blobs.create()
    answer = blobs.send_as_owner(Request("HEAD", f"/{ACCOUNT}/{target.container}/{target.blob}"))
    assert answer.headers["content-length"] == str(len(CONTENT))
    assert "transfer-encoding" not in answer.headers
    blobs.remove(target)
