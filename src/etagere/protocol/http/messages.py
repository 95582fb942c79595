"""Requests and responses as the services see them.

A request keeps its target and headers exactly as they arrived, because signatures cover them
and metadata names keep their case.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from etagere.descriptors import FilePart, OpenFile
from etagere.protocol.http import sockets
from etagere.protocol.http.memory import (
    DOCUMENT_FACTOR,
    SMALL_BYTES_MAX,
    UPLOAD_BYTES_MAX,
    MemoryBudget,
    MemoryExhausted,
)

__all__ = [
    "BodyTooLarge",
    "ClientGone",
    "FilePart",
    "Flow",
    "Request",
    "RequestBody",
    "Response",
    "Tap",
]


class ClientGone(Exception):
    """The client closed the connection, or stopped sending, before its request was whole."""


class BodyTooLarge(Exception):
    """A request's body is longer than its reader takes."""


class Flow(Protocol):
    """What a body asks of its connection."""

    def wanted(self, body: RequestBody) -> None:
        """Somebody waits for the body: a client that expects to be told so is told to go on."""
        ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def tap(self, body: RequestBody) -> Tap | None:
        """Pauses, and lends the socket, if many bytes of the body wait in it."""
        ...

    def untap(self, taken: int | None) -> None:
        """So many bytes of the body were taken; None if nobody knows."""
        ...


class Tap:
    """The socket of a connection, lent to whoever reads the rest of a body elsewhere."""

    def __init__(self, flow: Flow, file: OpenFile, length: int) -> None:
        self.file = file
        """A descriptor of its own: the connection may end meanwhile."""
        self.length = length
        self.taken: int | None = 0
        self._flow = flow

    def __enter__(self) -> Tap:
        return self

    def __exit__(self, *_: object) -> None:
        if self.taken is None:
            sockets.shut(self.file.descriptor)
        del self.file  # whoever still reads there has it too
        self._flow.untap(self.taken)


_BUFFER_BYTES_MAX = 512 * 1024
# What a chunk costs beside its bytes; without it, chunks of one byte would weigh nothing.
_CHUNK_BYTES = 64
# Chunks shorter than this are joined as they arrive: each costs its reader as much as a long one.
_JOINED_BYTES_MAX = 2 * 1024
# What is reserved first for a document whose length is not known: it may well be a small one.
_GROWTH_BYTES = SMALL_BYTES_MAX // DOCUMENT_FACTOR


