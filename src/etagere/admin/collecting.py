"""Collects the health and the metrics of the processes of a server.

The functions wait for answers, so they run on a thread.
"""

from __future__ import annotations

import contextlib
import os
import platform
import time
from pathlib import Path
from typing import Final, NamedTuple

import etagere
from etagere.admin.child import ADMIN_NAME
from etagere.admin.cluster import NodeCondition, NodeObserver
from etagere.admin.rendering import Exposition, render
from etagere.jobs.health import SUPERVISOR_NAME, ChildHealth, ask, ask_metrics
from etagere.jobs.status import Disk, disk_of, disk_problems, process_problems
from etagere.metrics.snapshots import MetricSource, Snapshot
from etagere.processes import SupervisorStatus

ANSWER_SECONDS_MAX: Final = 3.0
"""A process that takes longer to answer counts as stuck. The writer may be waiting for a slow
fsync, and a front end for a core of a busy machine."""
_NO_SUPERVISOR: Final = "the supervisor does not respond"
_CLOCK_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class Health(NamedTuple):
    """The answers of the processes of a server."""

    supervisor: SupervisorStatus | None
    children: dict[str, ChildHealth | None]
    disk: Disk | None
    """None if the data directory cannot be examined."""
    node: NodeCondition | None = None
    """None if the server is not a node of a cluster."""

    @property
    def problems(self) -> list[str]:
        """The reasons why the server is not ready. Failing jobs are not among them: requests are
        served nevertheless."""
        return self.problems_of(None)

    def problems_of(self, service: str | None) -> list[str]:
        """The reasons why the server is not ready for requests to a service."""
        if self.supervisor is None:
            return [_NO_SUPERVISOR]
        problems = process_problems(self.supervisor, self.children)
        if self.disk is None:
            problems.append("the data directory cannot be examined")
        else:
            problems += disk_problems(self.disk)
        return problems if self.node is None else problems + self.node.problems_of(service)


class ServerObserver:
    """Asks the processes of the server in a directory."""

    def __init__(
        self,
        directory: Path,
        others: tuple[str, ...],
        *,
        own: MetricSource,
        store: MetricSource,
        node: NodeObserver | None = None,
    ) -> None:
        """`others` are the names of the other children. `own` has the metrics of this process,
        `store` those of no process. `node` observes what a node of a cluster depends on."""
        self._node = node
        self._directory = directory
        self._others = others
        self._own = own
        self._store = store

    def is_supervised(self) -> bool:
        """Returns whether the supervisor answers."""
        answers = ask(self._directory, {SUPERVISOR_NAME: SupervisorStatus}, ANSWER_SECONDS_MAX)
        return SUPERVISOR_NAME in answers

    def health(self) -> Health:
        """Asks all processes at the same time."""
        asked: dict[str, type[SupervisorStatus | ChildHealth]] = {
            SUPERVISOR_NAME: SupervisorStatus,
            **dict.fromkeys(self._others, ChildHealth),
        }
        answers = ask(self._directory, asked, ANSWER_SECONDS_MAX)
        supervisor = answers.pop(SUPERVISOR_NAME, None)
        children: dict[str, ChildHealth | None] = dict.fromkeys(self._others)
        children |= {n: one for n, one in answers.items() if isinstance(one, ChildHealth)}
        children[ADMIN_NAME] = ChildHealth(os.getpid(), time.time())
        disk = None
        with contextlib.suppress(OSError):
            disk = disk_of(self._directory)
        known = supervisor if isinstance(supervisor, SupervisorStatus) else None
        node = None if self._node is None else self._node.observe()
        return Health(known, children, disk, node)

    def metrics(self, as_openmetrics: bool) -> Exposition:
        """Returns the metrics of all processes that answer, and of the store."""
        health = self.health()
        # A process that is stuck is not waited for once more.
        answering = [name for name in self._others if health.children[name] is not None]
        processes = ask_metrics(self._directory, answering, ANSWER_SECONDS_MAX)
        processes[ADMIN_NAME] = own = Snapshot()
        self._own.report(own)
        _add_processes(processes, health)
        store = Snapshot()
        self._store.report(store)
        _add_store(store, health)
        labelled = {name.replace(" ", "-"): snapshot for name, snapshot in processes.items()}
        return render(labelled, store, as_openmetrics=as_openmetrics)


def _add_processes(processes: dict[str, Snapshot], health: Health) -> None:
    """Adds what the supervisor and the kernel know about each process, even if it is stuck."""
    children = () if health.supervisor is None else health.supervisor.children
    pids = {SUPERVISOR_NAME: os.getppid(), ADMIN_NAME: os.getpid()}
    for child in children:
        snapshot = processes.setdefault(child.name, Snapshot())
        snapshot.add("process_up", bool(child.pid) and health.children.get(child.name) is not None)
        snapshot.add("process_restarts", child.restarts)
        if child.pid:
            snapshot.add("process_start_time_seconds", child.started)
            pids[child.name] = child.pid
        answer = health.children.get(child.name)
        if answer is not None and answer.certificate_expires is not None:
            snapshot.add("certificate_expiry_timestamp_seconds", answer.certificate_expires)
    supervisor = processes.setdefault(SUPERVISOR_NAME, Snapshot())
    supervisor.add("process_up", health.supervisor is not None)
    for name, pid in pids.items():
        with contextlib.suppress(OSError, ValueError, IndexError):
            _add_usage(processes.setdefault(name, Snapshot()), pid)


def _add_usage(snapshot: Snapshot, pid: int) -> None:
    """Adds the CPU time and the memory of a process. See proc(5)."""
    # The name of the program is in parentheses and may contain anything.
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    user_ticks, system_ticks, resident_pages = int(fields[11]), int(fields[12]), int(fields[21])
    snapshot.add("process_cpu_seconds", (user_ticks + system_ticks) / _CLOCK_TICKS_PER_SECOND)
    snapshot.add("process_resident_memory_bytes", resident_pages * _PAGE_BYTES)


def _add_store(snapshot: Snapshot, health: Health) -> None:
    snapshot.add("ready", not health.problems)
    snapshot.add("build_info", 1, etagere.__version__, platform.python_version())
    if health.disk is not None:
        snapshot.add("disk_free_bytes", health.disk.free_bytes)
        snapshot.add("reserve_bytes", health.disk.reserve_bytes)
        snapshot.add("ledger_bytes", health.disk.ledger_bytes)
        snapshot.add("ledger_log_bytes", health.disk.log_bytes)
