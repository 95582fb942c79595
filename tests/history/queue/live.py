"""Runs against a real server that is killed and started again under its clients."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from azure.storage.queue import QueueClient

from tests.history.clients import PAUSE_SECONDS
from tests.history.events import NANOSECONDS, Death, Run
from tests.history.lease_model import drift
from tests.history.queue.clients import CONSUMERS, PRODUCERS, QUEUE, Asker, Assignment
from tests.history.queue.events import (
    Done,
    History,
    Operation,
    Request,
    Verb,
    in_order,
    read_record,
    write_history,
)
from tests.history.queue.workloads import LIVE
from tests.server import ACCOUNT, KEY, ROOT, Server, check, environment, eventually, served

LAST_WORDS_SECONDS: Final = 30
ORPHANED_SECONDS_MAX: Final = 60
DRAINED_AT_ONCE: Final = 32
DRAINED_HIDDEN_SECONDS: Final = 600
DRAINER: Final = -1
"""The client that takes what is left."""


class Plan(NamedTuple):
    seed: int
    seconds: float
    workers: int


class Recorded(NamedTuple):
    history: History
    path: Path
    """Where it is kept for another look."""


def run(directory: Path, plan: Plan) -> Recorded:
    """Returns when the clients are done and the server, started once more, has given away all that
    it kept, and was found in order."""
    directory.mkdir(parents=True, exist_ok=True)
    until = _moment_after(plan.seconds + ORPHANED_SECONDS_MAX)
    assignment = Assignment(directory, plan.seed, until)
    with served(directory / "data", "--workers", str(plan.workers)) as server:
        _publish(server, assignment)
        with _queue(assignment) as queue:
            queue.create_queue()
        with _clients(assignment):
            deaths = _disturb(server, assignment, _moment_after(plan.seconds))
            assignment.stop.touch()
        deaths.append(_kill(server, assignment))
        operations = _drain(assignment)
        with _queue(assignment) as queue:
            eventually(lambda: _messages(queue) == 0, "a queue in which nothing is counted")
        assert server.stop() == 0, server.log()
    found = check(directory / "data")
    assert found.returncode == 0, found.stdout + found.stderr
    for record in directory.glob("client-*.jsonl"):
        operations += read_record(record)
    made_by = f"python -m tests.history.queue run --seconds {plan.seconds} --workers {plan.workers}"
    history = History(Run(made_by, plan.seed), in_order(operations), tuple(deaths))
    path = directory / "history.jsonl"
    write_history(path, history)
    return Recorded(history, path)


def _queue(assignment: Assignment) -> QueueClient:
    credential = {"account_name": ACCOUNT, "account_key": KEY}
    return QueueClient(assignment.address.read_text("ascii"), QUEUE, credential)


def _messages(queue: QueueClient) -> int:
    """What has expired is counted until it is removed."""
    return queue.get_queue_properties().approximate_message_count or 0


def _publish(server: Server, assignment: Assignment) -> None:
    """In one step, so that nobody reads half an address."""
    new = assignment.address.with_suffix(".new")
    new.write_text(f"{server.endpoints['queue']}/{ACCOUNT}", "ascii")
    new.replace(assignment.address)


@contextmanager
def _clients(assignment: Assignment) -> Iterator[None]:
    arguments = [str(assignment.directory), str(assignment.seed), str(assignment.until)]
    command = [sys.executable, "-m", "tests.history.queue", "clients", *arguments]
    clients = subprocess.Popen(
        command, cwd=ROOT, env=environment(), stderr=subprocess.PIPE, start_new_session=True
    )
    first = [assignment.record(client) for client in range(PRODUCERS + CONSUMERS)]
    try:
        eventually(lambda: all(map(Path.exists, first)), "the clients")
        yield
        _, errors = clients.communicate(timeout=LAST_WORDS_SECONDS)
        assert clients.returncode == 0, errors.decode()
    finally:
        if clients.poll() is None:
            os.killpg(clients.pid, signal.SIGKILL)
            clients.communicate()


def _disturb(server: Server, assignment: Assignment, until: int) -> list[Death]:
    """Kills the whole server and one of its processes, which it replaces by itself, in turn."""
    source = random.Random(f"{assignment.seed} kills")
    deaths: list[Death] = []
    while _sleep(source.uniform(0.7, 1.5), until):
        deaths.append(_kill(server, assignment))
        if _sleep(source.uniform(0.7, 1.5), until):
            os.kill(source.choice(server.children()), signal.SIGKILL)
    return deaths


def _sleep(seconds: float, until: int) -> bool:
    """Whether there is time left afterwards."""
    left = (until - time.monotonic_ns()) / NANOSECONDS
    time.sleep(max(0.0, min(left, seconds)))
    return seconds < left


def _moment_after(seconds: float) -> int:
    return time.monotonic_ns() + int(seconds * NANOSECONDS)


def _kill(server: Server, assignment: Assignment) -> Death:
    server.kill()
    death = Death(time.monotonic_ns(), time.monotonic_ns())
    server.start()
    _publish(server, assignment)
    return death


def _drain(assignment: Assignment) -> list[Operation]:
    """Takes and deletes whatever is left, until nothing can be hidden any more. Nobody disturbs."""
    hidden = max(LIVE.hidden_seconds)
    shown = time.monotonic_ns() + hidden * NANOSECONDS + drift(hidden)
    asker = Asker(assignment.address)
    operations: list[Operation] = []

    def ask(request: Request) -> Operation:
        began = time.monotonic_ns()
        outcome = asker.ask(request)
        assert outcome is not None
        operations.append(Operation(DRAINER, request, began, time.monotonic_ns(), outcome))
        return operations[-1]

    while True:
        got = ask(Request(Verb.GET, count=DRAINED_AT_ONCE, hidden_seconds=DRAINED_HIDDEN_SECONDS))
        assert isinstance(got.outcome, Done), got
        for seen in got.outcome.seen:
            ask(Request(Verb.DELETE, message=seen.message, receipt=seen.receipt))
        if not got.outcome.seen and got.began > shown:
            asker.close()
            return operations
        if not got.outcome.seen:
            time.sleep(PAUSE_SECONDS)
