"""Transactions that are awaited to their end, whatever happens to the request."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def completed(work: Coroutine[Any, Any, T]) -> T:
    """Awaits work that has to end before the caller goes on. A request that is cancelled meanwhile
    is carried out nevertheless: its transaction cannot be taken back, and the table of opens must
    know its result."""
    task = asyncio.ensure_future(work)
    while True:
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            own = asyncio.current_task()
            if task.cancelled() or own is None:
                raise
            own.uncancel()
