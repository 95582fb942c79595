"""Checks the dependencies of a node of a cluster, for its readiness."""

from __future__ import annotations

from etagere.coordination.interface import NodeStatus
from etagere.coordination.postgres.nodes import NodeStatusReader
from etagere.engine.interface import Fault, FaultReason
from etagere.engine.postgres.connecting import Database
from etagere.node.shared_bodies import SharedBodies


class ClusterProbe:
    """Asks the database for the state of a node, and reads the marker of the bodies."""

    def __init__(
        self, database: Database, node: str, bodies: SharedBodies, store_id: bytes
    ) -> None:
        reader = NodeStatusReader(database.connection_string, node, schema=database.schema)
        self._reader = reader
        self._bodies = bodies
        self._read_marker = bodies.open_marker_reader()
        self._store_id = store_id

    def status(self) -> NodeStatus:
        return self._reader.read()

    def check_bodies(self) -> None:
        if self._read_marker() != self._store_id:
            raise Fault(
                FaultReason.UNAVAILABLE, f"the bodies of the ledger are not in {self._bodies}"
            )
