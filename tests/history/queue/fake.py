"""A queue in memory, with at most one planted bug."""

from __future__ import annotations

import enum
import itertools
import random
from collections.abc import Callable
from typing import Final

import msgspec

from tests.history.events import NANOSECONDS, NEVER, Refused
from tests.history.queue.events import Done, Outcome, Request, Seen, Verb

NOT_FOUND: Final = Refused("MessageNotFound")


class Bug(enum.Enum):
    LOST_BY_KILL = "a kill undoes a put that was acknowledged"
    LOST_WHEN_DELIVERED = "a delivered message that is not deleted does not become visible again"
    NOT_HIDDEN = "a delivered message stays visible"
    SHOWN_TOO_SOON = "messages are hidden for half of the time"
    NOT_HIDDEN_FROM_START = "a message that is put hidden can be seen"
    DELETE_UNDONE = "a kill brings back a message whose deletion was acknowledged"
    COUNTS_RESET = "a kill makes deliveries forgotten"
    COUNT_SKIPPED = "a delivery counts two"
    RECEIPT_KEPT = "the receipt of the delivery before is as good as the last"
    RECEIPT_USED_TWICE = "an update leaves the receipt that it names good"
    RECEIPT_WORTHLESS = "the receipt that an update gives is not good"
    EXPIRED_DELIVERED = "messages are delivered after their time"
    TEXT_NOT_CHANGED = "an update leaves the text as it is"
    TEXT_MIXED_UP = "a get shows the text of another message"
    PUT_TWICE = "what was put but not answered is put again after a kill"


class Message(msgspec.Struct):
    id: str
    token: str
    shown: int
    """The time from which it is visible."""
    over: int
    receipts: list[str]
    """The valid ones: one, except with bugs."""
    count: int = 0


class Store:
    def __init__(self, source: random.Random, bug: Bug | None) -> None:
        self._random = source
        self._bug = bug
        self._messages: dict[str, Message] = {}
        self._deleted: list[Message] = []
        self._numbers = itertools.count(1)

    def has(self, bug: Bug, chance: float = 1.0) -> bool:
        """Whether the bug strikes now."""
        return self._bug is bug and self._random.random() < chance

    def kill(self) -> None:
        """Called when the processes are killed; only bugs lose anything."""
        if self.has(Bug.LOST_BY_KILL) and self._messages:
            del self._messages[self._random.choice(sorted(self._messages))]
        if self.has(Bug.DELETE_UNDONE) and self._deleted:
            undone = self._random.choice(self._deleted)
            self._messages[undone.id] = undone
        if self.has(Bug.COUNTS_RESET):
            for message in self._messages.values():
                message.count = 0

    def carry_out(self, request: Request, moment: int) -> Outcome:
        """Carries out a request at the current time."""
        return _ACTIONS[request.verb](self, request, moment)

    def put(self, request: Request, moment: int) -> Outcome:
        hidden, lives = request.hidden_seconds, request.ttl_seconds
        message = Message(
            f"id-{next(self._numbers)}",
            request.token,
            moment if self.has(Bug.NOT_HIDDEN_FROM_START) else _after(moment, hidden),
            NEVER if lives is None else _after(moment, lives),
            [self._new_receipt()],
        )
        self._messages[message.id] = message
        return Done((Seen(message.id, message.receipts[-1]),))

    def get(self, request: Request, moment: int) -> Outcome:
        seen = sorted(
            (each for each in self._messages.values() if self._can_be_seen(each, moment)),
            key=lambda each: each.shown,
        )
        return Done(tuple(self._take(each, request, moment) for each in seen[: request.count]))

    def _can_be_seen(self, message: Message, moment: int) -> bool:
        return message.shown <= moment and not self._is_over(message, moment)

    def _is_over(self, message: Message, moment: int) -> bool:
        return message.over <= moment and not self.has(Bug.EXPIRED_DELIVERED)

    def _take(self, message: Message, request: Request, moment: int) -> Seen:
        seconds = request.hidden_seconds
        if not self.has(Bug.NOT_HIDDEN, 0.1):
            half = self.has(Bug.SHOWN_TOO_SOON)
            message.shown = _after(moment, seconds / 2 if half else seconds)
        if self.has(Bug.LOST_WHEN_DELIVERED, 0.1):
            message.shown = NEVER
        message.count += 2 if self.has(Bug.COUNT_SKIPPED, 0.1) else 1
        self._renew(message, keep=self.has(Bug.RECEIPT_KEPT))
        token = message.token
        if self.has(Bug.TEXT_MIXED_UP, 0.05):
            token = self._random.choice(list(self._messages.values())).token
        return Seen(message.id, message.receipts[-1], token, message.count)

    def _renew(self, message: Message, *, keep: bool) -> None:
        message.receipts[:] = [*(message.receipts if keep else ()), self._new_receipt()]

    def _new_receipt(self) -> str:
        return f"receipt-{next(self._numbers)}"

    def update(self, request: Request, moment: int) -> Outcome:
        message = self._held(request, moment)
        if message is None:
            return NOT_FOUND
        shown = _after(moment, request.hidden_seconds)
        if shown > message.over:
            return Refused("OutOfRangeQueryParameterValue")
        message.shown = shown
        if request.token and not self.has(Bug.TEXT_NOT_CHANGED, 0.3):
            message.token = request.token
        self._renew(message, keep=self.has(Bug.RECEIPT_USED_TWICE))
        receipt = message.receipts[-1]
        if self.has(Bug.RECEIPT_WORTHLESS, 0.3):
            self._renew(message, keep=False)
        return Done((Seen(message.id, receipt),))

    def delete(self, request: Request, moment: int) -> Outcome:
        message = self._held(request, moment)
        if message is None:
            return NOT_FOUND
        self._deleted.append(self._messages.pop(message.id))
        return Done()

    def _held(self, request: Request, moment: int) -> Message | None:
        message = self._messages.get(request.message)
        if message is None or self._is_over(message, moment):
            return None
        return message if request.receipt in message.receipts else None


def _after(moment: int, seconds: float) -> int:
    return moment + int(seconds * NANOSECONDS)


_ACTIONS: Final[dict[Verb, Callable[[Store, Request, int], Outcome]]] = {
    Verb.PUT: Store.put,
    Verb.GET: Store.get,
    Verb.UPDATE: Store.update,
    Verb.DELETE: Store.delete,
}
