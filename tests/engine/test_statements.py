"""The SQL statements of the ledger."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from etagere.bodies.maps import INTERVALS
from etagere.clock import SystemClock
from etagere.config import Config
from etagere.engine import ledger
from etagere.engine.records import Span


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_is_prepared_only_once(tmp_path: Path, reverse: bool) -> None:
    """Whatever its limit is."""
    ledger.create(tmp_path, Config(), SystemClock())
    connection = ledger.open_for_reading(tmp_path, Config())
    prepared: list[str | None] = []

    def note(_action: int, table: str | None, *_: str | None) -> int:
        prepared.append(table)
        return apsw.SQLITE_OK

    connection.authorizer = note  # called for whatever a statement uses when it is prepared
    cursor, span = connection.cursor(), Span(b"", b"\xff")
    ledger.scan(cursor, INTERVALS, span, 1, reverse)
    assert INTERVALS.name in prepared
    prepared.clear()
    for limit in (1, 2, 500):
        ledger.scan(cursor, INTERVALS, span, limit, reverse)
    assert prepared == []
    connection.close()
