"""Garbage collection: releases unreferenced contents, compacts sparse segments and removes empty
ones, in bounded steps.

Only one process of a store collects at a time. It never touches open segments of live processes
(uploads in progress), nor segments that a reader may need that pinned them before they were
retired.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Awaitable
from contextlib import aclosing
from operator import add
from typing import Any, NamedTuple, Protocol

from awscrt.checksums import crc64nvme

from etagere.bodies.contents import COUNTERS, DEAD_TOTALS, EXTENTS, SEGMENTS, UNCOUNTED_DEAD
from etagere.bodies.reaping import Flatten, flatten
from etagere.bodies.segment_backend import SegmentBackend
from etagere.bodies.segment_records import read_all
from etagere.bodies.segments import (
    SEGMENT_NUMBERS,
    CountDead,
    MoveExtents,
    Reap,
    Relocation,
    SegmentNumber,
    count_dead,
    forget_segment,
    move_extents,
    reap,
    retire_segment,
    seal,
)
from etagere.bodies.writing import Reservations
from etagere.config import Config
from etagere.coordination.interface import Coordinator
from etagere.engine.interface import Engine, Fault, FaultReason, ReadTxn, T
from etagere.metrics.snapshots import Snapshot
from etagere.model.bodies import Extent, Segment, SegmentState

logger = logging.getLogger(__name__)

TASK = "collector"
_SEGMENTS_BATCH = 32
_MOVE_EXTENTS_MAX = 256
_DAMAGED_SECONDS = 600.0
_SHORT_SEGMENTS_MAX = 16
"""More segments than this that are shorter than this fraction of the usual length are merged."""


class Collected(NamedTuple):
    """What one round did."""

    chunks_reaped: int = 0
    extents_moved: int = 0
    segments_removed: int = 0
    bytes_removed: int = 0


class CollectedStore(Protocol):
    """A body store, as its collector sees it."""

    @property
    def coordinator(self) -> Coordinator: ...

    @property
    def storage(self) -> SegmentBackend: ...

    async def maintain(self) -> None:
        """Maintains the segments of this process."""
        ...

    def reservations(self) -> Reservations[Any]:
        """Returns reservations for the copies of extents. They may use space that uploads must
        leave free, since moving extents frees more space than it takes."""
        ...


class Collector:
    """The collector of one store, in the process whose store it is given."""

    def __init__(self, engine: Engine, store: CollectedStore, config: Config | None = None) -> None:
        self._engine = engine
        self._store = store
        self._storage = store.storage
        self._coordinator = store.coordinator
        self._config = config or Config()
        self._retired_at: dict[int, int] = {}
        self._damaged: dict[int, float] = {}
        """Damaged segments, and the time until which they are not compacted."""
        self._total = Collected()
        """What all rounds have done."""
        self._next_search = -math.inf
        """When to look for the remains of forgotten segments."""

    async def run(self) -> None:
        """Maintains the segments of this process, and collects the store if no other process
        does."""
        try:
            await self._store.maintain()
        finally:
            # On a full disk, only the segments of other processes may be removable.
            await self.collect()

    async def collect(self) -> Collected:
        """Collects once. Does nothing if another process is collecting."""
        async with self._coordinator.sole_worker(TASK) as lock:
            if lock is None:
                return Collected()
            if self._next_search <= time.monotonic():
                await self._remove_strays()
                self._next_search = time.monotonic() + self._storage.search_seconds
            await self._seal_orphans()
            reaped = await self._reap()
            if await self._flatten():
                reaped += await self._reap()
            await self._count_dead()
            moved, failure = await self._compact_sparse_segments()
            removed, freed = await self._remove_retired()
        done = Collected(reaped, moved, removed, freed)
        self._total = Collected(*map(add, self._total, done))
        if failure is not None:
            raise failure
        return done

    def report(self, snapshot: Snapshot) -> None:
        """Adds what it has counted."""
        chunks_reaped, extents_moved, segments_removed, bytes_removed = self._total
        snapshot.add("collector_chunks_reaped", chunks_reaped)
        snapshot.add("collector_extents_moved", extents_moved)
        snapshot.add("collector_segments_removed", segments_removed)
        snapshot.add("collector_removed_bytes", bytes_removed)

    async def _seal_orphans(self) -> None:
        """Seals the open segments of processes that are gone."""
        for number, segment in await self._segments():
            if segment.state is not SegmentState.OPEN:
                continue
            if await self._coordinator.is_alive(segment.owner):
                continue
            await seal(self._engine, number, await self._storage.size(number))

    async def _reap(self) -> int:
        total = 0
        while reaped := await self._throttled(self._engine.write(reap, Reap())):
            total += reaped
        return total

    async def _throttled(self, step: Awaitable[T]) -> T:
        """Runs a step, then sleeps for as long as it took, so that at least half of the time is
        left to other work."""
        began = time.monotonic()
        done = await step
        if done:
            await asyncio.sleep(time.monotonic() - began)
        return done

    async def _flatten(self) -> bool:
        """Copies the visible parts of bases into their child maps; returns whether there were
        any."""
        found = False
        try:
            while await self._throttled(self._engine.write(flatten, Flatten())):
                found = True
        except Fault as fault:
            # On a full disk the rest of the round frees space, and damaged maps must not prevent
            # that.
            logger.warning("cannot flatten interval maps: %s", fault)
        return found

    async def _count_dead(self) -> None:
        """Adds extents of sealed segments that died since the last round to the totals."""
        sealed = {
            number
            for number, segment in await self._segments()
            if segment.state is SegmentState.SEALED
        }
        after = 0
        while numbers := await self._engine.read(_segments_to_count, after):
            after = numbers[-1]
            command = CountDead(tuple(number for number in numbers if number in sealed))
            while await self._throttled(self._engine.write(count_dead, command)):
                pass

    async def _compact_sparse_segments(self) -> tuple[int, Fault | None]:
        """Moves live extents out of sparse segments, and retires these. Returns the number of moved
        extents, and the error that prevented more, if any."""
        moved = 0
        failure: Fault | None = None
        for number, is_dead in await self._sparse_segments():
            if failure is not None and not is_dead:
                continue
            try:
                moved += await self._move_live_extents(number)
            except Fault as fault:
                # The next segment may be dead as a whole, and removing it frees space.
                logger.warning("cannot move live data out of segment %d: %s", number, fault)
                if fault.reason is not FaultReason.DISK_FULL:
                    failure = fault
                continue
            if await self._engine.write(retire_segment, SegmentNumber(number)):
                self._retired_at[number] = self._coordinator.timestamp()
        return moved, failure

    async def _sparse_segments(self) -> list[tuple[int, bool]]:
        """Returns the sealed segments that have much dead space, or are short and many; each with
        whether all of it is dead. Dead ones come first, since they need no space."""
        dead = await self._dead_bytes()
        now = time.monotonic()
        self._damaged = {number: until for number, until in self._damaged.items() if until > now}
        sealed = {
            number: segment.length
            for number, segment in await self._segments()
            if segment.state is SegmentState.SEALED and number not in self._damaged
        }
        short_bytes = self._config.segment_bytes_max // _SHORT_SEGMENTS_MAX
        short = [number for number, length in sealed.items() if length < short_bytes]
        sparse = {
            number
            for number, length in sealed.items()
            if dead[number] >= length or dead[number] > self._config.sparse_dead_share * length
        }
        if len(short) > _SHORT_SEGMENTS_MAX:
            sparse.update(short)
        all_dead = {number for number in sparse if dead[number] >= sealed[number]}
        return [(number, True) for number in sorted(all_dead)] + [
            (number, False) for number in sorted(sparse - all_dead)
        ]

    async def _move_live_extents(self, number: int) -> int:
        """Moves the live extents of a segment to other segments."""
        moved = 0
        after = -1
        while True:
            live = await self._engine.read(_live_extents, (number, after))
            if not live:
                return moved
            batch, after = _batch(live, self._storage.move_bytes_max)
            reservations = self._store.reservations()
            try:
                relocations = await self._copy(reservations, number, batch)
                await reservations.sync()
                moved += await self._engine.write(move_extents, MoveExtents(relocations))
            except BaseException:
                reservations.release(abandoned=True)
                raise
            reservations.release()

    async def _copy(
        self, reservations: Reservations[Any], number: int, batch: list[tuple[int, Extent]]
    ) -> tuple[Relocation, ...]:
        relocations: list[Relocation] = []
        rows = iter(batch)
        places = [(offset, extent.length) for offset, extent in batch]
        async with aclosing(self._storage.read(number, places)) as found:
            async for data in found:
                offset, extent = next(rows)
                intact = extent.crc is None or crc64nvme(data) == extent.crc
                if len(data) == extent.length and intact:
                    relocations.append(await _store_copy(reservations, number, offset, data))
                    continue
                # Damaged bytes are kept for inspection.
                logger.error(
                    "segment %d is damaged at offset %d; run `etagere check`", number, offset
                )
                self._damaged[number] = time.monotonic() + _DAMAGED_SECONDS
        return tuple(relocations)

    async def _remove_retired(self) -> tuple[int, int]:
        """Removes retired segments that no reader can need, then their records."""
        retired = [
            number
            for number, segment in await self._segments()
            if segment.state is SegmentState.RETIRED
        ]
        if not retired:
            return 0, 0  # asking for pins may take seconds
        for number in retired:
            self._retired_at.setdefault(number, self._coordinator.timestamp())
        pinned = await self._coordinator.pinned()
        removable = [
            number for number in retired if not pinned.keeps(number, self._retired_at[number])
        ]
        gone = await self._storage.remove(removable)
        for number in gone:
            while not await self._engine.write(forget_segment, SegmentNumber(number)):
                pass
            self._retired_at.pop(number, None)
        return len(gone), sum(gone.values())

    async def _remove_strays(self) -> None:
        """Removes what is left of forgotten segments: files that a crash has restored, or objects
        that a process has put which was thought to be dead. Segments with numbers that were never
        used are left alone: they may belong to a newer ledger, of which this one is a backup."""
        # The storage is listed before the ledger is read: a segment is in the ledger before
        # anything is stored in it.
        found = await self._storage.numbers()
        known = {number for number, _ in await self._segments()}
        last = await self._engine.read(_last_number, None)
        strays = sorted(number for number in found - known if number <= last)
        for number in strays:
            logger.warning(
                "removing %s, which belongs to no segment", self._storage.describe(number)
            )
        await self._storage.remove(strays)

    async def _segments(self) -> list[tuple[int, Segment]]:
        return await read_all(self._engine, SEGMENTS)

    async def _dead_bytes(self) -> Counter[int]:
        return Counter(
            {number: dead.length for number, dead in await read_all(self._engine, DEAD_TOTALS)}
        )


async def _store_copy(
    reservations: Reservations[Any], number: int, offset: int, data: bytes
) -> Relocation:
    segment, new_offset, _ = await reservations.write(data)
    return Relocation(number, offset, segment.number, new_offset)


def _batch(live: list[tuple[int, Extent]], bytes_max: int) -> tuple[list[tuple[int, Extent]], int]:
    """Returns as many extents as one step moves, and the offset of the last of them."""
    batch: list[tuple[int, Extent]] = []
    size = 0
    for offset, extent in live:
        if batch and size + extent.length > bytes_max:
            break
        batch.append((offset, extent))
        size += extent.length
    return batch, batch[-1][0]


def _live_extents(txn: ReadTxn, place: tuple[int, int]) -> list[tuple[int, Extent]]:
    number, after = place
    span = EXTENTS.under((number,))
    if after >= 0:
        span = EXTENTS.after(span, place)
    rows = txn.scan(EXTENTS, span, _MOVE_EXTENTS_MAX)
    return [(offset, extent) for (_, offset), extent in rows]


def _segments_to_count(txn: ReadTxn, after: int) -> list[int]:
    """Returns the next segments that have dead extents which no total contains."""
    numbers: list[int] = []
    while len(numbers) < _SEGMENTS_BATCH:
        span = UNCOUNTED_DEAD.starting(UNCOUNTED_DEAD.all(), (after + 1, 0))
        rows = txn.scan(UNCOUNTED_DEAD, span, 1)
        if not rows:
            break
        (after, _), _ = rows[0]
        numbers.append(after)
    return numbers


def _last_number(txn: ReadTxn, _: None) -> int:
    counter = txn.get(COUNTERS, (SEGMENT_NUMBERS,))
    return counter.last if counter is not None else 0
