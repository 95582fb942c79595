"""Values that cannot be stored, in every field that reaches the ledger, and their error codes.

Mutated requests meet these values too, but only by chance.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pytest

from tests.probes.answers import (
    AUTHENTICATION_FAILED,
    AUTHORIZATION_FAILURE,
    answer_faults,
)
from tests.probes.blob.fixture import BlobFixture
from tests.probes.blob.operations import OPERATIONS, BlobOperation, BlobTarget
from tests.probes.client import Answer, Pairs, Request, shared_key
from tests.probes.tokens import service_token
from tests.server import ACCOUNT, KEY

SIGN: Final = shared_key(ACCOUNT, KEY)
OK: Final = (200, "")
INVALID_PARAMETER: Final = (400, "InvalidQueryParameterValue")
INVALID_MARKER: Final = (400, "OutOfRangeInput")
OUT_OF_RANGE: Final = (400, "OutOfRangeQueryParameterValue")
INVALID_HEADER: Final = (400, "InvalidHeaderValue")
NOT_FOUND: Final = (404, "ResourceNotFound")

NOT_UTF8: Final = ("%FF", "a%C0%AF", "%ED%A0%80", "%F4%90%80%80")
NOT_UTF8_IN_HEADERS: Final = ("\udcff", "a\udcc0\udcaf", "\udced\udca0\udc80", "caf\udce9")
CONTROL: Final = ("%00", "%01", "a%00b", "%7F")
NEWLINE: Final = "%0A"
LONG: Final = "a" * 9_000
DIGITS: Final = "1" * 5_000
INJECTION: Final = "%0D%0Ax-injected%3A%201"
"""Looks like a line of the string to sign, so that the signature is not accepted."""
LISTINGS: Final = ("list_blobs", "list_containers")
PREFLIGHT: Final = (("Origin", "https://example.org"), ("Access-Control-Request-Method", "GET"))


@pytest.fixture(scope="module")
def target(blobs: BlobFixture) -> Iterator[BlobTarget]:
    created = blobs.create()
    yield created
    blobs.remove(created)


def _request(row: str, target: BlobTarget) -> Request:
    return next(each for each in OPERATIONS if each.row == row).request(target)


def _ask(blobs: BlobFixture, request: Request) -> Answer:
    answer = blobs.client.ask(request)
    assert not list(answer_faults(answer, "blob", head=request.method == "HEAD")), answer
    assert "x-injected" not in answer.headers
    return answer


def _outcome(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.code


# Parameters

TEXTS: Final[dict[str, dict[str, tuple[int, str]]]] = {
    "prefix": {
        **dict.fromkeys((*NOT_UTF8, LONG), INVALID_PARAMETER),
        **dict.fromkeys((*CONTROL, NEWLINE), OK),
    },
    "delimiter": {
        **dict.fromkeys((*NOT_UTF8, LONG), INVALID_PARAMETER),
        **dict.fromkeys((*CONTROL, NEWLINE), OK),
    },
    "startFrom": {
        **dict.fromkeys((*NOT_UTF8, LONG), INVALID_PARAMETER),
        **dict.fromkeys((*CONTROL, NEWLINE), OK),
    },
    "include": {
        **dict.fromkeys((*NOT_UTF8, LONG, *CONTROL), INVALID_PARAMETER),
        NEWLINE: OK,
    },
    "marker": {
        **dict.fromkeys((*NOT_UTF8, LONG, *CONTROL, NEWLINE), INVALID_MARKER),
        # In base64: not UTF-8, longer than any name, incomplete.
        **dict.fromkeys(("_w==", "YWFh" * 4_000, "_", "%C3%A9", "*"), INVALID_MARKER),
        "AAAA": OK,
    },
    "maxresults": {
        **dict.fromkeys((DIGITS, "-" + DIGITS, "0", "%D9%A3", "1e3"), OUT_OF_RANGE),
        "99999999999": OK,
    },
}
UNKNOWN_TO_CONTAINERS: Final = {"delimiter", "startFrom"}


@pytest.mark.parametrize("row", LISTINGS)
@pytest.mark.parametrize("name", TEXTS)
def test_parameters_of_listings(
    blobs: BlobFixture, target: BlobTarget, row: str, name: str
) -> None:
    expected = TEXTS[name]
    if row == "list_containers" and name in UNKNOWN_TO_CONTAINERS:
        expected = dict.fromkeys(expected, OK)
    with blobs.unchanged():
        for value, outcome in {**expected, INJECTION: AUTHENTICATION_FAILED}.items():
            answer = _ask(blobs, SIGN(_request(row, target).asking((name, value))))
            assert _outcome(answer) == outcome, value[:40]


@pytest.mark.parametrize("value", [*CONTROL, NEWLINE, INJECTION, *NOT_UTF8, LONG], ids=range(11))
def test_versions(blobs: BlobFixture, target: BlobTarget, value: str) -> None:
    """The version may be given as a parameter, and is repeated in the answer."""
    request = Request("GET", f"/{ACCOUNT}/{target.container}/{target.blob}").asking(("sv", value))
    with blobs.unchanged():
        assert _outcome(_ask(blobs, request)) == INVALID_HEADER
        assert _outcome(_ask(blobs, SIGN(request))) == INVALID_HEADER


# Headers


@pytest.mark.parametrize(
    ("row", "name", "valid"),
    [
        ("acquire_container_lease", "x-ms-lease-duration", "-1"),
        ("break_container_lease", "x-ms-lease-break-period", "0"),
    ],
)
def test_seconds_of_leases(blobs: BlobFixture, row: str, name: str, valid: str) -> None:
    operation = next(each for each in OPERATIONS if each.row == row)
    with blobs.target_for(operation) as target:
        request = operation.request(target)
        with blobs.unchanged():
            for seconds in (DIGITS, "-2", "٣", "0x10"):
                answer = _ask(blobs, SIGN(request.setting(name, seconds)))
                assert _outcome(answer) == INVALID_HEADER, seconds[:40]
        blobs.send_as_owner(request.setting(name, valid))


@pytest.mark.parametrize("row", ["put_blob", "set_blob_properties"])
@pytest.mark.parametrize(
    "name",
    [
        *(f"x-ms-blob-content-{name}" for name in ("type", "encoding", "language", "disposition")),
        "x-ms-blob-cache-control",
    ],
)
def test_properties_of_blobs(blobs: BlobFixture, row: str, name: str) -> None:
    target = blobs.create()
    request = _request(row, target)
    with blobs.unchanged():
        for value in NOT_UTF8_IN_HEADERS:
            assert _outcome(_ask(blobs, SIGN(request.setting(name, value)))) == INVALID_HEADER
    blobs.send_as_owner(request.setting(name, LONG))
    header = name.replace("x-ms-blob-", "")
    assert blobs.send_as_owner(_request("get_blob", target)).headers[header] == LONG
    assert LONG.encode() in blobs.send_as_owner(_request("list_blobs", target)).body
    blobs.remove(target)


@pytest.mark.parametrize("name", ["type", "encoding", "language", "disposition"])
def test_standard_headers_of_blobs(blobs: BlobFixture, target: BlobTarget, name: str) -> None:
    """Put Blob stores the standard headers; other operations ignore them."""
    with blobs.unchanged():
        for value in NOT_UTF8_IN_HEADERS:
            request = _request("put_blob", target).setting(f"Content-{name}", value)
            assert _outcome(_ask(blobs, SIGN(request))) == INVALID_HEADER
            request = _request("get_blob", target).setting(f"Content-{name}", value)
            assert _outcome(_ask(blobs, SIGN(request))) == OK


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        pytest.param(operation, name, id=f"{operation}-{name}")
        for operation in OPERATIONS
        for name in ("If-Match", "If-None-Match")
        # The others would be carried out.
        if operation.row != "create_container"
        and (name == "If-Match" or operation.method in {"GET", "HEAD"})
        and not operation.is_redundant
    ],
)
def test_conditions(blobs: BlobFixture, operation: BlobOperation, name: str) -> None:
    """An ETag that is not UTF-8 matches nothing."""
    if not operation.is_conditional:
        expected = (400, "ConditionHeadersNotSupported")
    elif name == "If-Match":
        expected = (412, "ConditionNotMet")
    else:
        expected = (206 if operation.name == "get_blob_range" else 200, "")
    with blobs.target_for(operation) as target, blobs.unchanged():
        request = operation.request(target)
        for value in NOT_UTF8_IN_HEADERS:
            for written in (value, f'"{value}"'):
                answer = _ask(blobs, SIGN(request.setting(name, written)))
                assert _outcome(answer) == expected, value


# Accounts, hosts and containers


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "OPTIONS"])
def test_names_of_accounts(blobs: BlobFixture, method: str) -> None:
    """Anonymous callers may name any account."""
    with blobs.unchanged():
        for account in (LONG, "a" * 1_100, "%FF", "%00", "..", "A", "a", "%C3%A9"):
            request = Request(method, f"/{account}/container/blob")
            signed = shared_key(account, KEY)
            preflight = replace(request, headers=PREFLIGHT)
            if method == "OPTIONS":
                assert _outcome(_ask(blobs, request)) == INVALID_HEADER
                assert _outcome(_ask(blobs, preflight)) == (403, "CorsPreflightFailure")
            else:
                for sent in (request, preflight):
                    assert _outcome(_ask(blobs, sent)) == NOT_FOUND
                    assert _outcome(_ask(blobs, signed(sent))) == AUTHENTICATION_FAILED


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT"])
def test_names_of_hosts(blobs: BlobFixture, target: BlobTarget, method: str) -> None:
    """A host may name the account, and is repeated in challenges and listings."""
    with blobs.unchanged():
        for host in (*NOT_UTF8_IN_HEADERS, LONG, "", "é", "\t", ":", "[::1"):
            path = f"/{ACCOUNT}/{target.container}/{target.blob}"
            request = Request(method, path, (), (("Host", host),))
            assert _outcome(_ask(blobs, request)) == AUTHORIZATION_FAILURE, host[:40]
            if method != "PUT":
                listing = replace(_request("list_blobs", target), method=method)
                answer = _ask(blobs, SIGN(listing.having(("Host", host))))
                assert _outcome(answer) == AUTHORIZATION_FAILURE, host[:40]


@pytest.mark.parametrize("account", [*NOT_UTF8_IN_HEADERS, "", "é", "\t"], ids=range(7))
def test_accounts_in_hosts(blobs: BlobFixture, target: BlobTarget, account: str) -> None:
    host: Pairs = (("Host", f"{account}.blob.localhost"),)
    with blobs.unchanged():
        for method in ("GET", "HEAD", "PUT"):
            path = f"/{ACCOUNT}/{target.container}/{target.blob}"
            assert _outcome(_ask(blobs, Request(method, path, (), host))) == NOT_FOUND
            # The path then begins with a container, and what follows is a blob.
            listing = replace(_request("list_blobs", target), method=method).having(*host)
            assert _outcome(_ask(blobs, SIGN(listing))) == INVALID_PARAMETER


@pytest.mark.parametrize(
    "name", ["\udcff", "a\udcc0\udcaf", LONG, "A", "..", "$", "é"], ids=range(7)
)
def test_tokens_for_invalid_containers(blobs: BlobFixture, name: str) -> None:
    written = "".join(f"%{octet:02X}" for octet in name.encode("utf-8", "surrogateescape"))
    container = Request("GET", f"/{ACCOUNT}/{written}", (("restype", "container"),))
    blob = Request("GET", f"/{ACCOUNT}/{written}/blob")
    token = service_token(ACCOUNT, KEY, name)
    with_policy = service_token(ACCOUNT, KEY, name, si="readers")
    with blobs.unchanged():
        assert _outcome(_ask(blobs, token.put_on(container))) == AUTHORIZATION_FAILURE
        assert _outcome(_ask(blobs, with_policy.put_on(container))) == AUTHENTICATION_FAILED
        assert _outcome(_ask(blobs, with_policy.put_on(blob))) == AUTHENTICATION_FAILED
        answer = _ask(blobs, token.put_on(blob))
        invalid = "InvalidResourceName" if len(name) == 3 else "OutOfRangeInput"
        assert _outcome(answer) == (400, invalid)
