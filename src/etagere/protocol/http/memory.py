"""The memory that bodies and documents in flight may take, in all front ends of a server.

What counts: documents, which are read whole; what uploads keep until it is written; bytes that
have arrived before anybody reads them; answers that are handed over whole, until their clients
have taken them. See decision 20.
"""

from __future__ import annotations

import asyncio
from collections import deque

from etagere.config import Config
from etagere.protocol.http.sharing import FrontEndShare, alone

SMALL_BYTES_MAX = 64 * 1024
"""What is not longer may use the last of the budget: large bodies keep no small ones out."""
_LARGE_SHARE = 7 / 8
DOCUMENT_FACTOR = 4
"""What a document counts for, beside its length: it is taken apart into many objects."""


class MemoryExhausted(Exception):
    """There is no memory left for a body; nothing has been done with it."""


class _WaitingLine:
    """Those who wait for memory, in the order in which they came."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.bytes = 0


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
        # Small ones do not wait behind large ones.
        self._small = _WaitingLine()
        self._large = _WaitingLine()
        self.used_bytes = 0
        """By this front end."""
        self.peak_bytes = 0
        """The most that it was since somebody set this back."""

    def reserve(self, count: int) -> bool:
        """Whether there is room; if so, it is taken."""
        used = self.used_bytes + count
        limit = self._bytes_max if count <= SMALL_BYTES_MAX else self._large_bytes_max
        for other in self._others:
            limit -= other.memory_bytes
        if used > limit:
            return False
        self._mine.memory_bytes = self.used_bytes = used
        self.peak_bytes = max(self.peak_bytes, used)
        return True

    async def reserve_in_turn(self, count: int) -> None:
        """Waits for room, but not for long, and not behind more than the whole budget."""
        line = self._small if count <= SMALL_BYTES_MAX else self._large
        if not line.waiting and self.reserve(count):
            return
        if line.bytes + count > self._bytes_max:
            raise MemoryExhausted
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.waiting.append((count, granted))
        line.bytes += count
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
        self.used_bytes += count
        self._mine.memory_bytes = self.used_bytes

    def release(self, count: int) -> None:
        self.used_bytes -= count
        self._mine.memory_bytes = self.used_bytes
        if self._small.waiting or self._large.waiting:
            self.grant()

    def grant(self) -> None:
        """Gives those who wait what there is room for; called too when others may have released."""
        for line in (self._small, self._large):
            self._grant(line)

    def _grant(self, line: _WaitingLine) -> None:
        while line.waiting:
            count, granted = line.waiting[0]
            # One that has given up is done.
            if not granted.done() and not self.reserve(count):
                return
            line.waiting.popleft()
            line.bytes -= count
            if not granted.done():
                granted.set_result(None)

    @property
    def is_scarce(self) -> bool:
        """Whether large bodies would be refused."""
        used = self.used_bytes
        for other in self._others:
            used += other.memory_bytes
        return used >= self._large_bytes_max
