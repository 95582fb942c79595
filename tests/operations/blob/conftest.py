"""Parametrizes the tests of the blob operations over the engines."""

from __future__ import annotations

import pytest

from tests.engine.conftest import start

__all__ = ["start"]


@pytest.fixture
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Splits lists of a few blocks into several chunks, which they share. The writer process is
    forked afterwards, so it has the same limits."""
    monkeypatch.setattr("etagere.bodies.contents.CHUNK_PIECES_MAX", 4)
    monkeypatch.setattr("etagere.bodies.chunking.REUSE_BLOCKS_MIN", 2)
    monkeypatch.setattr("etagere.protocol.blob.drafting.DRAFTED_PIECES_MAX", 4)
    monkeypatch.setattr("etagere.protocol.blob.drafting.READ_CHUNKS_MAX", 1)
    monkeypatch.setattr("etagere.protocol.blob.block_listing.CHUNKS_MAX", 1)
    monkeypatch.setattr("etagere.protocol.blob.block_listing.STAGED_MAX", 2)
