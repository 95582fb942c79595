"""Getting and peeking messages, however many expired ones precede them.

Most requests need one transaction. If many messages have expired and are not removed yet, the
visible ones are searched in a snapshot, in a thread, so that other transactions do not wait.
"""

from __future__ import annotations

from typing import Final

from etagere.engine.interface import Engine, ReadClass
from etagere.model.queues import GetMessages, MessageResult, QueueName
from etagere.operations.queue.messages import (
    FindMessages,
    find_messages,
    get_messages,
    peek_messages,
)

_ROWS_AT_ONCE_MAX: Final = 256
"""The maximum number of rows that are read on the event loop."""


async def take_messages(
    engine: Engine, command: GetMessages, read_class: ReadClass
) -> tuple[MessageResult, ...]:
    """Gets as many visible messages as requested, or all."""
    while True:
        taken = await engine.write(get_messages, command)
        if taken is not None:
            return taken
        find = FindMessages(command.queue, command.count)
        found = await engine.read_in_thread(find_messages, find, read_class)
        while found.rest is not None:
            found = await engine.read_in_thread(
                find_messages, find._replace(before=found), read_class
            )
        if not found.messages:
            return ()
        among = GetMessages(command.queue, command.count, command.invisible_seconds, found.places)
        # If other requests took some, there may be more messages behind those.
        if taken := await engine.write(get_messages, among):
            return taken


async def peek_all_messages(
    engine: Engine, queue: QueueName, count: int, read_class: ReadClass
) -> tuple[MessageResult, ...]:
    """Returns the first visible messages, which stay visible."""
    find = FindMessages(queue, count)
    first = find._replace(rows_max=_ROWS_AT_ONCE_MAX)
    peeked = await engine.read(peek_messages, first)
    while peeked.found.rest is not None:
        goes_on = find._replace(before=peeked.found)
        peeked = await engine.read_in_thread(peek_messages, goes_on, read_class)
    return peeked.messages
