"""Writing lines to standard error, in pieces that a pipe takes without the lines of others."""

from __future__ import annotations

import os

import pytest

from etagere.telemetry import logs


def test_pieces_consist_of_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[bytes] = []

    def write(_descriptor: int, data: bytes) -> int:
        pieces.append(data)
        return len(data)

    monkeypatch.setattr(os, "write", write)
    lengths = (100, 4_000, 4_094, 4_095, 1, 4_096, 9_000, 0, 2_000, 2_094, 2_095)
    lines = [bytes([65 + n]) * length for n, length in enumerate(lengths)]
    logs.write_lines(lines)
    assert b"".join(pieces) == b"".join(line + b"\n" for line in lines)
    assert all(piece.endswith(b"\n") for piece in pieces)
    assert all(len(piece) <= 4_096 or piece.count(b"\n") == 1 for piece in pieces)
    assert len(pieces) == 10
