"""Segments that consist of objects, while they are being appended to.

Each object is put as a whole, once, and never changed. A long part of an upload becomes an object
of its own. Small bodies are packed: those that end while a put is under way share the next object.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from etagere.bodies.objects.names import INDEX_SHIFT, object_name
from etagere.bodies.own_segments import WritableSegment
from etagere.config import MIB
from etagere.engine.interface import Fault, FaultReason

PACK_BYTES: Final = 1 * MIB
"""A pack of this length is put at once, even if another put is under way."""
_PACK_WAIT_SECONDS: Final = 0.05
"""How long a pack waits for the put of an earlier one."""

Buffer = bytes | memoryview
Put = Callable[[str, Sequence[Buffer]], Awaitable[None]]
"""Puts an object; raises `Fault`."""


class PendingObject:
    """An object of a segment, from its reservation until no upload refers to it any more."""

    def __init__(
        self, index: int, length: int, reserved_bytes: int = 0, *, is_pack: bool = False
    ) -> None:
        self.index = index
        self.length = length
        """The number of bytes that were reserved in it."""
        self.reserved_bytes = reserved_bytes
        """How much memory was reserved for it."""
        self.is_pack = is_pack
        self.filled = 0
        """The number of bytes that were written to it."""
        self.references = 0
        self.buffers: list[Buffer] = []
        self.space: memoryview | None = None
        """Memory for the rest of it, if bytes are received directly from a socket."""
        self.is_awaited = False
        self.is_put = False
        """Whether its put has begun."""
        self.ended = asyncio.Event()
        """Set when its put has ended."""
        self.fault: Fault | None = None

    def fill(self, buffers: Sequence[Buffer]) -> None:
        self.buffers.extend(buffers)
        self.filled += sum(map(len, buffers))

    def require_intact(self) -> None:
        """Raises `Fault` if its put has failed."""
        if self.fault is not None:
            # A new exception each time, because a raised one keeps its traceback alive.
            raise Fault(self.fault.reason, self.fault.detail)


class ObjectSegment(WritableSegment):
    """A segment of objects that this process appends to."""

    def __init__(self, number: int, put: Put, release_memory: Callable[[int], None]) -> None:
        """`release_memory` releases memory that was reserved for an object."""
        super().__init__(number)
        self._put = put
        self._release_memory = release_memory
        self.objects = 0
        """How many objects it has, including those that are not put yet."""
        self.has_failed_puts = False
        """Whether a put has failed. Its object may be stored all the same."""
        self._pending: dict[int, PendingObject] = {}
        self._pack: PendingObject | None = None
        self._packs_under_way = 0
        self._puts: set[asyncio.Task[None]] = set()

    # Reserving and filling

    def open_object(self, length: int, reserved_bytes: int) -> int:
        """Begins an object for one upload; returns the offset of its first byte."""
        pending = PendingObject(self._next_index(), length, reserved_bytes)
        self._refer_to(pending, length)
        return pending.index << INDEX_SHIFT

    def add(self, data: bytes) -> int:
        """Adds a small body to the current pack; returns its offset."""
        pack = self._pack
        if pack is None:
            pack = self._pack = PendingObject(self._next_index(), 0, is_pack=True)
        at = pack.length
        pack.length += len(data)
        pack.fill([data])
        self._refer_to(pack, len(data))
        if pack.length >= PACK_BYTES:
            self._put_pack()
        return pack.index << INDEX_SHIFT | at

    def _next_index(self) -> int:
        self.objects += 1
        return self.objects - 1

    def _refer_to(self, pending: PendingObject, length: int) -> None:
        self._pending[pending.index] = pending
        pending.references += 1
        self.length += length
        self.uploads += 1

    def fill(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Adds the next bytes to the object of an upload, and puts it when it is complete."""
        pending = self._pending[offset >> INDEX_SHIFT]
        pending.fill(buffers)
        if pending.filled == pending.length:
            self._start(pending)

    def take_space(self, offset: int, length: int) -> memoryview:
        """Returns memory for the next bytes of the object of an upload."""
        pending = self._pending[offset >> INDEX_SHIFT]
        if pending.space is None:
            pending.space = memoryview(bytearray(pending.length - pending.filled))
        return pending.space[:length]

    def fill_space(self, offset: int, count: int) -> None:
        """Adds bytes that were received into the memory that `take_space` returned."""
        pending = self._pending[offset >> INDEX_SHIFT]
        if pending.space is not None and count:
            received, pending.space = pending.space[:count], pending.space[count:]
            self.fill(offset, [received])

    def trim(self, offset: int, length: int) -> None:
        pending = self._pending[offset >> INDEX_SHIFT]
        pending.length -= length
        self.length -= length
        if pending.length and pending.filled == pending.length:
            self._start(pending)

    # Putting

    def _put_pack(self) -> None:
        if self._pack is not None:
            pack, self._pack = self._pack, None
            self._packs_under_way += 1
            self._start(pack)

    def _start(self, pending: PendingObject) -> None:
        # The put is an upload of its own: the segment is not sealed while it is under way, even if
        # those that wait for it are cancelled.
        self.uploads += 1
        pending.is_put = True
        task = asyncio.create_task(self._put_object(pending))
        self._puts.add(task)
        task.add_done_callback(self._puts.discard)

    async def _put_object(self, pending: PendingObject) -> None:
        name = object_name(self.number, pending.index << INDEX_SHIFT)
        pending.fault = Fault(FaultReason.FAILED, f"the put of {name} was interrupted")
        try:
            await self._put(name, pending.buffers)
            pending.fault = None
        except Fault as fault:
            pending.fault = fault
        finally:
            self.has_failed_puts = self.has_failed_puts or pending.fault is not None
            self.uploads -= 1
            self._free(pending)
            pending.ended.set()
            if pending.is_pack:
                self._packs_under_way -= 1
                self._put_pack()

    def _free(self, pending: PendingObject) -> None:
        pending.buffers = []
        pending.space = None
        if pending.reserved_bytes:
            self._release_memory(pending.reserved_bytes)
            pending.reserved_bytes = 0

    # Waiting

    def is_under_way(self, offset: int) -> bool:
        """Returns whether an object is being put, or about to be: its last bytes may still be on
        their way to it. Raises `Fault` if the put has failed."""
        pending = self._pending[offset >> INDEX_SHIFT]
        if not pending.ended.is_set():
            return True
        pending.require_intact()
        return False

    async def wait(self, offset: int) -> None:
        """Waits until an object is durable; raises `Fault` if that fails."""
        pending = self._pending[offset >> INDEX_SHIFT]
        if pending is self._pack:
            if not self._packs_under_way:
                self._put_pack()
            elif not pending.is_awaited:
                pending.is_awaited = True
                loop = asyncio.get_running_loop()
                loop.call_later(_PACK_WAIT_SECONDS, self._put_after_wait, pending)
            await pending.ended.wait()
        elif pending.is_put:
            await pending.ended.wait()
        pending.require_intact()

    def _put_after_wait(self, pack: PendingObject) -> None:
        if self._pack is pack:
            self._put_pack()

    def release(self, offset: int, length: int, *, abandoned: bool) -> None:
        pending = self._pending[offset >> INDEX_SHIFT]
        pending.references -= 1
        if not pending.is_pack:
            length = pending.length
        if not pending.references:
            del self._pending[pending.index]
            if not pending.is_put:
                # No upload needs it.
                if self._pack is pending:
                    self._pack = None
                self.length -= pending.length
                self._free(pending)
                length = 0
        super().release(offset, length, abandoned=abandoned)

    async def wait_for_puts(self) -> None:
        """Waits for all puts that are under way."""
        while self._puts:
            await asyncio.wait(self._puts)
