"""Records and commands of queues and messages.

The messages of a queue are stored under an id that changes when the queue is cleared, so that
clearing, like deleting, is one step whatever the queue contains. Messages are indexed by id, by the
time at which they become visible, and by the time at which they expire.
"""

from __future__ import annotations

from etagere.model.base import Command, Part, Record
from etagere.model.common import ListNamed, Metadata
from etagere.model.service import SignedIdentifier


class Queue(Record, frozen=True):
    """A queue under (account, name)."""

    contents: bytes
    """The id under which its messages are stored."""
    metadata: Metadata = ()
    policies: tuple[SignedIdentifier, ...] = ()


class Message(Record, frozen=True):
    """A message under (contents, id)."""

    inserted: int
    expires: int | None
    visible: int
    receipt: int
    """The pop receipt: the stamp of the last put, get or update."""
    text: str | None
    """None if it is long and stored separately, so that a get writes little."""
    taken: int = 0
    """The dequeue count."""


class MessageText(Record, frozen=True):
    """The text of a message, if it is long, under the message's id."""

    text: str


class MessageIndexRow(Record, frozen=True):
    """A row of two indexes: under (contents, time, id) the time at which the message becomes
    visible, and under (time, contents, id) the time at which it expires."""

    expires: int | None = None
    """In the first index: when the message expires, so that expired ones are skipped without
    reading them. None: the message itself tells."""


class DiscardedContents(Record, frozen=True):
    """Messages of deleted and cleared queues that are still to be removed."""


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
    """None: no expiry."""


class MessagePlaces(Part, frozen=True):
    """The visible messages of a queue, as found in a snapshot."""

    contents: bytes
    places: tuple[tuple[int, bytes], ...]
    """The time at which each became visible, and its id."""


class GetMessages(Command, frozen=True):
    queue: QueueName
    count: int
    invisible_seconds: int
    among: MessagePlaces | None = None
    """The messages to choose from; None: the first in the queue."""


class UpdateMessage(Command, frozen=True):
    queue: QueueName
    id: bytes
    receipt: int
    invisible_seconds: int
    text: str | None
    """None: unchanged."""


class DeleteMessage(Command, frozen=True):
    queue: QueueName
    id: bytes
    receipt: int


class ClearMessages(Command, frozen=True):
    queue: QueueName
    contents: bytes
    """The id for future messages."""


class MessageResult(Part, frozen=True):
    id: bytes
    message: Message
    long_text: str = ""
    """The text, if it is stored separately."""

    @property
    def text(self) -> str:
        return self.long_text if self.message.text is None else self.message.text
