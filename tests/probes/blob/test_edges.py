"""What the ledger cannot hold, in every field that reaches it: refused, not stumbled over.

A request of each kind is answered as if it were any other. Chance finds these too, but not every
day, and not by name.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.probes.answers import answer_faults
from tests.probes.blob.fixture import BlobFixture
from tests.probes.blob.operations import OPERATIONS, BlobTarget
from tests.probes.client import Pairs, Request, http_date, shared_key
from tests.probes.tokens import service_token
from tests.server import ACCOUNT, KEY

SIGN = shared_key(ACCOUNT, KEY)
NOT_UTF8_IN_ADDRESSES = ("%FF", "a%C0%AF", "%ED%A0%80", "%F4%90%80%80")
NOT_UTF8_IN_HEADERS = ("\udcff", "a\udcc0\udcaf", "\udced\udca0\udc80", "caf\udce9")
LONG = "a" * 9_000
DIGITS = "1" * 5_000
CONTROL = ("%00", "%01", "a%00b", "%0A", "%0D%0Ax-injected%3A%201", "%7F")
# Of those in base64 one is no UTF-8, one is made of NULs, and one is longer than any name.
MARKERS = ("_w==", "AAAA", "YWFh" * 4_000, "_", "%C3%A9", "*", "%00", "%FF")


def _shown(value: str) -> str:
    """A value as part of the name of a test."""
    return ascii(value)[1:-1][:24]


def _request(row: str, target: BlobTarget) -> Request:
    return next(form for form in OPERATIONS if form.row == row).request(target)


def _answered(blobs: BlobFixture, request: Request) -> None:
    answer = blobs.client.ask(request)
    assert not list(answer_faults(answer, "blob", head=request.method == "HEAD")), answer
    assert "x-injected" not in answer.headers


@pytest.fixture(scope="module")
def target(blobs: BlobFixture) -> BlobTarget:
    return blobs.create()


# Parameters


@pytest.mark.parametrize("row", ["list_blobs", "list_containers"])
@pytest.mark.parametrize("name", ["prefix", "delimiter", "startFrom", "marker", "include"])
@pytest.mark.parametrize("value", [*NOT_UTF8_IN_ADDRESSES, LONG, *CONTROL], ids=_shown)
def test_text_of_a_listing(
    blobs: BlobFixture, target: BlobTarget, row: str, name: str, value: str
) -> None:
    _answered(blobs, SIGN(_request(row, target).asking((name, value))))


@pytest.mark.parametrize("row", ["list_blobs", "list_containers"])
@pytest.mark.parametrize("marker", MARKERS, ids=_shown)
def test_markers(blobs: BlobFixture, target: BlobTarget, row: str, marker: str) -> None:
    _answered(blobs, SIGN(_request(row, target).asking(("marker", marker))))


@pytest.mark.parametrize("row", ["list_blobs", "list_containers"])
@pytest.mark.parametrize(
    "number", [DIGITS, "-" + DIGITS, "0", "%D9%A3", "1e3", "99999999999"], ids=_shown
)
def test_numbers_of_results(blobs: BlobFixture, target: BlobTarget, row: str, number: str) -> None:
    _answered(blobs, SIGN(_request(row, target).asking(("maxresults", number))))


@pytest.mark.parametrize("value", [*CONTROL, *NOT_UTF8_IN_ADDRESSES, LONG], ids=_shown)
def test_versions(blobs: BlobFixture, target: BlobTarget, value: str) -> None:
    """A version may come as a parameter too, and is repeated in the answer."""
    request = Request("GET", f"/{ACCOUNT}/{target.container}/{target.blob}")
    _answered(blobs, request.asking(("sv", value)))
    _answered(blobs, SIGN(request.asking(("sv", value))))


# Headers


@pytest.mark.parametrize("action", ["acquire", "break"])
@pytest.mark.parametrize("number", [DIGITS, "-1", "٣", "0x10"], ids=_shown)
def test_numbers_of_seconds(
    blobs: BlobFixture, target: BlobTarget, action: str, number: str
) -> None:
    request = _request(f"{action}_container_lease", target)
    for name in ("x-ms-lease-duration", "x-ms-lease-break-period"):
        _answered(blobs, SIGN(request.setting(name, number)))
    broken = _request("break_container_lease", target)
    blobs.client.ask(SIGN(broken))


@pytest.mark.parametrize("row", ["put_blob", "set_blob_properties"])
@pytest.mark.parametrize("value", [*NOT_UTF8_IN_HEADERS, LONG], ids=_shown)
def test_descriptions_of_blobs(
    blobs: BlobFixture, target: BlobTarget, row: str, value: str
) -> None:
    for name in ("type", "encoding", "language", "disposition"):
        _answered(blobs, SIGN(_request(row, target).setting(f"x-ms-blob-content-{name}", value)))
        _answered(blobs, SIGN(_request(row, target).setting(f"Content-{name}", value)))
    _answered(blobs, SIGN(_request(row, target).setting("x-ms-blob-cache-control", value)))
    # Whatever was taken is given back, and listed.
    _answered(blobs, SIGN(_request("get_blob", target)))
    _answered(blobs, SIGN(_request("list_blobs", target)))


@pytest.mark.parametrize(
    "row",
    sorted({operation.row for operation in OPERATIONS if operation.row != "create_container"}),
)
@pytest.mark.parametrize("name", ["If-Match", "If-None-Match"])
def test_conditions(blobs: BlobFixture, target: BlobTarget, row: str, name: str) -> None:
    """None of these is met by anything, so nothing is changed or deleted."""
    for value in NOT_UTF8_IN_HEADERS:
        for written in (value, f'"{value}"', f'"0x1", "{value}"'):
            if name == "If-Match" or row.startswith(("get", "list")):
                _answered(blobs, SIGN(_request(row, target).setting(name, written)))


# Accounts and containers


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "OPTIONS"])
def test_accounts(blobs: BlobFixture, method: str) -> None:
    """Nobody has to be known to name one."""
    page: Pairs = (("Origin", "https://example.org"), ("Access-Control-Request-Method", "GET"))
    nobody: Pairs = ()
    for account in (LONG, "a" * 1_100, "%FF", "%00", "..", "A", "a", "%C3%A9"):
        for headers in (nobody, page):
            path = f"/{account}/container/blob"
            request = Request(method, path, (), headers)
            _answered(blobs, request)
            _answered(blobs, shared_key(account, KEY)(request))


@pytest.mark.parametrize(
    "host", [*NOT_UTF8_IN_HEADERS, LONG, "", "é", "\t", ":", "[::1"], ids=_shown
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "OPTIONS"])
def test_hosts(blobs: BlobFixture, target: BlobTarget, host: str, method: str) -> None:
    """They may name the account, and are repeated in challenges and listings."""
    page = (("Origin", "https://example.org"), ("Access-Control-Request-Method", "GET"))
    for written in (host, f"{host}.blob.localhost"):
        request = Request(method, f"/{ACCOUNT}/{target.container}/{target.blob}", (), page)
        _answered(blobs, request.having(("Host", written)))
        listing = _request("list_blobs", target).having(("Host", written))
        _answered(blobs, SIGN(replace(listing, method=method)))


@pytest.mark.parametrize(
    "name", ["\udcff", "a\udcc0\udcaf", "a" * 9_000, "A", "..", "$", "é"], ids=_shown
)
def test_tokens_for_what_cannot_be_a_container(blobs: BlobFixture, name: str) -> None:
    written = "".join(f"%{octet:02X}" for octet in name.encode("utf-8", "surrogateescape"))
    for token in (
        service_token(ACCOUNT, KEY, name),
        service_token(ACCOUNT, KEY, name, si="readers"),
    ):
        for path in (f"/{ACCOUNT}/{written}", f"/{ACCOUNT}/{written}/blob"):
            _answered(blobs, token.put_on(Request("GET", path, (("restype", "container"),))))
            _answered(blobs, token.put_on(Request("GET", path, (), (("x-ms-date", http_date()),))))
