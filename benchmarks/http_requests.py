"""Small requests over HTTP, compared with Azurite and with nginx."""

from __future__ import annotations

import http.client
import itertools
import tempfile
import threading
from collections.abc import AsyncIterator
from pathlib import Path

from benchmarks import tools
from benchmarks.figures import Figure, Group, Round, Settings
from benchmarks.load import ACCOUNT, Load, Run, development_sas, run, run_to_the_end
from benchmarks.services import AZURITE, NGINX, OURS, Service, ask, started

_BLOBS = 6_000
"""More than a page."""
_BLOB_BYTES = 1024
_BLOCK_BLOB = {"x-ms-blob-type": "BlockBlob"}
_SEEDERS = 4
_LIST_CONNECTIONS = 2
"""Azurite takes long for a page; more connections would only wait for each other."""
_SECONDS, _LIST_SECONDS = 2, 3
_FILE = Load("GET", "/blob")


def request_loads(names: int, sas: str) -> dict[str, Load]:
    """Returns the loads by name. Puts go to another container, so that the listed pages do not
    change."""
    headers = tuple(f"{name}: {value}" for name, value in _BLOCK_BLOB.items())
    blob = f"/{ACCOUNT}/seeded/blob-{{}}?{sas}"
    page = f"/{ACCOUNT}/seeded?restype=container&comp=list&maxresults=5000&{sas}"
    return {
        "put": Load("PUT", f"/{ACCOUNT}/put/blob-{{}}?{sas}", 10**9, headers, _BLOB_BYTES),
        "get": Load("GET", blob, names),
        "head": Load("HEAD", blob, names),
        "list": Load("GET", page, connections=_LIST_CONNECTIONS),
    }


async def measure(settings: Settings) -> AsyncIterator[Round]:
    wrk = tools.wrk(install=not settings.quick)
    blobs = settings.scaled(_BLOBS, 40)
    sas = development_sas()
    loads = request_loads(blobs, sas)
    files = {"blob": bytes(_BLOB_BYTES)}
    with (
        tempfile.TemporaryDirectory(prefix="etagere-bench-", dir=settings.directory) as scripts,
        started(settings, files) as services,
    ):
        for name in services.keys() - {NGINX}:
            seed(services[name], sas, blobs)
        client = _Client(wrk, Path(scripts), settings)
        for number in range(settings.rounds):
            yield client.round(services, loads, number)
        yield _memory(services)


class _Client:
    """Runs each load on each server, beginning with a different server each time."""

    def __init__(self, wrk: str | None, scripts: Path, settings: Settings) -> None:
        self._wrk = wrk
        self._scripts = scripts
        self._settings = settings
        self._seeds = itertools.count(1)

    def round(self, services: dict[str, Service], loads: dict[str, Load], number: int) -> Round:
        told: Round = {}
        order = [services[name] for name in (OURS, AZURITE) if name in services]
        if number % 2:
            order.reverse()
        for what, load in loads.items():
            runs = {one.name: self._run(one, load) for one in order}
            told |= _told(what, {name: done for name, done in runs.items() if done is not None})
            if what == "get" and NGINX in services:
                told |= _beside_nginx(runs[OURS], self._run(services[NGINX], _FILE))
        return told

    def _run(self, service: Service, load: Load) -> Run | None:
        quick, seed = self._settings.quick, next(self._seeds)
        slow = load.connections == _LIST_CONNECTIONS
        seconds = _LIST_SECONDS if slow else _SECONDS
        if slow or load.method == "HEAD":
            return run_to_the_end(service, load, 0.1 if quick else seconds, seed)
        if self._wrk is None:
            return None
        return run(self._wrk, service, load, 1 if quick else seconds, self._scripts, seed)


