"""Writing log lines: in pieces that a pipe takes without the lines of others, and not for long."""

from __future__ import annotations

import logging
import os
import time

import pytest

from etagere.telemetry.logs import LogOutput

READ_BYTES = 1 << 20


def test_pieces_consist_of_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[bytes] = []

    def write(_descriptor: int, data: bytes) -> int:
        pieces.append(data)
        return len(data)

    monkeypatch.setattr(os, "write", write)
    lengths = (100, 4_000, 4_094, 4_095, 1, 4_096, 9_000, 0, 2_000, 2_094, 2_095)
    lines = [bytes([65 + n]) * length for n, length in enumerate(lengths)]
    LogOutput(2).write_lines(lines)
    assert b"".join(pieces) == b"".join(line + b"\n" for line in lines)
    assert all(piece.endswith(b"\n") for piece in pieces)
    assert all(len(piece) <= 4_096 or piece.count(b"\n") == 1 for piece in pieces)
    assert len(pieces) == 10


def test_a_reader_that_has_stopped_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    reading, writing = os.pipe()
    try:
        output = LogOutput(writing)
        began = time.monotonic()
        for _ in range(200):
            output.write_lines([b"a line" * 100] * 10)
        assert time.monotonic() - began < 5
        written = os.read(reading, READ_BYTES).count(b"\n")
        assert 0 < written < 2_000
        assert caplog.records == []
        with caplog.at_level(logging.WARNING):
            output.write_lines([b"last"])
        assert os.read(reading, READ_BYTES) == b"last\n"
        (record,) = caplog.records
        assert record.getMessage().startswith(f"{2_000 - written} lines of the log were lost")
    finally:
        os.close(reading)
        os.close(writing)
