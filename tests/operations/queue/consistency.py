"""Checks that the records of the queue service agree with each other."""

from __future__ import annotations

from typing import Any, Final

from etagere.engine.interface import ReadTxn, WriteTxn, operation
from etagere.engine.records import Collection
from etagere.model.queues import MessageIndexRow
from etagere.operations.queue.collections import (
    DISCARDED,
    EXPIRING,
    MESSAGES,
    QUEUES,
    TEXTS,
    VISIBLE,
)
from tests.operations.blob.consistency import rows

OF_MESSAGES: Final[tuple[Collection[Any, Any], ...]] = (
    MESSAGES,
    TEXTS,
    VISIBLE,
    EXPIRING,
    DISCARDED,
)


def require_consistent(txn: ReadTxn, _: None) -> None:
    """Checks that each message is once in each order, and that its text is in one place."""
    messages = rows(txn, MESSAGES)
    assert rows(txn, VISIBLE) == {
        (contents, message.visible, message_id): MessageIndexRow(message.expires)
        for (contents, message_id), message in messages.items()
    }
    assert rows(txn, EXPIRING).keys() == {
        (message.expires, contents, message_id)
        for (contents, message_id), message in messages.items()
        if message.expires is not None
    }
    assert rows(txn, TEXTS).keys() == {
        (message_id,) for (_, message_id), message in messages.items() if message.text is None
    }
    held = {queue.contents for queue in rows(txn, QUEUES).values()}
    discarded = {contents for (contents,) in rows(txn, DISCARDED)}
    assert not held & discarded
    assert {contents for contents, _ in messages} <= held | discarded


def message_records(txn: ReadTxn, _: None) -> dict[str, int]:
    """Counts the records of messages by collection, leaving out empty collections."""
    counts = {collection.name: len(rows(txn, collection)) for collection in OF_MESSAGES}
    return {name: count for name, count in counts.items() if count}


@operation
def remove_expiry_from_places(txn: WriteTxn, _: None) -> None:
    """Rewrites the places of messages as older versions stored them."""
    for key, _place in txn.scan(VISIBLE, VISIBLE.all(), 10_000):
        txn.put(VISIBLE, key, MessageIndexRow())
