"""Histories of nodes of a cluster, of which one is killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.clusters.nodes import cluster_nodes
from tests.history.blob.service import SERVICE as BLOB
from tests.history.cluster import Schedule, findings, run
from tests.history.faults import node_faults
from tests.history.queue.service import SERVICE as QUEUE
from tests.history.service import HistoryService
from tests.history.table.service import SERVICE as TABLE


def test_a_killed_node_is_explained(tmp_path: Path, postgresql_database: str) -> None:
    """What a node acknowledged before it was killed is shown by the other one."""
    services: list[HistoryService[Any]] = [BLOB, QUEUE, TABLE]
    bodies = tmp_path / "bodies"
    bodies.mkdir()
    with cluster_nodes(tmp_path, 2, postgresql_database, str(bodies)) as nodes:
        killed = node_faults(nodes, 1)[0]
        recorded = run(tmp_path / "run", nodes, services, Schedule(1, 2.0, [killed]))
    assert recorded.acknowledged > 30
    assert not findings(recorded, services)
