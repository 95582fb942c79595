"""Directories with 10,000, 100,000 and 1,000,000 files, measured at the operations.

All of them are in one share of one store. Turns alternate between them, so that other load on the
machine affects all alike, and what a turn creates is deleted after it. Names are chosen at random
from the whole directory; "repeated" lookups choose from the same number of names in each directory,
so that the pages they read are equally likely to be in the cache.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import NamedTuple

from benchmarks.figures import Figure, Group, Round, Settings
from benchmarks.server import running
from benchmarks.tools import tell
from etagere.engine.interface import C, WriteTxn, operation
from etagere.engine.sqlite import SqliteEngine
from etagere.model.base import Command
from etagere.model.bodies import Empty
from etagere.model.files import (
    CreateDirectory,
    CreateFile,
    DeleteEntry,
    Entry,
    EntryPath,
    FileNode,
    FileTimes,
    GetEntry,
    ListEntries,
    NewEntry,
    NewTimes,
)
from etagere.model.ids import new_id
from etagere.model.shares import CreateShare, ShareName, ShareRef
from etagere.operations.file import entries, listing, shares
from etagere.operations.file.tree import guard_path, put_entry
from etagere.operations.pages import FillPage
from etagere.rules.file_attributes import FileAttributes

_SIZES = (10_000, 100_000, 1_000_000)
_PAGE = 5_000
_REPEATED = 2_000
"""Names that repeated lookups choose from."""
_SEEDS_PER_OPERATION = 2_000
_NEIGHBOURS = 20
"""Files that are seeded one after the other. Such runs are shuffled, so that most of them are
inserted between others."""
_SEEDS_PER_REPORT = 100_000
_TURNS = 10
"""How often a round alternates between the directories."""
_AT_ONCE = 32
"""Creations at a time, which the writer commits in groups."""
_SHARE = ShareRef(ShareName("bench", "share"))
_NEW = NewEntry(NewTimes(), 0)


class _Scale(NamedTuple):
    """The sizes of the directories, and the number of calls per turn."""

    sizes: tuple[int, ...]
    page: int
    lookups: int
    pages: int
    creations: int

    @classmethod
    def of(cls, settings: Settings) -> _Scale:
        if settings.quick:
            return cls((40, 80, 400), page=20, lookups=20, pages=1, creations=4)
        return cls(_SIZES, _PAGE, lookups=1_000, pages=4, creations=256)


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


class _Counter:
    """A page of a listing that only counts its rows."""

    rows_at_once = 500

    def __init__(self) -> None:
        self.rows = 0

    def add(self, rows: Sequence[Entry]) -> int:
        self.rows += len(rows)
        return len(rows)


class _Directory:
    """A directory whose size is the same before and after a turn."""

    def __init__(self, engine: SqliteEngine, size: int, scale: _Scale) -> None:
        self.size = size
        self._engine = engine
        self._scale = scale
        self._random = random.Random(size)
        self._path = EntryPath(_SHARE, (f"directory-{size}",))
        self._repeated: list[int] = []

    def _file(self, name: str) -> EntryPath:
        return EntryPath(_SHARE, (*self._path.components, name))

    async def seed(self, first_id: int) -> None:
        await self._engine.write(entries.create_directory, CreateDirectory(self._path, _NEW))
        runs = [
            tuple(range(first, min(first + _NEIGHBOURS, self.size)))
            for first in range(0, self.size, _NEIGHBOURS)
        ]
        self._random.shuffle(runs)
        per_operation = _SEEDS_PER_OPERATION // _NEIGHBOURS
        done = 0
        for first in range(0, len(runs), per_operation):
            numbers = tuple(n for run in runs[first : first + per_operation] for n in run)
            await self._engine.write(seed_files, SeedFiles(self._path, first_id, numbers))
            done += len(numbers)
            if done == self.size or not done % _SEEDS_PER_REPORT:
                tell(f"directory_growth: {done:,} of {self.size:,}")
        count = min(_REPEATED, self.size)
        self._repeated = self._random.sample(range(self.size), count)

    async def lookup(self) -> float:
        """Returns the seconds that a lookup of any file takes."""
        return await self._look_up(range(self.size))

    async def repeated(self) -> float:
        return await self._look_up(self._repeated)

    async def _look_up(self, numbers: range | list[int]) -> float:
        chosen = self._random.choices(numbers, k=self._scale.lookups)
        asked = [GetEntry(self._file(_name(number))) for number in chosen]
        read, began = self._engine.read, time.perf_counter()
        for ask in asked:
            await read(entries.get_file_or_directory, ask)
        return (time.perf_counter() - began) / len(asked)

    async def page(self) -> float:
        """Returns the seconds that a page takes that starts anywhere. Reads end after some time, so
        that a page may be shorter on a busy machine."""
        scale = self._scale
        firsts = self._random.choices(range(self.size - scale.page), k=scale.pages)
        page = _Counter()
        began = time.perf_counter()
        for first in firsts:
            ask = ListEntries(self._path, scale.page, marker=_name(first).upper())
            command = FillPage[ListEntries, Entry](ask, lambda _now: page)
            await self._engine.read_in_steps(listing.list_entries, command)
        return (time.perf_counter() - began) / page.rows * scale.page

    async def create(self) -> float:
        """Returns the seconds that a creation takes, with others at the same time."""
        chosen = self._random.sample(range(self.size), self._scale.creations)
        paths = [self._file(_name(number, "-new")) for number in chosen]
        creations = [CreateFile(path, _NEW, new_id(), 0) for path in paths]
        began = time.perf_counter()
        await _in_parallel(lambda each: self._engine.write(entries.create_file, each), creations)
        seconds = (time.perf_counter() - began) / len(paths)
        deletions = [DeleteEntry(path, is_directory=False) for path in paths]
        await _in_parallel(lambda each: self._engine.write(entries.delete_entry, each), deletions)
        return seconds


async def _in_parallel(call: Callable[[C], Awaitable[object]], commands: list[C]) -> None:
    left = iter(commands)

    async def work() -> None:
        for command in left:
            await call(command)

    await asyncio.gather(*(work() for _ in range(_AT_ONCE)))


_KINDS: dict[str, Callable[[_Directory], Awaitable[float]]] = {
    "lookup": _Directory.lookup,
    "repeated": _Directory.repeated,
    "page": _Directory.page,
    "create": _Directory.create,
}


async def measure(settings: Settings) -> AsyncIterator[Round]:
    scale = _Scale.of(settings)
    with running(settings.directory) as server:
        engine = SqliteEngine(server.directory, server.config)
        await engine.write(shares.create_share, CreateShare(_SHARE.share, new_id()))
        directories, first_id = [], 1
        for size in scale.sizes:
            directory = _Directory(engine, size, scale)
            await directory.seed(first_id)
            directories.append(directory)
            first_id += size
        for _ in range(settings.rounds):
            told: Round = {}
            for kind in _KINDS:
                told |= await _compared(kind, directories, settings.scaled(_TURNS, 1))
            yield told
        await engine.close()


async def _compared(kind: str, directories: list[_Directory], turns: int) -> Round:
    times: list[list[float]] = [[] for _ in directories]
    for turn in range(turns + 1):
        for directory, seconds in zip(directories, times, strict=True):
            taken = await _KINDS[kind](directory)
            if turn:  # The first turn fills the caches.
                seconds.append(taken)
    few, some, many = (statistics.median(seconds) for seconds in times)
    key = f"directory_growth.{kind}"
    return {
        key: many / few,
        f"{key}_some": some / few,
        f"{key}_few_time": 1e6 * few,
        f"{key}_many_time": 1e6 * many,
    }


def _figures(kind: str, text: str, at_most: float) -> tuple[Figure, ...]:
    key = f"directory_growth.{kind}"
    return (
        Figure(key, f"{text}, 1,000,000 files to 10,000", " x", at_most=at_most),
        Figure(f"{key}_some", "  100,000 to 10,000", " x"),
        Figure(f"{key}_few_time", "  with 10,000", " µs"),
        Figure(f"{key}_many_time", "  with 1,000,000", " µs"),
    )


GROUP = Group(
    "directory_growth",
    measure,
    (
        *_figures("lookup", "lookup of any file", 1.3),
        *_figures("repeated", "lookup of one of 2,000 files", 1.3),
        *_figures("page", "page of 5,000 from anywhere", 1.3),
        *_figures("create", "Create File", 2),
    ),
    on_request=True,
)
