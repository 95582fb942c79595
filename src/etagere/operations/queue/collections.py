"""The collections of the queue service."""

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
# Messages with their texts are long rows, which would also fill the inner nodes of the key's
# B-tree.
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
