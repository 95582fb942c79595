"""The access log: one line per response, written soon, none lost on a clean exit."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from typing import Any

import pytest

from etagere.auth.principal import Anonymous, KeyOwner, Principal, TokenHolder, TokenKind
from etagere.protocol.access_log import AccessLog
from etagere.protocol.http.messages import Request, RequestBody, Response
from etagere.protocol.rest.exchange import Exchange

TARGET = b"/account/c/\xff\xc3\xa9?sig=secret"
NOT_FOUND = [(b"x-ms-error-code", b"BlobNotFound")]


class Lines:
    """Collects what an access log writes."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def write(self, lines: bytes) -> None:
        assert lines.endswith(b"\n")
        self.batches.append(lines.decode().removesuffix("\n").split("\n"))

    @property
    def all(self) -> list[str]:
        return [line for batch in self.batches for line in batch]


def exchange_of(
    target: bytes, principal: Principal | None = None, client_request_id: bytes | None = None
) -> Exchange:
    body = RequestBody(None, 0)  # type: ignore[arg-type]  # never read
    fields = {} if client_request_id is None else {b"x-ms-client-request-id": client_request_id}
    request = Request("GET", target, [], fields, body)
    request.client = "127.0.0.1"
    exchange = Exchange("blob", request)
    exchange.request_id = "id"
    exchange.operation = "get_blob"
    if principal is not None:
        exchange.principal = principal
    return exchange


def line_of(log_format: str, exchange: Exchange, response: Response) -> str:
    async def scenario() -> str:
        lines = Lines()
        log = AccessLog(log_format, "front end 1", write=lines.write)
        log.add(exchange.http, response, 0.0015, exchange)
        log.flush()
        log.flush()
        (line,) = lines.all
        return line

    return asyncio.run(scenario())


def entry_of(exchange: Exchange, response: Response) -> dict[str, Any]:
    entry: dict[str, Any] = json.loads(line_of("json", exchange, response))
    return entry


def test_a_text_line_describes_the_request_without_secrets() -> None:
    exchange = exchange_of(TARGET, KeyOwner("account"), b"mine")
    line = line_of("text", exchange, Response(404, NOT_FOUND, b"12345"))
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO front-end-1\[\d+\] etagere\.access \[id\]: "
        r"127\.0\.0\.1 GET /account/c/\\xff\\xc3\\xa9 404 1\.5 ms in=0 out=5 "
        r"operation=get_blob principal=key client_request_id=mine error=BlobNotFound",
        line,
    )


def test_a_json_line_describes_the_request_without_secrets() -> None:
    exchange = exchange_of(TARGET, KeyOwner("account"), b"mine")
    entry = entry_of(exchange, Response(404, NOT_FOUND, b"12345"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", entry.pop("time"))
    assert entry.pop("pid") > 0
    assert entry == {
        "level": "INFO",
        "logger": "etagere.access",
        "process": "front end 1",
        "message": "request",
        "request_id": "id",
        "client": "127.0.0.1",
        "method": "GET",
        "path": "/account/c/\\xff\\xc3\\xa9",
        "status": 404,
        "milliseconds": 1.5,
        "server_milliseconds": 0.0,
        "bytes_in": 0,
        "bytes_out": 5,
        "operation": "get_blob",
        "error_code": "BlobNotFound",
        "account": "account",
        "principal": "key",
        "client_request_id": "mine",
    }


SERVICE_TOKEN = TokenHolder(
    account="account",
    kind=TokenKind.DELEGATION,
    version="2026-02-06",
    permissions="r",
    delegating_user="someone",
    correlation_id="a b\n",
)


@pytest.mark.parametrize(
    ("principal", "expected"),
    [
        (None, {}),
        (Anonymous("account"), {"principal": "anonymous"}),
        (
            SERVICE_TOKEN,
            {"principal": "delegation_sas", "user": "someone", "correlation_id": "a b\\n"},
        ),
    ],
)
def test_a_line_names_the_sender(principal: Principal | None, expected: dict[str, str]) -> None:
    exchange = exchange_of(b"/account/c/b", principal)
    entry = entry_of(exchange, Response(200))
    names = ("principal", "user", "correlation_id")
    assert {name: entry[name] for name in names if name in entry} == expected
    line = line_of("text", exchange, Response(200))
    assert "\n" not in line
    assert f"principal={expected.get('principal', '-')}" in line.split()


@pytest.mark.parametrize("log_format", ["text", "json"])
@pytest.mark.parametrize(
    "sent",
    [
        b"\n2026 ERROR",
        b"\x1b[31m",
        b"\xc2\x9b31m",
        b"\xe2\x80\xae",
        b"\x7f",
        b"\xe2\x80\xa8",
        b"\x00",
    ],
)
def test_clients_cannot_forge_lines(log_format: str, sent: bytes) -> None:
    exchange = exchange_of(b"/account/" + sent, client_request_id=sent)
    assert line_of(log_format, exchange, Response(200)).isprintable()


def test_lines_are_limited() -> None:
    exchange = exchange_of(b"/account/" + 10_000 * b"a", client_request_id=10_000 * b"b")
    assert len(line_of("json", exchange, Response(200))) < 4_096


@pytest.mark.parametrize("written", [b"?", b"%3F", b"%3f"])
def test_signatures_are_not_logged_in_a_path(written: bytes) -> None:
    exchange = exchange_of(b"/account/c/b" + written + b"sv=1&Sig=secret&se=2")
    assert "secret" not in line_of("text", exchange, Response(400))


def test_lines_are_written_soon() -> None:
    async def scenario() -> None:
        lines = Lines()
        log = AccessLog("text", write=lines.write)
        exchange = exchange_of(b"/")
        for _ in range(3):
            log.add(exchange.http, Response(200), 0.0, exchange)
        assert not lines.batches
        async with asyncio.timeout(5):
            while len(lines.all) < 3:
                await asyncio.sleep(0.01)
        log.add(exchange.http, Response(200), 0.0, exchange)
        async with asyncio.timeout(5):
            while len(lines.all) < 4:
                await asyncio.sleep(0.01)
        assert len(lines.batches) == 2

    asyncio.run(scenario())


def test_a_burst_is_written_at_once() -> None:
    async def scenario() -> list[str]:
        lines = Lines()
        log = AccessLog("text", write=lines.write)
        for number in range(2_500):
            exchange = exchange_of(b"/%d" % number)
            log.add(exchange.http, Response(200), 0.0, exchange)
        assert len(lines.all) == 2_000
        log.flush()
        return lines.all

    assert [line.split()[7] for line in asyncio.run(scenario())] == [
        f"/{number}" for number in range(2_500)
    ]


def test_a_disabled_log_costs_nothing() -> None:
    exchange = exchange_of(b"/")
    # Without a loop: nothing may be set up.
    AccessLog().add(exchange.http, Response(200), 0.0, exchange)


def test_slow_requests_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    exchange = exchange_of(TARGET)
    exchange.http.server_seconds = 2.5
    with caplog.at_level(logging.WARNING):
        AccessLog(None, slow_seconds=2.0).add(exchange.http, Response(200), 9.0, exchange)
        exchange.http.server_seconds = 1.5
        AccessLog(None, slow_seconds=2.0).add(exchange.http, Response(200), 9.0, exchange)
    (record,) = caplog.records
    assert record.getMessage() == "a request took 2.500 s: GET /account/c/\\xff\\xc3\\xa9"
