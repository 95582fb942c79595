"""A simulated world for the fake store: clients, delays, lost answers and kills, all from a seed.

Time is made up, so a lease of 15 seconds ends within a few dozen operations.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import random
from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from tests.history.bugs import Bug
from tests.history.events import (
    NANOSECONDS,
    Death,
    Done,
    History,
    Operation,
    Refused,
    Request,
    Run,
    Unknown,
)
from tests.history.fake import Store
from tests.history.workloads import Chooser, Workload

DELAY_SECONDS_MAX = 0.6
PAUSE_SECONDS_MAX = 0.5
LOST_SHARE = 0.01
LIFE_SECONDS_MAX = 40.0
"""Of a server."""
PATIENCE_SECONDS = 2.0


@dataclasses.dataclass(eq=False)
class Flight:
    """A request on its way."""

    client: int
    request: Request
    began: int
    server: int
    """Which one it was sent to, counted by restarts."""
    done: bool = False
    """By the store."""
    over: bool = False
    """For the client."""


class Simulation:
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
        self._seed = seed
        self._operations_max = operations
        self._kills = kills
        self._random = random.Random(f"{seed} world")
        self._store = Store(random.Random(f"{seed} bug"), bug)
        self._choosers = [Chooser(seed, client, workloads) for client in range(clients)]
        self._now = 0
        self._server = 0
        self._up_at = 0
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._flights: list[Flight] = []
        self._operations: list[Operation] = []
        self._deaths: list[Death] = []

    def run(self) -> History:
        for client in range(len(self._choosers)):
            self._later(PAUSE_SECONDS_MAX, partial(self._ask, client))
        if self._kills:
            self._later(LIFE_SECONDS_MAX, self._kill)
        while self._agenda:
            self._now, _, action = heapq.heappop(self._agenda)
            action()
        return History(Run("simulation", self._seed), tuple(self._operations), tuple(self._deaths))

    def _later(self, seconds_max: float, action: Callable[[], None]) -> None:
        # A nanosecond at least: nothing takes no time.
        moment = self._now + 1 + int(self._random.random() * seconds_max * NANOSECONDS)
        heapq.heappush(self._agenda, (moment, next(self._numbers), action))

    # Clients

    def _ask(self, client: int) -> None:
        if len(self._operations) >= self._operations_max:
            return
        if self._now < self._up_at:
            self._later(PAUSE_SECONDS_MAX, partial(self._ask, client))
            return
        flight = Flight(client, self._choosers[client].choose(), self._now, self._server)
        self._flights.append(flight)
        if self._random.random() < LOST_SHARE:
            self._later(PATIENCE_SECONDS, partial(self._end, flight, Unknown("lost")))
            self._later(4 * PATIENCE_SECONDS, partial(self._arrive, flight))
        else:
            self._later(DELAY_SECONDS_MAX, partial(self._arrive, flight))

    def _end(self, flight: Flight, outcome: Done | Refused | Unknown) -> None:
        if flight.over:
            return
        flight.over = True
        self._flights.remove(flight)
        operation = Operation(flight.client, flight.request, flight.began, self._now, outcome)
        self._operations.append(operation)
        self._choosers[flight.client].learn(operation)
        self._later(PAUSE_SECONDS_MAX, partial(self._ask, flight.client))

    # The server

    def _arrive(self, flight: Flight) -> None:
        if flight.server != self._server:
            return
        refused = self._store.foresee(flight.request, self._now)
        if refused is None and self._store.has(Bug.LOST_UPDATE):
            unconditional = msgspec.structs.replace(
                flight.request, if_match=None, if_none_match=None, position=None, comparison=""
            )
            self._later(DELAY_SECONDS_MAX, partial(self._carry_out, flight, unconditional))
        elif refused is None and self._store.has(Bug.HALF_COMMIT):
            self._store.show_part_of_commit(flight.request)
            self._later(DELAY_SECONDS_MAX, partial(self._carry_out, flight, flight.request))
        else:
            self._carry_out(flight, flight.request)

    def _carry_out(self, flight: Flight, request: Request) -> None:
        outcome = self._store.carry_out(request, self._now)
        flight.done = True
        self._later(DELAY_SECONDS_MAX, partial(self._end, flight, outcome))

    def _kill(self) -> None:
        self._store.kill()
        self._server += 1
        self._up_at = self._now + int(self._random.uniform(0.5, 2.0) * NANOSECONDS)
        self._deaths.append(Death(self._now, self._up_at))
        for flight in list(self._flights):
            self._end(flight, Unknown("killed"))
            if self._store.has(Bug.APPLIED_TWICE if flight.done else Bug.APPLIED_LATE):
                self._later(10.0, partial(self._carry_out, flight, flight.request))
        if len(self._operations) < self._operations_max:
            self._later(LIFE_SECONDS_MAX, self._kill)