class RequestBody:
    """The body of a request, while it arrives. The client waits when nobody reads."""

    def __init__(
        self,
        flow: Flow,
        length: int | None,
        *,
        expects_continue: bool = False,
        memory: MemoryBudget | None = None,
    ) -> None:
        self.length = length
        """As announced; None if it comes in chunks."""
        self.expects_continue = expects_continue
        """The client sends nothing before it is told to."""
        self.complete = False
        self.received = 0
        self.discarded = 0
        self.buffered = 0
        self._flow = flow
        self._memory = memory or MemoryBudget()
        self._reserved = 0
        self.is_held = False
        """Whether it keeps its connection from reading on."""
        self.is_discarded = False
        """Whether its rest is dropped as it arrives."""
        self._chunks: deque[bytes] = deque()
        self._failed = False
        self._given_up = False
        self._waiter: asyncio.Future[None] | None = None

    # The connection's side

    def hold(self) -> None:
        """Nothing more is to come before somebody reads, who may want to do it elsewhere."""
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

    def feed_elsewhere(self, count: int) -> None:
        """So many bytes were read at a tap."""
        if count:
            self.expects_continue = False
        self.received += count

    def feed_end(self) -> None:
        self.complete = True
        if self._waiter is not None:
            self._wake()

    def fail(self) -> None:
        """The rest will not come."""
        if not self.complete:
            self._failed = True
            self._wake()

    def give_up(self) -> None:
        """It comes so slowly that the memory it holds is better given to others."""
        self._given_up = True
        self._wake()

    def discard(self) -> None:
        """Nobody will read the rest."""
        self.is_discarded = True
        self._chunks.clear()
        self._taken(self.buffered)

    def release(self) -> None:
        """The request has ended, and with it whatever its bytes were kept for."""
        self.is_discarded = True
        self._chunks.clear()
        held = self.buffered + self._reserved
        if held:
            self.buffered = self._reserved = 0
            self._memory.release(held)

    def keep(self, count: int) -> None:
        """So many bytes more are kept until the request has ended."""
        self._memory.add(count)
        self._reserved += count

    @property
    def held_bytes(self) -> int:
        """What it counts for in the budget of memory."""
        return self.buffered + self._reserved

    @property
    def awaited(self) -> bool:
        """Whether it is waited for more of it, by whoever reads it or to get rid of it."""
        return self.is_discarded or (self._waiter is not None and not self._waiter.done())

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # The reader's side

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
            self._taken(0)  # on with it, if it was held
            self._flow.wanted(self)
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        chunk = self._chunks.popleft()
        self._taken(len(chunk) + _CHUNK_BYTES)
        return chunk

    def tap(self) -> Tap | None:
        """Where the next bytes wait, if none of them are here and there are many."""
        if self._chunks or self._failed or self.complete:
            return None
        tap = self._flow.tap(self)
        if tap is not None:
            self._taken(0)  # the connection itself is paused now
        return tap

    async def _reserve_for_upload(self) -> None:
        """Reserves what an upload keeps in memory, in steps that grow with what has arrived: who
        sends little holds little."""
        room = UPLOAD_BYTES_MAX if self.length is None else min(self.length, UPLOAD_BYTES_MAX)
        wanted = min(room, max(SMALL_BYTES_MAX, 2 * self.received))
        if wanted > self._reserved:
            await self._reserve(wanted - self._reserved)

    async def _reserve(self, count: int) -> None:
        await self._memory.reserve_in_turn(count)
        self._reserved += count

    async def read(self, bytes_max: int) -> bytes:
        """All of it, if it is not more than this."""
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
        room = self.length if self.length is not None else _GROWTH_BYTES
        await self._reserve(room * DOCUMENT_FACTOR)
        document: bytes | bytearray = b""
        async for chunk in self:
            size = len(document) + len(chunk)
            if size > bytes_max:
                raise BodyTooLarge
            if size > room:
                # In steps that grow with it, so that there are few of them.
                more = max(size - room, room)
                await self._reserve(more * DOCUMENT_FACTOR)
                room += more
            if not document:
                document = chunk
            elif isinstance(document, bytearray):
                document += chunk
            else:
                # Not a list of chunks: those of a byte each would take forty times their length.
                document = bytearray(document)
                document += chunk
        return bytes(document)

    def _taken(self, count: int) -> None:
        self.buffered -= count
        self._memory.release(count)
        if self.is_held and self.buffered < _BUFFER_BYTES_MAX // 2:
            self.is_held = False
            self._flow.resume()


class Request:
    """One request. Header names in `headers` are as sent, those of `fields` in lower case; the
    values of a repeated one are joined by commas."""

    __slots__ = (
        "body",
        "client",
        "fields",
        "headers",
        "keep_alive",
        "method",
        "minor_version",
        "secure",
        "target",
    )

    def __init__(
        self,
        method: str,
        target: bytes,
        headers: list[tuple[bytes, bytes]],
        fields: dict[bytes, bytes],
        body: RequestBody,
    ) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.fields = fields
        self.body = body
        self.client = ""
        self.secure = False
        self.keep_alive = True
        self.minor_version = 1


@dataclass(slots=True)
class Response:
    """An answer. The connection adds what concerns the connection, and Date and Server."""

    status: int
    headers: Sequence[tuple[bytes, bytes]] = ()
    body: bytes | AsyncIterator[bytes] | Iterable[FilePart] = b""
    """Parts of files are asked for one at a time, each when the one before is sent."""
    length: int | None = None
    """Of a streamed body, if known, and of the body that a HEAD leaves out. Of parts of files it
    has to be known, unless they are a list."""
    finished: Callable[[], None] | None = None
    """Called once the body is out or given up."""
    has_effect: bool = False
    """Whether a request that only reads by its method has changed something all the same: then no
    error may be sent in place of this answer."""
    notes: dict[str, str] = field(default_factory=dict)
    """For the access log."""
