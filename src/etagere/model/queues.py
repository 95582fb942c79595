"""Queues and their messages: what is stored of them, and what can be asked of them.

A queue has its messages under an id that changes when it is cleared, so that clearing, like
deleting, is one step whatever there is. A message stands in three orders: by its id, by the
moment at which it can be seen (again), and by the one at which it is gone.
"""

from __future__ import annotations

from etagere.model.base import Command, Part, Record
from etagere.model.common import ListNamed, Metadata
from etagere.model.service import SignedIdentifier


class Queue(Record, frozen=True):
    """A queue under (account, name)."""

    contents: bytes
    """Where its messages are."""
    metadata: Metadata = ()
    policies: tuple[SignedIdentifier, ...] = ()


class Message(Record, frozen=True):
    """A message under (contents, id)."""

    inserted: int
    expires: int | None
    visible: int
    receipt: int
    """The stamp of the last time it was put, taken or updated."""
    text: str | None
    """None if it is long and kept apart, so that taking a message moves little."""
    taken: int = 0
    """How often."""


class MessageText(Record, frozen=True):
    """A long text, under the message's id."""

    text: str


class MessageIndexRow(Record, frozen=True):
    """Says, under (contents, moment, id), that the message can be seen from then on; or, under
    (moment, contents, id), that it is gone from then on."""

    expires: int | None = None
    """Under the first key: when the message expires, so that expired ones are skipped without
    reading them. None: the message itself says."""


class DiscardedContents(Record, frozen=True):
    """Messages that no queue has any more and that are still to be removed."""


# Queues


class QueueName(Part, frozen=True):
    account: str
    name: str

    @property
    def key(self) -> tuple[str, str]:
        return self.account, self.name


class CreateQueue(Command, frozen=True):
    queue: QueueName
    contents: bytes
    metadata: Metadata = ()


class DeleteQueue(Command, frozen=True):
    queue: QueueName


class SetQueueMetadata(Command, frozen=True):
    queue: QueueName
    metadata: Metadata


class SetQueueAccess(Command, frozen=True):
    queue: QueueName
    policies: tuple[SignedIdentifier, ...]


class ListQueues(ListNamed, frozen=True):
    """List the queues of an account."""


NamedQueue = tuple[str, Queue]
"""A row of a listing."""


# Messages


class PutMessage(Command, frozen=True):
    queue: QueueName
    id: bytes
    text: str
    invisible_seconds: int
    ttl_seconds: int | None
    """None: for ever."""


class MessagePlaces(Part, frozen=True):
    """Visible messages of a queue, as they were found in a snapshot."""

    contents: bytes
    places: tuple[tuple[int, bytes], ...]
    """The moment from which each can be seen, and its id."""


class GetMessages(Command, frozen=True):
    queue: QueueName
    count: int
    invisible_seconds: int
    among: MessagePlaces | None = None
    """Where to look; None: among the first in the queue."""


class UpdateMessage(Command, frozen=True):
    queue: QueueName
    id: bytes
    receipt: int
    invisible_seconds: int
    text: str | None
    """None: as it is."""


class DeleteMessage(Command, frozen=True):
    queue: QueueName
    id: bytes
    receipt: int


class ClearMessages(Command, frozen=True):
    queue: QueueName
    contents: bytes
    """For those to come."""


class MessageResult(Part, frozen=True):
    id: bytes
    message: Message
    long_text: str = ""
    """If it is kept apart."""

    @property
    def text(self) -> str:
        return self.long_text if self.message.text is None else self.message.text
