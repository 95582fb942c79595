"""A server with 10,000 and with 1,000,000 entities in a table, over HTTP.

There are two tables: one with many partitions, and one with a single partition. Requests alternate
between two servers, one for each size, in short turns, so that other load on the machine affects
both. The requested entities are chosen at random from the whole table. The median latencies are
compared.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import random
import statistics
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.figures import Figure, Group, Round, Settings
from benchmarks.load import Load, Run, development_sas, run_all
from benchmarks.services import TABLE, Service, ask, etagere
from benchmarks.tables import (
    GROUP_SIZE,
    JSON,
    create,
    entity,
    get_load,
    group_load,
    insert_load,
    query_load,
)
from benchmarks.tools import tell

_FEW, _MANY = 10_000, 1_000_000
_PARTITION = 2_000
"""Entities per partition in the table with many partitions."""
_PAGE = 1_000
"""The maximum of a page."""
_TURNS = 10
"""How often a round alternates between the compared variants."""
_GROUPS_PER_RUN = 100
_ENTITIES_PER_REPORT = 100_000


class _Sizes(NamedTuple):
    """The size of the data set, and the number of requests per turn."""

    few: int
    many: int
    partition: int
    requests: int
    slow_requests: int

    @classmethod
    def of(cls, settings: Settings) -> _Sizes:
        if settings.quick:
            return cls(1_200, 2_400, partition=1_200, requests=20, slow_requests=2)
        return cls(_FEW, _MANY, _PARTITION, requests=300, slow_requests=10)


class _Catalogue:
    """A table whose size is the same before and after a turn."""

    def __init__(self, name: str, entities: int, partition: int, sizes: _Sizes, sas: str) -> None:
        self._name = name
        self._entities = entities
        self._partition = partition
        self._sizes = sizes
        self._sas = sas
        self._random = random.Random(entities)

    def seed(self, service: Service) -> None:
        """Inserts entities in random order, so that new ones sort between existing ones."""
        create(service, self._name, self._sas)
        groups = list(range(0, self._entities, GROUP_SIZE))
        self._random.shuffle(groups)
        for first in range(0, len(groups), _GROUPS_PER_RUN):
            these = groups[first : first + _GROUPS_PER_RUN]
            done = run_all(service, [self._group(number) for number in these])
            stored, rate = (first + len(these)) * GROUP_SIZE, done.per_second * GROUP_SIZE
            if stored == self._entities or not stored % _ENTITIES_PER_REPORT:
                tell(f"table_growth: {stored:,} of {self._entities:,}, {rate:,.0f}/s")
        self._check(service)

    def _check(self, service: Service) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", service.port)
        with contextlib.closing(connection):
            page = ask(connection, "GET", self._page().target, headers={"Accept": JSON})
        shown = page.count(b'"RowKey":')
        if shown != _PAGE:
            raise RuntimeError(f"a page shows {shown} entities")

    def _keys(self, number: int, suffix: str = "") -> tuple[str, str]:
        partition, row = divmod(number, self._partition)
        return f"p{partition:06}", f"r{row:07}{suffix}"

    def _group(self, first: int, suffix: str = "") -> Load:
        """Returns a group that inserts neighbouring entities."""
        numbers = range(first, first + GROUP_SIZE)
        documents = [entity(*self._keys(number, suffix)) for number in numbers]
        return group_load(self._name, self._sas, documents)

    def _page(self) -> Load:
        """Queries from an entity that is followed by at least a page in its partition."""
        rows = self._partition - _PAGE + 1
        first = self._random.randrange(self._entities // self._partition) * self._partition
        partition, row = self._keys(first + self._random.randrange(rows))
        condition = f"PartitionKey eq '{partition}' and RowKey ge '{row}'"
        return query_load(self._name, self._sas, condition)

    def turn(self, service: Service, kind: str) -> Run:
        """Sends a few requests of one kind."""
        sizes = self._sizes
        if kind == "page":
            pages = [self._page() for _ in range(sizes.slow_requests)]
            return run_all(service, pages)
        if kind == "group":
            firsts = self._random.sample(range(0, self._entities, GROUP_SIZE), sizes.slow_requests)
            done = run_all(service, [self._group(first, "-new") for first in firsts])
            self._remove(service, [first + more for first in firsts for more in range(GROUP_SIZE)])
            return done
        numbers = self._random.sample(range(self._entities), sizes.requests)
        if kind == "get":
            return run_all(service, [self._at(self._keys(number)) for number in numbers])
        documents = [entity(*self._keys(number, "-new")) for number in numbers]
        done = run_all(service, [insert_load(self._name, self._sas, each) for each in documents])
        self._remove(service, numbers)
        return done

    def _at(self, keys: tuple[str, str]) -> Load:
        partition, row = keys
        return get_load(self._name, self._sas, f"PartitionKey='{partition}',RowKey='{row}'")

    def _remove(self, service: Service, numbers: list[int]) -> None:
        deletions = [
            self._at(self._keys(number, "-new"))._replace(method="DELETE", headers=("If-Match: *",))
            for number in numbers
        ]
        run_all(service, deletions)


class _Library:
    """A server with both tables."""

    def __init__(self, directory: Path, entities: int, sizes: _Sizes, sas: str) -> None:
        self.service: Service
        self._directory = directory
        self._tables = {
            "many": _Catalogue("Many", entities, sizes.partition, sizes, sas),
            "single": _Catalogue("Single", entities, entities, sizes, sas),
        }
        directory.mkdir()

    def start(self, ends: contextlib.ExitStack) -> None:
        self.service = etagere(self._directory, ends, TABLE)
        for table in self._tables.values():
            table.seed(self.service)

    def turn(self, table: str, kind: str) -> Run:
        return self._tables[table].turn(self.service, kind)


async def measure(settings: Settings) -> AsyncIterator[Round]:
    sizes = _Sizes.of(settings)
    sas = development_sas()
    below = tempfile.TemporaryDirectory(prefix="etagere-bench-", dir=settings.directory)
    with contextlib.ExitStack() as ends:
        directory = Path(ends.enter_context(below))
        few = _Library(directory / "few", sizes.few, sizes, sas)
        many = _Library(directory / "many", sizes.many, sizes, sas)
        for library in (few, many):
            library.start(ends)
        turns = settings.scaled(_TURNS, 1)
        for _ in range(settings.rounds):
            told: Round = {}
            for table, kind in itertools.product(_TABLES, _KINDS):
                told |= _compared(table, kind, few, many, turns)
            yield told | {
                "table_growth.memory_few": few.service.mebibytes(),
                "table_growth.memory": many.service.mebibytes(),
            }
        yield {"table_growth.memory_peak": many.service.peak_mebibytes()}


def _compared(table: str, kind: str, few: _Library, many: _Library, turns: int) -> Round:
    runs = [(few.turn(table, kind), many.turn(table, kind)) for _ in range(turns)]
    of_few, of_many = zip(*runs, strict=True)
    p50_few, p50_many = (statistics.median(run.p50 for run in of) for of in (of_few, of_many))
    key = f"table_growth.{kind}_{table}"
    return {
        key: p50_many / p50_few,
        f"{key}_few": 1000 * p50_few,
        f"{key}_many": 1000 * p50_many,
        f"{key}_cpu_few": statistics.mean(run.cpu_microseconds for run in of_few),
        f"{key}_cpu_many": statistics.mean(run.cpu_microseconds for run in of_many),
    }


def _figures(table: str, kind: str, at_most: float) -> tuple[Figure, ...]:
    key = f"table_growth.{kind}_{table}"
    text = f"{_TEXTS[kind]}, {_TABLES[table]}, 1,000,000 entities to 10,000"
    return (
        Figure(key, text, " x", at_most=at_most),
        Figure(f"{key}_few", "  median latency, 10,000", " ms"),
        Figure(f"{key}_many", "  median latency, 1,000,000", " ms"),
        Figure(f"{key}_cpu_few", "  CPU time per request, 10,000", " µs"),
        Figure(f"{key}_cpu_many", "  CPU time per request, 1,000,000", " µs"),
    )


_TABLES = {"many": "many partitions", "single": "one partition"}
_TEXTS = {
    "insert": "Insert Entity",
    "get": "Query Entity by its keys",
    "page": "Query Entities, 1,000 from anywhere",
    "group": "Entity group transaction of 100",
}
_KINDS = {"insert": 2, "get": 1.3, "page": 1.3, "group": 1.3}
"""The compared requests, and how much longer they may take."""

GROUP = Group(
    "table_growth",
    measure,
    (
        *itertools.chain.from_iterable(
            _figures(table, kind, at_most) for table in _TABLES for kind, at_most in _KINDS.items()
        ),
        Figure("table_growth.memory", "memory with 1,000,000 in each table", " MiB", at_most=400),
        Figure("table_growth.memory_few", "  with 10,000 in each", " MiB"),
        Figure(
            "table_growth.memory_peak",
            "  peak, shared pages counted in each process",
            " MiB",
            at_most=400,
        ),
    ),
    on_request=True,
)
