"""Segments as sequences of objects."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final

from etagere.bodies.objects.buffers import BufferMemory
from etagere.bodies.objects.interface import ObjectEntry, ObjectStore
from etagere.bodies.objects.names import PREFIX, segment_of, segment_prefix
from etagere.bodies.objects.reading import Get, read_ranges
from etagere.bodies.plans import SegmentRange
from etagere.config import MIB
from etagere.engine.interface import Fault

logger = logging.getLogger(__name__)

_SEARCH_SECONDS: Final = 6 * 3600.0


class SegmentObjects:
    """The objects of the segments in an object store."""

    move_bytes_max = 16 * MIB
    search_seconds = _SEARCH_SECONDS

    def __init__(self, objects: ObjectStore, get: Get, memory: BufferMemory) -> None:
        self._objects = objects
        self._get = get
        self._memory = memory

    def describe(self, number: int) -> str:
        return f"the objects {segment_prefix(number)}*"

    async def entries(self, number: int) -> list[ObjectEntry]:
        """Returns the objects of a segment."""
        return [entry async for entry in self._objects.list(segment_prefix(number))]

    async def size(self, number: int) -> int:
        return sum(entry.size for entry in await self.entries(number))

    async def read(
        self, number: int, places: Sequence[tuple[int, int]]
    ) -> AsyncGenerator[bytes, None]:
        ranges = [SegmentRange(number, offset, length, None) for offset, length in places]
        async with aclosing(read_ranges(self._get, self._memory, ranges)) as found:
            async for data in found:
                yield data

    async def remove(self, numbers: Sequence[int]) -> dict[int, int]:
        gone: dict[int, int] = {}
        for number in numbers:
            try:
                entries = await self.entries(number)
                await self._objects.delete([entry.name for entry in entries])
            except Fault as fault:
                logger.error("cannot remove segment %d, will retry: %s", number, fault)
                break
            gone[number] = sum(entry.size for entry in entries)
        return gone

    async def numbers(self) -> set[int]:
        found: set[int] = set()
        async for name in self._objects.names(PREFIX):
            number = segment_of(name)
            if number is not None:
                found.add(number)
        return found
