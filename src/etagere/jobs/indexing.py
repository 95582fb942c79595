"""Builds the indexes that table queries lacked, counts their uses, and drops unused ones.

Requests are queued in memory: if the process dies, a partly built index stays, and the next query
that needs it requests it again. These writes are caused by queries that only read, so they are
bounded: an index is built in steps with pauses, and uses are stored at most once in half a minute
per table.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final, NamedTuple

from etagere.clock import TICKS_PER_SECOND
from etagere.engine.interface import Engine
from etagere.model.tables import TableName
from etagere.operations.table.indexes import (
    BuildIndex,
    CountUses,
    DropUnused,
    RequestIndex,
    build_index,
    count_uses,
    drop_unused,
    find_unused,
    may_request_index,
    request_index,
)
from etagere.rules.indexes import decayed

_REQUESTS_MAX: Final = 1_000
_TABLES_MAX: Final = 1_000
STORE_USES_SECONDS: Final = 30.0
DROP_UNUSED_SECONDS: Final = 3_600.0
_PAUSE_SECONDS: Final = 0.2


class _IndexKey(NamedTuple):
    table: TableName
    name: str


class _Demand(NamedTuple):
    """The number of queries that lacked an index recently."""

    score: float
    at: float
    """When the score was updated."""

    def now(self) -> float:
        return decayed(self.score, int((time.monotonic() - self.at) * TICKS_PER_SECOND))


class Indexing:
    """The queue of indexes to build, and the counted uses of indexes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._demands: dict[_IndexKey, _Demand] = {}
        self._queued: set[_IndexKey] = set()
        self._waiting: asyncio.Queue[_IndexKey] = asyncio.Queue()
        self._uses: dict[TableName, dict[str, int]] = {}

    def request(self, table: TableName, name: str) -> None:
        """Queues an index that a query lacked, unless it is queued or being built already. If the
        queue is full, a later query queues it."""
        key = _IndexKey(table, name)
        demand = self._demands.pop(key, None)
        score = 1.0 if demand is None else demand.now() + 1.0
        self._demands[key] = _Demand(score, time.monotonic())
        if len(self._demands) > _REQUESTS_MAX:
            # The least recently requested one.
            del self._demands[next(iter(self._demands))]
        if key not in self._queued and len(self._queued) < _REQUESTS_MAX:
            self._queued.add(key)
            self._waiting.put_nowait(key)

    def count_use(self, table: TableName, name: str) -> None:
        """Counts a use of an index by a query."""
        uses = self._uses.get(table)
        if uses is None:
            if len(self._uses) >= _TABLES_MAX:
                return
            uses = self._uses[table] = {}
        uses[name] = uses.get(name, 0) + 1

    async def build_next(self) -> None:
        """Waits for a request and builds the index completely."""
        key = await self._waiting.get()
        try:
            await self._build(key)
        finally:
            self._queued.discard(key)

    async def _build(self, key: _IndexKey) -> None:
        demand = self._demands.get(key)
        wanted = RequestIndex(*key, 1.0 if demand is None else demand.now())
        # Checked with a read first, because there is mostly nothing to do.
        if not await self._engine.read(may_request_index, wanted):
            return
        if not await self._engine.write(request_index, wanted):
            return
        self._demands.pop(key, None)
        began = time.monotonic()
        while await self._engine.write(build_index, BuildIndex(*key)):
            # Sleeps for as long as the step took, so that at least half of the time is left to
            # other work.
            await asyncio.sleep(time.monotonic() - began)
            began = time.monotonic()

    async def store_uses(self) -> None:
        """Adds the counted uses to the scores of the indexes."""
        counted, self._uses = self._uses, {}
        for table, uses in counted.items():
            await self._engine.write(count_uses, CountUses(table, uses))

    async def drop_unused(self) -> None:
        """Drops unused indexes of all tables."""
        behind: tuple[str, str] | None = None
        while True:
            found = await self._engine.read(find_unused, behind)
            for table in found.tables:
                await self._engine.write(drop_unused, DropUnused(table))
            behind = found.following
            if behind is None:
                return
            await asyncio.sleep(_PAUSE_SECONDS)
