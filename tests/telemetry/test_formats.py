"""Log lines: one per event in both formats, with request IDs, and without what clients sent."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from etagere.engine.interface import Fault, FaultReason
from etagere.telemetry.context import REQUEST_ID
from etagere.telemetry.formats import FORMATTERS, fields, printable
from etagere.telemetry.repetition import (
    LINES_PER_WINDOW_MAX,
    WINDOW_SECONDS,
    RepetitionFilter,
)

FORMATS = pytest.mark.parametrize("log_format", list(FORMATTERS))


def record(message: str, *arguments: object, line: int = 1, **values: object) -> logging.LogRecord:
    made = logging.LogRecord("a.logger", logging.WARNING, "a.py", line, message, arguments, None)
    made.created = 1_800_000_000.25
    made.__dict__.update(fields(**values))
    return made


def failed(error: Exception) -> logging.LogRecord:
    made = record("it failed")
    try:
        raise error
    except Exception:
        made.exc_info = sys.exc_info()
    return made


def line(log_format: str, event: logging.LogRecord) -> str:
    formatter = FORMATTERS[log_format]()
    formatter.process_name = "front end 2"
    return formatter.format(event)


def event(event_record: logging.LogRecord) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(line("json", event_record))
    return found


def test_a_text_line() -> None:
    written = line("text", record("%d of %s", 1, "it", segment=7, path="a b", missing=""))
    head, _, tail = written.partition("[")
    assert head == "2027-01-15T08:00:00.250Z WARNING front-end-2"
    assert tail.partition("] ")[2] == 'a.logger: 1 of it segment=7 path="a b"'


def test_a_json_line() -> None:
    found = event(record("%d of %s", 1, "it", segment=7, level="a field cannot replace the level"))
    assert found.pop("pid") > 0
    assert found == {
        "time": "2027-01-15T08:00:00.250Z",
        "level": "WARNING",
        "logger": "a.logger",
        "process": "front end 2",
        "message": "1 of it",
        "segment": 7,
    }


@FORMATS
@pytest.mark.parametrize(
    "sent", ["\n", "\r\n", "\x1b[2J", "\x9b31m", "\u202e", "\u2028", "\x00", "\x7f", "\ud800"]
)
def test_an_event_is_one_printable_line(log_format: str, sent: str) -> None:
    assert line(log_format, record("%s", sent, path=sent, paths=[sent])).isprintable()
    token = REQUEST_ID.set(sent)
    try:
        assert line(log_format, record("it")).isprintable()
    finally:
        REQUEST_ID.reset(token)


def test_long_values_are_cut_off() -> None:
    assert printable("abcdef", 3) == "abc…"
    assert printable("\x7f\x7f", 5) == r"\x7f\…"
    assert len(line("json", record("%s", 10**6 * "a", paths=10**4 * ["b"]))) < 4_096


def test_the_request_id_is_that_of_the_task() -> None:
    token = REQUEST_ID.set("an-id")
    try:
        assert event(record("it"))["request_id"] == "an-id"
        assert " a.logger [an-id]: it" in line("text", record("it"))
        # The writer has none of its own.
        assert event(record("it", request_id="another"))["request_id"] == "another"
        assert " a.logger [another]: it" in line("text", record("it", request_id="another"))
    finally:
        REQUEST_ID.reset(token)


@FORMATS
def test_tracebacks_have_places_but_no_values(log_format: str) -> None:
    written = line(log_format, failed(ValueError("a secret\n")))
    assert "secret" not in written
    assert "Traceback" in written or "traceback" in written
    assert "test_formats.py:" in written
    assert "ValueError" in written
    assert written.isprintable()


@FORMATS
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(5, "Input/output error"), "[Errno 5] Input/output error"),
        (Fault(FaultReason.FAILED, "the reason"), "failed: the reason"),
    ],
)
def test_messages_of_known_errors_are_shown(log_format: str, error: Exception, text: str) -> None:
    assert text in line(log_format, failed(error))


@FORMATS
def test_causes_are_shown(log_format: str) -> None:
    try:
        raise KeyError("a secret")
    except KeyError as cause:
        outer = RuntimeError("another secret")
        outer.__cause__ = cause
    written = line(log_format, failed(outer))
    assert "caused by" in written
    assert "KeyError" in written
    assert "secret" not in written


def test_repeated_events_are_limited_by_place(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    limit = RepetitionFilter()
    passed = [one for one in range(100) if limit.filter(record("number %d", one))]
    assert passed == list(range(LINES_PER_WINDOW_MAX))
    assert limit.filter(record("another place", line=2))
    now += WINDOW_SECONDS + 1
    first, second = record("number %d", 100), record("number %d", 101)
    assert limit.filter(first)
    assert limit.filter(second)
    assert event(first)["suppressed"] == 100 - LINES_PER_WINDOW_MAX
    assert "suppressed" not in event(second)
