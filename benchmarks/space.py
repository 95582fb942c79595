"""Disk usage after everything was overwritten and garbage was collected."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path

from benchmarks.figures import Figure, Group, Round, Settings
from benchmarks.objects import PutObject, put_object
from benchmarks.server import running
from etagere.bodies.collector import Collector
from etagere.bodies.files import FileBodyStore
from etagere.bodies.segment_files import DIRECTORY_NAME
from etagere.config import KIB, MIB, Config
from etagere.engine.sqlite import SqliteEngine

_OBJECTS = 400
_BYTES_MIN, _BYTES_MAX = 100 * KIB, 1 * MIB
_TIMES = 3
_UPLOADS_AT_ONCE = 8
_COLLECTIONS_MAX = 20


async def measure(settings: Settings) -> AsyncIterator[Round]:
    """Measures one round; other load on the machine does not matter."""
    config = Config(segment_bytes_max=settings.scaled(Config().segment_bytes_max, 4 * MIB))
    with running(settings.directory, config) as server:
        engine = SqliteEngine(server.directory, config)
        store = FileBodyStore(server.directory, engine, config)
        collector = Collector(engine, store, config)
        objects = _Objects(engine, store)
        count = settings.scaled(_OBJECTS, 12)
        for _ in range(_TIMES):
            await objects.put(range(count), count)
        seconds = await _collect(collector, store)
        ratio = _bytes_on_disk(server.directory / DIRECTORY_NAME) / objects.live_bytes
        await objects.put(range(count), count // 8)
        await _collect(collector, store)
        sparse = _bytes_on_disk(server.directory / DIRECTORY_NAME) / objects.live_bytes
        yield {"space.ratio": ratio, "space.ratio_sparse": sparse, "space.seconds": seconds}
        await store.close()
        await engine.close()


class _Objects:
    """Objects of random sizes that are overwritten repeatedly."""

    def __init__(self, engine: SqliteEngine, store: FileBodyStore) -> None:
        self._engine = engine
        self._store = store
        self._random = random.Random(4)
        self._data = os.urandom(_BYTES_MAX)
        self._sizes: dict[int, int] = {}
        self._room = asyncio.Semaphore(_UPLOADS_AT_ONCE)

    @property
    def live_bytes(self) -> int:
        return sum(self._sizes.values())

    async def put(self, numbers: range, count: int) -> None:
        """Writes `count` of the objects in random order."""
        chosen = self._random.sample(numbers, count)
        await asyncio.gather(*(self._put(number) for number in chosen))

    async def _put(self, number: int) -> None:
        self._sizes[number] = size = self._random.randint(_BYTES_MIN, _BYTES_MAX)
        async with self._room, self._store.writer(size) as writer:
            await writer.append(self._data[:size])
            body = await writer.seal()
            await self._engine.write(put_object, PutObject(f"object {number}", body))


async def _collect(collector: Collector, store: FileBodyStore) -> float:
    """Collects garbage until there is none; returns the duration in seconds."""
    began = time.perf_counter()
    for _ in range(_COLLECTIONS_MAX):
        await store.maintain()
        if not any(await collector.collect()):
            break
    return time.perf_counter() - began


def _bytes_on_disk(directory: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in directory.iterdir())


GROUP = Group(
    "space",
    measure,
    (
        Figure("space.ratio", "disk in use to live bytes, all overwritten twice", at_most=1.25),
        Figure("space.ratio_sparse", "the same when another eighth was overwritten"),
        Figure("space.seconds", "collecting that", " s"),
    ),
)
