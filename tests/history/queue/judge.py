"""All that is asked of a history, message by message.

Of each request it is known only that it was carried out between its beginning and its end. What is
held against the queue holds whenever in between that was.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Final, NamedTuple

from tests.history.events import NANOSECONDS, Refused
from tests.history.lease_model import drift
from tests.history.queue.events import Done, History, Operation, Verb, describe
from tests.history.queue.lives import Delivery, Life, lives

LOST: Final = "lost"
WINDOWS: Final = "windows"
COUNTS: Final = "counts"
DELETED: Final = "deleted"
RECEIPTS: Final = "receipts"
EXPIRED: Final = "expired"
TEXTS: Final = "texts"


class Finding(NamedTuple):
    question: str
    message: str
    """The token that it was put with."""
    text: str

    def __str__(self) -> str:
        return f"violation ({self.question}) of message {self.message}: {self.text}"


def judge(history: History) -> list[Finding]:
    """What speaks against the queue; nothing if the history is as it should be."""
    return [
        Finding(question, life.token, text)
        for life in lives(history)
        for question, ask in _QUESTIONS.items()
        if (text := ask(life)) is not None
    ]


def _tell(what: str, *operations: Operation) -> str:
    return "\n".join((f"{what}:", *(describe(each, operations[0].began) for each in operations)))


def _sooner(operation: Operation, seconds: int) -> int:
    """The earliest moment at which so much time may have passed since it was carried out."""
    return operation.began + seconds * NANOSECONDS - drift(seconds)


# The questions


def _lost(life: Life) -> str | None:
    """In the end all that was left was deleted. What nobody deleted was not there any more."""
    put = life.put
    if put is None or put.request.ttl_seconds is not None or life.possible(Verb.DELETE):
        return None
    if life.deliveries:
        return _tell("it was delivered, and then lost", put, life.deliveries[-1].operation)
    return _tell("it was lost", put) if isinstance(put.outcome, Done) else None


def _windows(life: Life) -> str | None:
    """Nobody is given a message that is hidden, be it by a put, a delivery or an update."""
    for step in life.steps.values():
        # An update that has perhaps been done may have shown it again.
        if life.possible(Verb.UPDATE, step.receipt):
            continue
        shown = _sooner(step.operation, step.operation.request.hidden_seconds)
        for later in life.deliveries:
            if later.place > step.place and later.operation.ended < shown:
                return _tell("it was delivered while hidden", step.operation, later.operation)
    return None


def _counts(life: Life) -> str | None:
    """Each delivery counts one more; those in between are among the gets nobody heard of."""
    if not life.deliveries or life.put is None:
        return None
    first = life.deliveries[0]
    if not _explained(life, life.put, 0, first):
        return _tell("there were not so many deliveries", life.put, first.operation)
    for one, other in pairwise(life.deliveries):
        if one.seen.count == other.seen.count:
            return _tell("two deliveries count the same", one.operation, other.operation)
        if other.operation.ended < one.operation.began:
            return _tell("the count went backwards", other.operation, one.operation)
        if not _explained(life, one.operation, one.seen.count, other):
            return _tell("there were not so many deliveries", one.operation, other.operation)
    return None


def _explained(life: Life, before: Operation, count: int, delivery: Delivery) -> bool:
    """Whether enough unheard gets may have come between."""
    missing = delivery.seen.count - count - 1
    ended = delivery.operation.ended
    between = [one for one in life.unheard if one.began < ended and one.latest > before.began]
    return 0 <= missing <= len(between)


def _deleted(life: Life) -> str | None:
    """Who asks after a delete was acknowledged is not given the message."""
    for delete in life.possible(Verb.DELETE):
        if isinstance(delete.outcome, Done):
            for delivery in life.deliveries:
                if delivery.operation.began > delete.ended:
                    return _tell("it was deleted, and delivered", delete, delivery.operation)
    return None


def _receipts(life: Life) -> str | None:
    """Only the last receipt is good, and it is good once; while the message is hidden nobody can
    have been given another."""
    for use in life.uses:
        step = life.steps[use.request.receipt]
        others = [
            other
            for verb in (Verb.UPDATE, Verb.DELETE)
            for other in life.possible(verb, step.receipt)
            if other is not use
        ]
        if isinstance(use.outcome, Done):
            used = [other for other in others if isinstance(other.outcome, Done)]
            if used:
                return _tell("a receipt was good twice", use, *used)
            for delivery in life.deliveries:
                if delivery.place > step.place and delivery.operation.ended < use.began:
                    return _tell("an old receipt was good", delivery.operation, use)
        elif use.outcome == Refused("MessageNotFound"):
            hidden = _sooner(step.operation, step.operation.request.hidden_seconds)
            replaced = any(other.began < use.ended for other in others)
            if use.ended < hidden and not replaced and not _may_be_over(life, use.ended):
                return _tell("the last receipt was refused", step.operation, use)
    return None


def _may_be_over(life: Life, moment: int) -> bool:
    seconds = life.put.request.ttl_seconds if life.put is not None else None
    return life.put is not None and seconds is not None and _sooner(life.put, seconds) <= moment


def _expired(life: Life) -> str | None:
    put = life.put
    if put is None or put.request.ttl_seconds is None or not isinstance(put.outcome, Done):
        return None
    seconds = put.request.ttl_seconds
    over = put.ended + seconds * NANOSECONDS + drift(seconds)
    for delivery in life.deliveries:
        if delivery.operation.began > over:
            return _tell("its time was over when it was delivered", put, delivery.operation)
    return None


def _texts(life: Life) -> str | None:
    """A message has one id and one text at a time: that of the put, or of the last update."""
    if life.put is None:
        return _tell("nobody put this text", *(each.operation for each in life.deliveries))
    if len(life.ids) > 1:
        return _tell("one put made two messages", *(each.operation for each in life.deliveries))
    written = sorted(
        ((life.place_of(each), each) for each in life.possible(Verb.UPDATE) if each.request.token),
        key=lambda each: each[0],
    )
    for delivery in life.deliveries:
        allowed = {life.token}
        for place, update in written:
            if place < delivery.place:
                known = isinstance(update.outcome, Done)
                allowed = (set() if known else allowed) | {update.request.token}
        if delivery.seen.token not in allowed:
            return _tell(f"its text is none of {sorted(allowed)}", delivery.operation)
    return None


_QUESTIONS: Final[dict[str, Callable[[Life], str | None]]] = {
    LOST: _lost,
    WINDOWS: _windows,
    COUNTS: _counts,
    DELETED: _deleted,
    RECEIPTS: _receipts,
    EXPIRED: _expired,
    TEXTS: _texts,
}
