"""Fetching the ranges of a plan from an object store, in order and ahead of their use.

Adjacent parts of a plan that lie in one object are fetched together. Several fetches are under way
at the same time. How much is fetched ahead follows the reader: more while it waits for the store,
less while the store waits for it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Final, NamedTuple

from etagere.bodies.objects.buffers import BufferMemory
from etagere.bodies.objects.names import INDEX_SHIFT
from etagere.bodies.plans import DamagedRange, Hole, PlanPart, SegmentRange
from etagere.config import KIB, MIB

FETCH_BYTES_MIN: Final = 256 * KIB
"""What a download may fetch at a time if there is no memory to fetch ahead."""
FETCH_BYTES_MAX: Final = 4 * MIB
"""The most that one request fetches."""
FETCHES_MAX: Final = 4
"""The fetches of a download at the same time."""
_WINDOW_BYTES: Final = 4 * MIB
"""How much a new download fetches ahead. Many clients request ranges of this length."""
_WINDOW_BYTES_MAX: Final = FETCHES_MAX * FETCH_BYTES_MAX
_SLOW_READER_FACTOR: Final = 2
"""A reader is slow if it needs this many times the duration of a fetch for what was fetched."""
_STEPS_MAX: Final = 2 * FETCHES_MAX
_GAP_BYTES_MAX: Final = 32 * KIB
"""Unneeded bytes between two parts that are fetched together: faster than another request."""


class PartSlice(NamedTuple):
    """The bytes of a fetch that belong to a part of a plan."""

    part: int
    """The number of the part."""
    start: int
    """Relative to the fetch."""
    length: int
    is_last: bool
    """Whether the part ends with it."""


class Fetch:
    """A range of an object to fetch, and the parts of the plan that are in it."""

    __slots__ = ("length", "offset", "segment", "slices")

    def __init__(self, segment: int, offset: int) -> None:
        self.segment = segment
        self.offset = offset
        self.length = 0
        self.slices: list[PartSlice] = []

    @property
    def end(self) -> int:
        return self.offset + self.length


Step = Fetch | Hole | bytes
"""A part of a plan that is not in a segment, or a fetch of parts that are."""


class PlanCursor:
    """Divides a plan into steps."""

    def __init__(self, parts: Sequence[PlanPart]) -> None:
        self._parts = parts
        self._number = 0
        self._done_bytes = 0
        """The bytes of the next part that earlier fetches contain."""

    def next(self, fetch_bytes_max: int) -> Step | None:
        """Returns the next step; None at the end of the plan."""
        fetch: Fetch | None = None
        while self._number < len(self._parts):
            part = self._parts[self._number]
            if not isinstance(part, SegmentRange):
                if fetch is None:
                    assert not isinstance(part, DamagedRange)
                    self._number += 1
                    return part
                break
            if fetch is not None and not _can_extend(fetch, part, fetch_bytes_max):
                break
            offset = part.offset + self._done_bytes
            if fetch is None:
                fetch = Fetch(part.segment, offset)
            start = offset - fetch.offset
            length = min(part.length - self._done_bytes, fetch_bytes_max - start)
            self._done_bytes += length
            is_last = self._done_bytes == part.length
            fetch.slices.append(PartSlice(self._number, start, length, is_last))
            fetch.length = start + length
            if not is_last:
                break
            self._number += 1
            self._done_bytes = 0
        return fetch


def _can_extend(fetch: Fetch, part: SegmentRange, fetch_bytes_max: int) -> bool:
    """Returns whether a fetch may include the beginning of the next part."""
    return (
        part.segment == fetch.segment
        and part.offset >> INDEX_SHIFT == fetch.offset >> INDEX_SHIFT
        and 0 <= part.offset - fetch.end <= _GAP_BYTES_MAX
        and part.offset - fetch.offset < fetch_bytes_max
    )


class _Pending(NamedTuple):
    """A step whose bytes are not needed yet."""

    step: Step
    task: asyncio.Task[bytes] | None
    """Returns the bytes of a fetch."""
    reserved_bytes: int
    """The memory that was taken for it."""

    @property
    def length(self) -> int:
        return self.step.length if isinstance(self.step, Fetch) else 0

    @property
    def is_done(self) -> bool:
        return self.task is None or self.task.done()


class ReadAhead:
    """The steps of a plan and their bytes, some of which are fetched before they are needed."""

    def __init__(
        self,
        parts: Sequence[PlanPart],
        fetch: Callable[[Fetch], Coroutine[None, None, bytes]],
        memory: BufferMemory,
    ) -> None:
        """Without memory, there is one fetch of `FETCH_BYTES_MIN` at a time, which does not
        count."""
        self._cursor = PlanCursor(parts)
        self._fetch = fetch
        self._memory = memory
        self._pending: deque[_Pending] = deque()
        self._is_at_end = False
        self._window_bytes = _WINDOW_BYTES
        self._fetch_seconds = 0.0
        """How long the last fetch took."""

    async def steps(self) -> AsyncGenerator[tuple[Step, bytes], None]:
        """Yields the steps in order, each with its bytes if it is a fetch."""
        reader_seconds = 0.0
        try:
            while True:
                if self._pending:
                    self._adapt_window(reader_seconds)
                self._start_fetches()
                if not self._pending:
                    return
                step, task, reserved_bytes = self._pending[0]
                data = b"" if task is None else await task
                self._pending.popleft()
                began = time.monotonic()
                try:
                    # The bytes are in memory until they are sent.
                    yield step, data
                finally:
                    self._memory.release(reserved_bytes)
                reader_seconds = time.monotonic() - began
        finally:
            for _, task, reserved_bytes in self._pending:
                self._memory.release(reserved_bytes)
                if task is not None and not task.cancel() and not task.cancelled():
                    task.exception()  # one that nobody waits for any more is not reported

    def _start_fetches(self) -> None:
        while not self._is_at_end and len(self._pending) < _STEPS_MAX:
            fetches = [pending for pending in self._pending if pending.task is not None]
            ahead_bytes = sum(pending.length for pending in fetches)
            if fetches and (len(fetches) >= FETCHES_MAX or ahead_bytes >= self._window_bytes):
                return
            length = max(FETCH_BYTES_MIN, self._window_bytes // FETCHES_MAX)
            reserved_bytes = length if self._memory.reserve(length) else 0
            if not reserved_bytes:
                if fetches:
                    return
                length = FETCH_BYTES_MIN
            step = self._cursor.next(length)
            needed = min(reserved_bytes, step.length) if isinstance(step, Fetch) else 0
            self._memory.release(reserved_bytes - needed)
            if step is None:
                self._is_at_end = True
                return
            task = asyncio.create_task(self._run(step)) if isinstance(step, Fetch) else None
            self._pending.append(_Pending(step, task, needed))

    async def _run(self, fetch: Fetch) -> bytes:
        began = time.monotonic()
        data = await self._fetch(fetch)
        self._fetch_seconds = time.monotonic() - began
        return data

    def _adapt_window(self, reader_seconds: float) -> None:
        """Fetches further ahead if the reader has to wait for the store, and less far if all
        fetches have ended and the reader takes much longer than one of them."""
        if not self._pending[0].is_done:
            self._window_bytes = min(2 * self._window_bytes, _WINDOW_BYTES_MAX)
        elif reader_seconds > _SLOW_READER_FACTOR * self._fetch_seconds and all(
            pending.is_done for pending in self._pending
        ):
            self._window_bytes = max(self._window_bytes // 2, FETCH_BYTES_MIN)
