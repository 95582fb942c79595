"""Messages: put, taken, looked at, changed, deleted, and gone when their time is over.

What can be seen stands at the beginning of an order by that moment, so taking a message costs the
same however long the queue is and however many are hidden. Whoever takes one claims its place in
that order and passes over what others hold.
"""

from __future__ import annotations

import msgspec

from etagere.clock import TICKS_PER_SECOND
from etagere.engine.interface import EXCLUSIVE, ReadTxn, Refused, WriteTxn, operation
from etagere.engine.records import Span
from etagere.errors import Refusal
from etagere.model.base import Command
from etagere.model.queues import (
    DeleteMessage,
    GetMessages,
    Message,
    MessageText,
    PeekMessages,
    Place,
    PutMessage,
    ShownMessage,
    UpdateMessage,
)
from etagere.operations.queue.collections import (
    DISCARDED,
    EXPIRING,
    MESSAGES,
    TEXTS,
    VISIBLE,
)
from etagere.operations.queue.queues import find, find_guarded

_SHORT_CHARACTERS_MAX = 1_024
# Messages that are over are removed soon; until then few stand in anybody's way.
_PASSED_OVER_MAX = 1_000
_STEP_AMONG_PAST = 64

_PLACE = Place()


@operation
def put_message(txn: WriteTxn, command: PutMessage) -> ShownMessage:
    contents = find_guarded(txn, command.queue).contents
    now = txn.now
    lives = command.lives_seconds
    message = Message(
        inserted=now,
        expires=None if lives is None else now + lives * TICKS_PER_SECOND,
        visible=now + command.invisible_seconds * TICKS_PER_SECOND,
        receipt=txn.stamp,
        text=command.text if len(command.text) <= _SHORT_CHARACTERS_MAX else None,
    )
    if message.text is None:
        txn.put(TEXTS, (command.id,), MessageText(command.text))
    txn.put(MESSAGES, (contents, command.id), message)
    txn.put(VISIBLE, (contents, message.visible, command.id), _PLACE)
    if message.expires is not None:
        txn.put(EXPIRING, (message.expires, contents, command.id), _PLACE)
    # Who has just sent a long text does not get it back.
    return ShownMessage(command.id, message)


@operation(reclaims=True)  # or a queue on a full disk could not be emptied
def get_messages(txn: WriteTxn, command: GetMessages) -> tuple[ShownMessage, ...]:
    """Takes some of those that can be seen, and hides them for a while."""
    contents = find_guarded(txn, command.queue).contents
    visible = txn.now + command.invisible_seconds * TICKS_PER_SECOND
    taken: list[ShownMessage] = []
    span = _seen(contents, txn.now)
    passed_over = 0
    while len(taken) < command.count and passed_over < _PASSED_OVER_MAX:
        step = _step(command.count - len(taken), passed_over)
        rows = txn.scan(VISIBLE, span, step, claim=True)
        for (_, moment, message_id), _ in rows:
            if len(taken) == command.count:
                break
            message = txn.get(MESSAGES, (contents, message_id), EXCLUSIVE)
            if message is None or _is_over(message, txn.now):
                passed_over += 1
                continue
            txn.delete(VISIBLE, (contents, moment, message_id))
            txn.put(VISIBLE, (contents, visible, message_id), _PLACE)
            changed = msgspec.structs.replace(
                message, visible=visible, receipt=txn.stamp, taken=message.taken + 1
            )
            txn.put(MESSAGES, (contents, message_id), changed)
            taken.append(_shown(txn, message_id, changed))
        if len(rows) < step:
            break
        span = VISIBLE.after(span, rows[-1][0])
    return tuple(taken)


def peek_messages(txn: ReadTxn, command: PeekMessages) -> tuple[ShownMessage, ...]:
    contents = find(txn, command.queue).contents
    shown: list[ShownMessage] = []
    span = _seen(contents, txn.now)
    passed_over = 0
    while len(shown) < command.count and passed_over < _PASSED_OVER_MAX:
        step = _step(command.count - len(shown), passed_over)
        rows = txn.scan(VISIBLE, span, step)
        for (_, _, message_id), _ in rows:
            if len(shown) == command.count:
                break
            message = txn.get(MESSAGES, (contents, message_id))
            if message is None or _is_over(message, txn.now):
                passed_over += 1
                continue
            shown.append(_shown(txn, message_id, message))
        if len(rows) < step:
            break
        span = VISIBLE.after(span, rows[-1][0])
    return tuple(shown)


