"""Tasks: messages that name the photos whose thumbnails are to be made."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.storage.queue import QueueClient, QueueServiceClient

QUEUE, POISON_QUEUE = "thumbnails", "thumbnails-poison"
TAKES_MAX = 3


class TaskLost(Exception):
    """The task was taken by another worker meanwhile, because this one was too slow."""


@dataclass(frozen=True)
class Task:
    """A task that a worker has taken."""

    photo: str
    takes: int
    message_id: str
    pop_receipt: str


class Tasks:
    """The tasks for workers. Each is done at least once."""

    def __init__(self, service: QueueServiceClient) -> None:
        self._queue: QueueClient = service.get_queue_client(QUEUE)
        self._poison: QueueClient = service.get_queue_client(POISON_QUEUE)

    def create(self) -> None:
        """Creates the queues. Does nothing if they exist."""
        for queue in (self._queue, self._poison):
            with suppress(ResourceExistsError):
                queue.create_queue()

    def add(self, photo: str, *, delay_seconds: int = 0) -> None:
        self._queue.send_message(photo, visibility_timeout=delay_seconds)

    def take(self, *, seconds: int = 30) -> Task | None:
        """Takes a task for this long, or returns None if there is none. A task that was taken too
        often is put aside: it probably cannot be done."""
        while True:
            message = self._queue.receive_message(visibility_timeout=seconds)
            if message is None:
                return None
            task = Task(
                str(message.content),
                int(message.dequeue_count or 0),
                str(message.id),
                str(message.pop_receipt),
            )
            if task.takes <= TAKES_MAX:
                return task
            self._poison.send_message(task.photo)
            self.finish(task)

    def extend(self, task: Task, seconds: int) -> Task:
        """Keeps a task for longer; the returned task replaces the one that was taken."""
        try:
            renewed = self._queue.update_message(
                task.message_id, task.pop_receipt, visibility_timeout=seconds
            )
        except ResourceNotFoundError:
            raise TaskLost(task.photo) from None
        return Task(task.photo, task.takes, task.message_id, str(renewed.pop_receipt))

    def give_back(self, task: Task) -> None:
        """Lets another worker take the task at once."""
        self.extend(task, 0)

    def finish(self, task: Task) -> None:
        """Removes a task that is done."""
        try:
            self._queue.delete_message(task.message_id, task.pop_receipt)
        except ResourceNotFoundError:
            raise TaskLost(task.photo) from None

    def waiting(self) -> int:
        """Returns about how many tasks there are."""
        return self._queue.get_queue_properties().approximate_message_count or 0

    def put_aside(self) -> list[str]:
        """Returns the photos whose tasks could not be done."""
        return [str(message.content) for message in self._poison.peek_messages(max_messages=32)]

    def close(self) -> None:
        self._queue.close()
        self._poison.close()
