"""The simulation of the queue service."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import ClassVar, Final

from tests.history.events import NANOSECONDS
from tests.history.queue.events import Done, Operation, Request, Verb
from tests.history.queue.fake import Bug, Store
from tests.history.queue.workloads import Consumer, Producer, Workload
from tests.history.scheduler import BaseSimulation, Flight

WORKLOAD: Final = Workload(hidden_seconds=(5, 10), ttl_seconds=30)
PRODUCERS, CONSUMERS = 2, 6
"""Fewer producers, so that a message that reappears is soon received again."""
CONSUMER_SECONDS_MAX: Final = 15.0
GET_COUNT_MAX: Final = 32


class Simulation(BaseSimulation[Operation]):
    """Producers of the fake queue, and consumers that are killed now and then."""

    delay_seconds_max: ClassVar[float] = 0.3
    server_seconds_max: ClassVar[float] = 30.0

    def __init__(self, seed: int, *, operations: int = 400, bug: Bug | None = None) -> None:
        self._queue = Store(random.Random(f"{seed} bug"), bug)
        super().__init__(seed, self._queue, Operation, operations_max=operations)
        self._client_numbers = itertools.count()

    def start(self) -> None:
        for kind in (Producer,) * PRODUCERS + (Consumer,) * CONSUMERS:
            self._enter_client(kind)
        self.later(self.server_seconds_max, self.kill_server)
        self.later(CONSUMER_SECONDS_MAX, self._kill_consumer)

    def finish(self) -> None:
        self._operations += self._drain()

    def _enter_client(self, kind: type[Producer | Consumer]) -> None:
        client = next(self._client_numbers)
        self.enter(client, kind(self._seed, client, WORKLOAD))

    def _kill_consumer(self) -> None:
        consumers = [number for number, one in self._clients.items() if isinstance(one, Consumer)]
        self.kill_client(self._random.choice(consumers))
        if not self.is_over:
            self._enter_client(Consumer)
            self.later(CONSUMER_SECONDS_MAX, self._kill_consumer)

    def after_kill(self, flight: Flight) -> None:
        if flight.done and flight.request.verb is Verb.PUT and self._queue.has(Bug.PUT_TWICE):
            self._queue.carry_out(flight.request, self._now)

    def _drain(self) -> Iterator[Operation]:
        """Gets and deletes all messages, when none is hidden any more."""
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
