"""The simulation of the blob service."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial

import msgspec

from tests.history.blob.bugs import Bug
from tests.history.blob.events import Operation
from tests.history.blob.fake import Store
from tests.history.blob.workloads import BlobChooser, Workload
from tests.history.scheduler import BaseSimulation, Flight


class Simulation(BaseSimulation[Operation]):
    """Clients of the fake blob store."""

    def __init__(
        self,
        seed: int,
        workloads: Mapping[str, Workload],
        *,
        clients: int = 5,
        operations: int = 400,
        kills: bool = True,
        bug: Bug | None = None,
    ) -> None:
        self._blobs = Store(random.Random(f"{seed} bug"), bug)
        super().__init__(seed, self._blobs, Operation, operations_max=operations)
        self._workloads = workloads
        self._client_count = clients
        self._kills = kills

    def start(self) -> None:
        for client in range(self._client_count):
            self.enter(client, BlobChooser(self._seed, client, self._workloads))
        if self._kills:
            self.later(self.server_seconds_max, self.kill_server)

    def receive(self, flight: Flight) -> None:
        refused = self._blobs.foresee(flight.request, self._now)
        if refused is None and self._blobs.has(Bug.LOST_UPDATE):
            unconditional = msgspec.structs.replace(
                flight.request, if_match=None, if_none_match=None, position=None, comparison=""
            )
            self.later(self.delay_seconds_max, partial(self.carry_out, flight, unconditional))
        elif refused is None and self._blobs.has(Bug.HALF_COMMIT):
            self._blobs.show_part_of_commit(flight.request)
            self.later(self.delay_seconds_max, partial(self.carry_out, flight, flight.request))
        else:
            self.carry_out(flight, flight.request)

    def after_kill(self, flight: Flight) -> None:
        if self._blobs.has(Bug.APPLIED_TWICE if flight.done else Bug.APPLIED_LATE):
            self.later(10.0, partial(self.carry_out, flight, flight.request))
