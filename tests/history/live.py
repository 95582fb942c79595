"""Live runs: clients of a real server that is killed and restarted while they work."""

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
from typing import Any, Final, Generic, NamedTuple

from tests.history.clients import Assignment
from tests.history.events import (
    NANOSECONDS,
    Crash,
    History,
    OperationT,
    Run,
    ServerKill,
    in_order,
)
from tests.history.service import HistoryService
from tests.server import ROOT, Server, check, environment, eventually, served

CLIENTS_END_SECONDS_MAX: Final = 30
EXTENSION_MAX: Final = 4
ORPHANED_SECONDS_MAX: Final = 60
"""How long clients go on if the process that started them is gone."""


class Plan(NamedTuple):
    """The parameters of a live run."""

    seed: int
    seconds: float
    workers: int
    workloads: tuple[str, ...] = ()
    """Empty: all workloads of the service."""
    operations_min: int = 0
    """A run with fewer operations goes on, at most for four times as long."""


class Recorded(NamedTuple, Generic[OperationT]):
    """A history, and the file that it can be replayed from."""

    history: History[OperationT]
    path: Path


def run(directory: Path, plan: Plan, service: HistoryService[OperationT]) -> Recorded[OperationT]:
    """Makes a history, and asserts that the server stops and that its data is consistent."""
    directory.mkdir(parents=True, exist_ok=True)
    workloads = plan.workloads or tuple(service.workloads)
    seconds_max = plan.seconds * EXTENSION_MAX
    until = time.monotonic_ns() + int((seconds_max + ORPHANED_SECONDS_MAX) * NANOSECONDS)
    assignment = Assignment(directory, plan.seed, until, workloads)
    with served(directory / "data", "--workers", str(plan.workers)) as server:
        service.create_resource(service.url(server))
        _publish_address(server, assignment, service)
        with running_clients(assignment, service):
            kills, crashes = _disturb(server, assignment, service, plan)
            assignment.stop.touch()
        _kill(server, assignment, service, kills, crashes)
        operations = [each for log in assignment.logs() for each in service.log.read_client(log)]
        operations += service.final_operations(assignment.address, workloads, operations)
        assert server.stop() == 0, server.log()
    chosen = f" --workloads {' '.join(workloads)}" if workloads else ""
    made_by = (
        f"python -m tests.history.{service.name} run --seconds {plan.seconds}"
        f" --workers {plan.workers}{chosen}"
    )
    run = Run(made_by, plan.seed)
    history = History(run, in_order(operations), tuple(kills), tuple(crashes))
    path = directory / "history.jsonl"
    service.log.write_history(path, history)
    found = check(directory / "data")
    assert found.returncode == 0, f"{found.stdout}{found.stderr}\n{path}"
    return Recorded(history, path)


def run_and_check(
    directory: Path, plan: Plan, service: HistoryService[OperationT]
) -> History[OperationT]:
    """Makes a history and asserts that the checker finds nothing wrong with it."""
    recorded = run(directory, plan, service)
    findings = "\n".join(map(str, service.check(recorded.history)))
    replay = f"python -m tests.history.{service.name} replay {recorded.path}"
    assert not findings, f"{findings}\n{replay}"
    return recorded.history


def _publish_address(server: Server, assignment: Assignment, service: HistoryService[Any]) -> None:
    """Replaces the file atomically, so that no client reads half an address."""
    new = assignment.address.with_suffix(".new")
    new.write_text(service.url(server), "ascii")
    new.replace(assignment.address)


@contextmanager
def running_clients(assignment: Assignment, service: HistoryService[Any]) -> Iterator[None]:
    """Runs the clients of a service until they are told to stop."""
    arguments = [str(assignment.directory), str(assignment.seed), str(assignment.until)]
    module = f"tests.history.{service.name}"
    command = [sys.executable, "-m", module, "clients", *arguments, *assignment.workloads]
    if not assignment.kills_clients:
        command.append("--no-kills")
    clients = subprocess.Popen(
        command, cwd=ROOT, env=environment(), stderr=subprocess.PIPE, start_new_session=True
    )
    logs = [assignment.log(client) for client in range(service.clients.total)]
    try:
        eventually(lambda: all(map(Path.exists, logs)), "the start of the clients")
        yield
        _, errors = clients.communicate(timeout=CLIENTS_END_SECONDS_MAX)
        assert clients.returncode == 0, errors.decode()
    finally:
        if clients.poll() is None:
            os.killpg(clients.pid, signal.SIGKILL)
            clients.communicate()


def _disturb(
    server: Server, assignment: Assignment, service: HistoryService[Any], plan: Plan
) -> tuple[list[ServerKill], list[Crash]]:
    """Kills, in turn, the whole server and one of its processes, which it replaces itself."""
    source = random.Random(f"{assignment.seed} kills")
    began = time.monotonic()
    kills: list[ServerKill] = []
    crashes: list[Crash] = []

    def goes_on() -> bool:
        """Waits a little; returns whether the run goes on."""
        seconds = source.uniform(0.7, 1.5)
        left = began + plan.seconds - time.monotonic()
        time.sleep(min(left, seconds) if left > 0 else seconds)
        if seconds < left:
            return True
        has_time = time.monotonic() < began + plan.seconds * EXTENSION_MAX
        return has_time and _operations(assignment) < plan.operations_min

    while goes_on():
        _kill(server, assignment, service, kills, crashes)
        if goes_on():
            _kill_one(server, source.choice(service.processes(server)), service, crashes)
    return kills, crashes


def _operations(assignment: Assignment) -> int:
    """Counts the operations so far: two lines in the logs each."""
    return sum(log.read_bytes().count(b"\n") for log in assignment.logs()) // 2


def _kill(
    server: Server,
    assignment: Assignment,
    service: HistoryService[Any],
    kills: list[ServerKill],
    crashes: list[Crash],
) -> None:
    began = time.monotonic_ns()
    server.kill()
    ended = time.monotonic_ns()
    crashes.append(Crash(began, ended))
    kills.append(ServerKill(ended, time.monotonic_ns()))
    server.start()
    _publish_address(server, assignment, service)


def _kill_one(server: Server, pid: int, service: HistoryService[Any], crashes: list[Crash]) -> None:
    forgets = service.forgets(server, pid)
    began = time.monotonic_ns()
    os.kill(pid, signal.SIGKILL)
    if forgets:
        eventually(lambda: pid not in server.children(), "the process to exit")
        crashes.append(Crash(began, time.monotonic_ns()))
