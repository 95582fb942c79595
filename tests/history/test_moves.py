"""Histories of an account that moves between two cells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.clusters.cells import two_cells
from tests.clusters.postgresql import PostgresServer
from tests.history.blob.service import SERVICE as BLOB
from tests.history.cluster import Schedule, findings, run
from tests.history.file.service import SERVICE as FILE
from tests.history.moves import ACCOUNT, AccountMoves
from tests.history.service import HistoryService


@pytest.mark.long
def test_moves_there_and_back_are_explained(
    tmp_path: Path, postgresql_server: PostgresServer
) -> None:
    """What was acknowledged is there after a move, also what SMB clients have not flushed."""
    services: list[HistoryService[Any]] = [BLOB, FILE]
    with two_cells(postgresql_server, tmp_path) as cells:
        move = AccountMoves(cells).faults()[0]
        nodes = [node for cell in cells for node in cell.nodes]
        schedule = Schedule(1, 2.0, [move, move])
        recorded = run(tmp_path / "run", nodes, services, schedule, ACCOUNT)
    assert recorded.acknowledged > 300
    assert not findings(recorded, services)
