"""A body store over an object store, with a ledger in memory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

from etagere.bodies.collector import Collected, Collector
from etagere.bodies.contents import EXTENTS, SEGMENTS
from etagere.bodies.objects.buffers import Budget
from etagere.bodies.objects.interface import ObjectStore
from etagere.bodies.objects.store import ObjectBodyStore
from etagere.bodies.plans import SegmentRange
from etagere.config import KIB, MIB, Config
from etagere.coordination.local import LocalCoordinator
from etagere.engine.interface import Engine
from etagere.engine.memory import MemoryEngine
from etagere.model.bodies import Body, Segment
from tests.bodies import objects
from tests.bodies.object_stores.drivers import FaultyObjectStore, MemoryObjectStore
from tests.model.consistency import require_balanced, rows

CONFIG = Config(
    durable=False,
    inline_bytes_max=512,
    piece_bytes_max=256 * KIB,
    segment_bytes_max=4 * MIB,
    memory_budget_bytes=4 * 2 * MIB,
)


def noise(seed: int, length: int) -> bytes:
    return random.Random(seed).randbytes(length)


class BodiesInObjects:
    """The parts of a process whose bodies are in an object store."""

    def __init__(
        self,
        directory: Path,
        driver: ObjectStore,
        engine: Engine,
        config: Config = CONFIG,
        budget: Budget | None = None,
    ) -> None:
        self.driver = FaultyObjectStore(driver)
        self.engine = engine
        self._directory = directory
        self._config = config
        self._budget = budget
        self.open()

    def open(self) -> None:
        coordinator = LocalCoordinator(self._directory)
        self.store = ObjectBodyStore(
            self.driver, self.engine, coordinator, self._config, self._budget
        )
        self.collector = Collector(self.engine, self.store, self._config)

    async def reopen(self) -> None:
        """Ends the process and starts another one."""
        await self.store.close()
        self.open()

    def crash(self) -> None:
        """Ends the process without any of its usual last steps, and starts another one."""
        self.store.coordinator.close()
        self.open()

    async def put(self, name: str, data: bytes) -> None:
        await objects.upload(self.engine, self.store, name, data)

    async def get(self, name: str) -> bytes | None:
        return await objects.download(self.engine, self.store, name)

    async def delete(self, name: str) -> None:
        await self.engine.write(objects.delete_object, name)

    async def collect(self) -> Collected:
        await self.store.maintain()
        return await self.collector.collect()

    async def segments(self) -> dict[int, Segment]:
        found = await self.engine.read(rows, SEGMENTS)
        return {number: segment for (number,), segment in found.items()}

    async def live_bytes(self) -> int:
        extents = await self.engine.read(rows, EXTENTS)
        return sum(extent.length for extent in extents.values())

    async def stored_bytes(self) -> int:
        return sum([entry.size async for entry in self.driver.list("segments/")])

    async def require_balanced(self) -> None:
        await self.engine.read(require_balanced, None)


async def read(store: ObjectBodyStore, body: Body) -> bytes:
    """Reads an upload to which no object refers."""
    if not body.pieces:
        return body.data
    plan = tuple(SegmentRange(p.segment, p.offset, p.length, p.crc) for p in body.pieces)
    with store.open_reader() as reader:
        return b"".join([chunk async for chunk in reader.chunks(plan)])


def run(
    directory: Path,
    scenario: Callable[[BodiesInObjects], Awaitable[None]],
    config: Config = CONFIG,
    driver: ObjectStore | None = None,
    budget: Budget | None = None,
) -> None:
    """Runs a scenario with an empty store."""

    async def within() -> None:
        engine = MemoryEngine()
        bodies = BodiesInObjects(directory, driver or MemoryObjectStore(), engine, config, budget)
        await asyncio.wait_for(scenario(bodies), 60)
        await bodies.store.close()
        assert bodies.store.memory.used_bytes == 0

    asyncio.run(within())
