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
    output, line = LogOutput(writing), b"x" * 999 + b"\n"
    began = time.monotonic()
    for _ in range(300):
        output.write(line + line)
    assert time.monotonic() - began < 15.0  # thirty, if every write waited
    read = os.read(reading, 1 << 20)
    assert set(read.splitlines(keepends=True)) == {line}
    output.write(b"last\n")
    assert os.read(reading, 1 << 20) == b"last\n"
    dropped = 600 - read.count(b"\n")
    assert caplog.messages == [f"{dropped} lines of the log were dropped: nobody read them"]
    os.close(reading)
    output.write(b"after the end\n")  # no error
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
    lines = b"".join(bytes([65 + n]) * length + b"\n" for n, length in enumerate(lengths))
    with Path(os.devnull).open("wb") as file:
        LogOutput(file.fileno()).write(lines)
    assert b"".join(pieces) == lines
    assert [len(piece) for piece in pieces if not piece.endswith(b"\n")] == [4_096] * 3
    assert all(len(piece) <= 4_096 for piece in pieces)
    assert len(pieces) == 13


def test_a_file_takes_many_lines_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    actual = os.write

    def write(descriptor: int, data: bytes) -> int:
        written.append(actual(descriptor, data[:5_000]))  # the rest of an almost full disk
        return written[-1]

    monkeypatch.setattr(os, "write", write)
    lines = b"".join(b"%d\n" % number for number in range(2_000))
    path = tmp_path / "log"
    with path.open("wb") as file:
        LogOutput(file.fileno()).write(lines)
    assert path.read_bytes() == lines
    assert written == [5_000, len(lines) - 5_000]
