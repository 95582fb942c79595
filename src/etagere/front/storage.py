"""The ledger and the bodies, as the processes of a server open them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from etagere.bodies.store import BodyStore
from etagere.config import Config
from etagere.coordination.interface import Coordinator, NodeStatus
from etagere.engine.interface import Engine
from etagere.jobs.supervision import Job
from etagere.metrics.snapshots import MetricSource
from etagere.opens.remote import RestOpens
from etagere.processes import ChildMain
from etagere.protocol.connections.memory import MemoryBudget

if TYPE_CHECKING:
    from etagere.cells.account_map import AccountMap
    from etagere.front.process import FrontEnd
    from etagere.front.relayed import RelayedConnections


class MeasuredEngine(Engine, MetricSource, Protocol):
    """An engine that has metrics."""


class MaintainedBodyStore(BodyStore, Protocol):
    """A body store whose segments have to be maintained."""

    async def maintain(self) -> None:
        """Maintains the segments that this process writes."""
        ...


class Collecting(MetricSource, Protocol):
    """A collector."""

    async def run(self) -> None:
        """Maintains the segments of this process, and collects the store if no other process
        does."""
        ...


@dataclass(frozen=True)
class ProcessStorage:
    """The ledger and the bodies of a server, as one process uses them."""

    engine: MeasuredEngine
    coordinator: Coordinator
    store: MaintainedBodyStore
    """Closes the coordinator when it is closed."""
    new_collector: Callable[[], Collecting]
    file_process: RestOpens
    """The opens of the process that serves files, as another process uses them."""
    account_map: AccountMap | None = None
    """None: there is one cell only."""
    relayed: RelayedConnections | None = None
    """What nodes of other cells relay to this one; None: there are none."""
    cell_jobs: Sequence[Job] = ()
    """The jobs of a cell, which one front end of a node runs."""


class NodeProbe(Protocol):
    """Checks the dependencies of a node of a cluster. The methods block, and raise an exception if
    a dependency is not available."""

    def status(self) -> NodeStatus:
        """Asks the database of the cluster for the state of this node."""
        ...

    def check_bodies(self) -> None:
        """Reads from the store of the bodies."""
        ...


class Storage(Protocol):
    """Where the ledger and the bodies of a server are. The supervisor prepares it before it starts
    processes, which have nothing open in common."""

    def writer_main(self) -> ChildMain:
        """Returns the main function of the writer process."""
        ...

    def file_main(self, front_end: FrontEnd, name: str, number: int) -> ChildMain:
        """Returns the main function of the process that serves files, of which `front_end` is the
        configuration."""
        ...

    async def open(self, config: Config, name: str, memory: MemoryBudget) -> ProcessStorage:
        """Opens the storage in a front end, which has this name. `memory` is the budget for what it
        buffers."""
        ...

    def probe(self) -> NodeProbe | None:
        """Returns the probe of a node; None if the server is not part of a cluster."""
        ...

    def leave(self) -> None:
        """Removes this node from the account map. The supervisor calls it after all processes have
        ended."""
        ...

    async def open_engine(self, config: Config) -> Engine:
        """Opens the ledger in a process that does not use bodies."""
        ...
