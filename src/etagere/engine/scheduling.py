"""Fair scheduling of long reads.

A read waits in the queue of its kind. Kinds take turns, and within a kind so do clients. No kind
may occupy all slots, so that a short read never waits for long ones of another kind.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from etagere.engine.interface import Fault, FaultReason, ReadClass
from etagere.telemetry.context import CLIENT

_WAITING_PER_CLIENT_MAX = 128
_WAITING_MAX = 1_024


_Waiter = asyncio.Future[None]
_Clients = OrderedDict[str, deque[_Waiter]]


def default_class(operation: Callable[..., object]) -> ReadClass:
    """Returns the class of a read that was given none: that of its operation, for the client of the
    current request, so that no client fills the queue of all others."""
    return ReadClass(operation.__qualname__, CLIENT.get())


class FairScheduler:
    """Grants a limited number of slots to reads, fairly by class; belongs to one event loop."""

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._per_kind_max = max(1, slots - 1)
        self._running: Counter[str] = Counter()
        self._waiting: OrderedDict[str, _Clients] = OrderedDict()
        self._waiting_count = 0

    @asynccontextmanager
    async def slot(self, read_class: ReadClass) -> AsyncIterator[None]:
        """Holds a slot; raises `Fault` if too many reads wait already."""
        if self._free and self._running[read_class.kind] < self._per_kind_max:
            self._take(read_class.kind)
        else:
            await self._wait(read_class)
        try:
            yield
        finally:
            self._free += 1
            self._running[read_class.kind] -= 1
            self._grant()

    def _take(self, kind: str) -> None:
        self._free -= 1
        self._running[kind] += 1

    async def _wait(self, read_class: ReadClass) -> None:
        queue = self._queue_of(read_class) or ()
        if len(queue) >= _WAITING_PER_CLIENT_MAX or self._waiting_count >= _WAITING_MAX:
            raise Fault(FaultReason.CONTENTION, f"too many reads wait: {read_class.kind}")
        waiter: _Waiter = asyncio.get_running_loop().create_future()
        clients = self._waiting.setdefault(read_class.kind, OrderedDict())
        clients.setdefault(read_class.client, deque()).append(waiter)
        self._waiting_count += 1
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                self._remove(read_class, waiter)
            else:  # granted, but cancelled before it could run
                self._free += 1
                self._running[read_class.kind] -= 1
                self._grant()
            raise

    def _queue_of(self, read_class: ReadClass) -> deque[_Waiter] | None:
        clients = self._waiting.get(read_class.kind)
        return None if clients is None else clients.get(read_class.client)

    def _remove(self, read_class: ReadClass, waiter: _Waiter) -> None:
        queue = self._queue_of(read_class)
        if queue is None or waiter not in queue:
            return  # it was granted after it was cancelled
        queue.remove(waiter)
        self._waiting_count -= 1
        self._tidy(read_class.kind, read_class.client)

    def _tidy(self, kind: str, client: str) -> None:
        clients = self._waiting[kind]
        if not clients[client]:
            del clients[client]
        if not clients:
            del self._waiting[kind]

    def _grant(self) -> None:
        """Grants free slots in turn."""
        while self._free:
            kind = self._next_kind()
            if kind is None:
                return
            self._waiting.move_to_end(kind)
            clients = self._waiting[kind]
            client = next(iter(clients))
            clients.move_to_end(client)
            waiter = clients[client].popleft()
            self._waiting_count -= 1
            self._tidy(kind, client)
            if not waiter.done():
                self._take(kind)
                waiter.set_result(None)

    def _next_kind(self) -> str | None:
        for kind in self._waiting:
            if self._running[kind] < self._per_kind_max:
                return kind
        return None
