"""Operations on messages.

An index orders messages by the time at which they become visible, so getting a message costs the
same however long the queue is and however many messages are hidden. A get claims rows of this index
and skips those that other transactions hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

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
    MessageIndexRow,
    MessagePlaces,
    MessageResult,
    MessageText,
    PutMessage,
    QueueName,
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
from etagere.operations.removal import RemovalStep

_SHORT_CHARACTERS_MAX = 1_024
# Other requests wait for a write transaction, so it skips no more expired messages than this. A
# search in a snapshot skips all of them.
_PASSED_OVER_MAX = 256
_STEP_AMONG_PAST = 64
_FILTERED_ROWS = 4_096

_INDEX_ROW = MessageIndexRow()


@operation
def put_message(txn: WriteTxn, command: PutMessage) -> MessageResult:
    contents = find_guarded(txn, command.queue).contents
    now = txn.now
    lives = command.ttl_seconds
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
    txn.put(VISIBLE, (contents, message.visible, command.id), MessageIndexRow(message.expires))
    if message.expires is not None:
        txn.put(EXPIRING, (message.expires, contents, command.id), _INDEX_ROW)
    # The response of Put Message does not contain the text.
    return MessageResult(command.id, message)


@operation(reclaims=True)  # or a queue on a full disk could not be emptied
def get_messages(txn: WriteTxn, command: GetMessages) -> tuple[MessageResult, ...] | None:
    """Gets visible messages and hides them. Returns None, without a change, if too many expired
    messages precede them; `find_messages` finds those behind them."""
    contents = find_guarded(txn, command.queue).contents
    if command.among is None:
        found = _claim_first(txn, contents, command.count)
        if found is None:
            return None
    else:
        found = _claim_among(txn, contents, command.among, command.count)
    visible = txn.now + command.invisible_seconds * TICKS_PER_SECOND
    taken: list[MessageResult] = []
    for message_id, message in found:
        txn.delete(VISIBLE, (contents, message.visible, message_id))
        txn.put(VISIBLE, (contents, visible, message_id), MessageIndexRow(message.expires))
        changed = msgspec.structs.replace(
            message, visible=visible, receipt=txn.stamp, taken=message.taken + 1
        )
        txn.put(MESSAGES, (contents, message_id), changed)
        taken.append(_message_result(txn, message_id, changed))
    return tuple(taken)


_Claimed = list[tuple[bytes, Message]]


def _claim_first(txn: WriteTxn, contents: bytes, count: int) -> _Claimed | None:
    """Claims the first visible messages of a queue; returns None if too many expired ones precede
    them."""
    found: _Claimed = []
    span = _seen(contents, txn.now)
    passed_over = 0
    while len(found) < count:
        if passed_over > _PASSED_OVER_MAX:
            return None
        step = _step(count - len(found), passed_over)
        rows = txn.scan(VISIBLE, span, step, claim=True)
        for (_, _, message_id), place in rows:
            if len(found) == count:
                break
            message = None
            if not _has_expired(place, txn.now):
                message = txn.get(MESSAGES, (contents, message_id), EXCLUSIVE)
            if message is None or _has_expired(message, txn.now):
                passed_over += 1
            else:
                found.append((message_id, message))
        if len(rows) < step:
            break
        span = VISIBLE.after(span, rows[-1][0])
    return found


def _claim_among(txn: WriteTxn, contents: bytes, among: MessagePlaces, count: int) -> _Claimed:
    """Claims those of the given messages that still exist, are visible, and not claimed by
    others."""
    found: _Claimed = []
    if contents != among.contents:
        return found
    for moment, message_id in among.places:
        if len(found) == count:
            break
        if not txn.scan(VISIBLE, VISIBLE.under((contents, moment, message_id)), 1, claim=True):
            continue
        message = txn.get(MESSAGES, (contents, message_id), EXCLUSIVE)
        if message is not None and not _has_expired(message, txn.now):
            found.append((message_id, message))
    return found


# Finding


class FoundMessage(NamedTuple):
    """A visible message in a snapshot."""

    moment: int
    """When it became visible."""
    id: bytes
    message: Message


class FoundMessages(NamedTuple):
    """The first visible messages of a queue."""

    contents: bytes
    messages: tuple[FoundMessage, ...]
    rest: Span | None = None
    """Where to continue; None if there are no more messages, or enough were found."""

    @property
    def places(self) -> MessagePlaces:
        return MessagePlaces(self.contents, tuple((row.moment, row.id) for row in self.messages))


class FindMessages(NamedTuple):
    """Find the first visible messages of a queue."""

    queue: QueueName
    messages_max: int
    rows_max: int | None = None
    """The maximum number of rows to read; None: as many as one snapshot allows."""
    before: FoundMessages | None = None
    """The result of an unfinished search, to continue."""


def find_messages(txn: ReadTxn, command: FindMessages) -> FoundMessages:
    """Finds the first visible messages, however many expired ones precede them. If those are very
    many, the result says where to continue in another snapshot."""
    contents = find(txn, command.queue).contents
    found: list[FoundMessage] = []
    rest: Span | None = _seen(contents, txn.now)
    before = command.before
    if before is not None and before.contents == contents:
        found, rest = list(before.messages), before.rest
    now, count = txn.now, command.messages_max
    while rest is not None:
        filtered = txn.scan_filtered(
            VISIBLE,
            rest,
            command.rows_max or _FILTERED_ROWS,
            lambda place: not _has_expired(place, now),
        )
        rest = filtered.rest
        keys = [key for key, _ in filtered.rows]
        while keys and len(found) < count:
            wanted = count - len(found)
            found += _alive(txn, keys[:wanted])
            keys = keys[wanted:]
        if len(found) == count:
            rest = None
        elif command.rows_max is not None or txn.is_overdue:
            break
    return FoundMessages(contents, tuple(found), rest)


def _alive(txn: ReadTxn, keys: list[tuple[bytes, int, bytes]]) -> Iterator[FoundMessage]:
    messages = txn.get_all(MESSAGES, [(contents, message_id) for contents, _, message_id in keys])
    for (_, moment, message_id), message in zip(keys, messages, strict=True):
        if message is not None and not _has_expired(message, txn.now):
            yield FoundMessage(moment, message_id, message)


class PeekedMessages(NamedTuple):
    """The peeked messages; empty until all are found."""

    messages: tuple[MessageResult, ...]
    found: FoundMessages


def peek_messages(txn: ReadTxn, command: FindMessages) -> PeekedMessages:
    found = find_messages(txn, command)
    if found.rest is not None:
        return PeekedMessages((), found)
    messages = iter(found.messages)
    if command.before is not None:
        # Messages from an earlier snapshot may be gone or hidden by now.
        keys = [(found.contents, row.moment, row.id) for row in found.messages]
        messages = (row for row in _alive(txn, keys) if row.message.visible <= txn.now)
    shown = tuple([_message_result(txn, row.id, row.message) for row in messages])
    return PeekedMessages(shown, found)


# Update and delete


@operation
def update_message(txn: WriteTxn, command: UpdateMessage) -> MessageResult:
    """Updates a message and gives it a new pop receipt."""
    contents = find_guarded(txn, command.queue).contents
    key, message = _held(txn, contents, command.id, command.receipt)
    visible = txn.now + command.invisible_seconds * TICKS_PER_SECOND
    if message.expires is not None and visible > message.expires:
        raise Refused(Refusal("OutOfRangeQueryParameterValue", _too_long(txn, message, command)))
    txn.delete(VISIBLE, (contents, message.visible, command.id))
    txn.put(VISIBLE, (contents, visible, command.id), MessageIndexRow(message.expires))
    changed = msgspec.structs.replace(message, visible=visible, receipt=txn.stamp)
    if command.text is not None:
        changed = _with_text(txn, command.id, changed, command.text)
    txn.put(MESSAGES, key, changed)
    return _message_result(txn, command.id, changed)


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
    """Returns a message if this is its current pop receipt."""
    key = (contents, message_id)
    message = txn.get(MESSAGES, key, EXCLUSIVE)
    if message is None or _has_expired(message, txn.now) or message.receipt != receipt:
        raise Refused(Refusal("MessageNotFound"))
    return key, message


def _step(wanted: int, passed_over: int) -> int:
    """Returns how many rows to read: more than wanted if there are expired messages."""
    return max(wanted, _STEP_AMONG_PAST) if passed_over else wanted


def _seen(contents: bytes, now: int) -> Span:
    """Returns the span of the visible messages."""
    return Span(VISIBLE.under((contents,)).start, VISIBLE.under((contents, now)).stop)


def _has_expired(known: Message | MessageIndexRow, now: int) -> bool:
    """Returns whether a message has expired, by its record or its index row."""
    return known.expires is not None and known.expires <= now


def _message_result(txn: ReadTxn | WriteTxn, message_id: bytes, message: Message) -> MessageResult:
    apart = txn.get(TEXTS, (message_id,)) if message.text is None else None
    return MessageResult(message_id, message, apart.text if apart is not None else "")


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


# Removal


class PurgeMessages(Command, frozen=True):
    rows_max: int = 100


@operation(reclaims=True)
def expire_messages(txn: WriteTxn, command: PurgeMessages) -> int:
    """Removes expired messages in one bounded step; returns how many."""
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
    """Removes messages of deleted and cleared queues in one bounded step; returns how many rows (0:
    nothing is left to remove)."""
    for (contents,), _ in txn.scan(DISCARDED, DISCARDED.all(), 1, claim=True):
        step, removed = RemovalStep(command.rows_max), 0
        for (_, message_id), message in step.rows(txn, MESSAGES, MESSAGES.under((contents,))):
            _remove(txn, contents, message_id, message)
            removed += 1
        if not step.is_over:
            txn.delete(DISCARDED, (contents,))
        return removed + 1
    return 0


def may_purge(txn: ReadTxn, _: None) -> bool:
    """Returns whether there is something to remove, so that nothing is written if there is not."""
    over = Span(EXPIRING.all().start, EXPIRING.under((txn.now,)).stop)
    return bool(txn.scan(DISCARDED, DISCARDED.all(), 1) or txn.scan(EXPIRING, over, 1))
