"""A server with 10,000 and with 1,000,000 blobs in one container, over HTTP.

Requests alternate between two servers, one for each size, in short turns, so that other load on the
machine affects both. The requested blobs are chosen at random from the whole container. The median
latencies are compared.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import random
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from benchmarks.figures import Figure, Group, Round, Settings
from benchmarks.load import ACCOUNT, Load, Run, development_sas, run_each
from benchmarks.services import Service, ask, etagere
from benchmarks.tools import tell

_FEW, _MANY = 10_000, 1_000_000
_BLOB_BYTES = 1024
_FOLDERS = 100
"""Prefixes in both containers; in the large one each has a hundred times as many blobs."""
_PAGE = 5_000
_PAGE_CONNECTIONS = 2
_TURNS = 10
"""How often a round alternates between the compared variants."""
_SEEDS_PER_REPORT = 50_000
_CONTAINER = f"/{ACCOUNT}/shelf"


class _Sizes(NamedTuple):
    """The size of the data set, and the number of requests per turn."""

    few: int
    many: int
    folders: int
    page: int
    requests: int
    pages: int

    @classmethod
    def of(cls, settings: Settings) -> _Sizes:
        if settings.quick:
            return cls(40, 400, folders=4, page=20, requests=20, pages=2)
        return cls(_FEW, _MANY, _FOLDERS, _PAGE, requests=500, pages=10)


def _loads(sas: str, page: int) -> dict[str, Load]:
    """The compared requests, and those that delete the blobs they created."""
    blob = f"{_CONTAINER}/{{}}?{sas}"
    pages = f"{_CONTAINER}?restype=container&comp=list&{sas}"
    from_anywhere = f"{pages}&maxresults={page}&startFrom={{}}"
    put = Load("PUT", blob, headers=("x-ms-blob-type: BlockBlob",), body_bytes=_BLOB_BYTES)
    return {
        "get": Load("GET", blob),
        "head": Load("HEAD", blob),
        "replace": put,
        "create": put,
        "delete": Load("DELETE", blob),
        "page": Load("GET", from_anywhere, connections=_PAGE_CONNECTIONS),
        "folders": Load("GET", f"{pages}&delimiter=%2F", connections=_PAGE_CONNECTIONS),
    }


class _SeededServer:
    """A server with a container of `blobs` blobs."""

    def __init__(self, directory: Path, blobs: int, sizes: _Sizes, sas: str) -> None:
        self.service: Service
        self._directory = directory
        self._blobs = blobs
        self._sizes = sizes
        self._sas = sas
        self._loads = _loads(sas, sizes.page)
        self._random = random.Random(blobs)
        directory.mkdir()

    def start(self, ends: contextlib.ExitStack) -> None:
        self.service = etagere(self._directory, ends)

    def seed(self) -> None:
        """Uploads blobs to the folders in turn, so that new blobs sort between existing ones."""
        self._ask("PUT", f"{_CONTAINER}?restype=container&{self._sas}")
        for first in range(0, self._blobs, _SEEDS_PER_REPORT):
            stop = min(self._blobs, first + _SEEDS_PER_REPORT)
            names = map(self._name, range(first, stop))
            put = run_each(self.service, self._loads["create"], names)
            tell(f"http_growth: {stop:,} of {self._blobs:,} blobs, {put.per_second:,.0f}/s")
        self._check()

    def _check(self) -> None:
        page = self._loads["page"].target.format(self._page_start())
        blobs = self._ask("GET", page).count(b"<Blob>")
        folders = self._ask("GET", self._loads["folders"].target).count(b"<BlobPrefix>")
        if (blobs, folders) != (self._sizes.page, self._sizes.folders):
            raise RuntimeError(f"{blobs} blobs and {folders} folders are listed")

    def _ask(self, method: str, target: str) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.service.port)
        with contextlib.closing(connection):
            return ask(connection, method, target)

    def _name(self, number: int) -> str:
        index, folder = divmod(number, self._sizes.folders)
        return f"p{folder:02}/blob-{index:07}"

    def _page_start(self) -> str:
        """Returns the name of a blob that is followed by at least a page of blobs."""
        rank = self._random.randrange(self._blobs - self._sizes.page + 1)
        folder, index = divmod(rank, self._blobs // self._sizes.folders)
        return quote(self._name(index * self._sizes.folders + folder), safe="")

    def turn(self, kind: str) -> Run:
        """Sends a few requests of one kind."""
        names = self._names(kind)
        done = run_each(self.service, self._loads[kind], names)
        if kind == "create":
            # Keep the size of the container.
            run_each(self.service, self._loads["delete"], names)
        return done

    def _names(self, kind: str) -> list[str]:
        if kind == "folders":
            return [""] * self._sizes.pages
        if kind == "page":
            return [self._page_start() for _ in range(self._sizes.pages)]
        return [f"{name}-new" if kind == "create" else name for name in self._some()]

    def _some(self) -> list[str]:
        return [
            self._name(number)
            for number in self._random.sample(range(self._blobs), self._sizes.requests)
        ]

    def restarts(self, ends: contextlib.ExitStack) -> Round:
        """Restarts the server; returns how long that takes. When it is killed, its log contains
        puts that are not checkpointed."""
        run_each(self.service, self._loads["replace"], self._some())
        self.service.kill()
        after_kill = self._start_seconds(ends)
        self.service.stop()
        after_stop = self._start_seconds(ends)
        return {
            "http_growth.start_stopped": after_stop,
            "http_growth.start_killed": after_kill,
        }

    def _start_seconds(self, ends: contextlib.ExitStack) -> float:
        """Starts the server; returns the seconds until a blob was read."""
        name, *_ = self._some()
        began = time.perf_counter()
        self.start(ends)
        self._ask("GET", self._loads["get"].target.format(name))
        return time.perf_counter() - began


async def measure(settings: Settings) -> AsyncIterator[Round]:
    sizes = _Sizes.of(settings)
    sas = development_sas()
    below = tempfile.TemporaryDirectory(prefix="etagere-bench-", dir=settings.directory)
    with contextlib.ExitStack() as ends:
        directory = Path(ends.enter_context(below))
        few = _SeededServer(directory / "few", sizes.few, sizes, sas)
        many = _SeededServer(directory / "many", sizes.many, sizes, sas)
        for server in (few, many):
            server.start(ends)
            server.seed()
        for _ in range(settings.rounds):
            told: Round = {}
            for kind in _KINDS:
                told |= _compared(kind, few, many, settings.scaled(_TURNS, 1))
            yield told | {"http_growth.memory": many.service.mebibytes()}
        yield {"http_growth.memory_peak": many.service.peak_mebibytes()}
        for _ in range(settings.rounds):
            yield many.restarts(ends)


def _compared(kind: str, few: _SeededServer, many: _SeededServer, turns: int) -> Round:
    runs = [(few.turn(kind), many.turn(kind)) for _ in range(turns)]
    of_few, of_many = zip(*runs, strict=True)
    p50_few, p50_many = (statistics.median(run.p50 for run in of) for of in (of_few, of_many))
    return {
        f"http_growth.{kind}": p50_many / p50_few,
        f"http_growth.{kind}_few": 1000 * p50_few,
        f"http_growth.{kind}_many": 1000 * p50_many,
        f"http_growth.{kind}_cpu_few": statistics.mean(run.cpu_microseconds for run in of_few),
        f"http_growth.{kind}_cpu_many": statistics.mean(run.cpu_microseconds for run in of_many),
    }


def _figures(kind: str, text: str, at_most: float) -> tuple[Figure, ...]:
    return (
        Figure(
            f"http_growth.{kind}",
            f"{text}, 1,000,000 blobs relative to 10,000",
            " x",
            at_most=at_most,
        ),
        Figure(f"http_growth.{kind}_few", "  median latency, 10,000", " ms"),
        Figure(f"http_growth.{kind}_many", "  median latency, 1,000,000", " ms"),
        Figure(f"http_growth.{kind}_cpu_few", "  CPU time per request, 10,000", " µs"),
        Figure(f"http_growth.{kind}_cpu_many", "  CPU time per request, 1,000,000", " µs"),
    )


_KINDS = {
    "get": ("Get Blob of 1 KiB", 1.3),
    "head": ("Get Blob Properties", 1.3),
    "replace": ("Put Blob of 1 KiB over another", 2),
    "create": ("Put Blob of 1 KiB, new", 2),
    "page": ("List Blobs, 5,000 from anywhere", 1.3),
    "folders": ("List Blobs, 100 prefixes of all", 1.3),
}
"""The compared requests, and how much longer they may take."""

GROUP = Group(
    "http_growth",
    measure,
    (
        *itertools.chain.from_iterable(_figures(kind, *said) for kind, said in _KINDS.items()),
        Figure("http_growth.memory", "memory with 1,000,000 blobs", " MiB", at_most=400),
        Figure(
            "http_growth.memory_peak",
            "  peak, shared pages counted in each process",
            " MiB",
            at_most=400,
        ),
        Figure("http_growth.start_stopped", "start with 1,000,000 blobs", " s", at_most=2),
        Figure("http_growth.start_killed", "  after kill -9", " s", at_most=2),
    ),
    on_request=True,
)
