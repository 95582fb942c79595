"""Operations on queues. The last writer wins."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from etagere.engine.interface import ReadTxn, Refused, Steps, WriteTxn, operation
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
from etagere.operations.named import NamedResources, policies_reader
from etagere.operations.pages import FilledPage, FillPage
from etagere.operations.queue.collections import DISCARDED, QUEUES, VISIBLE
from etagere.rules.queues import check_queue_name, is_same_metadata

_NAMED: Final = NamedResources(QUEUES, "QueueNotFound")
find = _NAMED.find
find_guarded = _NAMED.find_guarded
policies_of = policies_reader(QUEUES, check_queue_name)

_COUNTED_PER_STEP = 50_000


@operation
def create_queue(txn: WriteTxn, command: CreateQueue) -> bool:
    """Creates a queue; returns whether it is new. An existing queue with the same metadata is
    accepted."""
    queue = _NAMED.find_for_creation(txn, command.queue)
    if queue is None:
        txn.put(QUEUES, command.queue.key, Queue(command.contents, command.metadata))
        return True
    if not is_same_metadata(queue.metadata, command.metadata):
        raise Refused(Refusal("QueueAlreadyExists"))
    return False


@operation(reclaims=True)
def delete_queue(txn: WriteTxn, command: DeleteQueue) -> None:
    """Deletes a queue. Its name is free at once; the messages are removed in bounded steps."""
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
    """Sets the stored access policies, effective for the next request to any process."""
    queue = find_guarded(txn, command.queue, exclusive=True)
    changed = msgspec.structs.replace(queue, policies=command.policies)
    txn.put(QUEUES, command.queue.key, changed)


def get_queue(txn: ReadTxn, name: QueueName) -> Queue:
    return find(txn, name)


class CountMessages(NamedTuple):
    """Count the messages of a queue, or of the rest of it."""

    queue: QueueName
    rest: Span | None = None


class CountedMessages(NamedTuple):
    queue: Queue
    messages: int
    rest: Span | None
    """The span that was not counted; None if there is none."""


def count_messages(txn: ReadTxn, command: CountMessages) -> CountedMessages:
    """Counts the messages of a queue, including hidden ones. Puts maintain no counter, so
    counting takes long for a long queue: it uses several snapshots, and is exact only while
    nothing changes."""
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
    return _NAMED.list(txn, command)
