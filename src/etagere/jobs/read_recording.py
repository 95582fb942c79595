"""Records that blobs were read, after the reads were answered.

Reads are noted in memory, and written in batches. If the process exits before, or a write fails, a
note is lost; a later read of the same blob is noted again.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from itertools import islice
from typing import Final

from etagere.engine.interface import Engine, Fault, Unknown
from etagere.model.blobs import BlobName, BlobRead, RecordReads
from etagere.operations.blob.last_access import record_reads

PAUSE_SECONDS: Final = 1.0
"""Between rounds: notes of a second are written together."""


@dataclass(frozen=True)
class Limits:
    """How much is noted and written at once."""

    notes_max: int = 4_096
    """Further reads are not noted until some notes are written."""
    batch_reads_max: int = 64
    """In one transaction, which others wait for."""
    close_seconds_max: float = 1.0
    """How long the notes that are left may take when the process stops."""


class ReadRecording:
    """The reads that this process has to record."""

    def __init__(self, engine: Engine, limits: Limits | None = None) -> None:
        self._engine = engine
        self._limits = limits or Limits()
        self._stamps: dict[BlobName, int] = {}
        """The versions that were read. An entry stays until it is written, so that a blob that is
        read often is noted once."""
        self._noted = asyncio.Event()

    def note(self, blob: BlobName, stamp: int) -> None:
        """Notes a read, without waiting for anything."""
        if len(self._stamps) < self._limits.notes_max:
            self._stamps[blob] = stamp
            self._noted.set()

    async def record_noted(self) -> None:
        """Waits for a note, and writes all that there are."""
        await self._noted.wait()
        while self._stamps:
            await self._record_batch()
        self._noted.clear()

    async def close(self) -> None:
        """Writes what is noted, if that is possible in a short time."""
        with contextlib.suppress(TimeoutError, Fault, Unknown):
            async with asyncio.timeout(self._limits.close_seconds_max):
                while self._stamps:
                    await self._record_batch()

    async def _record_batch(self) -> None:
        batch = list(islice(self._stamps.items(), self._limits.batch_reads_max))
        reads = tuple(BlobRead(blob, stamp) for blob, stamp in batch)
        try:
            await self._engine.write(record_reads, RecordReads(reads))
        except Exception:
            self._forget(batch)
            raise
        # Not if it was cancelled: the process stops, and `close` writes them again.
        self._forget(batch)

    def _forget(self, batch: list[tuple[BlobName, int]]) -> None:
        for blob, _ in batch:
            del self._stamps[blob]
