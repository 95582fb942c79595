"""The segments that a process appends to, from their first byte until they are sealed."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

from etagere.bodies.contents import UNCOUNTED_DEAD
from etagere.bodies.segments import OpenSegment, open_segment, seal
from etagere.config import Config
from etagere.engine.interface import Engine, Fault, ReadTxn, Unknown
from etagere.telemetry.context import no_request

logger = logging.getLogger(__name__)

_DEAD_ROWS_PER_SLICE = 200
_DEAD_SLICES_PER_ROUND = 20


class WritableSegment(ABC):
    """A segment that this process appends to."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.length = 0
        """The number of bytes that were reserved in it."""
        self.uploads = 0
        self.abandoned = 0
        """Bytes of abandoned uploads, which the ledger does not know of until the segment is
        sealed."""
        self.rolled = False
        """Whether uploads use another segment by now."""

    @abstractmethod
    def trim(self, offset: int, length: int) -> None:
        """Returns reserved space that was not used, if possible."""

    def release(self, offset: int, length: int, *, abandoned: bool) -> None:
        """Ends the reservation of an upload. Space that is abandoned is dead."""
        self.uploads -= 1
        if abandoned:
            self.abandoned += length


S = TypeVar("S", bound=WritableSegment)


class OwnSegments(Generic[S]):
    """The segments of this process: the current one, which uploads use, and former ones that still
    have uploads or are to be sealed."""

    def __init__(
        self,
        engine: Engine,
        owner: bytes,
        config: Config,
        create: Callable[[int], Awaitable[S]],
        stored_bytes: Callable[[S], Awaitable[int]],
    ) -> None:
        """`create` creates what stores a segment, and raises `Fault` if that fails. `stored_bytes`
        returns how many bytes are stored in a segment."""
        self._engine = engine
        self._owner = owner
        self._config = config
        self._create = create
        self._stored_bytes = stored_bytes
        self.current: S | None = None
        self.open: dict[int, S] = {}
        """By number."""
        self._uncreated: set[int] = set()
        """Segments that could not be created; they are still to be sealed in the ledger."""
        self._beginning: asyncio.Task[None] | None = None
        self._dead_count = _DeadCount(0)

    async def begin(self) -> None:
        """Begins a new current segment. Raises `Fault` or `Unknown` to the first of several
        uploads that wait for it; the others may try again."""
        # A separate task, shared by all uploads that wait: a cancelled upload must not leave a
        # half-created segment.
        is_first = self._beginning is None
        if self._beginning is None:
            self._beginning = asyncio.create_task(self._begin(), context=no_request())
        try:
            await asyncio.shield(self._beginning)
        except (Fault, Unknown):
            if is_first:
                raise

    async def _begin(self) -> None:
        try:
            if self.current is not None:
                self.current.rolled = True
                self.current = None
            number = await self._engine.write(open_segment, OpenSegment(self._owner))
            try:
                segment = await self._create(number)
            except Fault:
                self._uncreated.add(number)
                await self._seal_uncreated()
                raise
            self.current = self.open[number] = segment
        finally:
            self._beginning = None

    def roll_if_abandoned(self) -> None:
        """Makes the next upload begin a new segment: abandoned space can be collected only once its
        segment is sealed."""
        if self.current is not None and self.current.abandoned:
            self.current.rolled = True

    async def maintain(self) -> None:
        """Lets uploads begin a new segment when much of the current one is dead, and seals segments
        that nothing is being uploaded to."""
        current = self.current
        if current is not None and not current.rolled:
            dead = current.abandoned + await self._count_dead(current.number)
            if dead > self._config.sparse_dead_share * current.length:
                current.rolled = True
        for segment in list(self.open.values()):
            if segment.rolled and not segment.uploads:
                await self._seal(segment)
        await self._seal_uncreated()

    async def _count_dead(self, segment: int) -> int:
        """Returns how many bytes of an open segment are dead, at least. Each call counts a bounded
        number of extents and goes on where the last call stopped, beginning again at the end."""
        count = self._dead_count
        if count.segment != segment:
            count = _DeadCount(segment)
        for _ in range(_DEAD_SLICES_PER_ROUND):
            count, is_cut = await self._engine.read(_count_slice, count)
            if not is_cut:
                self._dead_count = _DeadCount(segment)
                return count.length
            await asyncio.sleep(0)
        self._dead_count = count
        return count.length

    async def _seal_uncreated(self) -> None:
        for number in list(self._uncreated):
            if await self._seal_in_ledger(number, 0):
                self._uncreated.discard(number)

    async def _seal(self, segment: S) -> None:
        try:
            length = await self._stored_bytes(segment)
        except Fault as fault:
            logger.warning("segment %d could not be sealed: %s", segment.number, fault)
            return
        if await self._seal_in_ledger(segment.number, length):
            self.open.pop(segment.number, None)
            # A reference would keep its file open, and the space of a removed file allocated.
            if self.current is segment:
                self.current = None

    async def _seal_in_ledger(self, number: int, length: int) -> bool:
        try:
            await seal(self._engine, number, length)
        except (Fault, Unknown) as error:
            # `maintain` retries it, or a collector after this process has ended.
            logger.warning("segment %d could not be sealed: %s", number, error)
            return False
        return True

    async def close(self) -> None:
        """Seals the segments that have no upload under way."""
        if self._beginning is not None:
            await asyncio.wait([self._beginning])
        for segment in list(self.open.values()):
            segment.rolled = True
            if not segment.uploads:
                await self._seal(segment)
        self.current = None
        self.open.clear()


class _DeadCount(NamedTuple):
    """The number of dead bytes of a segment before an offset."""

    segment: int
    offset: int = 0
    length: int = 0


def _count_slice(txn: ReadTxn, count: _DeadCount) -> tuple[_DeadCount, bool]:
    """Counts a slice of the dead extents of a segment; also returns whether there are more."""
    segment, offset, length = count
    span = UNCOUNTED_DEAD.starting(UNCOUNTED_DEAD.under((segment,)), (segment, offset))
    rows = txn.scan(UNCOUNTED_DEAD, span, _DEAD_ROWS_PER_SLICE)
    if not rows:
        return count, False
    further = _DeadCount(segment, rows[-1][0][1] + 1, length + sum(r.length for _, r in rows))
    return further, len(rows) == _DEAD_ROWS_PER_SLICE
