"""Folds small blocks of append blobs, which lie in the ledger, into segments.

Requests note the blobs of which much lies there. What is noted is only known to this process: if it
dies, nothing is lost, the blocks stay where they are, and a later append notes the blob again.
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
"""Two at once share their syncs; more would keep the writer from others."""


class Folding:
    """The blobs that this process is to fold."""

    def __init__(self, engine: Engine, store: BodyStore) -> None:
        self._engine = engine
        self._store = store
        self._queued: set[BlobName] = set()
        self._waiting: asyncio.Queue[BlobName] = asyncio.Queue()

    def request(self, name: BlobName) -> None:
        """A blob that waits or is being folded is noted already; if there are too many, it is
        noted by a later append."""
        if name not in self._queued and len(self._queued) < _BLOBS_MAX:
            self._queued.add(name)
            self._waiting.put_nowait(name)

    async def fold_next(self) -> None:
        """Waits for a blob and folds it to the end."""
        name = await self._waiting.get()
        try:
            while await self.fold(name):
                pass
        except Refused:
            logger.debug("a blob was deleted before it was folded")
        finally:
            self._queued.discard(name)

    async def fold(self, name: BlobName) -> bool:
        """One step; says whether there is more to do."""
        found = await self._engine.read_in_thread(appends.find_fold, name, ReadClass("folding"))
        if found is None:
            return False
        async with self._store.writer(sum(map(len, found.data)), inline=False) as writer:
            for data in found.data:
                await writer.append(data)
            command = appends.FoldBlocks(name, found.fold, await writer.seal(), new_id())
            return await self._engine.write(appends.fold_blocks, command)
