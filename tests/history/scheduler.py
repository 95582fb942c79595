"""A deterministic simulation: clients of a fake store, delays, lost answers and kills, by a seed.

Time is simulated, so a lease of 15 seconds ends within a few dozen operations.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import random
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Generic, Protocol

from tests.history.events import (
    NANOSECONDS,
    Crash,
    History,
    OperationT,
    Run,
    ServerKill,
    Unknown,
    in_order,
)
from tests.history.service import Chooser


class FakeStore(Protocol):
    """A store in memory, with at most one planted bug."""

    def kill(self) -> None: ...

    def carry_out(self, request: Any, moment: int, /) -> Any: ...


@dataclasses.dataclass(eq=False)
class Flight:
    """A request on its way."""

    client: int
    request: Any
    began: int
    server: int
    """Which server it was sent to, counted by restarts."""
    done: bool = False
    """Whether the store has carried it out."""
    over: bool = False
    """Whether the client has an outcome."""


class BaseSimulation(Generic[OperationT]):
    """The simulation of a service; subclasses add the clients and the effects of planted bugs."""

    delay_seconds_max: ClassVar[float] = 0.6
    pause_seconds_max: ClassVar[float] = 0.5
    lost_share: ClassVar[float] = 0.01
    """The share of requests that arrive after their client gave up, or never."""
    server_seconds_max: ClassVar[float] = 40.0
    """How long a server lives until it is killed."""
    timeout_seconds: ClassVar[float] = 2.0

    def __init__(
        self, seed: int, store: FakeStore, operation: type[OperationT], *, operations_max: int
    ) -> None:
        self._seed = seed
        self._store = store
        self._operation = operation
        self._operations_max = operations_max
        self._random = random.Random(f"{seed} world")
        self._now = 0
        self._server = 0
        self._up_at = 0
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._clients: dict[int, Chooser] = {}
        self._flights: list[Flight] = []
        self._operations: list[OperationT] = []
        self._server_kills: list[ServerKill] = []
        self._crashes: list[Crash] = []

    def run(self) -> History[OperationT]:
        self.start()
        while self._agenda:
            self._now, _, action = heapq.heappop(self._agenda)
            action()
        self.finish()
        run = Run("simulation", self._seed)
        kills, crashes = tuple(self._server_kills), tuple(self._crashes)
        return History(run, in_order(self._operations), kills, crashes)

    def start(self) -> None:
        """Schedules the first requests and kills."""

    def finish(self) -> None:
        """Called when nothing is scheduled any more."""

    @property
    def is_over(self) -> bool:
        return len(self._operations) >= self._operations_max

    def later(self, seconds_max: float, action: Callable[[], None]) -> None:
        """Schedules an action within so many seconds, at least a nanosecond from now."""
        moment = self._now + 1 + int(self._random.random() * seconds_max * NANOSECONDS)
        heapq.heappush(self._agenda, (moment, next(self._numbers), action))

    # Clients

    def enter(self, client: int, chooser: Chooser) -> None:
        self._clients[client] = chooser
        self.later(self.pause_seconds_max, partial(self._ask, client))

    def _ask(self, client: int) -> None:
        if self.is_over or client not in self._clients:
            return
        if self._now < self._up_at:
            self.later(self.pause_seconds_max, partial(self._ask, client))
            return
        flight = Flight(client, self._clients[client].choose(), self._now, self._server)
        self._flights.append(flight)
        if self._random.random() < self.lost_share:
            self.later(self.timeout_seconds, partial(self._end, flight, Unknown("lost")))
            self.later(4 * self.timeout_seconds, partial(self._arrive, flight))
        else:
            self.later(self.delay_seconds_max, partial(self._arrive, flight))

    def _end(self, flight: Flight, outcome: Any) -> None:
        if flight.over:
            return
        flight.over = True
        self._flights.remove(flight)
        operation = self._operation(flight.client, flight.request, flight.began, self._now, outcome)
        self._operations.append(operation)
        if flight.client in self._clients:
            self._clients[flight.client].learn(operation)
            self.later(self.pause_seconds_max, partial(self._ask, flight.client))

    def kill_client(self, client: int) -> None:
        """Removes a client; the store may still carry out what it has sent."""
        del self._clients[client]
        for flight in [each for each in self._flights if each.client == client]:
            self._end(flight, Unknown("killed"))

    # The server

    def _arrive(self, flight: Flight) -> None:
        if flight.server == self._server:
            self.receive(flight)

    def receive(self, flight: Flight) -> None:
        """Called when a request arrives at a living server."""
        self.carry_out(flight, flight.request)

    def carry_out(self, flight: Flight, request: Any) -> None:
        outcome = self._store.carry_out(request, self._now)
        flight.done = True
        self.later(self.delay_seconds_max, partial(self._end, flight, outcome))

    def kill_server(self) -> None:
        self._store.kill()
        self._server += 1
        self._up_at = self._now + int(self._random.uniform(0.5, 2.0) * NANOSECONDS)
        self._crashes.append(Crash(self._now, self._now))
        self._server_kills.append(ServerKill(self._now, self._up_at))
        for flight in list(self._flights):
            self._end(flight, Unknown("killed"))
            self.after_kill(flight)
        if not self.is_over:
            self.later(self.server_seconds_max, self.kill_server)

    def after_kill(self, flight: Flight) -> None:
        """Called for each request that was in flight when the server was killed."""
