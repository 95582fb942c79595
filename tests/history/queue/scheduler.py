"""A simulated world for the fake queue: clients that die, delays, lost answers and kills, all from
a seed.

Time is made up, so a message that is hidden for seconds comes back within a few dozen operations.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from tests.history.events import NANOSECONDS, Death, Run, Unknown
from tests.history.queue.events import (
    Done,
    History,
    Operation,
    Outcome,
    Request,
    Verb,
    in_order,
)
from tests.history.queue.fake import Bug, Store
from tests.history.queue.workloads import Chooser, Consumer, Producer, Workload

WORKLOAD: Final = Workload(hidden_seconds=(5, 10), ttl_seconds=30)
PRODUCERS, CONSUMERS = 2, 6
"""Fewer who put than who take, so that what comes back is soon taken again."""
DELAY_SECONDS_MAX = 0.3
PAUSE_SECONDS_MAX = 0.5
LOST_SHARE = 0.01
SERVER_LIVES_SECONDS_MAX = 30.0
CONSUMER_LIVES_SECONDS_MAX = 15.0
PATIENCE_SECONDS = 2.0
GET_COUNT_MAX: Final = 32


@dataclasses.dataclass(eq=False)
class Flight:
    """A request on its way."""

    client: int
    request: Request
    began: int
    server: int
    """Which one it was sent to, counted by restarts."""
    done: bool = False
    """By the queue."""
    over: bool = False
    """For the client."""


class Simulation:
    def __init__(self, seed: int, *, operations: int = 400, bug: Bug | None = None) -> None:
        self._seed = seed
        self._operations_max = operations
        self._random = random.Random(f"{seed} world")
        self._store = Store(random.Random(f"{seed} bug"), bug)
        self._now = 0
        self._server = 0
        self._up_at = 0
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._clients: dict[int, Chooser] = {}
        self._client_numbers = itertools.count()
        self._flights: list[Flight] = []
        self._operations: list[Operation] = []
        self._deaths: list[Death] = []

    def run(self) -> History:
        for kind in (Producer,) * PRODUCERS + (Consumer,) * CONSUMERS:
            self._enter(kind)
        self._later(SERVER_LIVES_SECONDS_MAX, self._kill)
        self._later(CONSUMER_LIVES_SECONDS_MAX, self._kill_consumer)
        while self._agenda:
            self._now, _, action = heapq.heappop(self._agenda)
            action()
        self._operations += self._drain()
        made_by = Run("simulation", self._seed)
        return History(made_by, in_order(self._operations), tuple(self._deaths))

    def _later(self, seconds_max: float, action: Callable[[], None]) -> None:
        # A nanosecond at least: nothing takes no time.
        moment = self._now + 1 + int(self._random.random() * seconds_max * NANOSECONDS)
        heapq.heappush(self._agenda, (moment, next(self._numbers), action))

    @property
    def _is_over(self) -> bool:
        return len(self._operations) >= self._operations_max

    # Clients

    def _enter(self, kind: type[Producer | Consumer]) -> None:
        client = next(self._client_numbers)
        self._clients[client] = kind(self._seed, client, WORKLOAD)
        self._later(PAUSE_SECONDS_MAX, partial(self._ask, client))

    def _ask(self, client: int) -> None:
        if self._is_over or client not in self._clients:
            return
        if self._now < self._up_at:
            self._later(PAUSE_SECONDS_MAX, partial(self._ask, client))
            return
        flight = Flight(client, self._clients[client].choose(), self._now, self._server)
        self._flights.append(flight)
        if self._random.random() < LOST_SHARE:
            self._later(PATIENCE_SECONDS, partial(self._end, flight, Unknown("lost")))
            self._later(4 * PATIENCE_SECONDS, partial(self._arrive, flight))
        else:
            self._later(DELAY_SECONDS_MAX, partial(self._arrive, flight))

    def _end(self, flight: Flight, outcome: Outcome) -> None:
        if flight.over:
            return
        flight.over = True
        self._flights.remove(flight)
        operation = Operation(flight.client, flight.request, flight.began, self._now, outcome)
        self._operations.append(operation)
        if flight.client in self._clients:
            self._clients[flight.client].learn(operation)
            self._later(PAUSE_SECONDS_MAX, partial(self._ask, flight.client))

    def _kill_consumer(self) -> None:
        """What it has asked for goes on without it."""
        consumers = [number for number, one in self._clients.items() if isinstance(one, Consumer)]
        victim = self._random.choice(consumers)
        del self._clients[victim]
        for flight in [each for each in self._flights if each.client == victim]:
            self._end(flight, Unknown("killed"))
        if not self._is_over:
            self._enter(Consumer)
            self._later(CONSUMER_LIVES_SECONDS_MAX, self._kill_consumer)

    # The server

    def _arrive(self, flight: Flight) -> None:
        if flight.server == self._server:
            outcome = self._store.carry_out(flight.request, self._now)
            flight.done = True
            self._later(DELAY_SECONDS_MAX, partial(self._end, flight, outcome))

    def _kill(self) -> None:
        self._store.kill()
        self._server += 1
        self._up_at = self._now + int(self._random.uniform(0.5, 2.0) * NANOSECONDS)
        self._deaths.append(Death(self._now, self._up_at))
        for flight in list(self._flights):
            self._end(flight, Unknown("killed"))
            if flight.done and flight.request.verb is Verb.PUT and self._store.has(Bug.PUT_TWICE):
                self._store.carry_out(flight.request, self._now)
        if not self._is_over:
            self._later(SERVER_LIVES_SECONDS_MAX, self._kill)

    def _drain(self) -> Iterator[Operation]:
        """Takes and deletes whatever is left, when nothing is hidden any more."""
        self._now += 2 * max(WORKLOAD.hidden_seconds) * NANOSECONDS
        client = next(self._client_numbers)
        hidden = max(WORKLOAD.hidden_seconds)
        while True:
            got = self._at_once(
                client, Request(Verb.GET, count=GET_COUNT_MAX, hidden_seconds=hidden)
            )
            yield got
            if not isinstance(got.outcome, Done) or not got.outcome.seen:
                return
            for seen in got.outcome.seen:
                yield self._at_once(
                    client, Request(Verb.DELETE, message=seen.message, receipt=seen.receipt)
                )

    def _at_once(self, client: int, request: Request) -> Operation:
        began = self._now
        outcome = self._store.carry_out(request, began + 1)
        self._now = began + 2
        return Operation(client, request, began, self._now, outcome)
