"""The history of each message, collected from the answers to producers and consumers.

A message goes through generations: it is put, and then delivered once, twice, and so on, as its
count says. Within a generation it may be updated several times. Each of these operations gives it
another receipt, and an update or delete names the receipt that its client knows. So each receipt
has a place in the history of its message, and the places are in the order in which the operations
were carried out, whatever the clocks say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tests.history.events import Refused, Unknown, latest_moment
from tests.history.queue.events import Done, History, Operation, Seen, Verb, message_of

Place = tuple[int, int]
"""The generation, and how many updates came before in it."""


class Step(NamedTuple):
    """An operation that gave the message a receipt."""

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
    """The times between which a request was carried out, if ever."""

    began: int
    latest: int


class MessageHistory:
    """The operations on one message."""

    def __init__(self, token: str, unanswered: Sequence[Span]) -> None:
        self.token = token
        """The token that it was put with."""
        self.unanswered = unanswered
        """The gets with unknown outcomes: they may have delivered it."""
        self.put: Operation | None = None
        self.ids: set[str] = set()
        self.deliveries: list[Delivery] = []
        """By their counts."""
        self.uses: list[Operation] = []
        """The updates and deletes that were asked for, by their beginning."""
        self.steps: dict[str, Step] = {}
        """By receipt."""

    def possible(self, verb: Verb, receipt: str | None = None) -> list[Operation]:
        """Returns the uses (of this receipt) that were, or may have been, carried out."""
        return [
            use
            for use in self.uses
            if use.request.verb is verb
            and not isinstance(use.outcome, Refused)
            and receipt in (None, use.request.receipt)
        ]

    def place_of(self, use: Operation) -> Place:
        """Returns the place of the receipt that the use names."""
        return self.steps[use.request.receipt].place


class _Collector:
    def __init__(self, history: History) -> None:
        self._unanswered = [
            Span(each.began, latest_moment(each, history.kills))
            for each in history.operations
            if each.request.verb is Verb.GET and isinstance(each.outcome, Unknown)
        ]
        self._by_token: dict[str, MessageHistory] = {}
        self._by_receipt: dict[tuple[str, str], MessageHistory] = {}
        # A request that names a receipt began after the receipt was given.
        for operation in history.operations:
            self._learn(operation)

    def _learn(self, operation: Operation) -> None:
        request = operation.request
        if request.verb is Verb.PUT:
            self._message(request.token).put = operation
        elif request.verb is not Verb.GET:
            self._by_receipt[request.message, request.receipt].uses.append(operation)
        for seen in operation.outcome.seen if isinstance(operation.outcome, Done) else ():
            self._see(operation, seen)

    def _see(self, operation: Operation, seen: Seen) -> None:
        request = operation.request
        if request.verb is Verb.UPDATE:
            message = self._by_receipt[request.message, request.receipt]
        else:
            message = self._message(message_of(request.token or seen.token))
            message.ids.add(seen.message)
        self._by_receipt[seen.message, seen.receipt] = message
        if request.verb is Verb.GET:
            delivery = Delivery(operation, seen)
            message.deliveries.append(delivery)
            place = delivery.place
        elif request.verb is Verb.UPDATE:
            generation, updates = message.place_of(operation)
            place = generation, updates + 1
        else:
            place = 0, 0
        message.steps[seen.receipt] = Step(operation, place, seen.receipt)

    def _message(self, token: str) -> MessageHistory:
        return self._by_token.setdefault(token, MessageHistory(token, self._unanswered))

    def all(self) -> list[MessageHistory]:
        found = list(self._by_token.values())
        for message in found:
            message.deliveries.sort(key=lambda each: each.seen.count)
        return found


def message_histories(history: History) -> list[MessageHistory]:
    return _Collector(history).all()
