"""Random requests of producers and consumers by a seed, with receipts that they have seen."""

from __future__ import annotations

import random
from typing import Final, NamedTuple, Protocol

from tests.history.queue.events import Done, Operation, Request, Seen, Verb, message_of


class Workload(NamedTuple):
    """Timeouts of messages, and shares of what is done with delivered ones."""

    hidden_seconds: tuple[int, ...]
    ttl_seconds: int
    """Of the few that do not live for ever."""
    short_lived: float = 0.1
    hidden_from_start: float = 0.15
    count_max: int = 4
    """Of messages in a get."""
    updated: float = 0.2
    """The share of messages, as the others here."""
    forgotten: float = 0.1
    """By the consumer, and so delivered again."""
    used_late: float = 0.2
    """A receipt that is kept, and used when it may be invalid."""


LIVE: Final = Workload(hidden_seconds=(1, 1, 2), ttl_seconds=2)


class Chooser(Protocol):
    """Chooses the requests of one client, with tokens that no other client uses."""

    def choose(self) -> Request: ...

    def learn(self, operation: Operation) -> None: ...


class Producer:
    """Puts messages, and sometimes updates or deletes one of them."""

    def __init__(self, seed: int, client: int, workload: Workload) -> None:
        self._client = client
        self._workload = workload
        self._random = random.Random(f"{seed} producer {client}")
        self._count = 0
        self._own: Seen | None = None
        """A message that it has just put, under the receipt that came with it."""

    def choose(self) -> Request:
        self._count += 1
        if self._own is not None:
            own, self._own = self._own, None
            if self._random.random() < 0.5:
                return Request(Verb.DELETE, message=own.message, receipt=own.receipt)
            hidden = self._random.choice(self._workload.hidden_seconds)
            return Request(
                Verb.UPDATE, message=own.message, receipt=own.receipt, hidden_seconds=hidden
            )
        workload, hides = self._workload, self._random.random() < self._workload.hidden_from_start
        return Request(
            Verb.PUT,
            f"{self._client}-{self._count}",
            hidden_seconds=min(workload.hidden_seconds) if hides else 0,
            ttl_seconds=workload.ttl_seconds
            if self._random.random() < workload.short_lived
            else None,
        )

    def learn(self, operation: Operation) -> None:
        put = operation.request.verb is Verb.PUT
        if put and isinstance(operation.outcome, Done) and self._random.random() < 0.1:
            (self._own,) = operation.outcome.seen


class Consumer:
    """Gets messages and deletes most of them."""

    def __init__(self, seed: int, client: int, workload: Workload) -> None:
        self._client = client
        self._workload = workload
        self._random = random.Random(f"{seed} consumer {client}")
        self._count = 0
        self._held: list[Seen] = []
        self._old: list[Seen] = []
        """Under receipts that were used, or that another delivery may have replaced."""
        self._tokens: dict[str, str] = {}
        """Of the messages, by id."""

    def choose(self) -> Request:
        self._count += 1
        if self._old and self._random.random() < 0.1:
            return self._use(self._old.pop(self._random.randrange(len(self._old))))
        while self._held:
            held = self._held.pop()
            if self._random.random() < self._workload.used_late:
                self._old.append(held)
            if self._random.random() >= self._workload.forgotten:
                return self._use(held)
        return Request(
            Verb.GET,
            count=self._random.randint(1, self._workload.count_max),
            hidden_seconds=self._random.choice(self._workload.hidden_seconds),
        )

    def _use(self, held: Seen) -> Request:
        if self._random.random() >= self._workload.updated:
            return Request(Verb.DELETE, message=held.message, receipt=held.receipt)
        changes = self._random.random() < 0.5
        return Request(
            Verb.UPDATE,
            f"{self._tokens[held.message]}/{self._client}-{self._count}" if changes else "",
            held.message,
            held.receipt,
            hidden_seconds=self._random.choice((0, *self._workload.hidden_seconds)),
        )

    def learn(self, operation: Operation) -> None:
        for seen in operation.outcome.seen if isinstance(operation.outcome, Done) else ():
            self._held.append(seen)
            if operation.request.verb is Verb.GET:
                self._tokens[seen.message] = message_of(seen.token)
