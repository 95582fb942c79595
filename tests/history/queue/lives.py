"""The life of each message, put together from what its producers and consumers were told.

A message goes through generations: it is put, and then delivered once, twice, and so on, as its
count says. Within a generation it may be updated several times. Whatever is done gives it another
receipt, and whoever updates or deletes it names the receipt they know. So each receipt has a place
in the life of its message, and the places are in the order in which they came about, whatever the
clocks say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tests.history.events import Refused, Unknown
from tests.history.queue.events import Done, History, Operation, Seen, Verb
from tests.history.queue.texts import message_of

Place = tuple[int, int]
"""The generation, and how many updates came before in it."""


class Step(NamedTuple):
    """Something that gave the message a receipt."""

    operation: Operation
    place: Place
    receipt: str


class Delivery(NamedTuple):
    operation: Operation
    seen: Seen

    @property
    def place(self) -> Place:
        return self.seen.count, 0


class Span(NamedTuple):
    """Between these a request was carried out, if ever."""

    began: int
    latest: int


class Life:
    """Of one message."""

    def __init__(self, token: str, unheard: Sequence[Span]) -> None:
        self.token = token
        """That it was put with."""
        self.unheard = unheard
        """The gets of which nobody knows whether, and what, they delivered."""
        self.put: Operation | None = None
        self.ids: set[str] = set()
        self.deliveries: list[Delivery] = []
        """By their counts."""
        self.uses: list[Operation] = []
        """The updates and deletes that were asked for, by their beginning."""
        self.steps: dict[str, Step] = {}
        """By receipt."""

    def possible(self, verb: Verb, receipt: str | None = None) -> list[Operation]:
        """The uses (of this receipt) that were done, or may have been."""
        return [
            use
            for use in self.uses
            if use.request.verb is verb
            and not isinstance(use.outcome, Refused)
            and receipt in (None, use.request.receipt)
        ]

    def place_of(self, use: Operation) -> Place:
        """That of the receipt it names."""
        return self.steps[use.request.receipt].place


class _Lives:
    def __init__(self, history: History) -> None:
        self._unheard = [
            Span(each.began, history.latest_moment(each))
            for each in history.operations
            if each.request.verb is Verb.GET and isinstance(each.outcome, Unknown)
        ]
        self._by_token: dict[str, Life] = {}
        self._by_receipt: dict[tuple[str, str], Life] = {}
        # Whoever names a receipt began after it was given.
        for operation in history.operations:
            self._learn(operation)

    def _learn(self, operation: Operation) -> None:
        request = operation.request
        if request.verb is Verb.PUT:
            self._life(request.token).put = operation
        elif request.verb is not Verb.GET:
            self._by_receipt[request.message, request.receipt].uses.append(operation)
        for seen in operation.outcome.seen if isinstance(operation.outcome, Done) else ():
            self._see(operation, seen)

    def _see(self, operation: Operation, seen: Seen) -> None:
        request = operation.request
        if request.verb is Verb.UPDATE:
            life = self._by_receipt[request.message, request.receipt]
        else:
            life = self._life(message_of(request.token or seen.token))
            life.ids.add(seen.message)
        self._by_receipt[seen.message, seen.receipt] = life
        if request.verb is Verb.GET:
            delivery = Delivery(operation, seen)
            life.deliveries.append(delivery)
            place = delivery.place
        elif request.verb is Verb.UPDATE:
            generation, updates = life.place_of(operation)
            place = generation, updates + 1
        else:
            place = 0, 0
        life.steps[seen.receipt] = Step(operation, place, seen.receipt)

    def _life(self, token: str) -> Life:
        return self._by_token.setdefault(token, Life(token, self._unheard))

    def all(self) -> list[Life]:
        found = list(self._by_token.values())
        for life in found:
            life.deliveries.sort(key=lambda each: each.seen.count)
        return found


def lives(history: History) -> list[Life]:
    return _Lives(history).all()
