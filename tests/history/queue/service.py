"""The queue service, as live runs and the command line need it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from azure.storage.queue import QueueClient

from tests.history.events import NANOSECONDS, drift
from tests.history.queue.checker import Finding, check_history
from tests.history.queue.events import LOG, Done, History, Operation, Request, Seen, Verb
from tests.history.queue.workloads import LIVE, Consumer, Producer
from tests.history.service import (
    ANSWER_SECONDS_MAX,
    RECONNECT_SECONDS,
    RESOURCE,
    Clients,
    HistoryService,
    SdkConnection,
    credential,
    read_addresses,
)
from tests.history.texts import text_of, token_in
from tests.server import eventually

PRODUCERS: Final = 8
CONSUMERS: Final = 8
PUT_PAUSE_SECONDS: Final = 0.03
"""Consumers are faster than producers, so that a message that reappears is soon received again."""
DRAIN_MESSAGES: Final = 32
DRAIN_HIDDEN_SECONDS: Final = 600
DRAINER: Final = -1
"""The number of the client that empties the queue."""


# The verbs as calls of the SDK


def _put(queue: QueueClient, request: Request) -> tuple[Seen, ...]:
    put = queue.send_message(
        text_of(request.token),
        visibility_timeout=request.hidden_seconds,
        time_to_live=request.ttl_seconds or -1,
    )
    return (Seen(put.id, str(put.pop_receipt)),)


def _get(queue: QueueClient, request: Request) -> tuple[Seen, ...]:
    pages = queue.receive_messages(
        messages_per_page=request.count, visibility_timeout=request.hidden_seconds
    ).by_page()
    # One page is one request.
    return tuple(
        Seen(each.id, str(each.pop_receipt), token_in(each.content), each.dequeue_count or 0)
        for each in next(pages, ())
    )


def _update(queue: QueueClient, request: Request) -> tuple[Seen, ...]:
    updated = queue.update_message(
        request.message,
        request.receipt,
        text_of(request.token) if request.token else None,
        visibility_timeout=request.hidden_seconds,
    )
    return (Seen(request.message, str(updated.pop_receipt)),)


def _delete(queue: QueueClient, request: Request) -> tuple[Seen, ...]:
    queue.delete_message(request.message, request.receipt)
    return ()


_ACTIONS: Final[dict[Verb, Callable[[QueueClient, Request], tuple[Seen, ...]]]] = {
    Verb.PUT: _put,
    Verb.GET: _get,
    Verb.UPDATE: _update,
    Verb.DELETE: _delete,
}


class QueueConnection(SdkConnection):
    """A client of the queue service."""

    def connect(self, url: str) -> QueueClient:
        return QueueClient(
            url,
            RESOURCE,
            credential(url),
            retry_total=0,
            connection_timeout=ANSWER_SECONDS_MAX,
            read_timeout=ANSWER_SECONDS_MAX,
        )

    def execute(self, client: Any, request: Request) -> Done:
        return Done(_ACTIONS[request.verb](client, request))


class QueueHistoryService(HistoryService[Operation]):
    """Producers, and consumers that are killed now and then, of one queue."""

    name: ClassVar[str] = "queue"
    log = LOG
    clients = Clients(permanent=PRODUCERS, replaced=CONSUMERS)

    def create_resource(self, url: str) -> None:
        with QueueClient(url, RESOURCE, credential(url)) as queue:
            queue.create_queue()

    def connect(self, address: Path) -> QueueConnection:
        return QueueConnection(address)

    def chooser(self, seed: int, client: int, workloads: Sequence[str]) -> Producer | Consumer:
        kind = Producer if client < PRODUCERS else Consumer
        return kind(seed, client, LIVE)

    def pause_seconds(self, operation: Operation) -> float:
        if operation.request.verb is Verb.PUT:
            return PUT_PAUSE_SECONDS
        received_nothing = operation.request.verb is Verb.GET and operation.outcome == Done()
        return RECONNECT_SECONDS if received_nothing else 0.0

    def final_operations(
        self, address: Path, workloads: Sequence[str], operations: Sequence[Operation]
    ) -> list[Operation]:
        """Receives and deletes all messages, until none can be hidden any more."""
        hidden = max(LIVE.hidden_seconds)
        shown = time.monotonic_ns() + hidden * NANOSECONDS + drift(hidden)
        connection = self.connect(address)
        receive = Request(Verb.GET, count=DRAIN_MESSAGES, hidden_seconds=DRAIN_HIDDEN_SECONDS)
        found: list[Operation] = []
        while True:
            got = self.perform(connection, DRAINER, receive)
            found.append(got)
            assert isinstance(got.outcome, Done), got
            for seen in got.outcome.seen:
                delete = Request(Verb.DELETE, message=seen.message, receipt=seen.receipt)
                found.append(self.perform(connection, DRAINER, delete))
            if not got.outcome.seen:
                if got.began > shown:
                    break
                time.sleep(RECONNECT_SECONDS)
        connection.close()
        # Expired messages are counted until they are removed.
        url = read_addresses(address)[0]
        with QueueClient(url, RESOURCE, credential(url)) as queue:
            eventually(
                lambda: not queue.get_queue_properties().approximate_message_count,
                "an empty queue",
            )
        return found

    def check(self, history: History) -> list[Finding]:
        return check_history(history)


SERVICE: Final = QueueHistoryService()
