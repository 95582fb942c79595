"""Histories of a cluster: clients that send their requests to each node in turn, under faults.

After each fault the cluster is repaired and must acknowledge writes again. The histories of all
services are checked like those of one server: an acknowledged write that is lost, a stale read and
a lease with two holders have no explanation.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from azure.core.exceptions import AzureError
from azure.storage.blob import BlobServiceClient

from tests.history.clients import Assignment
from tests.history.events import (
    NANOSECONDS,
    Crash,
    History,
    Operation,
    Run,
    Settled,
    Unknown,
    in_order,
)
from tests.history.faults import Fault
from tests.history.live import ORPHANED_SECONDS_MAX, running_clients
from tests.history.service import HistoryService, Listening, credential
from tests.server import ACCOUNT, eventually

SETTLE_SECONDS: Final = 30.0
"""How long after the end of a fault a node may carry out what a client has given up before: longer
than the timeouts of requests, of idle transactions and of locks together."""
RECOVERY_SECONDS_MAX: Final = 90.0
_PROBE_SECONDS_MAX: Final = 2
_PROBE_PAUSE_SECONDS: Final = 0.05
_CONTAINER: Final = "probes"
_CONTENT: Final = bytes(200_000)
"""Too long for the ledger: a write needs the store of bodies too."""


class FaultReport(NamedTuple):
    """What clients saw of a fault."""

    name: str
    stopped_seconds: float
    """The longest time in which no node acknowledged a write."""
    stopped_node_seconds: float
    """The longest time in which some node, other than one that failed, acknowledged none."""

    def __str__(self) -> str:
        return (
            f"{self.name}: writes stopped for {self.stopped_seconds:.1f} s,"
            f" at one of the nodes that run for {self.stopped_node_seconds:.1f} s"
        )


class ClusterRun(NamedTuple):
    """What a run has recorded."""

    histories: Mapping[str, History[Any]]
    """By service."""
    paths: Mapping[str, Path]
    reports: Sequence[FaultReport]

    @property
    def operations(self) -> int:
        return sum(len(history.operations) for history in self.histories.values())

    @property
    def acknowledged(self) -> int:
        return sum(
            not isinstance(each.outcome, Unknown)
            for history in self.histories.values()
            for each in history.operations
        )


class Schedule(NamedTuple):
    """The parameters of a run."""

    seed: int
    quiet_seconds: float
    """How long the clients work before, between and after faults."""
    faults: Sequence[Fault] = ()


def run(
    directory: Path,
    nodes: Sequence[Listening],
    services: Sequence[HistoryService[Any]],
    schedule: Schedule,
    account: str = ACCOUNT,
) -> ClusterRun:
    """Makes a history of each service in an account."""
    directory.mkdir(parents=True, exist_ok=True)
    until = time.monotonic_ns() + int(_seconds_max(schedule) * NANOSECONDS)
    assignments: dict[str, Assignment] = {}
    for service in services:
        home = directory / service.name
        home.mkdir()
        workloads = tuple(service.workloads)
        assignment = Assignment(home, schedule.seed, until, workloads, kills_clients=False)
        assignments[service.name] = assignment
        urls = [service.url(node, account) for node in nodes]
        service.create_resource(urls[0])
        assignment.address.write_text("\n".join(urls), "ascii")
    with Probes(nodes, account) as probes, contextlib.ExitStack() as stack:
        for service in services:
            stack.enter_context(running_clients(assignments[service.name], service))
        disturbed = _disturb(schedule, probes)
        for assignment in assignments.values():
            assignment.stop.touch()
    histories: dict[str, History[Any]] = {}
    paths: dict[str, Path] = {}
    made_by = Run("python -m tests.history", schedule.seed)
    for service in services:
        assignment = assignments[service.name]
        operations: list[Operation[Any, Any]] = [
            each for log in assignment.logs() for each in service.log.read_client(log)
        ]
        operations += service.final_operations(assignment.address, assignment.workloads, operations)
        history = History(
            made_by, in_order(operations), tuple(disturbed.settled), tuple(disturbed.crashes)
        )
        paths[service.name] = assignment.directory / "history.jsonl"
        service.log.write_history(paths[service.name], history)
        histories[service.name] = history
    return ClusterRun(histories, paths, disturbed.reports)


def _seconds_max(schedule: Schedule) -> float:
    of_faults = sum(
        fault.seconds + 3 * RECOVERY_SECONDS_MAX + schedule.quiet_seconds
        for fault in schedule.faults
    )
    return of_faults + 2 * schedule.quiet_seconds + ORPHANED_SECONDS_MAX


def findings(recorded: ClusterRun, services: Sequence[HistoryService[Any]]) -> list[str]:
    """Returns what is wrong with the histories, each with the command that checks it again."""
    found: list[str] = []
    for service in services:
        replay = f"python -m tests.history.{service.name} replay {recorded.paths[service.name]}"
        of_service = map(str, service.check(recorded.histories[service.name]))
        found += [f"{service.name}: {each}\n{replay}" for each in of_service]
    return found


class _Disturbances(NamedTuple):
    """What a run has done to the cluster."""

    settled: list[Settled]
    crashes: list[Crash]
    """In each, the node that serves files may have lost what was not flushed."""
    reports: list[FaultReport]


def _disturb(schedule: Schedule, probes: Probes) -> _Disturbances:
    disturbances = _Disturbances([], [], [])
    time.sleep(schedule.quiet_seconds)
    for fault in schedule.faults:
        began = time.monotonic_ns()
        fault.inject()
        time.sleep(fault.seconds)
        fault.heal()
        healed = time.monotonic_ns()
        disturbances.settled.append(Settled(healed + int(SETTLE_SECONDS * NANOSECONDS), healed))
        probes.await_writes(healed)
        if fault.may_lose_writes:
            disturbances.crashes.append(Crash(began, time.monotonic_ns()))
        time.sleep(schedule.quiet_seconds)
        others = [number for number in range(probes.count) if number != fault.node]
        report = FaultReport(
            fault.name,
            probes.longest_gap(began, range(probes.count)),
            max((probes.longest_gap(began, [number]) for number in others), default=0.0),
        )
        disturbances.reports.append(report)
        print(report, flush=True)
    return disturbances


class Probes:
    """One writer for each node that notes when its writes were acknowledged."""

    def __init__(self, nodes: Sequence[Listening], account: str) -> None:
        self.count = len(nodes)
        self._urls = [f"{node.endpoints['blob']}/{account}" for node in nodes]
        self._acknowledged: list[list[int]] = [[] for _ in nodes]
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._probe, args=(number,)) for number in range(self.count)
        ]

    def __enter__(self) -> Probes:
        with BlobServiceClient(self._urls[0], credential(self._urls[0])) as service:
            service.create_container(_CONTAINER)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _probe(self, number: int) -> None:
        with BlobServiceClient(
            self._urls[number],
            credential(self._urls[number]),
            retry_total=0,
            connection_timeout=_PROBE_SECONDS_MAX,
            read_timeout=_PROBE_SECONDS_MAX,
        ) as service:
            blob = service.get_blob_client(_CONTAINER, f"probe{number}")
            while not self._is_over.wait(_PROBE_PAUSE_SECONDS):
                with contextlib.suppress(AzureError):
                    blob.upload_blob(_CONTENT, overwrite=True)
                    self._acknowledged[number].append(time.monotonic_ns())

    def await_writes(self, since: int) -> None:
        """Waits until every node has acknowledged a write after a moment."""
        eventually(
            lambda: all(times and times[-1] > since for times in self._acknowledged),
            "writes to every node",
            RECOVERY_SECONDS_MAX,
        )

    def longest_gap(self, since: int, nodes: Sequence[int]) -> float:
        """Returns the longest time, in seconds, in which none of the nodes acknowledged a write,
        from a moment until now."""
        times = sorted(
            moment for node in nodes for moment in self._acknowledged[node] if moment >= since
        )
        moments = [since, *times, time.monotonic_ns()]
        return max(later - earlier for earlier, later in itertools.pairwise(moments)) / NANOSECONDS
