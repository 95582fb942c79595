"""Runs against a real server that is killed and started again under its clients."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.history.clients import CONTAINER, Asker, Assignment
from tests.history.events import (
    NANOSECONDS,
    Death,
    Done,
    History,
    Operation,
    Request,
    Run,
    Verb,
    read_history,
    read_operations,
    write_history,
)
from tests.history.workloads import (
    APPENDS,
    EXPIRING_LEASES,
    LEASES,
    OVERWRITES,
    PAGES,
    STAGED_BLOCKS,
    Workload,
)
from tests.sdk.blob.clients import blob_service
from tests.server import ROOT, Server, check, environment, eventually, served

WORKLOADS: Final[dict[str, Workload]] = {
    "overwrites": OVERWRITES,
    "blocks": STAGED_BLOCKS,
    "leases": LEASES,
    "expiring": EXPIRING_LEASES,
    "appends": APPENDS,
    "pages": PAGES,
}
"""By the names of the blobs that they are for."""
CLIENTS: Final = 5
LAST_WORDS_SECONDS: Final = 30
ORPHANED_SECONDS_MAX: Final = 60
SNAPSHOTS_LOOKED_AT: Final = 20


class Plan(NamedTuple):
    seed: int
    seconds: float
    workers: int
    workloads: Mapping[str, Workload] = WORKLOADS


class Recorded(NamedTuple):
    history: History
    path: Path
    """Where it is kept for another look."""


def run(directory: Path, plan: Plan) -> Recorded:
    """Returns when the clients are done, and the server, started once more, has shown what it
    kept and was found in order."""
    directory.mkdir(parents=True, exist_ok=True)
    until = _moment_after(plan.seconds + ORPHANED_SECONDS_MAX)
    assignment = Assignment(directory, plan.seed, CLIENTS, until)
    with served(directory / "data", "--workers", str(plan.workers)) as server:
        with blob_service(server) as service:
            service.create_container(CONTAINER)
        _publish(server, assignment)
        with _clients(assignment, plan):
            deaths = _disturb(server, assignment, _moment_after(plan.seconds))
            assignment.stop.touch()
        deaths.append(_kill(server, assignment))
        looks = _look(assignment, plan)
        assert server.stop() == 0, server.log()
    made_by = (
        f"python -m tests.history run --seconds {plan.seconds} --workers {plan.workers}"
        f" --workloads {' '.join(plan.workloads)}"
    )
    recorded = _collect(assignment, Run(made_by, plan.seed), looks, deaths)
    found = check(directory / "data")
    assert found.returncode == 0, f"{found.stdout}{found.stderr}\n{recorded.path}"
    return recorded


def _publish(server: Server, assignment: Assignment) -> None:
    """In one step, so that nobody reads half an address."""
    new = assignment.address.with_suffix(".new")
    new.write_text(server.url("blob"), "ascii")
    new.replace(assignment.address)


@contextmanager
def _clients(assignment: Assignment, plan: Plan) -> Iterator[None]:
    arguments = [str(assignment.directory), str(assignment.seed), str(assignment.until)]
    command = [sys.executable, "-m", "tests.history", "clients", *arguments, *plan.workloads]
    clients = subprocess.Popen(
        command, cwd=ROOT, env=environment(), stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        eventually(lambda: all(map(Path.exists, assignment.records)), "the clients")
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


def _look(assignment: Assignment, plan: Plan) -> list[Operation]:
    """What is there in the end."""
    requests = [Request(Verb.GET, blob) for blob in plan.workloads]
    requests += _last_snapshots(read_operations(*assignment.records))
    asker = Asker(assignment.address, CLIENTS)
    looks = [asker.ask(request) for request in requests]
    asker.close()
    return [look for look in looks if look is not None]


def _last_snapshots(operations: Sequence[Operation]) -> list[Request]:
    taken = [
        Request(Verb.GET_SNAPSHOT, each.request.blob, snapshot=each.outcome.seen.snapshot)
        for each in sorted(operations, key=lambda each: each.ended)
        if isinstance(each.outcome, Done) and each.outcome.seen.snapshot
    ]
    return taken[-SNAPSHOTS_LOOKED_AT:]


def _collect(
    assignment: Assignment, made_by: Run, looks: list[Operation], deaths: list[Death]
) -> Recorded:
    path = assignment.directory / "history.jsonl"
    write_history(path, History(made_by, tuple(looks), tuple(deaths)))
    history = read_history(path, *assignment.records)
    write_history(path, history)
    return Recorded(history, path)