def _told(what: str, runs: dict[str, Run]) -> Round:
    told: Round = {}
    for name, done in runs.items():
        suffix = "" if name == OURS else f"_{name}"
        told[f"http.{what}{suffix}"] = done.per_second
        told[f"http.{what}_cpu{suffix}"] = done.cpu_microseconds
        told[f"http.{what}_p50{suffix}"] = 1000 * done.p50
        told[f"http.{what}_p99{suffix}"] = 1000 * done.p99
    if len(runs) > 1:
        told[f"http.{what}_ratio"] = runs[OURS].per_second / runs[AZURITE].per_second
        cpu = runs[AZURITE].cpu_microseconds / runs[OURS].cpu_microseconds
        told[f"http.{what}_cpu_ratio"] = cpu
    return told


def _beside_nginx(ours: Run | None, reference: Run | None) -> Round:
    if ours is None or reference is None:
        return {}
    return {
        "http.get_nginx": reference.per_second,
        "http.get_cpu_nginx": reference.cpu_microseconds,
        "http.get_cpu_to_nginx": ours.cpu_microseconds / reference.cpu_microseconds,
    }


def _memory(services: dict[str, Service]) -> Round:
    told = {"http.memory": services[OURS].peak_mebibytes()}
    if AZURITE in services:
        told["http.memory_azurite"] = services[AZURITE].peak_mebibytes()
    return told


# Preparation


def seed(service: Service, sas: str, blobs: int) -> None:
    """Creates the containers and the blobs that the loads use."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port)
    for container in ("seeded", "put"):
        ask(connection, "PUT", f"/{ACCOUNT}/{container}?restype=container&{sas}")
    connection.close()
    numbers, failures = iter(range(blobs)), list[Exception]()

    def put() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", service.port)
        try:
            for number in numbers:
                target = f"/{ACCOUNT}/seeded/blob-{number}?{sas}"
                ask(connection, "PUT", target, bytes(_BLOB_BYTES), _BLOCK_BLOB)
        except (OSError, RuntimeError, http.client.HTTPException) as failure:
            failures.append(failure)
        connection.close()

    threads = [threading.Thread(target=put) for _ in range(_SEEDERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    page = f"/{ACCOUNT}/seeded?restype=container&comp=list&maxresults=5000&{sas}"
    # http.client reconnects.
    listed = ask(connection, "GET", page).count(b"<Name>")
    connection.close()
    if listed != min(blobs, 5000):
        raise RuntimeError(f"{service.name} lists {listed} of {blobs} blobs")


def _figures(what: str, text: str, at_least: float) -> tuple[Figure, ...]:
    return (
        Figure(f"http.{what}_ratio", f"{text}, relative to Azurite", " x", at_least=at_least),
        Figure(f"http.{what}", text, "/s"),
        Figure(f"http.{what}_azurite", "  Azurite", "/s"),
        Figure(f"http.{what}_cpu", "  CPU time per request", " µs"),
        Figure(f"http.{what}_cpu_azurite", "  CPU time per request of Azurite", " µs"),
        Figure(f"http.{what}_cpu_ratio", "  CPU time of Azurite relative to ours", " x"),
        Figure(f"http.{what}_p50", "  median latency", " ms"),
        Figure(f"http.{what}_p50_azurite", "  Azurite", " ms"),
        Figure(f"http.{what}_p99", "  p99 latency", " ms"),
        Figure(f"http.{what}_p99_azurite", "  Azurite", " ms"),
    )


GROUP = Group(
    "http",
    measure,
    (
        *_figures("put", "Put Blob of 1 KiB, 16 connections", 8),
        *_figures("get", "Get Blob of 1 KiB, 16 connections", 12),
        Figure(
            "http.get_cpu_to_nginx",
            "CPU time per request, relative to nginx with a file",
            " x",
            at_most=10,
        ),
        Figure("http.get_nginx", "nginx", "/s"),
        Figure("http.get_cpu_nginx", "CPU time per request of nginx", " µs"),
        *_figures("head", "Get Blob Properties, 16 connections", 10),
        *_figures("list", "List Blobs, 5,000 a page, 2 connections", 20),
        Figure("http.memory", "peak memory of all processes, small requests", " MiB"),
        Figure("http.memory_azurite", "  Azurite", " MiB"),
    ),
)
