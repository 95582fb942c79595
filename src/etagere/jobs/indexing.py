"""Builds the indexes that queries of tables wished for.

What is wished for is only known to this process: if it dies, an index stays as far as it was built,
and the next query that would have needed it wishes again.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final, NamedTuple

from etagere.engine.interface import Engine
from etagere.model.tables import TableName
from etagere.operations.table.indexes import BuildIndex, WantIndex, build_index, want_index

_WISHES_MAX: Final = 1_000


class _Wish(NamedTuple):
    table: TableName
    name: str


class Indexing:
    """The indexes that this process is to build."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._noted: set[_Wish] = set()
        self._waiting: asyncio.Queue[_Wish] = asyncio.Queue()

    def note(self, table: TableName, name: str) -> None:
        """An index that waits or is being built is noted already; if there are too many, it is
        noted by a later query."""
        wish = _Wish(table, name)
        if wish not in self._noted and len(self._noted) < _WISHES_MAX:
            self._noted.add(wish)
            self._waiting.put_nowait(wish)

    async def build_next(self) -> None:
        """Waits for a wish and builds the index to the end."""
        wish = await self._waiting.get()
        try:
            await self._build(wish)
        finally:
            self._noted.discard(wish)

    async def _build(self, wish: _Wish) -> None:
        if not await self._engine.write(want_index, WantIndex(*wish)):
            return
        began = time.monotonic()
        while await self._engine.write(build_index, BuildIndex(*wish)):
            # As long as it took: half of the time is for others, and more when they are many.
            await asyncio.sleep(time.monotonic() - began)
            began = time.monotonic()