@operation
def update_message(txn: WriteTxn, command: UpdateMessage) -> ShownMessage:
    """The receipt that it was asked with is worth nothing any more."""
    contents = find_guarded(txn, command.queue).contents
    key, message = _held(txn, contents, command.id, command.receipt)
    visible = txn.now + command.invisible_seconds * TICKS_PER_SECOND
    if message.expires is not None and visible > message.expires:
        raise Refused(Refusal("OutOfRangeQueryParameterValue", _too_long(txn, message, command)))
    txn.delete(VISIBLE, (contents, message.visible, command.id))
    txn.put(VISIBLE, (contents, visible, command.id), _PLACE)
    changed = msgspec.structs.replace(message, visible=visible, receipt=txn.stamp)
    if command.text is not None:
        changed = _with_text(txn, command.id, changed, command.text)
    txn.put(MESSAGES, key, changed)
    return _shown(txn, command.id, changed)


def _too_long(txn: WriteTxn, message: Message, command: UpdateMessage) -> dict[str, str | int]:
    assert message.expires is not None
    return {
        "QueryParameterName": "visibilitytimeout",
        "QueryParameterValue": command.invisible_seconds,
        "MinimumAllowed": 0,
        "MaximumAllowed": (message.expires - txn.now) // TICKS_PER_SECOND,
    }


@operation(reclaims=True)
def delete_message(txn: WriteTxn, command: DeleteMessage) -> None:
    contents = find_guarded(txn, command.queue).contents
    _, message = _held(txn, contents, command.id, command.receipt)
    _remove(txn, contents, command.id, message)


def _held(
    txn: WriteTxn, contents: bytes, message_id: bytes, receipt: int
) -> tuple[tuple[bytes, bytes], Message]:
    """The message, if this is the last receipt that was given for it."""
    key = (contents, message_id)
    message = txn.get(MESSAGES, key, EXCLUSIVE)
    if message is None or _is_over(message, txn.now) or message.receipt != receipt:
        raise Refused(Refusal("MessageNotFound"))
    return key, message


def _step(wanted: int, passed_over: int) -> int:
    """How many to look at: more than are wanted where many are over."""
    return max(wanted, _STEP_AMONG_PAST) if passed_over else wanted


def _seen(contents: bytes, now: int) -> Span:
    """The places of the messages that can be seen by now."""
    return Span(VISIBLE.under((contents,)).start, VISIBLE.under((contents, now)).stop)


def _is_over(message: Message, now: int) -> bool:
    return message.expires is not None and message.expires <= now


def _shown(txn: ReadTxn | WriteTxn, message_id: bytes, message: Message) -> ShownMessage:
    apart = txn.get(TEXTS, (message_id,)) if message.text is None else None
    return ShownMessage(message_id, message, apart.text if apart is not None else "")


def _with_text(txn: WriteTxn, message_id: bytes, message: Message, text: str) -> Message:
    if len(text) > _SHORT_CHARACTERS_MAX:
        txn.put(TEXTS, (message_id,), MessageText(text))
        return msgspec.structs.replace(message, text=None)
    if message.text is None:
        txn.delete(TEXTS, (message_id,))
    return msgspec.structs.replace(message, text=text)


def _remove(txn: WriteTxn, contents: bytes, message_id: bytes, message: Message) -> None:
    txn.delete(MESSAGES, (contents, message_id))
    txn.delete(VISIBLE, (contents, message.visible, message_id))
    if message.expires is not None:
        txn.delete(EXPIRING, (message.expires, contents, message_id))
    if message.text is None:
        txn.delete(TEXTS, (message_id,))


# What is removed later


class PurgeMessages(Command, frozen=True):
    rows_max: int = 100


@operation(reclaims=True)
def expire_messages(txn: WriteTxn, command: PurgeMessages) -> int:
    """One bounded step of removing messages whose time is over; returns how many."""
    span = Span(EXPIRING.all().start, EXPIRING.under((txn.now,)).stop)
    rows = txn.scan(EXPIRING, span, command.rows_max, claim=True)
    for (moment, contents, message_id), _ in rows:
        message = txn.get(MESSAGES, (contents, message_id), EXCLUSIVE)
        if message is None:
            txn.delete(EXPIRING, (moment, contents, message_id))
        else:
            _remove(txn, contents, message_id, message)
    return len(rows)


@operation(reclaims=True)
def purge_contents(txn: WriteTxn, command: PurgeMessages) -> int:
    """One bounded step of removing the messages of deleted and cleared queues; returns how many
    rows that were (0: nothing is left to remove)."""
    for (contents,), _ in txn.scan(DISCARDED, DISCARDED.all(), 1, claim=True):
        rows = txn.scan(MESSAGES, MESSAGES.under((contents,)), command.rows_max)
        for (_, message_id), message in rows:
            _remove(txn, contents, message_id, message)
        if len(rows) < command.rows_max:
            txn.delete(DISCARDED, (contents,))
        return len(rows) + 1
    return 0


def may_purge(txn: ReadTxn, _: None) -> bool:
    """Whether there is something to remove, so that nothing is written when there is not."""
    over = Span(EXPIRING.all().start, EXPIRING.under((txn.now,)).stop)
    return bool(txn.scan(DISCARDED, DISCARDED.all(), 1) or txn.scan(EXPIRING, over, 1))
