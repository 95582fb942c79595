"""Producers and consumers with the public SDK, each a process that records what it asked for and
what it was told. Consumers are killed now and then, and others take their place."""

from __future__ import annotations

import os
import random
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from azure.core.exceptions import AzureError, HttpResponseError
from azure.storage.queue import QueueClient
from urllib3.exceptions import NewConnectionError

from tests.history.clients import ANSWER_SECONDS_MAX, PAUSE_SECONDS
from tests.history.events import Refused, Unknown
from tests.history.queue.events import (
    Answered,
    Asked,
    Done,
    Fallen,
    Operation,
    Outcome,
    Request,
    Seen,
    Verb,
)
from tests.history.queue.texts import text_of, token_in
from tests.history.queue.workloads import LIVE, Chooser, Consumer, Producer
from tests.server import ACCOUNT, KEY

QUEUE: Final = "history"
PRODUCERS: Final = 8
CONSUMERS: Final = 8
PUT_PAUSE_SECONDS: Final = 0.03
"""Consumers are to be faster than producers, so that what comes back is soon taken again."""


class Assignment(NamedTuple):
    """What the clients of a run have to know."""

    directory: Path
    """Where the address is, and where each puts its record."""
    seed: int
    until: int
    """They stop when they are told to, or then: nobody may be left who could tell them."""

    @property
    def address(self) -> Path:
        return self.directory / "address"

    @property
    def stop(self) -> Path:
        """There as soon as they are to stop."""
        return self.directory / "stop"

    def record(self, client: int) -> Path:
        return self.directory / f"client-{client}.jsonl"

    @property
    def is_over(self) -> bool:
        return time.monotonic_ns() >= self.until or self.stop.exists()


class Asker:
    """Asks the server whose address is in a file: it has another one after each restart."""

    def __init__(self, address: Path) -> None:
        self._address = address
        self._queue = self._connect()

    def _connect(self) -> QueueClient:
        """Without retries, which would make of one operation several."""
        return QueueClient(
            self._address.read_text("ascii"),
            QUEUE,
            {"account_name": ACCOUNT, "account_key": KEY},
            retry_total=0,
            connection_timeout=ANSWER_SECONDS_MAX,
            read_timeout=ANSWER_SECONDS_MAX,
        )

    def close(self) -> None:
        self._queue.close()

    def ask(self, request: Request) -> Outcome | None:
        """What came of it; None if it was never sent."""
        try:
            return Done(_ACTIONS[request.verb](self._queue, request))
        except AzureError as error:
            never_sent = isinstance(error.inner_exception, NewConnectionError)
            outcome = None if never_sent else _outcome_of(error)
        if outcome is None or isinstance(outcome, Unknown):
            time.sleep(PAUSE_SECONDS)
            self._queue.close()
            self._queue = self._connect()
        return outcome


def _outcome_of(error: AzureError) -> Refused | Unknown:
    """A server that answers 503 says that nothing happened; other failures say nothing."""
    status = error.status_code if isinstance(error, HttpResponseError) else None
    if status is None or (status >= 500 and status != 503):
        return Unknown(f"{status or type(error).__name__}")
    code = getattr(error, "error_code", None) or f"status {status}"
    return Refused(str(getattr(code, "value", code)))


# What the verbs are in the SDK


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


# The processes


def work(assignment: Assignment, client: int, chooser: Chooser) -> None:
    """One client, until it is time to stop. What it has written of its record stays, even if it
    is killed in the next moment."""
    asker = Asker(assignment.address)
    with assignment.record(client).open("wb", buffering=0) as record:
        while not assignment.is_over:
            request, began = chooser.choose(), time.monotonic_ns()
            record.write(msgspec.json.encode(Asked(client, request, began)) + b"\n")
            outcome, ended = asker.ask(request), time.monotonic_ns()
            record.write(msgspec.json.encode(Answered(ended, outcome)) + b"\n")
            if outcome is not None:
                chooser.learn(Operation(client, request, began, ended, outcome))
            if request.verb is Verb.PUT:
                time.sleep(PUT_PAUSE_SECONDS)
            elif outcome == Done() and request.verb is Verb.GET:
                time.sleep(PAUSE_SECONDS)
    asker.close()


def work_all(assignment: Assignment) -> int:
    """All clients, forked from this process so that the SDK is imported once. Returns how many
    failed."""
    source = random.Random(f"{assignment.seed} killed consumers")
    pids = {
        client: _fork(assignment, client, Producer(assignment.seed, client, LIVE))
        for client in range(PRODUCERS)
    }
    for client in range(PRODUCERS, PRODUCERS + CONSUMERS):
        pids[client] = _fork(assignment, client, Consumer(assignment.seed, client, LIVE))
    newest = PRODUCERS + CONSUMERS - 1
    while not assignment.is_over:
        time.sleep(source.uniform(0.1, 0.5))
        victim = source.choice(sorted(pids)[PRODUCERS:])
        _kill(assignment, victim, pids.pop(victim))
        newest += 1
        pids[newest] = _fork(assignment, newest, Consumer(assignment.seed, newest, LIVE))
    return sum(os.waitpid(pid, 0)[1] != 0 for pid in pids.values())


def _kill(assignment: Assignment, client: int, pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    with assignment.record(client).open("ab") as record:
        # On a line of its own: the client may have been killed in the middle of one.
        record.write(b"\n" + msgspec.json.encode(Fallen(time.monotonic_ns())) + b"\n")


def _fork(assignment: Assignment, client: int, chooser: Chooser) -> int:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work(assignment, client, chooser)
            status = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(status)
    return pid
