"""The output of the log: a reader that is stuck does not hold up the process."""

from __future__ import annotations

import os
import time

import pytest

from etagere.telemetry import logs
from etagere.telemetry.logs import LogOutput


def test_lines_that_nobody_reads_are_dropped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logs, "_STUCK_SECONDS", 0.1)
    reading, writing = os.pipe()
    output, line = LogOutput(writing), b"x" * 999
    began = time.monotonic()
    for _ in range(100):
        output.write_lines([line, line])
    assert time.monotonic() - began < 5.0
    read = os.read(reading, 1 << 20)
    assert set(read.splitlines()) == {line}
    output.write_lines([b"last"])
    assert os.read(reading, 1 << 20) == b"last\n"
    dropped = 200 - read.count(b"\n")
    assert caplog.messages == [f"{dropped} lines of the log were dropped: nobody read them"]
    os.close(reading)
    output.write_lines([b"after the end"])  # no error
    os.close(writing)
