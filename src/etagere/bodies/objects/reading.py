"""Downloads from an object store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import Final

from awscrt.checksums import crc64nvme

from etagere.bodies.objects.buffers import BufferMemory
from etagere.bodies.objects.fetching import FETCH_BYTES_MIN, Fetch, ReadAhead
from etagere.bodies.objects.interface import ObjectMissing
from etagere.bodies.objects.names import object_name, offset_in_object
from etagere.bodies.plans import Hole, Plan, PlanPart, SegmentRange
from etagere.bodies.reading import PinnedReader, last_uses, zeros
from etagere.bodies.store import BodyCorrupt
from etagere.config import MIB
from etagere.coordination.interface import Pin
from etagere.descriptors import FilePart

logger = logging.getLogger(__name__)

_CHUNK_BYTES_MAX: Final = 1 * MIB
"""Longer chunks would keep the event loop busy for too long, for example with encryption."""

Get = Callable[[str, int, int], Awaitable[bytes]]


class ObjectBodyReader(PinnedReader):
    """Reads plans from the objects of a store, which a pin keeps."""

    buffer_bytes = FETCH_BYTES_MIN

    def __init__(self, get: Get, memory: BufferMemory, pin: Pin) -> None:
        super().__init__(pin)
        self._get = get
        self._memory = memory

    async def read(self, plan: Plan) -> bytes:
        if isinstance(plan, bytes):
            return plan
        chunks = [chunk async for chunk in self.chunks(plan)]
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def read_into(self, plan: Plan, buffer: memoryview) -> None:
        at = 0
        async for chunk in self.chunks(plan):
            buffer[at : at + len(chunk)] = chunk
            at += len(chunk)

    def file_parts(self, plan: Plan) -> Iterator[FilePart] | None:
        return None

    async def _chunks(self, parts: tuple[PlanPart, ...], final: bool) -> AsyncIterator[bytes]:
        last_use = last_uses(parts)
        crc = 0
        async with aclosing(ReadAhead(parts, self._fetch, self._memory).steps()) as steps:
            async for step, data in steps:
                if isinstance(step, Hole):
                    for chunk in zeros(step.length):
                        yield chunk
                        await asyncio.sleep(0)  # a hole may be long, and nothing else waits in it
                elif isinstance(step, bytes):
                    if step:
                        yield step
                else:
                    crc = _verify(step, data, parts, crc)
                    for chunk in _divided(_bytes_of_plan(step, data)):
                        yield chunk
                    for part_slice in step.slices if final else ():
                        if part_slice.is_last and last_use[step.segment] == part_slice.part:
                            self._pin.release(step.segment)

    async def _fetch(self, fetch: Fetch) -> bytes:
        name = object_name(fetch.segment, fetch.offset)
        try:
            data = await self._get(name, offset_in_object(fetch.offset), fetch.length)
        except ObjectMissing:
            raise BodyCorrupt(f"object {name} is missing") from None
        if len(data) < fetch.length:
            raise BodyCorrupt(f"object {name} ends before {offset_in_object(fetch.end)}")
        return data


async def read_ranges(
    get: Get, memory: BufferMemory, ranges: Sequence[SegmentRange]
) -> AsyncGenerator[bytes, None]:
    """Yields the bytes of each range, in order. Missing ones are logged, and yield fewer bytes."""

    async def fetch(fetch: Fetch) -> bytes:
        name = object_name(fetch.segment, fetch.offset)
        try:
            return await get(name, offset_in_object(fetch.offset), fetch.length)
        except ObjectMissing:
            logger.error("object %s is missing", name)
            return b""

    parts: list[bytes] = []
    async with aclosing(ReadAhead(ranges, fetch, memory).steps()) as steps:
        async for step, data in steps:
            assert isinstance(step, Fetch)
            for part_slice in step.slices:
                parts.append(data[part_slice.start : part_slice.start + part_slice.length])
                if part_slice.is_last:
                    yield parts[0] if len(parts) == 1 else b"".join(parts)
                    parts.clear()


def _verify(fetch: Fetch, data: bytes, parts: tuple[PlanPart, ...], crc: int) -> int:
    """Verifies the parts that end in a fetch; returns the CRC64 of the beginning of the part that
    does not. `crc` is that of the part which began before."""
    view = memoryview(data)
    for part_slice in fetch.slices:
        part = parts[part_slice.part]
        assert isinstance(part, SegmentRange)
        if part.crc is None:
            continue
        crc = crc64nvme(view[part_slice.start : part_slice.start + part_slice.length], crc)
        if part_slice.is_last:
            if crc != part.crc:
                raise BodyCorrupt(f"segment {part.segment} at {part.offset}: checksum")
            crc = 0
    return crc


def _bytes_of_plan(fetch: Fetch, data: bytes) -> bytes:
    """Returns the bytes of a fetch that belong to the plan."""
    if sum(part_slice.length for part_slice in fetch.slices) == fetch.length:
        return data
    return b"".join(
        [
            data[part_slice.start : part_slice.start + part_slice.length]
            for part_slice in fetch.slices
        ]
    )


def _divided(data: bytes) -> Iterator[bytes]:
    """Yields bytes in chunks of a limited length."""
    if len(data) <= _CHUNK_BYTES_MAX:
        yield data
        return
    for start in range(0, len(data), _CHUNK_BYTES_MAX):
        yield data[start : start + _CHUNK_BYTES_MAX]
