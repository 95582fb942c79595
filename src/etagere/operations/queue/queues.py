"""Queues: made, shown, changed and deleted. The last writer wins."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from etagere.engine.interface import EXCLUSIVE, SHARED, ReadTxn, Refused, Steps, WriteTxn, operation
from etagere.engine.records import Span
from etagere.errors import Refusal
from etagere.model.queues import (
    ClearMessages,
    CreateQueue,
    DeleteQueue,
    DiscardedContents,
    ListQueues,
    NamedQueue,
    Queue,
    QueueName,
    SetQueueAccess,
    SetQueueMetadata,
)
from etagere.model.service import SignedIdentifier
from etagere.operations import pages
from etagere.operations.account_records import ACCOUNTS
from etagere.operations.pages import FilledPage, FillPage, Pace
from etagere.operations.queue.collections import DISCARDED, QUEUES, VISIBLE
from etagere.rules.queues import check_queue_name, is_same_metadata

_COUNTED_PER_STEP = 50_000


@operation
def create_queue(txn: WriteTxn, command: CreateQueue) -> bool:
    """Whether it is new; one that is there with the same metadata will do."""
    # Nobody removes the account meanwhile, be it stored or not.
    txn.get(ACCOUNTS, (command.queue.account,), SHARED)
    queue = txn.get(QUEUES, command.queue.key, EXCLUSIVE)
    if queue is None:
        txn.put(QUEUES, command.queue.key, Queue(command.contents, command.metadata))
        return True
    if not is_same_metadata(queue.metadata, command.metadata):
        raise Refused(Refusal("QueueAlreadyExists"))
    return False


@operation(reclaims=True)
def delete_queue(txn: WriteTxn, command: DeleteQueue) -> None:
    """The name is free at once; the messages are removed in bounded steps."""
    queue = find_guarded(txn, command.queue, exclusive=True)
    txn.delete(QUEUES, command.queue.key)
    txn.put(DISCARDED, (queue.contents,), DiscardedContents())


@operation(reclaims=True)
def clear_messages(txn: WriteTxn, command: ClearMessages) -> None:
    queue = find_guarded(txn, command.queue, exclusive=True)
    txn.put(DISCARDED, (queue.contents,), DiscardedContents())
    emptied = msgspec.structs.replace(queue, contents=command.contents)
    txn.put(QUEUES, command.queue.key, emptied)


@operation
def set_queue_metadata(txn: WriteTxn, command: SetQueueMetadata) -> None:
    queue = find_guarded(txn, command.queue, exclusive=True)
    changed = msgspec.structs.replace(queue, metadata=command.metadata)
    txn.put(QUEUES, command.queue.key, changed)


@operation
def set_queue_access(txn: WriteTxn, command: SetQueueAccess) -> None:
    """In force for the next request, whoever it comes to."""
    queue = find_guarded(txn, command.queue, exclusive=True)
    changed = msgspec.structs.replace(queue, policies=command.policies)
    txn.put(QUEUES, command.queue.key, changed)


def get_queue(txn: ReadTxn, name: QueueName) -> Queue:
    return find(txn, name)


class CountMessages(NamedTuple):
    """A queue, and what is left to count of its messages; None: all of them."""

    queue: QueueName
    rest: Span | None = None


class CountedMessages(NamedTuple):
    queue: Queue
    messages: int
    rest: Span | None
    """What was not looked at; None if that is nothing."""


def count_messages(txn: ReadTxn, command: CountMessages) -> CountedMessages:
    """How many messages a queue has, those that are hidden included. Takes long if there are many,
    since no put has to write down that there is one more: so they are counted in several
    snapshots, which is exact only while nothing changes."""
    queue = find(txn, command.queue)
    rest: Span | None = command.rest or VISIBLE.under((queue.contents,))
    count = 0
    while rest is not None:
        counted = txn.count(VISIBLE, rest, _COUNTED_PER_STEP)
        count, rest = count + counted.records, counted.rest
        if txn.is_overdue:
            break
    return CountedMessages(queue, count, rest)


def list_queues(
    txn: ReadTxn, command: FillPage[ListQueues, NamedQueue]
) -> Steps[FilledPage[NamedQueue]]:
    asked = command.asked
    span = QUEUES.under((asked.account,), asked.prefix)
    if asked.marker:
        span = QUEUES.starting(span, (asked.account, asked.marker))
    pace = Pace()
    slices = (
        [(name, queue) for (_, name), queue in rows]
        for rows in pages.scan_in_steps(txn, QUEUES, span, asked.limit, pace)
    )
    return pages.fill(txn, command, slices, asked.limit, pace)


def policies_of(txn: ReadTxn, place: tuple[str, str]) -> tuple[SignedIdentifier, ...]:
    """The stored policies of a queue, by account and name, whatever that may be."""
    if check_queue_name(place[1]) is not None:
        return ()
    queue = txn.get(QUEUES, place)
    return queue.policies if queue is not None else ()


def find(txn: ReadTxn, name: QueueName) -> Queue:
    queue = txn.get(QUEUES, name.key)
    if queue is None:
        raise Refused(Refusal("QueueNotFound"))
    return queue


def find_guarded(txn: WriteTxn, name: QueueName, *, exclusive: bool = False) -> Queue:
    """Shared for whoever changes what is in it, exclusive for whoever changes itself."""
    queue = txn.get(QUEUES, name.key, EXCLUSIVE if exclusive else SHARED)
    if queue is None:
        raise Refused(Refusal("QueueNotFound"))
    return queue
