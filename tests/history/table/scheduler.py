"""The simulation of the table service."""

from __future__ import annotations

import random
from functools import partial

from tests.history.scheduler import BaseSimulation, Flight
from tests.history.table.events import Operation, Verb
from tests.history.table.fake import Bug, Store
from tests.history.table.workloads import EntityChooser

CLIENTS = 5


class Simulation(BaseSimulation[Operation]):
    """Clients of the fake table."""

    def __init__(self, seed: int, *, operations: int = 400, bug: Bug | None = None) -> None:
        self._table = Store(random.Random(f"{seed} bug"), bug)
        super().__init__(seed, self._table, Operation, operations_max=operations)

    def start(self) -> None:
        for client in range(CLIENTS):
            self.enter(client, EntityChooser(self._seed, client))
        self.later(self.server_seconds_max, self.kill_server)

    def receive(self, flight: Flight) -> None:
        if flight.request.verb is Verb.GROUP and self._table.has(Bug.GROUP_VISIBLE_EARLY):
            self._table.show_part_of_group(flight.request)
            self.later(self.delay_seconds_max, partial(self.carry_out, flight, flight.request))
        else:
            self.carry_out(flight, flight.request)

    def after_kill(self, flight: Flight) -> None:
        if flight.done and self._table.has(Bug.APPLIED_TWICE):
            self.later(10.0, partial(self.carry_out, flight, flight.request))
