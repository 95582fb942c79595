"""Reads of one record, and the slowdown of reads in a growing collection."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import apsw

from benchmarks.figures import Figure, Group, Round, Settings
from benchmarks.objects import (
    FEW,
    ITEMS,
    MANY,
    TABLES,
    Item,
    ItemKey,
    Seed,
    get_item,
    item_key,
    seed,
)
from benchmarks.raw import reader
from benchmarks.server import running
from etagere.engine.interface import ReadTxn
from etagere.engine.sqlite import SqliteEngine

_RECORDS = 10_000
_FEW, _MANY = 10_000, 1_000_000
_PAGE = 1_000
_PAYLOAD_BYTES = 100
_SEEDS_PER_OPERATION = 2_000
_TURNS = 10
"""How often a round alternates between the compared variants."""


# Single reads


async def measure_gets(settings: Settings) -> AsyncIterator[Round]:
    records = settings.scaled(_RECORDS, 500)
    with running(settings.directory) as server:
        engine = SqliteEngine(server.directory, server.config)
        await engine.write(seed, Seed(ITEMS.name, 0, records, bytes(1024)))
        raw = reader(server.directory, server.config)
        choose = random.Random(2)
        for _ in range(settings.rounds):
            keys = [item_key(n) for n in choose.choices(range(records), k=settings.scaled(500, 50))]
            ours, theirs = [], []
            for _ in range(_TURNS):
                theirs.append(_raw_gets(raw, [ITEMS.pack(key) for key in keys]))
                ours.append(await _gets(engine, keys))
            yield {
                "gets.ratio": statistics.median(ours) / statistics.median(theirs),
                "gets.microseconds": 1e6 * statistics.median(ours) / len(keys),
            }
        raw.close()
        await engine.close()


async def _gets(engine: SqliteEngine, keys: list[ItemKey]) -> float:
    read = engine.read
    began = time.perf_counter()
    for key in keys:
        await read(get_item, key)
    return time.perf_counter() - began


def _raw_gets(connection: apsw.Connection, keys: list[bytes]) -> float:
    execute = connection.cursor().execute
    sql = "SELECT value FROM bench_items WHERE key = ?"
    began = time.perf_counter()
    for key in keys:
        execute(sql, (key,)).fetchone()
    return time.perf_counter() - began


GETS = Group(
    "gets",
    measure_gets,
    (
        Figure(
            "gets.ratio", "time of a read of one record, relative to raw SQLite", " x", at_most=3.0
        ),
        Figure("gets.microseconds", "a read of one record", " µs"),
    ),
)


# Growth


class Look(NamedTuple):
    """The rows to read from a table."""

    table: str
    number: int


def get_one(txn: ReadTxn, look: Look) -> Item | None:
    return txn.get(TABLES[look.table], item_key(look.number))


def get_page(txn: ReadTxn, look: Look) -> int:
    table = TABLES[look.table]
    span = table.starting(table.all(), item_key(look.number))
    return len(txn.scan(table, span, _PAGE))


class _Comparison:
    """The same reads with the store and with SQLite alone, from a small and a large table."""

    def __init__(self, engine: SqliteEngine, raw: apsw.Connection, sizes: dict[str, int]) -> None:
        self._engine = engine
        self._execute = raw.cursor().execute
        self._sizes = sizes
        self._random = random.Random(3)

    async def growth(self, ours: Callable[[ReadTxn, Look], object], sql: str, count: int) -> float:
        """Returns the slowdown of the store on the large table, relative to that of SQLite."""
        times: dict[tuple[str, str], list[float]] = {}
        for _ in range(_TURNS):
            for table, size in self._sizes.items():
                looks = [Look(table, self._random.randrange(size - _PAGE)) for _ in range(count)]
                times.setdefault((table, "ours"), []).append(await self._ours(ours, looks))
                # Other keys, so that pages which the store has read are not in the cache.
                looks = [Look(table, self._random.randrange(size - _PAGE)) for _ in range(count)]
                times.setdefault((table, "raw"), []).append(self._raw(sql, looks))
        median = {which: statistics.median(values) for which, values in times.items()}
        few, many = self._sizes
        return (median[many, "ours"] / median[few, "ours"]) / (
            median[many, "raw"] / median[few, "raw"]
        )

    async def _ours(self, operation: Callable[[ReadTxn, Look], object], looks: list[Look]) -> float:
        read = self._engine.read
        began = time.perf_counter()
        for look in looks:
            await read(operation, look)
        return time.perf_counter() - began

    def _raw(self, sql: str, looks: list[Look]) -> float:
        keys = [TABLES[look.table].pack(item_key(look.number)) for look in looks]
        sql = sql.format(table=looks[0].table)
        began = time.perf_counter()
        for key in keys:
            self._execute(sql, (key,)).fetchall()
        return time.perf_counter() - began


async def measure_growth(settings: Settings) -> AsyncIterator[Round]:
    sizes = {
        FEW.name: settings.scaled(_FEW, 2 * _PAGE),
        MANY.name: settings.scaled(_MANY, 10 * _PAGE),
    }
    with running(settings.directory) as server:
        engine = SqliteEngine(server.directory, server.config)
        began = time.perf_counter()
        for table, size in sizes.items():
            for first in range(0, size, _SEEDS_PER_OPERATION):
                stop = min(size, first + _SEEDS_PER_OPERATION)
                await engine.write(seed, Seed(table, first, stop, bytes(_PAYLOAD_BYTES)))
        seeded_per_second = sum(sizes.values()) / (time.perf_counter() - began)
        raw = reader(server.directory, server.config)
        comparison = _Comparison(engine, raw, sizes)
        for _ in range(settings.rounds):
            yield {
                "growth.get": await comparison.growth(
                    get_one, "SELECT value FROM {table} WHERE key = ?", settings.scaled(500, 20)
                ),
                "growth.page": await comparison.growth(
                    get_page,
                    "SELECT key, value FROM {table} WHERE key >= ? ORDER BY key LIMIT 1000",
                    settings.scaled(10, 1),
                ),
                "growth.seeded": seeded_per_second,
            }
        raw.close()
        await engine.close()


GROWTH = Group(
    "growth",
    measure_growth,
    (
        Figure(
            "growth.get",
            "a get from 10,000 to 1,000,000 records, relative to raw SQLite",
            at_most=1.1,
        ),
        Figure("growth.page", "a page of 1,000, likewise", at_most=1.1),
        Figure("growth.seeded", "puts, many per operation", "/s"),
    ),
)
