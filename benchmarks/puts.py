"""Conditional puts of small records, alone and with concurrent readers."""

from __future__ import annotations

import asyncio
import itertools
import random
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from benchmarks.figures import Figure, Group, Round, Settings
from benchmarks.objects import (
    ITEMS,
    Item,
    PutItem,
    Seed,
    get_item,
    item_key,
    operations_per_group,
    put_item,
    put_item_counted,
    seed,
)
from benchmarks.raw import RawTable
from benchmarks.server import Server, forget_peak, peak_mebibytes, running
from etagere.engine.interface import WriteTxn
from etagere.engine.sqlite import SqliteEngine

T = TypeVar("T")

_TASKS = 32
_READERS = 8
_RECORDS = 10_000
_STAMP = 17_000_000_000_000_000
"""As large as a real stamp, so that these records are as long as stored ones."""


class Slice(NamedTuple):
    """The results of an interval."""

    puts_per_second: float
    reads_per_second: float
    latencies: list[float]


class Clients:
    """Tasks that put items conditionally; each has its own share of the items."""

    def __init__(self, engine: SqliteEngine, records: int, payload: bytes) -> None:
        self._engine = engine
        self._payload = payload
        self._etags = [1] * records
        self._keys = [item_key(number) for number in range(records)]
        self._shares = [_shuffled(range(n, records, _TASKS)) for n in range(_TASKS)]
        self._keys_to_read = _shuffled(self._keys)
        self._put: Callable[[WriteTxn, PutItem], int] = put_item

    async def run(self, seconds: float, *, readers: int = 0, counted: bool = False) -> Slice:
        self._put = put_item_counted if counted else put_item
        latencies: list[float] = []
        started = time.perf_counter()
        deadline = started + seconds
        reading = [asyncio.create_task(self._read(deadline)) for _ in range(readers)]
        await asyncio.gather(*(self._write(n, deadline, latencies) for n in range(_TASKS)))
        elapsed = time.perf_counter() - started
        reads = sum(await asyncio.gather(*reading))
        return Slice(len(latencies) / elapsed, reads / elapsed, latencies)

    async def _write(self, share: int, deadline: float, latencies: list[float]) -> None:
        write, etags, keys, payload = self._engine.write, self._etags, self._keys, self._payload
        mine = self._shares[share]
        while (began := time.perf_counter()) < deadline:
            number = next(mine)
            command = PutItem(keys[number], etags[number], payload)
            etags[number] = await write(self._put, command)
            latencies.append(time.perf_counter() - began)

    async def _read(self, deadline: float) -> int:
        count, read, keys = 0, self._engine.read, self._keys_to_read
        while time.perf_counter() < deadline:
            await read(get_item, next(keys))
            count += 1
        return count


def _shuffled(values: Sequence[T]) -> Iterator[T]:
    """Yields random items forever, without the cost of drawing a number each time."""
    return itertools.cycle(random.sample(values, len(values)))


async def _compared(
    settings: Settings, server: Server, payload_bytes: int
) -> AsyncIterator[tuple[float, Slice, Slice]]:
    """Alternates between raw puts, puts, and puts with readers in short turns, so that other load
    on the machine affects all of them."""
    records = settings.scaled(_RECORDS, 500)
    payload = bytes(payload_bytes)
    engine = SqliteEngine(server.directory, server.config)
    await engine.write(seed, Seed(ITEMS.name, 0, records, payload))
    value = ITEMS.encode(Item(_STAMP, payload))
    rows = [(ITEMS.pack(item_key(number)), value) for number in range(records)]
    raw = RawTable(server.directory.parent / "raw.sqlite3", server.config, rows)
    clients = Clients(engine, records, payload)
    seconds = 0.05 if settings.quick else 0.2
    for _ in range(settings.rounds):
        raws, alone, beside = [], [], []
        for _ in range(settings.scaled(5, 1)):
            raws.append(raw.puts_per_second(seconds))
            alone.append(await clients.run(seconds))
            beside.append(await clients.run(seconds, readers=_READERS))
        yield statistics.mean(raws), _joined(alone), _joined(beside)
    await clients.run(seconds, counted=True)
    raw.close()
    await engine.close()


def _joined(slices: list[Slice]) -> Slice:
    return Slice(
        statistics.mean(one.puts_per_second for one in slices),
        statistics.mean(one.reads_per_second for one in slices),
        [latency for one in slices for latency in one.latencies],
    )


async def measure(settings: Settings) -> AsyncIterator[Round]:
    forget_peak()
    with running(settings.directory) as server:
        async for raw, alone, beside in _compared(settings, server, 1024):
            latencies = sorted(alone.latencies)
            yield {
                "puts.ratio": alone.puts_per_second / raw,
                "puts.ratio_beside_readers": beside.puts_per_second / raw,
                "puts.raw": raw,
                "puts.per_second": alone.puts_per_second,
                "puts.reads_per_second": beside.reads_per_second,
                "puts.p50": 1000 * latencies[len(latencies) // 2],
                "puts.p99": 1000 * latencies[len(latencies) * 99 // 100],
            }
        yield {
            "puts.group": operations_per_group(),
            "puts.writer_memory": peak_mebibytes(server.writer_pid),
            "puts.front_memory": peak_mebibytes(),
        }
    with running(settings.directory) as server:
        async for raw, alone, _ in _compared(settings, server, 128):
            yield {"puts.ratio_small": alone.puts_per_second / raw}


GROUP = Group(
    "puts",
    measure,
    (
        Figure(
            "puts.ratio",
            "conditional puts of 1 KiB, 32 tasks, relative to raw SQLite",
            at_least=0.5,
        ),
        Figure("puts.ratio_beside_readers", "the same with 8 reading tasks", at_least=0.25),
        Figure("puts.ratio_small", "conditional puts of 128 B, relative to raw SQLite"),
        Figure("puts.per_second", "conditional puts of 1 KiB", "/s"),
        Figure("puts.raw", "puts of 1 KiB with raw SQLite", "/s"),
        Figure("puts.reads_per_second", "reads with 32 putting tasks", "/s"),
        Figure("puts.group", "operations per group"),
        Figure("puts.p50", "median latency of a put, 32 tasks", " ms"),
        Figure("puts.p99", "p99 latency of a put, 32 tasks", " ms"),
        Figure("puts.writer_memory", "peak memory of the writer", " MiB"),
        Figure("puts.front_memory", "peak memory of the front end", " MiB"),
    ),
)
