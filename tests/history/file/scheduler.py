"""The simulation of the file service."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial

from tests.history.file.events import READS, Operation
from tests.history.file.fake import Bug, Store
from tests.history.file.workloads import FileChooser, Workload
from tests.history.scheduler import BaseSimulation, Flight


class Simulation(BaseSimulation[Operation]):
    """Clients of the fake shares."""

    def __init__(
        self,
        seed: int,
        workloads: Mapping[str, Workload],
        *,
        clients: int = 5,
        operations: int = 400,
        bug: Bug | None = None,
    ) -> None:
        self._shares = Store(random.Random(f"{seed} bug"), bug)
        super().__init__(seed, self._shares, Operation, operations_max=operations)
        self._workloads = workloads
        self._client_count = clients

    def start(self) -> None:
        for client in range(self._client_count):
            self.enter(client, FileChooser(self._seed, client, self._workloads))
        self.later(self.server_seconds_max, self.kill_server)

    def after_kill(self, flight: Flight) -> None:
        if flight.request.verb in READS or not flight.done:
            return
        if self._shares.has(Bug.APPLIED_TWICE):
            self.later(10.0, partial(self.carry_out, flight, flight.request))
