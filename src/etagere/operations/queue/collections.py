"""Where the things of the queue service are kept."""

from __future__ import annotations

from etagere.engine.records import ID, TEXT, UINT, Collection, Layout
from etagere.model.queues import (
    DiscardedContents,
    Message,
    MessageIndexRow,
    MessageText,
    Queue,
)

QUEUES: Collection[tuple[str, str], Queue] = Collection("queues", Queue, (TEXT, TEXT))
# With their texts they are long rows, which would fill the inner nodes of a tree of keys too.
MESSAGES: Collection[tuple[bytes, bytes], Message] = Collection(
    "messages", Message, (ID, ID), layout=Layout.LARGE
)
TEXTS: Collection[tuple[bytes], MessageText] = Collection(
    "message_texts", MessageText, (ID,), layout=Layout.LARGE
)
VISIBLE: Collection[tuple[bytes, int, bytes], MessageIndexRow] = Collection(
    "visible_messages", MessageIndexRow, (ID, UINT, ID)
)
EXPIRING: Collection[tuple[int, bytes, bytes], MessageIndexRow] = Collection(
    "expiring_messages", MessageIndexRow, (UINT, ID, ID)
)
DISCARDED: Collection[tuple[bytes], DiscardedContents] = Collection(
    "discarded_contents", DiscardedContents, (ID,)
)
