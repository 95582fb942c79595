"""Request bodies, while they arrive."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Protocol

from etagere.descriptors import OpenFile
from etagere.protocol.connections.memory import (
    DOCUMENT_FACTOR,
    SMALL_BYTES_MAX,
    UPLOAD_BYTES_MAX,
    MemoryBudget,
    MemoryExhausted,
)
from etagere.protocol.http import sockets


class ClientGone(Exception):
    """The client closed the connection, or stopped sending, before its request was complete."""


class BodyTooLarge(Exception):
    """A request body is longer than its reader allows."""


class Flow(Protocol):
    """The reading half of a connection, as the body that arrives on it sees it."""

    def wanted(self, body: RequestBody) -> None:
        """Called when a reader waits for the body. A client that expects 100 Continue gets it."""
        ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def lend_socket(self, body: RequestBody) -> LentSocket | None:
        """Pauses, and lends the socket, if many bytes of the body wait in it."""
        ...

    def return_socket(self, taken: int | None) -> None:
        """Called with the number of bytes of the body that were read from the socket; None if it is
        unknown."""
        ...


class LentSocket:
    """The socket of a connection, lent to a thread that reads a body from it directly."""

    def __init__(self, flow: Flow, file: OpenFile, length: int) -> None:
        self.file = file
        """A duplicate descriptor, which stays open if the connection ends meanwhile."""
        self.length = length
        self.taken: int | None = 0
        self._flow = flow

    def __enter__(self) -> LentSocket:
        return self

    def __exit__(self, *_: object) -> None:
        if self.taken is None:
            sockets.shut_down_socket(self.file.descriptor)
        del self.file  # a thread that still reads has a reference too
        self._flow.return_socket(self.taken)


_BUFFER_BYTES_MAX = 512 * 1024
# The overhead of a chunk. Without it, chunks of one byte would count as almost nothing.
_CHUNK_BYTES = 64
# Shorter chunks are joined as they arrive: each costs its reader as much as a long one.
_JOINED_BYTES_MAX = 2 * 1024
# The first reservation for a document of unknown length, which may well be a small one.
_GROWTH_BYTES = SMALL_BYTES_MAX // DOCUMENT_FACTOR


# Memory that is reserved for bytes which have not arrived is reclaimed if the client is this far
# behind the rate at which it would send all of them in a minute. It then keeps twice what it has
# sent.
_FULL_RATE_SECONDS = 60.0
_BEHIND_SECONDS_MAX = 0.1
_RECLAIMED_BYTES_MIN = 1024


class RequestBody:
    """The body of a request, while it arrives. If nobody reads it, the client is held back."""

    def __init__(
        self,
        flow: Flow,
        length: int | None,
        *,
        expects_continue: bool = False,
        memory: MemoryBudget | None = None,
    ) -> None:
        self.length = length
        """As announced; None for the chunked transfer encoding."""
        self.expects_continue = expects_continue
        """Whether the client waits for 100 Continue before it sends the body."""
        self.complete = False
        self.completed_at = 0.0
        """By the monotonic clock; 0 before, and if there is no body."""
        self.received = 0
        self.discarded = 0
        self.buffered = 0
        self._flow = flow
        self._memory = memory or MemoryBudget()
        self._reserved = 0
        self._reserved_at = 0.0
        self._is_reclaimed = False
        self._factor = 1
        self.is_held = False
        """Whether it keeps its connection from reading on."""
        self.is_discarded = False
        """Whether its rest is dropped as it arrives."""
        self._chunks: deque[bytes] = deque()
        self._failed = False
        self._given_up = False
        self._waiter: asyncio.Future[None] | None = None

    # Called by the connection

    def hold(self) -> None:
        """Pauses the connection until the body is read."""
        if not self.is_held and not self.is_discarded:
            self.is_held = True
            self._flow.pause()

    def feed(self, data: bytes) -> None:
        self.received += len(data)
        if self.is_discarded:
            self.discarded += len(data)
            return
        size = len(data)
        if size < _JOINED_BYTES_MAX and self._chunks and len(self._chunks[-1]) < _JOINED_BYTES_MAX:
            self._chunks[-1] += data
        else:
            self._chunks.append(data)
            size += _CHUNK_BYTES
        self.buffered += size
        self._memory.add(size)
        if self.buffered > _BUFFER_BYTES_MAX or (
            self.buffered > SMALL_BYTES_MAX and self._memory.is_scarce
        ):
            self.hold()
        if self._waiter is not None:
            self._wake()

    def count_direct_bytes(self, count: int) -> None:
        """Counts bytes that were read from the lent socket."""
        if count:
            self.expects_continue = False
        self.received += count

    def feed_end(self) -> None:
        self.complete = True
        if self.length != 0:
            self.completed_at = time.monotonic()
        if self._waiter is not None:
            self._wake()

    def fail(self) -> None:
        """Makes the reader fail: the rest will not arrive."""
        if not self.complete:
            self._failed = True
            self._wake()

    def give_up(self) -> None:
        """Makes the reader fail: the body arrives too slowly, and others need its memory."""
        self._given_up = True
        self._wake()

    def discard(self) -> None:
        """Drops what has arrived and what will."""
        self.is_discarded = True
        self._chunks.clear()
        self._taken(self.buffered)

    def release(self) -> None:
        """Releases all memory: the request has ended."""
        self._memory.remove_reclaimable(self)
        self.is_discarded = True
        self._chunks.clear()
        held = self.buffered + self._reserved
        if held:
            self.buffered = self._reserved = 0
            self._memory.release(held)

    def keep(self, count: int) -> None:
        """Counts more memory that is in use until the request has ended."""
        self._memory.remove_reclaimable(self)
        self._memory.add(count)
        self._reserved += count

    def reclaim(self, now: float) -> None:
        """Releases memory that is reserved for bytes which arrive too slowly, if others need it. It
        is reserved again when they arrive."""
        if self.complete or not self._reserved:
            self._memory.remove_reclaimable(self)
            return
        on_time_seconds = self.received * _FULL_RATE_SECONDS / self._reserved
        if now - self._reserved_at - on_time_seconds < _BEHIND_SECONDS_MAX:
            return
        self._memory.remove_reclaimable(self)
        surplus = self._reserved - self._factor * max(_RECLAIMED_BYTES_MIN, 2 * self.received)
        if surplus > 0:
            self._is_reclaimed = True
            self._reserved -= surplus
            self._memory.release(surplus)

    @property
    def held_bytes(self) -> int:
        """How much of the memory budget it uses."""
        return self.buffered + self._reserved

    @property
    def awaited(self) -> bool:
        """Whether its reader waits for more of it, or the connection does in order to drop it."""
        return self.is_discarded or (self._waiter is not None and not self._waiter.done())

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # Called by the reader

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self._reserved < UPLOAD_BYTES_MAX and not self.complete:
            await self._reserve_for_upload()
        while not self._chunks:
            if self._failed or self.is_discarded:
                raise ClientGone
            if self._given_up:
                raise MemoryExhausted
            if self.complete:
                raise StopAsyncIteration
            self._taken(0)  # resumes, if it was held
            self._flow.wanted(self)
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        chunk = self._chunks.popleft()
        self._taken(len(chunk) + _CHUNK_BYTES)
        return chunk

    def lend_socket(self) -> LentSocket | None:
        """Lends the socket if many bytes wait in it and none of them has been received yet."""
        if self._chunks or self._failed or self.complete:
            return None
        lent = self._flow.lend_socket(self)
        if lent is not None:
            self._taken(0)  # the connection itself is paused now
        return lent

    async def _reserve_for_upload(self) -> None:
        """Reserves memory for the buffers of an upload, in steps that grow with what has arrived: a
        client that has sent little holds little."""
        room = UPLOAD_BYTES_MAX if self.length is None else min(self.length, UPLOAD_BYTES_MAX)
        least = _RECLAIMED_BYTES_MIN if self._is_reclaimed else SMALL_BYTES_MAX
        wanted = min(room, max(least, 2 * self.received))
        if wanted > self._reserved:
            await self._reserve(wanted - self._reserved)

    async def _reserve(self, count: int) -> None:
        await self._memory.reserve_in_turn(count)
        self._reserved += count
        if not self.complete:
            self._reserved_at = asyncio.get_running_loop().time()
            self._memory.add_reclaimable(self)

    async def read(self, bytes_max: int) -> bytes:
        """Returns the whole body. Raises BodyTooLarge if it is longer than `bytes_max`."""
        if self.length is not None and self.length > bytes_max:
            raise BodyTooLarge
        if self.complete and len(self._chunks) == 1 and not self.is_held:
            document = self._chunks[0]
            if len(document) > bytes_max:
                raise BodyTooLarge
            size = len(document) * DOCUMENT_FACTOR
            if self._memory.reserve_at_once(size - self.buffered):
                self._chunks.clear()
                self._reserved += size
                self.buffered = 0
                return document
        return await self._read_as_it_comes(bytes_max)

    async def _read_as_it_comes(self, bytes_max: int) -> bytes:
        self._factor = DOCUMENT_FACTOR
        room = self.length if self.length is not None else _GROWTH_BYTES
        await self._reserve(room * DOCUMENT_FACTOR)
        document: bytes | bytearray = b""
        async for chunk in self:
            size = len(document) + len(chunk)
            if size > bytes_max:
                raise BodyTooLarge
            room = self._reserved // DOCUMENT_FACTOR
            if size > room:
                # Doubled, so that there are few reservations.
                more = max(size - room, room)
                if self.length is not None:
                    more = min(more, self.length - room)
                await self._reserve(more * DOCUMENT_FACTOR)
            if not document:
                document = chunk
            elif isinstance(document, bytearray):
                document += chunk
            else:
                # Not a list of chunks: with one byte each, it would take forty times their length.
                document = bytearray(document)
                document += chunk
        return bytes(document)

    def _taken(self, count: int) -> None:
        self.buffered -= count
        self._memory.release(count)
        if self.is_held and self.buffered < _BUFFER_BYTES_MAX // 2:
            self.is_held = False
            self._flow.resume()
