"""The memory that bodies and documents in flight may take, in all front ends of a server.

What counts: documents, which are read whole; what uploads keep until it is written; bytes that
have arrived before anybody reads them; answers that are handed over whole, until their clients
have taken them. See decision 20.
"""

from __future__ import annotations

import asyncio
from collections import deque

from etagere.config import Config
from etagere.protocol.http.sharing import MEMORY, FrontEndShare, alone

SMALL_BYTES_MAX = 64 * 1024
"""What is not longer may use the last of the budget: large bodies keep no small ones out."""
UPLOAD_BYTES_MAX = 1 << 20
"""What an upload keeps in memory, at most, before it is written. Documents take more."""
_LARGE_SHARE = 7 / 8
DOCUMENT_FACTOR = 4
"""What a document counts for, beside its length: it is taken apart into many objects."""


class MemoryExhausted(Exception):
    """There is no memory left for a body; nothing has been done with it."""


class _Waiting:
    """Reservations that wait for room, first come first served."""

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
    """A front end's part in the budget of its server.

    Front ends publish what they use, and do not wait for each other: several that reserve at the
    same instant may exceed the budget by what they reserve then.
    """

    def __init__(
        self,
        bytes_max: int = Config.memory_budget_bytes,
        share: FrontEndShare | None = None,
        *,
        wait_seconds_max: float = 5.0,
    ) -> None:
        share = share or alone()
        self._bytes_max = bytes_max
        self._large_bytes_max = int(bytes_max * _LARGE_SHARE)
        self._wait_seconds_max = wait_seconds_max
        self._mine = share.mine
        self._others = share.others
        # These change several times in each request.
        self._words = share.mine.words
        self._is_awaited = False
        # Smaller reservations do not wait behind larger ones.
        self._waiting = (_Waiting(), _Waiting(), _Waiting())
        self.used_bytes = 0
        """By this front end."""
        self.peak_bytes = 0
        """The most that it was since somebody set this back."""

    def reserve(self, count: int) -> bool:
        """Whether there is room; if so, it is taken."""
        used = self.used_bytes + count
        limit = self._bytes_max if count <= SMALL_BYTES_MAX else self._large_bytes_max
        for other in self._others:
            limit -= other.words[MEMORY]
        if used > limit:
            return False
        self._words[MEMORY] = self.used_bytes = used
        self.peak_bytes = max(self.peak_bytes, used)
        return True

    def reserve_at_once(self, count: int) -> bool:
        """Whether there is room, and nobody waits for any; if so, it is taken."""
        return not self._is_awaited and self.reserve(count)

    async def reserve_in_turn(self, count: int) -> None:
        """Waits for room, but not for long, and not behind more than the whole budget."""
        waiting = self._waiting[(count > SMALL_BYTES_MAX) + (count > UPLOAD_BYTES_MAX)]
        if not waiting.queue and self.reserve(count):
            return
        if waiting.bytes + count > self._bytes_max:
            raise MemoryExhausted
        granted = waiting.append(count)
        self._is_awaited = self._mine.memory_is_awaited = True
        try:
            async with asyncio.timeout(self._wait_seconds_max):
                await granted
        except BaseException as error:
            if granted.done() and not granted.cancelled():
                self.release(count)
            if isinstance(error, TimeoutError):
                raise MemoryExhausted from None
            raise

    def add(self, count: int) -> None:
        """Counts what is there already, whether there is room or not."""
        self._words[MEMORY] = self.used_bytes = self.used_bytes + count

    def release(self, count: int) -> None:
        self._words[MEMORY] = self.used_bytes = self.used_bytes - count
        if self._is_awaited:
            self.grant()

    def grant(self) -> None:
        """Gives those who wait what there is room for; called too when others may have released."""
        for waiting in self._waiting:
            while waiting.queue:
                count, granted = waiting.queue[0]
                # One that has given up is done.
                if not granted.done() and not self.reserve(count):
                    break
                waiting.pop()
                if not granted.done():
                    granted.set_result(None)
        self._is_awaited = any(waiting.queue for waiting in self._waiting)
        self._mine.memory_is_awaited = self._is_awaited

    @property
    def is_wanted(self) -> bool:
        """Whether others need what a slow client holds."""
        rows = (self._mine, *self._others)
        return self.is_scarce or any(row.memory_is_awaited for row in rows)

    @property
    def is_scarce(self) -> bool:
        """Whether large bodies would be refused."""
        used = self.used_bytes
        for other in self._others:
            used += other.memory_bytes
        return used >= self._large_bytes_max
