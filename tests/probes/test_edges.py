"""What the ledger cannot hold, in every field that reaches it: refused, not stumbled over.

A request of each kind is answered as if it were any other. Chance finds these too, but not every
day, and not by name.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.probes.client import Pairs, Request, http_date, shared_key
from tests.probes.judgement import faults
from tests.probes.operations import OPERATIONS, Place
from tests.probes.stage import Stage
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


def _request(row: str, place: Place) -> Request:
    return next(form for form in OPERATIONS if form.row == row).request(place)


def _answered(stage: Stage, request: Request) -> None:
    answer = stage.client.ask(request)
    assert not list(faults(answer, head=request.method == "HEAD")), answer
    assert "x-injected" not in answer.headers


@pytest.fixture(scope="module")
def place(stage: Stage) -> Place:
    return stage.make()


# Parameters


@pytest.mark.parametrize("row", ["list_blobs", "list_containers"])
@pytest.mark.parametrize("name", ["prefix", "delimiter", "startFrom", "marker", "include"])
@pytest.mark.parametrize("value", [*NOT_UTF8_IN_ADDRESSES, LONG, *CONTROL], ids=_shown)
def test_text_of_a_listing(stage: Stage, place: Place, row: str, name: str, value: str) -> None:
    _answered(stage, SIGN(_request(row, place).asking((name, value))))


@pytest.mark.parametrize("row", ["list_blobs", "list_containers"])
@pytest.mark.parametrize("marker", MARKERS, ids=_shown)
def test_markers(stage: Stage, place: Place, row: str, marker: str) -> None:
    _answered(stage, SIGN(_request(row, place).asking(("marker", marker))))


@pytest.mark.parametrize("row", ["list_blobs", "list_containers"])
@pytest.mark.parametrize(
    "number", [DIGITS, "-" + DIGITS, "0", "%D9%A3", "1e3", "99999999999"], ids=_shown
)
def test_numbers_of_results(stage: Stage, place: Place, row: str, number: str) -> None:
    _answered(stage, SIGN(_request(row, place).asking(("maxresults", number))))


@pytest.mark.parametrize("value", [*CONTROL, *NOT_UTF8_IN_ADDRESSES, LONG], ids=_shown)
def test_versions(stage: Stage, place: Place, value: str) -> None:
    """A version may come as a parameter too, and is repeated in the answer."""
    request = Request("GET", f"/{ACCOUNT}/{place.container}/{place.blob}")
    _answered(stage, request.asking(("sv", value)))
    _answered(stage, SIGN(request.asking(("sv", value))))


# Headers


@pytest.mark.parametrize("action", ["acquire", "break"])
@pytest.mark.parametrize("number", [DIGITS, "-1", "٣", "0x10"], ids=_shown)
def test_numbers_of_seconds(stage: Stage, place: Place, action: str, number: str) -> None:
    request = _request(f"{action}_container_lease", place)
    for name in ("x-ms-lease-duration", "x-ms-lease-break-period"):
        _answered(stage, SIGN(request.setting(name, number)))
    broken = _request("break_container_lease", place)
    stage.client.ask(SIGN(broken))


@pytest.mark.parametrize("row", ["put_blob", "set_blob_properties"])
@pytest.mark.parametrize("value", [*NOT_UTF8_IN_HEADERS, LONG], ids=_shown)
def test_descriptions_of_blobs(stage: Stage, place: Place, row: str, value: str) -> None:
    for name in ("type", "encoding", "language", "disposition"):
        _answered(stage, SIGN(_request(row, place).setting(f"x-ms-blob-content-{name}", value)))
        _answered(stage, SIGN(_request(row, place).setting(f"Content-{name}", value)))
    _answered(stage, SIGN(_request(row, place).setting("x-ms-blob-cache-control", value)))
    # Whatever was taken is given back, and listed.
    _answered(stage, SIGN(_request("get_blob", place)))
    _answered(stage, SIGN(_request("list_blobs", place)))


@pytest.mark.parametrize(
    "row",
    sorted({operation.row for operation in OPERATIONS if operation.row != "create_container"}),
)
@pytest.mark.parametrize("name", ["If-Match", "If-None-Match"])
def test_conditions(stage: Stage, place: Place, row: str, name: str) -> None:
    """None of these is met by anything, so nothing is changed or deleted."""
    for value in NOT_UTF8_IN_HEADERS:
        for written in (value, f'"{value}"', f'"0x1", "{value}"'):
            if name == "If-Match" or row.startswith(("get", "list")):
                _answered(stage, SIGN(_request(row, place).setting(name, written)))


# Accounts and containers


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "OPTIONS"])
def test_accounts(stage: Stage, method: str) -> None:
    """Nobody has to be known to name one."""
    page: Pairs = (("Origin", "https://example.org"), ("Access-Control-Request-Method", "GET"))
    nobody: Pairs = ()
    for account in (LONG, "a" * 1_100, "%FF", "%00", "..", "A", "a", "%C3%A9"):
        for headers in (nobody, page):
            path = f"/{account}/container/blob"
            request = Request(method, path, (), headers)
            _answered(stage, request)
            _answered(stage, shared_key(account, KEY)(request))


@pytest.mark.parametrize(
    "host", [*NOT_UTF8_IN_HEADERS, LONG, "", "é", "\t", ":", "[::1"], ids=_shown
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "OPTIONS"])
def test_hosts(stage: Stage, place: Place, host: str, method: str) -> None:
    """They may name the account, and are repeated in challenges and listings."""
    page = (("Origin", "https://example.org"), ("Access-Control-Request-Method", "GET"))
    for written in (host, f"{host}.blob.localhost"):
        request = Request(method, f"/{ACCOUNT}/{place.container}/{place.blob}", (), page)
        _answered(stage, request.having(("Host", written)))
        listing = _request("list_blobs", place).having(("Host", written))
        _answered(stage, SIGN(replace(listing, method=method)))


@pytest.mark.parametrize(
    "name", ["\udcff", "a\udcc0\udcaf", "a" * 9_000, "A", "..", "$", "é"], ids=_shown
)
def test_tokens_for_what_cannot_be_a_container(stage: Stage, name: str) -> None:
    written = "".join(f"%{octet:02X}" for octet in name.encode("utf-8", "surrogateescape"))
    for token in (
        service_token(ACCOUNT, KEY, name),
        service_token(ACCOUNT, KEY, name, si="readers"),
    ):
        for path in (f"/{ACCOUNT}/{written}", f"/{ACCOUNT}/{written}/blob"):
            _answered(stage, token.put_on(Request("GET", path, (("restype", "container"),))))
            _answered(stage, token.put_on(Request("GET", path, (), (("x-ms-date", http_date()),))))
