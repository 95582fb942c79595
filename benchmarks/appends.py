"""Appends, page writes and copies over HTTP, compared with Azurite."""

from __future__ import annotations

import base64
import contextlib
import http.client
import itertools
import random
import statistics
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

from benchmarks import tools
from benchmarks.figures import Figure, Group, Round, Settings
from benchmarks.load import ACCOUNT, Load, Run, development_sas, run, run_all, run_each
from benchmarks.services import AZURITE, OURS, Service, ask, started
from etagere.config import KIB, MIB

_BLOCK_BYTES = 1 * KIB
_CONNECTIONS = 16
_BLOBS = {"spread": _CONNECTIONS, "one": 1}
"""The number of blobs to which the connections append."""
_SECONDS = 2
_BLOCKS_MAX = 50_000
"""The most blocks of one blob. Blobs are therefore recreated for each run."""

_FIRST, _LAST = 1_000, 40_000
"""The compared appends: those before the first number, and those after the second."""
_TURNS = 10
"""How often a round alternates between the two."""

_PAGES_BYTES = 4 * KIB
_DISK_BYTES = 64 * MIB
_WRITES = 1_000

_COPIED_BYTES = 256 * MIB
_COPIED_BLOCK_BYTES = 8 * MIB
_COPIES = 5
_SHELF = f"/{ACCOUNT}/shelf"


def _append_load(blob: str, sas: str, blobs: int = 1) -> Load:
    """Returns a load that appends; {} in the name is replaced by a number below `blobs`."""
    target = f"{_SHELF}/{blob}?comp=appendblock&{sas}"
    return Load("PUT", target, blobs, body_bytes=_BLOCK_BYTES, connections=_CONNECTIONS)


