"""A block list of 50,000 blocks over HTTP: its duration, and the latency of concurrent requests."""

from __future__ import annotations

import base64
import contextlib
import http.client
import multiprocessing
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from benchmarks.figures import Figure, Group, Round, Settings
from benchmarks.load import ACCOUNT, Answered, Load, development_sas, run_each, run_until
from benchmarks.services import Service, ask, etagere

_BLOCKS = 50_000
_BLOCK_BYTES = 64
_NAME_BYTES = 48
_STAGING = 16
_OTHERS = 4
"""Connections of concurrent clients, for each kind."""
_UNDISTURBED_SECONDS = 3.0
_SETTLING_SECONDS = 2.0
_BLOB_BYTES = 1024
_SHELF = f"/{ACCOUNT}/shelf"
_fork = multiprocessing.get_context("fork")


class _Worker(NamedTuple):
    """A client process that sends requests of one kind."""

    kind: str
    process: multiprocessing.process.BaseProcess
    answers: Connection


class _Others:
    """Clients that put and get blobs continuously. Each kind has its own process; in one process
    they would delay each other, and so would the sender of the long document."""

    def __init__(self, service: Service, sas: str) -> None:
        self._service = service
        put = Load("PUT", f"{_SHELF}/other{{}}?{sas}", 100, ("x-ms-blob-type: BlockBlob",))
        put = put._replace(body_bytes=_BLOB_BYTES, connections=_OTHERS)
        get = Load("GET", f"{_SHELF}/seed?{sas}", connections=_OTHERS)
        self._loads = {"put": put, "get": get}

    @contextlib.contextmanager
    def at_work(self) -> Iterator[dict[str, list[Answered]]]:
        """Runs the clients; fills the yielded dictionary with their answers at the end."""
        answered: dict[str, list[Answered]] = {}
        ended = _fork.Event()
        workers = [self._begin(kind, load, ended) for kind, load in self._loads.items()]
        try:
            yield answered
        finally:
            ended.set()
            for worker in workers:
                answered[worker.kind] = worker.answers.recv()
                worker.process.join()

    def _begin(self, kind: str, load: Load, ended: Event) -> _Worker:
        here, there = _fork.Pipe(duplex=False)
        process = _fork.Process(target=self._work, args=(load, ended, there), daemon=True)
        process.start()
        there.close()
        return _Worker(kind, process, here)

    def _work(self, load: Load, ended: Event, answers: Connection) -> None:
        answers.send(run_until(self._service, load, ended.is_set))


async def measure(settings: Settings) -> AsyncIterator[Round]:
    count = settings.scaled(_BLOCKS, 2_000)
    sas = development_sas()
    names = [base64.b64encode(b"%0*d" % (_NAME_BYTES, number)).decode() for number in range(count)]
    below = tempfile.TemporaryDirectory(prefix="etagere-bench-", dir=settings.directory)
    with contextlib.ExitStack() as ends:
        service = etagere(Path(ends.enter_context(below)), ends)
        connection = http.client.HTTPConnection("127.0.0.1", service.port)
        ends.enter_context(contextlib.closing(connection))
        ask(connection, "PUT", f"{_SHELF}?restype=container&{sas}")
        block_blob = {"x-ms-blob-type": "BlockBlob"}
        ask(connection, "PUT", f"{_SHELF}/seed?{sas}", bytes(_BLOB_BYTES), block_blob)
        others = _Others(service, sas)
        target = f"{_SHELF}/long?comp=block&blockid={{}}&{sas}"
        load = Load("PUT", target, body_bytes=_BLOCK_BYTES, connections=_STAGING)
        for _ in range(settings.rounds):
            run_each(service, load, [quote(name, safe="") for name in names])
            told = _commit(connection, others, names, "Uncommitted", sas, settings)
            again = _commit(connection, others, names, "Committed", sas, settings)
            yield {f"http_blocks.{key}": value for key, value in told.items()} | {
                f"http_blocks.again_{key}": value for key, value in again.items()
            }


def _commit(
    connection: http.client.HTTPConnection,
    others: _Others,
    names: list[str],
    source: str,
    sas: str,
    settings: Settings,
) -> Round:
    listed = "".join([f"<{source}>{name}</{source}>" for name in names])
    document = f"<BlockList>{listed}</BlockList>".encode()
    # Wait for the background work of an earlier list.
    time.sleep(0 if settings.quick else _SETTLING_SECONDS)
    with others.at_work() as answered:
        time.sleep(0.2 if settings.quick else _UNDISTURBED_SECONDS)
        began = time.perf_counter()
        ask(connection, "PUT", f"{_SHELF}/long?comp=blocklist&{sas}", document)
        ended = time.perf_counter()
    told = {"commit": ended - began}
    for kind, answers in answered.items():
        before = _p99([one.seconds for one in answers if one.began + one.seconds < began])
        meanwhile = _p99([one.seconds for one in answers if _overlaps(one, began, ended)])
        told |= {f"{kind}_p99": 1000 * meanwhile, f"{kind}_p99_before": 1000 * before}
        told[f"{kind}_growth"] = meanwhile / before
    return told


def _overlaps(answered: Answered, began: float, ended: float) -> bool:
    return answered.began < ended and answered.began + answered.seconds > began


def _p99(seconds: list[float]) -> float:
    return sorted(seconds)[len(seconds) * 99 // 100]


def _figures(prefix: str, what: str) -> Iterator[Figure]:
    yield Figure(f"{prefix}commit", f"a list of 50,000 {what} blocks", " s", at_most=2.0)
    for kind, kinds in (("put", "puts"), ("get", "gets")):
        text = f"  p99 of concurrent {kinds}, relative to before"
        yield Figure(f"{prefix}{kind}_growth", text, " x", at_most=3.0)
        yield Figure(f"{prefix}{kind}_p99", "  latency", " ms")
        yield Figure(f"{prefix}{kind}_p99_before", "  before", " ms")


GROUP = Group(
    "http_blocks",
    measure,
    (*_figures("http_blocks.", "staged"), *_figures("http_blocks.again_", "committed")),
)
