"""Requests to one node and to three nodes of a cluster, with one PostgreSQL server with fsync on.

The CPU time of each node is limited, because the machine has fewer cores than the nodes would use.
The CPU time that the nodes and PostgreSQL need for a request are the constants of the estimates in
docs/cluster.md.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

import psycopg

from benchmarks import cpu_quota, tools
from benchmarks.figures import Figure, Group, Round, Settings
from benchmarks.http_requests import request_loads, seed
from benchmarks.load import Load, Run, development_sas, run
from benchmarks.services import Service, cpu_seconds, etagere
from tests.clusters.guard import processes_in
from tests.clusters.postgresql import PostgresServer, postgresql

_NODES: Final = 3
_BLOBS: Final = 2_000
_SECONDS: Final = 5
_CONNECTIONS: Final = 48
"""To each node."""
_NODE_CORES: Final = 0.3
_IDLE_SECONDS: Final = 5
_STATISTICS_SECONDS: Final = 1.2
"""After this time PostgreSQL has counted everything."""
_WHAT: Final = ("get", "put")


class _Measured(NamedTuple):
    per_second: float
    node_microseconds: float
    """CPU time of the nodes per request."""
    ledger_microseconds: float
    """CPU time of PostgreSQL per request, without what it uses if there are none."""
    syncs_per_second: float
    """Of the write-ahead log."""
    p99: float


async def measure(settings: Settings) -> AsyncIterator[Round]:
    wrk = tools.wrk(install=not settings.quick)
    if wrk is None:
        return
    if not cpu_quota.is_available():
        tools.tell("CPU time cannot be limited; omitting one node and three nodes of a cluster")
        return
    blobs, sas = settings.scaled(_BLOBS, 40), development_sas()
    loads = request_loads(blobs, sas)
    with contextlib.ExitStack() as ends:
        below = tempfile.TemporaryDirectory(prefix="etagere-bench-", dir=settings.directory)
        directory = Path(ends.enter_context(below))
        ledger = ends.enter_context(postgresql(directory))
        bodies = directory / "bodies"
        bodies.mkdir()
        flags = ["--engine", ledger.dsn, "--bodies", str(bodies), "--workers", "1"]
        nodes = []
        for number in range(_NODES):
            name = f"node{number}"
            nodes.append(etagere(directory, ends, name=name, flags=[*flags, "--node-name", name]))
        seed(nodes[0], sas, blobs)
        cluster = _Cluster(wrk, directory, nodes, ledger, 0.5 if settings.quick else _SECONDS)
        for number in range(settings.rounds):
            yield cluster.round(
                {what: loads[what]._replace(connections=_CONNECTIONS) for what in _WHAT}, number
            )


class _Cluster:
    """The nodes, their ledger and the load generator."""

    def __init__(
        self,
        wrk: str,
        directory: Path,
        nodes: Sequence[Service],
        ledger: PostgresServer,
        seconds: float,
    ) -> None:
        self._wrk = wrk
        self._directory = directory
        self._nodes = nodes
        self._ledger = ledger
        self._seconds = seconds
        self._idle_cores = 0.0

    def round(self, loads: dict[str, Load], number: int) -> Round:
        self._idle_cores = self._measured_idle_cores()
        figures: Round = {"nodes.ledger_idle": 100 * self._idle_cores}
        for what, load in loads.items():
            with contextlib.ExitStack() as limits:
                for each in self._nodes:
                    limit = cpu_quota.limited(each.name, each.processes(), _NODE_CORES)
                    limits.enter_context(limit)
                runs = {count: self._run(load, count, number) for count in (1, _NODES)}
            for count, measured in runs.items():
                figures[f"nodes.{what}_{count}"] = measured.per_second
                figures[f"nodes.{what}_cpu_{count}"] = measured.node_microseconds
                figures[f"nodes.{what}_ledger_cpu_{count}"] = measured.ledger_microseconds
                figures[f"nodes.{what}_p99_{count}"] = 1000 * measured.p99
                if what == "put":
                    figures[f"nodes.syncs_{count}"] = measured.syncs_per_second
            figures[f"nodes.{what}_ratio"] = runs[_NODES].per_second / runs[1].per_second
        return figures

    def _run(self, load: Load, count: int, number: int) -> _Measured:
        """Runs a load on each of some nodes at the same time."""

        def run_on(node: Service) -> Run:
            where = self._directory / f"wrk-{node.name}"
            where.mkdir(exist_ok=True)
            return run(self._wrk, node, load, self._seconds, where, number)

        used, syncs = self._ledger_cpu_seconds(), self._syncs()
        with ThreadPoolExecutor(count) as threads:
            runs = list(threads.map(run_on, self._nodes[:count]))
        requests = sum(done.requests for done in runs)
        seconds = max(done.seconds for done in runs)
        used = self._ledger_cpu_seconds() - used
        time.sleep(_STATISTICS_SECONDS)
        return _Measured(
            sum(done.per_second for done in runs),
            1e6 * sum(done.cpu_seconds for done in runs) / requests,
            1e6 * (used - self._idle_cores * seconds) / requests,
            (self._syncs() - syncs) / seconds,
            max(done.p99 for done in runs),
        )

    def _measured_idle_cores(self) -> float:
        """Returns the CPU time that PostgreSQL uses in a second without requests."""
        time.sleep(_STATISTICS_SECONDS)
        seconds = min(_IDLE_SECONDS, self._seconds)
        before = self._ledger_cpu_seconds()
        time.sleep(seconds)
        return (self._ledger_cpu_seconds() - before) / seconds

    def _ledger_cpu_seconds(self) -> float:
        return cpu_seconds(processes_in(self._ledger.directory))

    def _syncs(self) -> int:
        with psycopg.connect(self._ledger.superuser_dsn) as connection:
            row = connection.execute("SELECT wal_sync FROM pg_stat_wal").fetchone()
        assert row is not None
        return int(row[0])


def _figures(what: str, text: str, at_least: float | None) -> tuple[Figure, ...]:
    key = f"nodes.{what}"
    limits = f"each node limited to {_NODE_CORES:.0%} of a core"
    figures = [Figure(f"{key}_ratio", f"{text}, three nodes relative to one", " x", at_least)]
    for count in (1, _NODES):
        nodes = "one node" if count == 1 else f"{count} nodes"
        figures += [
            Figure(f"{key}_{count}", f"  {nodes}, {limits}", "/s"),
            Figure(f"{key}_cpu_{count}", "    CPU time of the nodes per request", " µs"),
            Figure(f"{key}_ledger_cpu_{count}", "    CPU time of PostgreSQL per request", " µs"),
            Figure(f"{key}_p99_{count}", "    p99 latency", " ms"),
        ]
        if what == "put":
            figures.append(Figure(f"nodes.syncs_{count}", "    syncs of the log", "/s"))
    return tuple(figures)


GROUP = Group(
    "cluster_nodes",
    measure,
    (
        Figure("nodes.ledger_idle", "CPU time of PostgreSQL with three idle nodes", " %"),
        *_figures("get", f"Get Blob of 1 KiB, {_CONNECTIONS} connections per node", 1.7),
        *_figures("put", f"Put Blob of 1 KiB, {_CONNECTIONS} connections per node", None),
    ),
    on_request=True,
)
