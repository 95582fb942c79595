"""The body store of object stores, for the processes of several machines.

A segment consists of immutable objects. Each process has its own segments, so processes never wait
for each other, and bodies that end at the same time share one object.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from etagere.bodies.objects.buffers import Budget, BufferMemory
from etagere.bodies.objects.interface import ObjectExists, ObjectStore
from etagere.bodies.objects.names import OBJECTS_PER_SEGMENT_MAX
from etagere.bodies.objects.reading import ObjectBodyReader
from etagere.bodies.objects.segment_objects import SegmentObjects
from etagere.bodies.objects.segments import PACK_BYTES, Buffer, ObjectSegment
from etagere.bodies.own_segments import OwnSegments
from etagere.bodies.receiving import receive_to_memory
from etagere.bodies.store import LentSocket
from etagere.bodies.writing import Reservations, Reserved, SegmentBodyWriter, checksum
from etagere.config import KIB, MIB, Config
from etagere.coordination.interface import Coordinator
from etagere.engine.interface import Engine, Fault, FaultReason

logger = logging.getLogger(__name__)

_OBJECT_BYTES: Final = 8 * MIB
"""The length of the objects of a long upload."""
_OBJECTS_PER_UPLOAD_MAX: Final = 3
"""The objects that an upload holds in memory: two are put while the third is filled."""
_PUTS_MAX: Final = 64
"""The maximum number of puts that a process has under way."""
_GETS_MAX: Final = 128
"""The maximum number of gets that a process has under way."""
_QUEUE_SECONDS_MAX: Final = 30.0
"""How long a request waits for its turn: no longer than one request may take."""
_UNCOUNTED_BYTES: Final = 1 * MIB
"""What an upload may always hold: requests are counted with as much."""
_BUDGET_DIVISOR: Final = 4
"""Each process may use this fraction of the memory budget of a server, 1/4, in addition."""
_QUICK_BYTES: Final = 64 * KIB
_THREADS: Final = max(2, len(os.sched_getaffinity(0)))

T = TypeVar("T")


class _RequestLimit:
    """Limits the number of concurrent requests."""

    def __init__(self, requests_max: int) -> None:
        self._free = asyncio.Semaphore(requests_max)

    async def __aenter__(self) -> None:
        """Waits until fewer requests are under way. Raises `Fault` after a timeout: the store
        does not answer."""
        if not self._free.locked():
            await self._free.acquire()
            return
        try:
            async with asyncio.timeout(_QUEUE_SECONDS_MAX):
                await self._free.acquire()
        except TimeoutError:
            detail = "too many requests wait for the object store"
            raise Fault(FaultReason.UNAVAILABLE, detail) from None

    async def __aexit__(self, *_: object) -> None:
        self._free.release()


class ObjectBodyStore:
    """The bodies in one object store, as one process sees them."""

    small_bytes_max = PACK_BYTES

    def __init__(
        self,
        objects: ObjectStore,
        engine: Engine,
        coordinator: Coordinator,
        config: Config | None = None,
        budget: Budget | None = None,
    ) -> None:
        """The store closes the driver and the coordinator when it is closed. `budget` limits the
        memory of uploads and downloads in all processes of the server."""
        self.objects = objects
        self.coordinator = coordinator
        self._config = config or Config()
        self._object_bytes = min(_OBJECT_BYTES, self._config.piece_bytes_max)
        self.memory = BufferMemory(self._config.memory_budget_bytes // _BUDGET_DIVISOR, budget)
        self._threads = ThreadPoolExecutor(_THREADS, "bodies")
        self.storage = SegmentObjects(objects, self.get, self.memory)
        self._puts = _RequestLimit(_PUTS_MAX)
        self._gets = _RequestLimit(_GETS_MAX)
        self._own = OwnSegments(
            engine,
            coordinator.process_id,
            self._config,
            self._create_segment,
            self._stored_bytes,
        )

    # Writing

    def writer(
        self, length: int | None = None, *, inline: bool = True, md5: bool = False
    ) -> SegmentBodyWriter[ObjectSegment]:
        inline_bytes_max = self._config.inline_bytes_max if inline else 0
        return SegmentBodyWriter(
            Reservations(self), length, inline_bytes_max, self._config.piece_bytes_max, md5=md5
        )

    def reservations(self) -> Reservations[ObjectSegment]:
        """Returns reservations for the collector."""
        return Reservations(self, reclaims=True)

    async def reserve(
        self,
        length: int,
        earlier: Sequence[Reserved[ObjectSegment]] = (),
        *,
        reclaims: bool = False,
    ) -> Reserved[ObjectSegment]:
        await _wait_for_puts(earlier, _OBJECTS_PER_UPLOAD_MAX)
        reserved_bytes = 0
        if not reclaims:
            length = min(length, self._object_bytes)
            if length > _UNCOUNTED_BYTES or earlier:
                if self.memory.reserve(length):
                    reserved_bytes = length
                else:
                    # The upload goes on with short objects, one at a time.
                    await _wait_for_puts(earlier, 1)
                    length = min(length, _UNCOUNTED_BYTES)
        try:
            segment = await self._usable_segment(length)
        except BaseException:
            self.memory.release(reserved_bytes)
            raise
        return Reserved(segment, segment.open_object(length, reserved_bytes), length)

    async def add(self, data: bytes, *, reclaims: bool = False) -> Reserved[ObjectSegment]:
        segment = await self._usable_segment(len(data))
        return Reserved(segment, segment.add(data), len(data))

    async def _usable_segment(self, length: int) -> ObjectSegment:
        while True:
            segment = self._own.current
            if segment is not None and not segment.rolled and not self._is_full(segment, length):
                return segment
            await self._own.begin()

    def _is_full(self, segment: ObjectSegment, length: int) -> bool:
        return segment.objects >= OBJECTS_PER_SEGMENT_MAX or (
            segment.length > 0 and segment.length + length > self._config.segment_bytes_max
        )

    async def _create_segment(self, number: int) -> ObjectSegment:
        return ObjectSegment(number, self._put, self.memory.release)

    async def _put(self, name: str, buffers: Sequence[Buffer]) -> None:
        async with self._puts:
            try:
                await self.objects.put(name, buffers)
            except ObjectExists:
                # Numbers of segments are never reused, so this belongs to another ledger.
                logger.error("object %s exists: is the object store used by another server?", name)
                raise Fault(FaultReason.FAILED, f"object {name} exists") from None

    async def write(
        self,
        segment: ObjectSegment,
        offset: int,
        buffers: list[memoryview],
        md5: hashlib._Hash | None = None,
    ) -> int:
        if sum(map(len, buffers)) <= _QUICK_BYTES:
            crc = checksum(buffers, md5)
        else:
            crc = await self.in_thread(checksum, buffers, md5)
        segment.fill(offset, buffers)
        return crc

    async def receive(
        self,
        lent: LentSocket,
        segment: ObjectSegment,
        offset: int,
        length: int,
        md5: hashlib._Hash | None,
    ) -> tuple[int, int]:
        space = segment.take_space(offset, length)
        lent.taken = None
        received = await self.in_thread(receive_to_memory, lent.file, space, md5)
        lent.taken = received.length
        segment.fill_space(offset, received.length)
        return received.length, received.crc

    async def make_durable(self, reserved: Sequence[Reserved[ObjectSegment]]) -> None:
        for segment, offset, _ in reserved:
            await segment.wait(offset)

    def in_thread(self, call: Callable[..., T], *arguments: object) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._threads, call, *arguments)

    async def _stored_bytes(self, segment: ObjectSegment) -> int:
        if not segment.has_failed_puts:
            return segment.length
        return await self.storage.size(segment.number)

    async def maintain(self) -> None:
        """Maintains the segments of this process: begins a new segment when much of the current one
        is dead, and seals segments that nothing is being uploaded to."""
        await self._own.maintain()

    # Reading

    def open_reader(self) -> ObjectBodyReader:
        return ObjectBodyReader(self.get, self.memory, self.coordinator.pin())

    async def get(self, name: str, offset: int, length: int) -> bytes:
        """Returns a range of an object; raises `ObjectMissing` or `Fault`."""
        async with self._gets:
            return await self.objects.get(name, offset, length)

    async def close(self) -> None:
        """Closes the store, and seals the segments that have no upload under way."""
        for segment in list(self._own.open.values()):
            await segment.wait_for_puts()
        await self._own.close()
        self._threads.shutdown()
        await self.objects.close()
        self.coordinator.close()


async def _wait_for_puts(reserved: Sequence[Reserved[ObjectSegment]], under_way_max: int) -> None:
    """Waits until fewer objects of an upload than this are being put. Raises `Fault` if one has
    failed: the rest need not be uploaded then."""
    under_way = [place for place in reserved if place.segment.is_under_way(place.offset)]
    for place in under_way[: max(len(under_way) - under_way_max + 1, 0)]:
        await place.segment.wait(place.offset)
