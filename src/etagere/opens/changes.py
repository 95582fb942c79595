"""A signal for those who wait until something in a share has ended."""

from __future__ import annotations

import asyncio


class ChangeSignal:
    """Wakes all who wait whenever something ends: a REST operation, a move, a deletion, a lock.

    They check for themselves whether that was what they waited for.
    """

    def __init__(self) -> None:
        self.count = 0
        """The number of changes so far."""
        self._waiters: list[asyncio.Future[None]] = []

    def next(self) -> asyncio.Future[None]:
        """Returns what ends with the next change."""
        future = asyncio.get_running_loop().create_future()
        self._waiters.append(future)
        return future

    def notify(self) -> None:
        self.count += 1
        if not self._waiters:
            return
        waiters, self._waiters = self._waiters, []
        for future in waiters:
            if not future.done():
                future.set_result(None)
