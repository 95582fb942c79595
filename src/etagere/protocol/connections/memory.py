"""The memory budget for bodies in flight, shared by all front ends of a server.

Counted are documents, which are read as a whole; the bytes that uploads buffer until they are
written; bytes that have arrived and not been read yet; and responses that are handed over as a
whole, until their clients have read them. See decision 20.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from etagere.config import Config
from etagere.metrics.snapshots import Snapshot
from etagere.protocol.connections.sharing import MEMORY, FrontEndShare, single_front_end

SMALL_BYTES_MAX = 64 * 1024
"""Reservations up to this size may use the whole budget: large bodies never keep small ones out."""
UPLOAD_BYTES_MAX = 1 << 20
"""The most that an upload buffers in memory before it is written. Documents take more."""
_LARGE_SHARE = 7 / 8
_SPARE_SHARE = 1 / 2
DOCUMENT_FACTOR = 4
"""How many times its length a document counts: parsing it makes many objects."""


# How often waiting reservations, and reservations for bytes that have not arrived, are checked.
_LOOK_SECONDS = 0.05


class ReclaimableBody(Protocol):
    """A body with memory that is reserved for bytes which have not arrived yet."""

    def reclaim(self, now: float) -> None:
        """Releases memory that is reserved for bytes which arrive too slowly."""
        ...


class MemoryExhausted(Exception):
    """There is no memory left for a body; nothing has been done with its request."""


class _Waiting:
    """A queue of reservations that wait for memory, first come, first served."""

    def __init__(self) -> None:
        self.queue: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.bytes = 0

    def append(self, count: int) -> asyncio.Future[None]:
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.queue.append((count, granted))
        self.bytes += count
        return granted

    def pop(self) -> None:
        count, _ = self.queue.popleft()
        self.bytes -= count


class MemoryBudget:
    """One front end's view of the budget of its server.

    Front ends publish what they use and take no locks: several that reserve at the same instant
    may together exceed the budget by what they reserve.
    """

    def __init__(
        self,
        bytes_max: int = Config.memory_budget_bytes,
        share: FrontEndShare | None = None,
        *,
        wait_seconds_max: float = 5.0,
    ) -> None:
        share = share or single_front_end()
        self._bytes_max = bytes_max
        self._large_bytes_max = int(bytes_max * _LARGE_SHARE)
        self._spare_bytes_max = int(bytes_max * _SPARE_SHARE)
        self._wait_seconds_max = wait_seconds_max
        self._own_row = share.own_row
        self._others = share.others
        # Updated several times per request.
        self._words = share.own_row.words
        self._is_awaited = False
        # Smaller reservations do not wait behind larger ones.
        self._waiting = (_Waiting(), _Waiting(), _Waiting())
        self._reclaimable: set[ReclaimableBody] = set()
        self._next_look: asyncio.TimerHandle | None = None
        self.used_bytes = 0
        """By this front end."""
        self.peak_bytes = 0
        """The maximum of `used_bytes` since this was last reset."""

    def reserve(self, count: int) -> bool:
        """Reserves memory if there is enough; returns whether there was."""
        limit = self._bytes_max if count <= SMALL_BYTES_MAX else self._large_bytes_max
        return self._reserve_below(limit, count)

    def reserve_spare(self, count: int) -> bool:
        """Reserves memory that only makes requests faster, such as read-ahead: none beyond half of
        the budget, or while requests wait for memory. Returns whether it did."""
        return not self._is_awaited and self._reserve_below(self._spare_bytes_max, count)

    def _reserve_below(self, limit: int, count: int) -> bool:
        used = self.used_bytes + count
        for other in self._others:
            limit -= other.words[MEMORY]
        if used > limit:
            return False
        self._words[MEMORY] = self.used_bytes = used
        self.peak_bytes = max(self.peak_bytes, used)
        return True

    def reserve_at_once(self, count: int) -> bool:
        """Reserves memory if there is enough and nobody waits for any; returns whether it did."""
        return not self._is_awaited and self.reserve(count)

    async def reserve_in_turn(self, count: int) -> None:
        """Reserves memory, and waits for it if necessary. Raises MemoryExhausted after a few
        seconds, or at once if reservations for the whole budget are already waiting."""
        waiting = self._waiting[(count > SMALL_BYTES_MAX) + (count > UPLOAD_BYTES_MAX)]
        if not waiting.queue and self.reserve(count):
            return
        if waiting.bytes + count > self._bytes_max:
            raise MemoryExhausted
        granted = waiting.append(count)
        self._is_awaited = self._own_row.memory_is_awaited = True
        self._look_soon()
        try:
            async with asyncio.timeout(self._wait_seconds_max):
                await granted
        except BaseException as error:
            if granted.done() and not granted.cancelled():
                self.release(count)
            if isinstance(error, TimeoutError):
                raise MemoryExhausted from None
            raise

    def add_reclaimable(self, body: ReclaimableBody) -> None:
        """Registers a body for which memory is reserved before its bytes have arrived."""
        self._reclaimable.add(body)
        self._look_soon()

    def remove_reclaimable(self, body: ReclaimableBody) -> None:
        self._reclaimable.discard(body)

    def _look_soon(self) -> None:
        if self._next_look is None:
            loop = asyncio.get_running_loop()
            self._next_look = loop.call_later(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        """Reclaims memory for waiting reservations, here or in another front end."""
        self._next_look = None
        if any(row.memory_is_awaited for row in (self._own_row, *self._others)):
            self._reclaim()
            self.grant()
        if self._reclaimable or self._is_awaited:
            self._look_soon()

    def _reclaim(self) -> None:
        now = asyncio.get_running_loop().time()
        for body in list(self._reclaimable):
            body.reclaim(now)

    def report(self, snapshot: Snapshot) -> None:
        """Adds how much is in use."""
        snapshot.add("memory_budget_used_bytes", self.used_bytes)
        snapshot.add("memory_budget_bytes", self._bytes_max)

    def has_room(self) -> bool:
        """Returns whether a large reservation would succeed now. If not, memory is reclaimed; in
        other front ends, for the next request."""
        if not self.is_scarce:
            return True
        self._own_row.memory_is_awaited = True
        self._look_soon()
        self._reclaim()
        return not self.is_scarce

    def add(self, count: int) -> None:
        """Counts memory that is already in use, whether it fits into the budget or not."""
        self._words[MEMORY] = self.used_bytes = self.used_bytes + count

    def release(self, count: int) -> None:
        self._words[MEMORY] = self.used_bytes = self.used_bytes - count
        if self._is_awaited:
            self.grant()

    def grant(self) -> None:
        """Grants waiting reservations as far as there is memory. Also called periodically, because
        other front ends may have released some."""
        for waiting in self._waiting:
            while waiting.queue:
                count, granted = waiting.queue[0]
                # A reservation that is done has timed out.
                if not granted.done() and not self.reserve(count):
                    break
                waiting.pop()
                if not granted.done():
                    granted.set_result(None)
        self._is_awaited = any(waiting.queue for waiting in self._waiting)
        self._own_row.memory_is_awaited = self._is_awaited

    @property
    def is_wanted(self) -> bool:
        """Whether requests wait for memory, here or in another front end, or large ones would."""
        rows = (self._own_row, *self._others)
        return self.is_scarce or any(row.memory_is_awaited for row in rows)

    @property
    def is_scarce(self) -> bool:
        """Whether a large reservation would not succeed now."""
        used = self.used_bytes
        for other in self._others:
            used += other.memory_bytes
        return used >= self._large_bytes_max
