"""Directories with 10,000, 100,000 and 1,000,000 files, over HTTP.

All of them are in one share. Their files are stored by operations that create many at once, because
single requests would take too long. Turns alternate between the directories, so that other load on
the machine affects all alike; what a turn creates is deleted after it. Files are chosen at random
from the whole directory. The median latencies are compared.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.figures import Figure, Group, Round, Settings
from benchmarks.load import ACCOUNT, Load, Run, development_sas, run_all
from benchmarks.server import Server
from benchmarks.services import FILE, Service, etagere
from benchmarks.tools import tell
from etagere.config import Config
from etagere.engine.interface import WriteTxn, operation
from etagere.engine.sqlite import SqliteEngine
from etagere.model.base import Command
from etagere.model.bodies import Empty
from etagere.model.files import (
    CreateDirectory,
    Entry,
    EntryPath,
    FileNode,
    FileTimes,
    NewEntry,
    NewTimes,
)
from etagere.model.ids import new_id
from etagere.model.shares import CreateShare, ShareName, ShareRef
from etagere.operations.file import entries, shares
from etagere.operations.file.tree import guard_path, put_entry
from etagere.protocol.rest.continuation_tokens import format_token
from etagere.rules.file_attributes import FileAttributes

_SIZES = (10_000, 100_000, 1_000_000)
_PAGE = 5_000
"""The maximum of a page."""
_SEEDS_PER_OPERATION = 2_000
_NEIGHBOURS = 20
"""Files that are stored one after the other. Such runs are shuffled, so that most of them are
inserted between others."""
_SEEDS_PER_REPORT = 100_000
_TURNS = 10
"""How often a round alternates between the directories."""
_CONNECTIONS = 4
_SHARE = ShareRef(ShareName(ACCOUNT, "share"))


class _Scale(NamedTuple):
    """The sizes of the directories, and the number of requests per turn."""

    sizes: tuple[int, ...]
    page: int
    requests: int
    pages: int

    @classmethod
    def of(cls, settings: Settings) -> _Scale:
        if settings.quick:
            return cls((40, 80, 400), page=20, requests=8, pages=1)
        return cls(_SIZES, _PAGE, requests=500, pages=8)


# Storing files


class SeedFiles(Command, frozen=True):
    """Create empty files with these numbers."""

    directory: EntryPath
    first_id: int
    numbers: tuple[int, ...]


@operation
def seed_files(txn: WriteTxn, command: SeedFiles) -> None:
    now, attributes = txn.now, int(FileAttributes.ARCHIVE)
    ref, components = command.directory.ref, command.directory.components
    place = guard_path(txn, EntryPath(ref, (*components, "")))
    for number in command.numbers:
        name = _name(number)
        entry = Entry(
            name,
            command.first_id + number,
            place.directory_id,
            0,
            txn.stamp,
            FileTimes(now, now, now),
            attributes,
            FileNode(Empty()),
        )
        put_entry(txn, place._replace(name=name), entry)


def _name(number: int, suffix: str = "") -> str:
    return f"file-{number:08}{suffix}.txt"


async def _seed(directory: Path, sizes: tuple[int, ...]) -> None:
    """Creates a store with a share of directories."""
    server = Server(directory, Config())
    try:
        server.wait()
        engine = SqliteEngine(directory, server.config)
        await engine.write(shares.create_share, CreateShare(_SHARE.share, new_id()))
        for number, size in enumerate(sizes):
            await _seed_directory(engine, size, first_id=1 + number * max(sizes))
        await engine.close()
    finally:
        server.stop()


async def _seed_directory(engine: SqliteEngine, size: int, first_id: int) -> None:
    path = EntryPath(_SHARE, (_directory_name(size),))
    new = NewEntry(NewTimes(), 0)
    await engine.write(entries.create_directory, CreateDirectory(path, new))
    runs = [range(first, min(first + _NEIGHBOURS, size)) for first in range(0, size, _NEIGHBOURS)]
    random.Random(size).shuffle(runs)
    per_operation = _SEEDS_PER_OPERATION // _NEIGHBOURS
    done = 0
    for first in range(0, len(runs), per_operation):
        numbers = tuple(number for run in runs[first : first + per_operation] for number in run)
        await engine.write(seed_files, SeedFiles(path, first_id, numbers))
        done += len(numbers)
        if done == size or not done % _SEEDS_PER_REPORT:
            tell(f"directory_growth: {done:,} of {size:,}")


def _directory_name(size: int) -> str:
    return f"directory-{size}"


# Measuring


class _Directory:
    """A directory whose size is the same before and after a turn."""

    def __init__(self, service: Service, size: int, scale: _Scale, sas: str) -> None:
        self._service = service
        self._size = size
        self._scale = scale
        self._sas = sas
        self._random = random.Random(size)
        self._target = f"/{ACCOUNT}/{_SHARE.share.name}/{_directory_name(size)}"

    def turn(self, kind: str) -> Run:
        """Sends a few requests of one kind."""
        scale = self._scale
        if kind == "page":
            firsts = self._random.choices(range(self._size - scale.page), k=scale.pages)
            return self._run([self._page(first) for first in firsts])
        numbers = self._random.sample(range(self._size), scale.requests)
        if kind == "lookup":
            return self._run([self._file("GET", _name(number)) for number in numbers])
        names = [_name(number, "-new") for number in numbers]
        headers = ("x-ms-type: file", "x-ms-content-length: 0")
        done = self._run([self._file("PUT", name, *headers) for name in names])
        self._run([self._file("DELETE", name) for name in names])
        return done

    def _run(self, loads: list[Load]) -> Run:
        return run_all(self._service, loads)

    def _file(self, method: str, name: str, *headers: str) -> Load:
        target = f"{self._target}/{name}?{self._sas}"
        return Load(method, target, headers=headers, connections=_CONNECTIONS)

    def _page(self, first: int) -> Load:
        """Lists from a file that is followed by at least a page."""
        page = f"maxresults={self._scale.page}&marker={format_token(_name(first))}"
        target = f"{self._target}?restype=directory&comp=list&{page}&{self._sas}"
        return Load("GET", target, connections=1)


async def measure(settings: Settings) -> AsyncIterator[Round]:
    scale, sas = _Scale.of(settings), development_sas()
    below = tempfile.TemporaryDirectory(prefix="etagere-bench-", dir=settings.directory)
    with contextlib.ExitStack() as ends:
        directory = Path(ends.enter_context(below))
        await _seed(directory / "ours", scale.sizes)
        service = etagere(directory, ends, FILE)
        directories = [_Directory(service, size, scale, sas) for size in scale.sizes]
        for _ in range(settings.rounds):
            told: Round = {}
            for kind in _KINDS:
                told |= _compared(kind, directories, settings.scaled(_TURNS, 1))
            yield told


def _compared(kind: str, directories: list[_Directory], turns: int) -> Round:
    runs = [[directory.turn(kind) for directory in directories] for _ in range(turns)]
    few, some, many = (statistics.median(run.p50 for run in of) for of in zip(*runs, strict=True))
    key = f"directory_growth.{kind}"
    return {
        key: many / few,
        f"{key}_some": some / few,
        f"{key}_few_time": 1000 * few,
        f"{key}_many_time": 1000 * many,
    }


def _figures(kind: str, text: str, at_most: float) -> tuple[Figure, ...]:
    key = f"directory_growth.{kind}"
    return (
        Figure(key, f"{text}, 1,000,000 files to 10,000", " x", at_most=at_most),
        Figure(f"{key}_some", "  100,000 to 10,000", " x"),
        Figure(f"{key}_few_time", "  median latency, 10,000", " ms"),
        Figure(f"{key}_many_time", "  median latency, 1,000,000", " ms"),
    )


_KINDS = {
    "lookup": ("Get File, empty", 1.3),
    "page": ("List Directories and Files, 5,000 from anywhere", 1.3),
    "create": ("Create File", 2),
}
"""The compared requests, and how much longer they may take."""

GROUP = Group(
    "directory_growth",
    measure,
    tuple(figure for kind, row in _KINDS.items() for figure in _figures(kind, *row)),
    on_request=True,
)
