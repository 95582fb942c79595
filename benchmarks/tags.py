"""Searches by tags among 1,000 and among 100,000 tagged blobs.

Searches alternate between two stores, one for each size, in short turns, so that other load on the
machine affects both. The median times of a page are compared. Encoding a page does not depend on
the number of blobs, and is not measured.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import statistics
import time
from collections.abc import AsyncIterator, Sequence

from benchmarks.figures import Figure, Group, Round, Settings
from benchmarks.server import running
from etagere.engine.interface import WriteTxn, operation
from etagere.engine.sqlite import SqliteEngine
from etagere.model.base import Command
from etagere.model.blobs import BlobName, PutBlob
from etagere.model.bodies import Body
from etagere.model.containers import ContainerName, CreateContainer
from etagere.model.ids import new_id
from etagere.operations.blob.blobs import put_blob
from etagere.operations.blob.containers import create_container
from etagere.operations.blob.tags import BlobPlace, FindBlobs, TaggedBlobRow, find_blobs
from etagere.operations.pages import FillPage
from etagere.rules.tag_expressions import Search, parse_search

_FEW, _MANY = 1_000, 100_000
_PAGE = 100
_PAGES = 20
"""Requests of each kind per turn."""
_TURNS = 10
"""How often a round alternates between the compared variants."""
_SEEDS_PER_OPERATION = 500
_CONTAINER = ContainerName("account", "library")
_NOTHING = Body(b"", 0, 0)


class _Rows:
    """A page that only counts its entries."""

    def __init__(self, _now: int) -> None:
        self.count = 0

    def add(self, rows: Sequence[TaggedBlobRow]) -> int:
        self.count += len(rows)
        return len(rows)

    @property
    def rows_at_once(self) -> int:
        return 100


class Shelve(Command, frozen=True):
    first: int
    stop: int
    shelves: int


@operation
def shelve(txn: WriteTxn, command: Shelve) -> None:
    """Puts many blobs at once. Blobs with the same shelf tag are far apart."""
    for number in range(command.first, command.stop):
        shelf = number % command.shelves
        tags = ("kind", "book"), ("number", f"{number:06}"), ("shelf", f"{shelf:04}")
        put_blob(txn, PutBlob(BlobName(_CONTAINER, _name(number)), _NOTHING, tags=tags))


def _name(number: int) -> str:
    return f"blob-{number:06}"


class _Library:
    """A store with `blobs` blobs, of which each shelf tag has a page."""

    def __init__(self, engine: SqliteEngine, blobs: int) -> None:
        self.seconds = 0.0
        self._engine = engine
        self._blobs = blobs
        self._container_id = new_id()
        self._random = random.Random(blobs)

    @property
    def shelves(self) -> int:
        return self._blobs // _PAGE

    async def seed(self) -> None:
        """Puts all blobs, and stores how long that took."""
        await self._engine.write(create_container, CreateContainer(_CONTAINER, self._container_id))
        began = time.perf_counter()
        for first in range(0, self._blobs, _SEEDS_PER_OPERATION):
            stop = min(self._blobs, first + _SEEDS_PER_OPERATION)
            await self._engine.write(shelve, Shelve(first, stop, self.shelves))
        self.seconds = time.perf_counter() - began

    async def turn(self, kind: str, pages: int) -> list[float]:
        """Executes searches; returns the time of each."""
        commands = [self._search(kind) for _ in range(pages)]
        found: list[float] = []
        for command in commands:
            began = time.perf_counter()
            page = await self._engine.read_in_steps(find_blobs, FillPage(command, _Rows))
            found.append(time.perf_counter() - began)
            count = page.page.count if isinstance(page.page, _Rows) else 0
            if count != _PAGE:
                raise RuntimeError(f"{command.search.written}: {count} blobs")
        return found

    def _search(self, kind: str) -> FindBlobs:
        """Returns a random search that finds at least a page."""
        first = self._random.randrange(self._blobs - _PAGE + 1)
        shelf = f"shelf = '{self._random.randrange(self.shelves):04}'"
        written = {
            "value": "kind = 'book'",
            "shelf": shelf,
            "both": f"kind = 'book' AND {shelf}",
            "range": f"number >= '{first:06}' AND number < '{first + _PAGE:06}'",
        }[kind]
        search = parse_search(written)
        if not isinstance(search, Search):
            raise TypeError(f"{written}: {search.reason}")
        everywhere = kind != "value"
        start = None if everywhere else BlobPlace(_CONTAINER.name, self._container_id, _name(first))
        return FindBlobs(_CONTAINER.account, search, _PAGE, start=start)


async def measure(settings: Settings) -> AsyncIterator[Round]:
    sizes = settings.scaled(_FEW, _PAGE), settings.scaled(_MANY, 5 * _PAGE)
    pages, turns = settings.scaled(_PAGES, 2), settings.scaled(_TURNS, 1)
    async with contextlib.AsyncExitStack() as ends:
        libraries: list[_Library] = []
        for blobs in sizes:
            server = ends.enter_context(running(settings.directory))
            engine = SqliteEngine(server.directory, server.config)
            ends.push_async_callback(engine.close)
            libraries.append(_Library(engine, blobs))
            await libraries[-1].seed()
        few, many = libraries
        for _ in range(settings.rounds):
            told = {"tags.seeded": sizes[1] / many.seconds}
            for kind in _KINDS:
                told |= await _compared(kind, few, many, pages, turns)
            yield told


async def _compared(kind: str, few: _Library, many: _Library, pages: int, turns: int) -> Round:
    of_few: list[float] = []
    of_many: list[float] = []
    for _ in range(turns):
        of_few += await few.turn(kind, pages)
        of_many += await many.turn(kind, pages)
    p50_few, p50_many = statistics.median(of_few), statistics.median(of_many)
    return {
        f"tags.{kind}": p50_many / p50_few,
        f"tags.{kind}_few": 1000 * p50_few,
        f"tags.{kind}_many": 1000 * p50_many,
    }


def _figures(kind: str, text: str) -> tuple[Figure, ...]:
    return (
        Figure(f"tags.{kind}", f"{text}, of 100,000 to of 1,000", " x", at_most=1.3),
        Figure(f"tags.{kind}_few", "  of 1,000", " ms"),
        Figure(f"tags.{kind}_many", "  of 100,000", " ms"),
    )


_KINDS = {
    "value": "100 blobs by a value that all have, from anywhere",
    "shelf": "100 blobs by a value that no others have",
    "both": "100 blobs by both",
    "range": "100 blobs by a range of values",
}

GROUP = Group(
    "tags",
    measure,
    (
        *itertools.chain.from_iterable(_figures(kind, text) for kind, text in _KINDS.items()),
        Figure("tags.seeded", "blobs put with three tags, many in an operation", "/s"),
    ),
)
