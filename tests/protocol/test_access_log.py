"""The access log: one line per response, written soon, none lost on a clean exit."""

from __future__ import annotations

import asyncio
import logging

import pytest

from etagere.protocol import access_log
from etagere.protocol.access_log import AccessLog
from etagere.protocol.http.messages import Request, RequestBody, Response


def answered(log: AccessLog, target: bytes, status: int = 200) -> None:
    body = RequestBody(None, 0)  # type: ignore[arg-type]  # never read
    request = Request("GET", target, [], {}, body)
    request.client = "127.0.0.1"
    log.add(request, Response(status, notes={"request": "id"}), 0.0015)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for record in caplog.records for line in record.getMessage().split("\n")]


def test_a_line_describes_the_request_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        log = AccessLog()
        answered(log, b"/account/c/\xff\xc3\xa9?sig=secret", 404)
        log.flush()
        log.flush()

    with caplog.at_level(logging.INFO, access_log.logger.name):
        asyncio.run(scenario())
    (line,) = lines(caplog)
    assert line.endswith("INFO etagere.access: 127.0.0.1 GET /account/c/\\xffé 404 1.5 ms id")


def test_lines_are_written_soon(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        log = AccessLog()
        for number in range(3):
            answered(log, b"/%d" % number)
        assert not caplog.records
        async with asyncio.timeout(5):
            while len(lines(caplog)) < 3:
                await asyncio.sleep(0.01)
        answered(log, b"/3")
        async with asyncio.timeout(5):
            while len(lines(caplog)) < 4:
                await asyncio.sleep(0.01)

    with caplog.at_level(logging.INFO, access_log.logger.name):
        asyncio.run(scenario())
    assert len(caplog.records) == 2


def test_a_burst_is_written_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        log = AccessLog()
        for number in range(2_500):
            answered(log, b"/%d" % number)
        assert len(lines(caplog)) == 2_000
        log.flush()

    with caplog.at_level(logging.INFO, access_log.logger.name):
        asyncio.run(scenario())
    assert [line.split()[6] for line in lines(caplog)] == [f"/{number}" for number in range(2_500)]


def test_a_disabled_log_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, access_log.logger.name):
        # Without a loop: nothing may be set up.
        answered(AccessLog(), b"/")
    assert not caplog.records
