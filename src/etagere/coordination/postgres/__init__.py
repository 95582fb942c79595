"""The coordinator for processes of several machines, which share a PostgreSQL database.

`coordinator` has the processes, their tasks and their pins, `nodes` the machines that they run on.
Decision 40 explains the protocol.
"""

from etagere.coordination.postgres.coordinator import PostgresCoordinator, Timing
from etagere.coordination.postgres.nodes import NodeRegistry

__all__ = ["NodeRegistry", "PostgresCoordinator", "Timing"]
