"""Gathered writes: what was written to open files and is not in the ledger yet.

A file has two layers: one that writes are added to, and one that is being stored. A layer is stored
by one transaction, so that the ledger always has a state that the file had: everything up to some
write, and nothing after it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from msgspec.structs import replace

from etagere.config import MIB
from etagere.engine.interface import Fault, FaultReason, Unknown
from etagere.model.bodies import Chunked
from etagere.model.files import Entry, FileNode
from etagere.model.open_files import OpenFileRef
from etagere.model.shares import ShareName
from etagere.opens.extents import Extent, Extents

if TYPE_CHECKING:
    from etagere.opens.handles import OpenEntry

logger = logging.getLogger(__name__)

STORED_BYTES_MIN: Final = 4 * MIB
"""A file that has gathered this much is stored at once."""
GATHERED_BYTES_MAX: Final = 32 * MIB
"""What a file gathers at most while it is being stored; then its writers wait."""
EXTENTS_MAX: Final = 256
"""The maximum number of extents that are stored at once: each takes the writer about 0.1 ms."""
IDLE_SECONDS: Final = 1.0
"""A file is stored when nothing was written to it for this long,"""
AGE_SECONDS_MAX: Final = 5.0
"""or when its oldest write has waited for this long."""
RETRY_SECONDS: Final = 1.0
RETRY_SECONDS_MAX: Final = 30.0


class Layer:
    """Changes of a file that are stored together."""

    __slots__ = (
        "changed",
        "extents",
        "is_resized",
        "last",
        "length",
        "length_below",
        "reserved",
        "written",
    )

    def __init__(self, length: int) -> None:
        self.extents = Extents()
        self.length_below = length
        """That of the file without these changes."""
        self.length = length
        """That of the file with these changes."""
        self.is_resized = False
        """Whether the length was set. Otherwise the file only grows as far as it was written."""
        self.changed = 0
        """When the last change was made."""
        self.written: int | None = None
        """The last write time; None: it stays as it is."""
        self.last = 0
        """The number of the last change."""
        self.reserved = 0
        """The memory that was reserved for the bytes, including those that were replaced."""

    @property
    def is_empty(self) -> bool:
        return not self.last


class Owner(Protocol):
    """The files of a share with gathered writes, of which a file is one."""

    @property
    def share(self) -> ShareName: ...

    @property
    def notify(self) -> Callable[[], None]:
        """Wakes those who wait for room."""
        ...

    def ref(self, entry: OpenEntry) -> OpenFileRef:
        """Returns a file as operations know it."""
        ...

    def remove(self, file: GatheredFile) -> None:
        """Forgets a file without changes."""
        ...


class Storage(Protocol):
    """Stores the layers of files."""

    def now(self) -> int:
        """Returns the wall clock, in ticks since 1970."""
        ...

    async def store(self, file: GatheredFile, layer: Layer) -> bool:
        """Stores a layer; returns False if the file is gone. Raises `Fault` or `Unknown`."""
        ...

    def ended(self, layer: Layer) -> None:
        """Called when a layer is stored or dropped: its memory is free."""
        ...

    def failed(self) -> None:
        """Called when a layer could not be stored: its memory is not free soon."""
        ...

    def forget(self, file: GatheredFile) -> None:
        """Called when nothing is gathered for a file any more."""
        ...


class GatheredFile:
    """A file that was written to since it was last stored."""

    def __init__(
        self, files: Owner, entry: OpenEntry, stored_length: int, storage: Storage
    ) -> None:
        self.entry = entry
        self.stores = 0
        """How often a layer was stored. Readers compare it."""
        self.fault: Fault | Unknown | None = None
        """Why the last attempt failed. Meanwhile nothing more is accepted."""
        self._files = files
        self._storage = storage
        self._stored_length = stored_length
        self._gathering = Layer(stored_length)
        self._storing: Layer | None = None
        self._attempt: asyncio.Task[Fault | Unknown | None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._last = self._last_stored = 0
        self._first_at = self._last_at = 0.0
        self._failures = 0

    # State

    @property
    def ref(self) -> OpenFileRef:
        """The file as operations know it. It may have been renamed since it was opened."""
        return self._files.ref(self.entry)

    @property
    def share(self) -> ShareName:
        return self._files.share

    @property
    def length(self) -> int:
        return self._gathering.length

    @property
    def growth(self) -> int:
        """How much longer the file is than in the ledger; negative if it is shorter."""
        return self._gathering.length - self._stored_length

    @property
    def is_empty(self) -> bool:
        return self._last == self._last_stored

    @property
    def is_being_stored(self) -> bool:
        return self._attempt is not None

    @property
    def is_full(self) -> bool:
        """Whether writers have to wait until the file is stored."""
        if self._storing is None:
            return False
        gathering = self._gathering
        room = GATHERED_BYTES_MAX - self._storing.reserved
        return gathering.reserved >= room or len(gathering.extents) >= EXTENTS_MAX

    @property
    def reserved(self) -> int:
        storing = 0 if self._storing is None else self._storing.reserved
        return self._gathering.reserved + storing

    def extents(self, start: int, end: int) -> list[Extent]:
        """Returns what was written to a range; later extents replace earlier ones."""
        newer = self._gathering.extents.between(start, end)
        if self._storing is None:
            return newer
        return self._storing.extents.between(start, end) + newer

    def overlaid(self, entry: Entry) -> Entry:
        """Returns the entry, which is as in the ledger, with the length and the times that it has
        after the changes. Its content has no bytes."""
        if not isinstance(entry.node, FileNode):
            return entry
        changed, written = entry.times.changed, entry.times.written
        for layer in (self._storing, self._gathering):
            if layer is not None and not layer.is_empty:
                changed = layer.changed
                written = written if layer.written is None else layer.written
        node = replace(entry.node, content=Chunked(b"", self.length))
        times = replace(entry.times, changed=changed, written=written)
        return replace(entry, node=node, times=times)

    # Changes

    def write(
        self, offset: int, data: bytes | memoryview, *, preserve_written: bool = False
    ) -> None:
        """Accepts bytes, for which the caller has reserved memory."""
        layer = self._begin_change(preserve_written=preserve_written)
        layer.extents.write(offset, data)
        layer.reserved += len(data)
        layer.length = max(layer.length, offset + len(data))
        self._end_change()

    def clear(self, start: int, end: int, *, preserve_written: bool = False) -> None:
        """Replaces bytes by zeros, within the length of the file."""
        layer = self._begin_change(preserve_written=preserve_written)
        layer.extents.clear(start, end)
        self._end_change()

    def resize(self, length: int, *, preserve_written: bool = False) -> None:
        """Sets the length. Even if it is the old one, the file counts as written."""
        layer = self._begin_change(preserve_written=preserve_written)
        layer.extents.forget(length)
        if length < layer.length_below:
            # The bytes there must not return when the file grows again.
            layer.extents.clear(length, layer.length_below)
        layer.length, layer.is_resized = length, True
        self._end_change()

    def _begin_change(self, *, preserve_written: bool) -> Layer:
        layer = self._gathering
        now = asyncio.get_running_loop().time()
        if layer.is_empty:
            self._first_at = now
        self._last_at = now
        self._last += 1
        layer.last = self._last
        layer.changed = self._storage.now()
        if not preserve_written:
            layer.written = layer.changed
        return layer

    def _end_change(self) -> None:
        if self._attempt is None and self._is_due:
            self.store_soon()
        elif self._timer is None:
            self._set_timer(IDLE_SECONDS)

    @property
    def _is_due(self) -> bool:
        layer = self._gathering
        return layer.reserved >= STORED_BYTES_MIN or len(layer.extents) >= EXTENTS_MAX

    # Storing

    async def flush(self) -> None:
        """Stores all changes so far; raises the fault if that fails."""
        wanted = self._last
        while self._last_stored < wanted:
            attempt = self.store_soon()
            await asyncio.wait((attempt,))
            fault = attempt.result()
            if fault is not None:
                # It may be raised often, and would keep the frames of every time.
                raise fault.with_traceback(None)

    def store_soon(self) -> asyncio.Task[Fault | Unknown | None]:
        """Begins to store the changes, unless an attempt is under way. Returns the attempt."""
        if self._attempt is None:
            if self._storing is None:
                self._storing, self._gathering = self._gathering, Layer(self._gathering.length)
            self._attempt = asyncio.get_running_loop().create_task(self._try_to_store())
        return self._attempt

    async def _try_to_store(self) -> Fault | Unknown | None:
        self._cancel_timer()
        layer = self._storing
        if layer is None or layer.is_empty:
            # The file was dropped meanwhile.
            self._storing = self._attempt = None
            return None
        is_there, fault = True, None
        try:
            is_there = await self._storage.store(self, layer)
        except (Fault, Unknown) as error:
            fault = error
        except Exception as error:
            logger.exception("%s could not be stored", self.entry.path)
            fault = Fault(FaultReason.FAILED, str(error))
        finally:
            self._attempt = None
        if self._last_stored >= layer.last:
            # The file was dropped meanwhile.
            return None
        if fault is not None:
            self._fail(fault)
            return fault
        if not is_there:
            logger.info("%s was deleted with unstored writes", self.entry.path)
            self.drop()
            return None
        self._succeed(layer)
        return None

    def _succeed(self, layer: Layer) -> None:
        self._storing, self.fault, self._failures = None, None, 0
        self._last_stored, self._stored_length = layer.last, layer.length
        self.stores += 1
        self._storage.ended(layer)
        self._files.notify()
        if self.is_empty:
            self._files.remove(self)
        elif self._is_due:
            self.store_soon()
        else:
            self._set_timer(IDLE_SECONDS)

    def _fail(self, fault: Fault | Unknown) -> None:
        if self.fault is None:
            logger.warning("%s could not be stored, and is kept: %s", self.entry.path, fault)
        self.fault = fault
        self._failures += 1
        # Those who wait for room are refused.
        self._files.notify()
        self._storage.failed()
        self._set_timer(min(RETRY_SECONDS * 2 ** (self._failures - 1), RETRY_SECONDS_MAX))

    def drop(self) -> None:
        """Forgets all changes, because the file is gone."""
        self._cancel_timer()
        layers, self._storing = (self._storing, self._gathering), None
        self._gathering = Layer(self._stored_length)
        self._last_stored = self._last
        self.fault = None
        self.stores += 1
        for layer in layers:
            if layer is not None:
                self._storage.ended(layer)
        self._files.remove(self)

    def end(self) -> None:
        """Called when the file is removed from those with gathered writes."""
        self._cancel_timer()
        self._storage.forget(self)

    # Timer

    def _set_timer(self, seconds: float) -> None:
        self._cancel_timer()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        """Stores the file if it is time, or looks again later."""
        self._timer = None
        if self.is_empty or self._attempt is not None:
            return
        now = asyncio.get_running_loop().time()
        due = min(self._last_at + IDLE_SECONDS, self._first_at + AGE_SECONDS_MAX)
        if self._storing is not None or now >= due:
            self.store_soon()
        else:
            self._set_timer(due - now)