def _page_loads(sas: str, writes: int, seed: int) -> list[Load]:
    """Returns loads that write pages at random offsets."""
    choose = random.Random(seed)
    starts = [choose.randrange(_DISK_BYTES // _PAGES_BYTES) * _PAGES_BYTES for _ in range(writes)]
    ranges = [f"x-ms-range: bytes={start}-{start + _PAGES_BYTES - 1}" for start in starts]
    target = f"{_SHELF}/disk?comp=page&{sas}"
    return [
        Load("PUT", target, headers=("x-ms-page-write: update", one), body_bytes=_PAGES_BYTES)
        for one in ranges
    ]


async def measure(settings: Settings) -> AsyncIterator[Round]:
    wrk = tools.wrk(install=not settings.quick)
    with (
        tempfile.TemporaryDirectory(prefix="etagere-bench-", dir=settings.directory) as scripts,
        started(settings, {}) as services,
    ):
        client = _Client(wrk, Path(scripts), settings)
        for service in services.values():
            client.prepare(service)
        client.lengthen(services[OURS])
        for number in range(settings.rounds):
            order = list(services.values())[:: -1 if number % 2 else 1]
            told = client.growth(services[OURS])
            for what in _BLOBS:
                runs = {one.name: client.append(one, what) for one in order}
                told |= _told(what, {name: done for name, done in runs.items() if done is not None})
            told |= _told("page", {one.name: client.write_pages(one) for one in order})
            yield told | {f"appends.copy{_suffix(one)}": client.copy(one) for one in order}
        yield {f"appends.memory{_suffix(one)}": one.peak_mebibytes() for one in services.values()}


class _Client:
    """Appends to blobs, writes to a disk and copies a large blob."""

    def __init__(self, wrk: str | None, scripts: Path, settings: Settings) -> None:
        self._wrk = wrk
        self._scripts = scripts
        self._seconds = 0.1 if settings.quick else _SECONDS
        self._first, self._last = settings.scaled(_FIRST, 40), settings.scaled(_LAST, 200)
        # The long blob must have room for the appends of all rounds.
        room = (_BLOCKS_MAX - self._last) // settings.rounds
        self._turns = settings.scaled(_TURNS, 2)
        self._per_turn = max(1, min(self._first, room) // self._turns)
        self._writes = settings.scaled(_WRITES, 50)
        self._copied_bytes = settings.scaled(_COPIED_BYTES, 2 * _COPIED_BLOCK_BYTES)
        self._copies = settings.scaled(_COPIES, 2)
        self._sas = development_sas()
        self._seeds = itertools.count(1)

    # Preparation

    def prepare(self, service: Service) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", service.port)
        with contextlib.closing(connection):
            ask(connection, "PUT", f"{_SHELF}?restype=container&{self._sas}")
            disk = {"x-ms-blob-type": "PageBlob", "x-ms-blob-content-length": str(_DISK_BYTES)}
            ask(connection, "PUT", f"{_SHELF}/disk?{self._sas}", headers=disk)
            self._upload(connection)

    def _upload(self, connection: http.client.HTTPConnection) -> None:
        """Uploads the blob to copy."""
        target, block = f"{_SHELF}/large?{self._sas}", bytes(_COPIED_BLOCK_BYTES)
        numbers = range(self._copied_bytes // _COPIED_BLOCK_BYTES)
        names = [base64.b64encode(b"%06d" % number).decode() for number in numbers]
        for name in names:
            ask(connection, "PUT", f"{target}&comp=block&blockid={quote(name, safe='')}", block)
        listed = "".join(f"<Latest>{name}</Latest>" for name in names)
        document = f"<BlockList>{listed}</BlockList>".encode()
        ask(connection, "PUT", f"{target}&comp=blocklist", document)

    def _create(self, service: Service, *blobs: str) -> None:
        """Creates empty append blobs; replaces existing ones."""
        headers = "x-ms-blob-type: AppendBlob", "Content-Length: 0"
        run_each(service, Load("PUT", f"{_SHELF}/{{}}?{self._sas}", headers=headers), blobs)

    def lengthen(self, service: Service) -> None:
        """Creates the blob with many blocks."""
        self._create(service, "long")
        run_each(service, _append_load("long", self._sas), [""] * self._last)

    # Measurements

    def append(self, service: Service, what: str) -> Run | None:
        if self._wrk is None:
            return None
        blobs = _BLOBS[what]
        self._create(service, *(f"{what}-{number}" for number in range(blobs)))
        load = _append_load(f"{what}-{{}}", self._sas, blobs)
        return run(self._wrk, service, load, self._seconds, self._scripts, next(self._seeds))

    def growth(self, service: Service) -> Round:
        """Appends to a new blob and to the long one, alternating in short turns, so that other
        load on the machine affects both."""
        self._create(service, "short")
        short, long = (_append_load(blob, self._sas) for blob in ("short", "long"))
        blocks = [""] * self._per_turn
        runs = [
            (run_each(service, short, blocks), run_each(service, long, blocks))
            for _ in range(self._turns)
        ]
        of_short, of_long = zip(*runs, strict=True)
        p50_short = statistics.median(one.p50 for one in of_short)
        p50_long = statistics.median(one.p50 for one in of_long)
        return {
            "appends.growth": p50_long / p50_short,
            "appends.growth_first": 1000 * p50_short,
            "appends.growth_last": 1000 * p50_long,
            "appends.growth_cpu_first": statistics.mean(one.cpu_microseconds for one in of_short),
            "appends.growth_cpu_last": statistics.mean(one.cpu_microseconds for one in of_long),
        }

    def write_pages(self, service: Service) -> Run:
        return run_all(service, _page_loads(self._sas, self._writes, next(self._seeds)))

    def copy(self, service: Service) -> float:
        """Returns the median time of sequential copies in milliseconds."""
        source = f"x-ms-copy-source: http://{service.address}{_SHELF}/large?{self._sas}"
        target = f"{_SHELF}/copy-{{}}?{self._sas}"
        load = Load("PUT", target, headers=(source, "Content-Length: 0"), connections=1)
        names = [str(number) for number in range(self._copies)]
        return 1000 * run_each(service, load, names, _require_copied).p50


def _require_copied(answer: bytes) -> None:
    if b"\r\nx-ms-copy-status: success\r\n" not in answer.lower():
        raise RuntimeError(f"it was not copied at once: {answer[:1000]!r}")


def _told(what: str, runs: dict[str, Run]) -> Round:
    told: Round = {}
    for name, done in runs.items():
        suffix = "" if name == OURS else f"_{name}"
        told[f"appends.{what}{suffix}"] = done.per_second
        told[f"appends.{what}_cpu{suffix}"] = done.cpu_microseconds
        told[f"appends.{what}_p50{suffix}"] = 1000 * done.p50
        told[f"appends.{what}_p99{suffix}"] = 1000 * done.p99
    if len(runs) > 1:
        ours, theirs = runs[OURS], runs[AZURITE]
        told[f"appends.{what}_ratio"] = ours.per_second / theirs.per_second
        told[f"appends.{what}_cpu_ratio"] = theirs.cpu_microseconds / ours.cpu_microseconds
    return told


def _suffix(service: Service) -> str:
    return "" if service.name == OURS else f"_{service.name}"


def _figures(what: str, text: str, at_least: float | None = None) -> tuple[Figure, ...]:
    return (
        Figure(f"appends.{what}_ratio", f"{text}, relative to Azurite", " x", at_least=at_least),
        Figure(f"appends.{what}", text, "/s"),
        Figure(f"appends.{what}_azurite", "  Azurite", "/s"),
        Figure(f"appends.{what}_cpu", "  CPU time per request", " µs"),
        Figure(f"appends.{what}_cpu_azurite", "  CPU time per request of Azurite", " µs"),
        Figure(f"appends.{what}_cpu_ratio", "  CPU time of Azurite relative to ours", " x"),
        Figure(f"appends.{what}_p50", "  median latency", " ms"),
        Figure(f"appends.{what}_p50_azurite", "  Azurite", " ms"),
        Figure(f"appends.{what}_p99", "  p99 latency", " ms"),
        Figure(f"appends.{what}_p99_azurite", "  Azurite", " ms"),
    )


GROUP = Group(
    "appends",
    measure,
    (
        *_figures("spread", "Append Block of 1 KiB to 16 blobs, 16 connections", 8),
        *_figures("one", "Append Block of 1 KiB to one blob, 16 connections", 8),
        Figure(
            "appends.growth",
            "an append after 40,000, relative to the first 1,000",
            " x",
            at_most=1.3,
        ),
        Figure("appends.growth_first", "  median latency of the first 1,000", " ms"),
        Figure("appends.growth_last", "  median latency after 40,000", " ms"),
        Figure("appends.growth_cpu_first", "  CPU time of one of the first 1,000", " µs"),
        Figure("appends.growth_cpu_last", "  CPU time of one after 40,000", " µs"),
        *_figures("page", "Put Page of 4 KiB anywhere in 64 MiB, 16 connections"),
        Figure("appends.copy", "Copy Blob of 256 MiB in blocks of 8 MiB", " ms"),
        Figure("appends.copy_azurite", "  Azurite", " ms"),
        Figure("appends.memory", "peak memory of all processes, appends, pages, copies", " MiB"),
        Figure("appends.memory_azurite", "  Azurite", " MiB"),
    ),
)
