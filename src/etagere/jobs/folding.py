"""Folds small blocks of append blobs from the ledger into segments.

Requests queue the blobs that have much data in the ledger. The queue is in memory: if the process
dies, the blocks stay in the ledger, and a later append queues the blob again.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from etagere.bodies.store import BodyStore
from etagere.engine.interface import Engine, ReadClass, Refused
from etagere.model.blobs import BlobName
from etagere.model.ids import new_id
from etagere.operations.blob import appends

logger = logging.getLogger(__name__)

_BLOBS_MAX: Final = 1_000
JOBS: Final = 2
"""Two jobs share their syncs; more would delay other writes."""


class Folding:
    """The queue of blobs to fold."""

    def __init__(self, engine: Engine, store: BodyStore) -> None:
        self._engine = engine
        self._store = store
        self._queued: set[BlobName] = set()
        self._waiting: asyncio.Queue[BlobName] = asyncio.Queue()

    def request(self, name: BlobName) -> None:
        """Queues a blob, unless it is queued or being folded already. If the queue is full, a later
        append queues it."""
        if name not in self._queued and len(self._queued) < _BLOBS_MAX:
            self._queued.add(name)
            self._waiting.put_nowait(name)

    async def fold_next(self) -> None:
        """Waits for a blob and folds it completely."""
        name = await self._waiting.get()
        try:
            while await self.fold(name):
                pass
        except Refused:
            logger.debug("a blob was deleted before it was folded")
        finally:
            self._queued.discard(name)

    async def fold(self, name: BlobName) -> bool:
        """Folds one step; returns whether there is more to do."""
        found = await self._engine.read_in_thread(appends.find_fold, name, ReadClass("folding"))
        if found is None:
            return False
        async with self._store.writer(sum(map(len, found.data)), inline=False) as writer:
            for data in found.data:
                await writer.append(data)
            command = appends.FoldBlocks(name, found.fold, await writer.seal(), new_id())
            return await self._engine.write(appends.fold_blocks, command)
