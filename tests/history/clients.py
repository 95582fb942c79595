"""The client processes of a live run, each with an event log of its own."""

from __future__ import annotations

import os
import random
import signal
import time
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tests.history.events import Answered, Asked, Killed
from tests.history.service import HistoryService


class Assignment(NamedTuple):
    """What the clients of a run have to know."""

    directory: Path
    """Where the server's address and the logs are."""
    seed: int
    until: int
    """The time at which they stop at the latest, even if no process stops them."""
    workloads: tuple[str, ...] = ()
    kills_clients: bool = True
    """Whether those clients are killed now and then that a service allows to be. What they ask for
    last may be carried out until the server is restarted; a cluster is not."""

    @property
    def address(self) -> Path:
        return self.directory / "address"

    @property
    def stop(self) -> Path:
        """A file that is created to stop the clients."""
        return self.directory / "stop"

    def log(self, client: int) -> Path:
        return self.directory / f"client-{client}.jsonl"

    def logs(self) -> list[Path]:
        return sorted(self.directory.glob("client-*.jsonl"))

    @property
    def is_over(self) -> bool:
        return time.monotonic_ns() >= self.until or self.stop.exists()


def run_client(service: HistoryService[Any], assignment: Assignment, client: int) -> None:
    """Sends the requests of one client until it is time to stop."""
    chooser = service.chooser(assignment.seed, client, assignment.workloads)
    connection = service.connect(assignment.address)
    # Unbuffered: what is written remains if the process is killed.
    with assignment.log(client).open("wb", buffering=0) as log:
        while not assignment.is_over:
            request, began = chooser.choose(), time.monotonic_ns()
            log.write(msgspec.json.encode(Asked(client, request, began)) + b"\n")
            outcome, ended = connection.ask(request), time.monotonic_ns()
            log.write(msgspec.json.encode(Answered(ended, outcome)) + b"\n")
            if outcome is not None:
                operation = service.log.operation(client, request, began, ended, outcome)
                chooser.learn(operation)
                time.sleep(service.pause_seconds(operation))
    connection.close()


def run_clients(service: HistoryService[Any], assignment: Assignment) -> int:
    """Runs all clients, kills and replaces some, and returns how many failed.

    The processes are forked from this one, so that the SDK is imported once.
    """
    clients = service.clients
    pids = {client: _fork(service, assignment, client) for client in range(clients.total)}
    if clients.replaced and assignment.kills_clients:
        source = random.Random(f"{assignment.seed} killed clients")
        newest = clients.total - 1
        while not assignment.is_over:
            time.sleep(source.uniform(0.1, 0.5))
            victim = source.choice(sorted(pids)[clients.permanent :])
            _kill(assignment, victim, pids.pop(victim))
            newest += 1
            pids[newest] = _fork(service, assignment, newest)
    return sum(os.waitpid(pid, 0)[1] != 0 for pid in pids.values())


def _kill(assignment: Assignment, client: int, pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    with assignment.log(client).open("ab") as log:
        # On a new line: the client may have been killed in the middle of one.
        log.write(b"\n" + msgspec.json.encode(Killed(time.monotonic_ns())) + b"\n")


def _fork(service: HistoryService[Any], assignment: Assignment, client: int) -> int:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            run_client(service, assignment, client)
            status = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(status)
    return pid
