"""Long work on the event loop, done in turns with the work of others."""

from __future__ import annotations

import asyncio
import time
from typing import Final

_TURN_SECONDS_MAX: Final = 0.005


class Turns:
    """Lets others have their turn whenever this work has taken its own."""

    __slots__ = ("_ends_at",)

    def __init__(self) -> None:
        self._ends_at = time.monotonic() + _TURN_SECONDS_MAX

    async def give(self) -> None:
        """To be called between the steps of the work."""
        if time.monotonic() >= self._ends_at:
            await asyncio.sleep(0)
            self._ends_at = time.monotonic() + _TURN_SECONDS_MAX
