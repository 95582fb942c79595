"""Checks a history message by message.

A request was carried out at an unknown time between its beginning and its end. A violation is
reported only if there is one whenever that was.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Final, NamedTuple

from tests.history.events import NANOSECONDS, Refused, describe, drift
from tests.history.queue.events import Done, History, Operation, Verb
from tests.history.queue.message_histories import Delivery, MessageHistory, message_histories

LOST: Final = "lost"
WINDOWS: Final = "windows"
COUNTS: Final = "counts"
DELETED: Final = "deleted"
RECEIPTS: Final = "receipts"
EXPIRED: Final = "expired"
TEXTS: Final = "texts"


class Finding(NamedTuple):
    """A violation."""

    check: str
    message: str
    """The token that it was put with."""
    text: str

    def __str__(self) -> str:
        return f"violation ({self.check}) of message {self.message}: {self.text}"


def check_history(history: History) -> list[Finding]:
    """Returns what is wrong with the history."""
    return [
        Finding(check, message.token, text)
        for message in message_histories(history)
        for check, find in _CHECKS.items()
        if (text := find(message)) is not None
    ]


def _tell(what: str, *operations: Operation) -> str:
    return "\n".join((f"{what}:", *(describe(each, operations[0].began) for each in operations)))


def _sooner(operation: Operation, seconds: int) -> int:
    """The earliest moment at which so much time may have passed since it was carried out."""
    return operation.began + seconds * NANOSECONDS - drift(seconds)


# The checks


def _lost(message: MessageHistory) -> str | None:
    """The last client deletes all messages, so a message without a delete was lost."""
    put = message.put
    if put is None or put.request.ttl_seconds is not None or message.possible(Verb.DELETE):
        return None
    if message.deliveries:
        return _tell("it was delivered, and then lost", put, message.deliveries[-1].operation)
    return _tell("it was lost", put) if isinstance(put.outcome, Done) else None


def _windows(message: MessageHistory) -> str | None:
    """A message hidden by a put, a delivery or an update is not delivered."""
    for step in message.steps.values():
        # An update with an unknown outcome may have made it visible.
        if message.possible(Verb.UPDATE, step.receipt):
            continue
        shown = _sooner(step.operation, step.operation.request.hidden_seconds)
        for later in message.deliveries:
            if later.place > step.place and later.operation.ended < shown:
                return _tell("it was delivered while hidden", step.operation, later.operation)
    return None


def _counts(message: MessageHistory) -> str | None:
    """Each delivery counts one more; those in between belong to gets with unknown outcomes."""
    if not message.deliveries or message.put is None:
        return None
    first = message.deliveries[0]
    if not _explained(message, message.put, 0, first):
        return _tell("there were not so many deliveries", message.put, first.operation)
    for one, other in pairwise(message.deliveries):
        if one.seen.count == other.seen.count:
            return _tell("two deliveries count the same", one.operation, other.operation)
        if other.operation.ended < one.operation.began:
            return _tell("the count went backwards", other.operation, one.operation)
        if not _explained(message, one.operation, one.seen.count, other):
            return _tell("there were not so many deliveries", one.operation, other.operation)
    return None


def _explained(message: MessageHistory, before: Operation, count: int, delivery: Delivery) -> bool:
    """Whether there may have been enough unanswered gets in between."""
    missing = delivery.seen.count - count - 1
    ended = delivery.operation.ended
    between = [one for one in message.unanswered if one.began < ended and one.latest > before.began]
    return 0 <= missing <= len(between)


def _deleted(message: MessageHistory) -> str | None:
    """A get after an acknowledged delete does not return the message."""
    for delete in message.possible(Verb.DELETE):
        if isinstance(delete.outcome, Done):
            for delivery in message.deliveries:
                if delivery.operation.began > delete.ended:
                    return _tell("it was deleted, and delivered", delete, delivery.operation)
    return None


def _receipts(message: MessageHistory) -> str | None:
    """Only the last receipt is valid, once; while the message is hidden there is no newer one."""
    for use in message.uses:
        step = message.steps[use.request.receipt]
        others = [
            other
            for verb in (Verb.UPDATE, Verb.DELETE)
            for other in message.possible(verb, step.receipt)
            if other is not use
        ]
        if isinstance(use.outcome, Done):
            used = [other for other in others if isinstance(other.outcome, Done)]
            if used:
                return _tell("a receipt was good twice", use, *used)
            for delivery in message.deliveries:
                if delivery.place > step.place and delivery.operation.ended < use.began:
                    return _tell("an old receipt was good", delivery.operation, use)
        elif use.outcome == Refused("MessageNotFound"):
            hidden = _sooner(step.operation, step.operation.request.hidden_seconds)
            replaced = any(other.began < use.ended for other in others)
            if use.ended < hidden and not replaced and not _may_be_over(message, use.ended):
                return _tell("the last receipt was refused", step.operation, use)
    return None


def _may_be_over(message: MessageHistory, moment: int) -> bool:
    seconds = message.put.request.ttl_seconds if message.put is not None else None
    return (
        message.put is not None and seconds is not None and _sooner(message.put, seconds) <= moment
    )


def _expired(message: MessageHistory) -> str | None:
    put = message.put
    if put is None or put.request.ttl_seconds is None or not isinstance(put.outcome, Done):
        return None
    seconds = put.request.ttl_seconds
    over = put.ended + seconds * NANOSECONDS + drift(seconds)
    for delivery in message.deliveries:
        if delivery.operation.began > over:
            return _tell("its time was over when it was delivered", put, delivery.operation)
    return None


def _texts(message: MessageHistory) -> str | None:
    """A message has one id and one text at a time: that of the put, or of the last update."""
    if message.put is None:
        return _tell("no put had this text", *(each.operation for each in message.deliveries))
    if len(message.ids) > 1:
        return _tell("one put made two messages", *(each.operation for each in message.deliveries))
    written = sorted(
        (
            (message.place_of(each), each)
            for each in message.possible(Verb.UPDATE)
            if each.request.token
        ),
        key=lambda each: each[0],
    )
    for delivery in message.deliveries:
        allowed = {message.token}
        for place, update in written:
            if place < delivery.place:
                known = isinstance(update.outcome, Done)
                allowed = (set() if known else allowed) | {update.request.token}
        if delivery.seen.token not in allowed:
            return _tell(f"its text is none of {sorted(allowed)}", delivery.operation)
    return None


_CHECKS: Final[dict[str, Callable[[MessageHistory], str | None]]] = {
    LOST: _lost,
    WINDOWS: _windows,
    COUNTS: _counts,
    DELETED: _deleted,
    RECEIPTS: _receipts,
    EXPIRED: _expired,
    TEXTS: _texts,
}
