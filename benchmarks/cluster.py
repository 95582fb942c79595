"""Small requests to a node of a cluster, with its ledger in one PostgreSQL server and its bodies in
an S3 store, both with fsync on; compared with the embedded server and with Azurite."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from benchmarks import tools
from benchmarks.figures import Figure, Group, Round, Settings
from benchmarks.http_requests import request_loads, seed
from benchmarks.load import Load, Run, development_sas, run, run_to_the_end
from benchmarks.services import AZURITE, NODE, OURS, Service, cpu_seconds, etagere, started
from tests.clusters.guard import processes_in
from tests.clusters.postgresql import postgresql
from tests.clusters.s3 import BUCKET, s3_server

_BLOBS = 2_000
_SECONDS = 3
_OPERATIONS = ("put", "get", "head")


async def measure(settings: Settings) -> AsyncIterator[Round]:
    wrk = tools.wrk(install=not settings.quick)
    blobs, sas = settings.scaled(_BLOBS, 40), development_sas()
    loads = {what: load for what, load in request_loads(blobs, sas).items() if what in _OPERATIONS}
    with contextlib.ExitStack() as ends:
        below = tempfile.TemporaryDirectory(prefix="etagere-bench-", dir=settings.directory)
        directory = Path(ends.enter_context(below))
        services = ends.enter_context(started(settings, {}))
        ledger = ends.enter_context(postgresql(directory))
        store = ends.enter_context(s3_server(directory))
        flags = ["--engine", ledger.dsn, "--bodies", f"s3://{BUCKET}/bodies"]
        services[NODE] = etagere(
            directory, ends, name=NODE, flags=flags, variables=store.environment
        )
        for service in services.values():
            seed(service, sas, blobs)

        def load_on(service: Service, load: Load, number: int) -> Run | None:
            seconds = 0.5 if settings.quick else _SECONDS
            if wrk is None or load.method == "HEAD":
                return run_to_the_end(service, load, seconds, number)
            return run(wrk, service, load, seconds, directory, number)

        def of_ledger() -> float:
            return cpu_seconds(processes_in(ledger.directory))

        for number in range(settings.rounds):
            yield _round(services, loads, load_on, of_ledger, number)
        yield {"cluster.memory": services[NODE].peak_mebibytes()}


def _round(
    services: dict[str, Service],
    loads: dict[str, Load],
    load_on: Callable[[Service, Load, int], Run | None],
    of_ledger: Callable[[], float],
    number: int,
) -> Round:
    told: Round = {}
    order = [services[name] for name in (NODE, OURS, AZURITE) if name in services]
    if number % 2:
        order.reverse()
    for what, load in loads.items():
        runs: dict[str, Run] = {}
        for service in order:
            before = of_ledger()
            done = load_on(service, load, number)
            if done is None:
                continue
            runs[service.name] = done
            if service.name == NODE:
                used = of_ledger() - before
                told[f"cluster.{what}_ledger_cpu"] = 1e6 * used / done.requests
        told |= _told(what, runs)
    return told


def _told(what: str, runs: dict[str, Run]) -> Round:
    told: Round = {}
    for name, done in runs.items():
        suffix = "" if name == NODE else f"_{name}"
        told[f"cluster.{what}{suffix}"] = done.per_second
        told[f"cluster.{what}_p50{suffix}"] = 1000 * done.p50
        told[f"cluster.{what}_p99{suffix}"] = 1000 * done.p99
    if NODE in runs:
        told[f"cluster.{what}_cpu"] = runs[NODE].cpu_microseconds
        for name in runs.keys() - {NODE}:
            ratio = runs[NODE].per_second / runs[name].per_second
            told[f"cluster.{what}_to_{name}"] = ratio
    return told


def _figures(what: str, text: str, at_least: float) -> tuple[Figure, ...]:
    return (
        Figure(f"cluster.{what}_to_azurite", f"{text}, relative to Azurite", " x", at_least),
        Figure(f"cluster.{what}_to_ours", "  relative to the embedded server", " x"),
        Figure(f"cluster.{what}", text, "/s"),
        Figure(f"cluster.{what}_ours", "  embedded server", "/s"),
        Figure(f"cluster.{what}_azurite", "  Azurite", "/s"),
        Figure(f"cluster.{what}_cpu", "  CPU time of the node per request", " µs"),
        Figure(f"cluster.{what}_ledger_cpu", "  CPU time of PostgreSQL per request", " µs"),
        Figure(f"cluster.{what}_p50", "  median latency", " ms"),
        Figure(f"cluster.{what}_p50_ours", "  embedded server", " ms"),
        Figure(f"cluster.{what}_p50_azurite", "  Azurite", " ms"),
        Figure(f"cluster.{what}_p99", "  p99 latency", " ms"),
        Figure(f"cluster.{what}_p99_ours", "  embedded server", " ms"),
        Figure(f"cluster.{what}_p99_azurite", "  Azurite", " ms"),
    )


GROUP = Group(
    "cluster",
    measure,
    (
        *_figures("put", "cluster node: Put Blob of 1 KiB, 16 connections", 2),
        *_figures("get", "cluster node: Get Blob of 1 KiB, 16 connections", 10),
        *_figures("head", "cluster node: Get Blob Properties, 16 connections", 10),
        Figure("cluster.memory", "peak memory of all processes of the node", " MiB"),
    ),
    on_request=True,
)
