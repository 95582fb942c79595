"""A queue of frames that take long to execute.

A frame with a megabyte takes a few milliseconds, and is executed almost at once, without a pause.
If several clients sent eight of them each, a small request that arrives meanwhile would wait for
all of them. Therefore one of them is started in each iteration of the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

LARGE_FRAME_BYTES_MIN: Final = 128 * 1024
"""Smaller frames are started at once."""


class LargeFrameQueue:
    """The large frames of all connections of a server that have not been started yet."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()

    def add(self, start: Callable[[], None]) -> None:
        """Adds a frame, which the function starts."""
        self._waiting.append(start)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._start_one)

    def _start_one(self) -> None:
        start = self._waiting[0]
        try:
            start()
        finally:
            self._waiting.popleft()
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._start_one)
