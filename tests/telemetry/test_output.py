"""The output of the log: a reader that is stuck does not hold up the process."""

from __future__ import annotations

import os
import time
from pathlib import Path

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


def test_pieces_consist_of_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe takes 4,096 bytes without the lines of other processes between them; only a line that
    is longer is divided."""
    pieces: list[bytes] = []

    def write(_descriptor: int, data: bytes) -> int:
        pieces.append(data)
        return len(data)

    monkeypatch.setattr(os, "write", write)
    lengths = (100, 4_000, 4_094, 4_095, 1, 4_096, 9_000, 0, 2_000, 2_094, 2_095)
    lines = [bytes([65 + n]) * length for n, length in enumerate(lengths)]
    with Path(os.devnull).open("wb") as file:
        LogOutput(file.fileno()).write_lines(lines)
    assert b"".join(pieces) == b"".join(line + b"\n" for line in lines)
    assert [len(piece) for piece in pieces if not piece.endswith(b"\n")] == [4_096] * 3
    assert all(len(piece) <= 4_096 for piece in pieces)
    assert len(pieces) == 13
