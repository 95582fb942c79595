"""What goes out on a connection: not faster than its client takes it, and not for ever."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterable

from etagere.protocol.http import sockets
from etagere.protocol.http.messages import ClientGone, FilePart
from etagere.protocol.http.pace import Pace

_BUFFER_BYTES = 256 * 1024
_SENDFILE_BYTES = 4 << 20
_SENDFILE_COST_BYTES = 64 * 1024
"""To send fewer takes as long."""
_SHORT = "a file ends before its part does"


def read_files(parts: Iterable[FilePart]) -> bytes:
    """All of them at once."""
    chunks: list[bytes] = []
    for part in parts:
        chunks.append(os.pread(part.descriptor, part.length, part.offset))
        if len(chunks[-1]) < part.length:
            raise OSError(_SHORT)
    return b"".join(chunks)


class Output:
    """The writing half of a connection."""

    def __init__(self, transport: asyncio.Transport, *, secure: bool) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = transport
        self._secure = secure
        self._writable: asyncio.Future[None] | None = None
        self._written = 0
        self.pace = Pace()
        self._held_loop_bytes = 0
        self.lost = False
        transport.set_write_buffer_limits(_BUFFER_BYTES)

    # The transport's side

    def pause(self) -> None:
        if self._writable is None:
            self._writable = self._loop.create_future()

    def resume(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    def lose(self) -> None:
        self.lost = True
        self.resume()

    # The sweeper's side

    def pending(self) -> bool:
        """Whether anything waits for the client to take it."""
        return self._writable is not None or self._transport.get_write_buffer_size() > 0

    def measure(self, elapsed_seconds: float, bytes_per_second_min: float) -> None:
        """Measures how fast the client takes what waits for it; what does not wait is no matter
        of the client's."""
        if self.pending():
            self.pace.measure(elapsed_seconds, self.taken(), bytes_per_second_min)
        else:
            self.pace.behind_seconds = 0.0

    def taken(self) -> int:
        """Bytes that the client has acknowledged."""
        return self._written - self._untaken()

    def _untaken(self) -> int:
        """Bytes that were written and not acknowledged, here and in the kernel."""
        queued = 0
        with contextlib.suppress(OSError):
            queued = sockets.untaken_bytes(self._transport.get_extra_info("socket"))
        return self._transport.get_write_buffer_size() + queued

    # The answer's side

    def write(self, data: bytes) -> None:
        if self.lost:
            raise ClientGone
        self._written += len(data)
        self._transport.write(data)

    async def drained(self) -> None:
        if self._writable is not None:
            await self._writable
        if self.lost:
            raise ClientGone

    async def send_stream(self, chunks: AsyncIterator[bytes], length: int | None) -> None:
        """All chunks, which have to come to this length."""
        sent = 0
        async with _closing(chunks):
            async for chunk in chunks:
                sent += len(chunk)
                if length is not None and sent > length:
                    raise OSError("a body is longer than announced")
                self.write(chunk)
                await self.drained()
        if length is not None and sent < length:
            raise OSError("a body ends before its announced length")

    async def send_chunked(self, chunks: AsyncIterator[bytes]) -> None:
        async with _closing(chunks):
            async for chunk in chunks:
                if chunk:  # an empty one would be the end
                    self.write(b"%x\r\n" % len(chunk))
                    self.write(chunk)
                    self.write(b"\r\n")
                    await self.drained()
        self.write(b"0\r\n\r\n")

    async def send_files(self, parts: Iterable[FilePart]) -> None:
        """All of them. None is asked for before the one ahead of it is sent: each has a file
        open, and there may be thousands."""
        if not self._secure:
            await self._emptied()
            # A descriptor of our own: the transport would not let us watch its socket.
            file = sockets.duplicate(self._transport.get_extra_info("socket"))
            if file is not None:
                try:
                    for part in parts:
                        await self._sendfile(file.descriptor, part)
                finally:
                    del file  # closed here and now, whoever keeps the traceback of an error
                return
        for part in parts:
            await self._copy(part)

    async def _copy(self, part: FilePart) -> None:
        at, end = part.offset, part.offset + part.length
        while at < end:
            count = min(_BUFFER_BYTES, end - at)
            chunk = await self._loop.run_in_executor(None, os.pread, part.descriptor, count, at)
            if not chunk:
                raise OSError(_SHORT)
            self.write(chunk)
            at += len(chunk)
            await self.drained()

    async def _emptied(self) -> None:
        """Waits until the transport holds nothing back, which must not be overtaken."""
        self._transport.set_write_buffer_limits(0)
        while self._transport.get_write_buffer_size():
            self.pause()
            await self.drained()
        if self._transport.is_closing():
            raise ClientGone
        self._transport.set_write_buffer_limits(_BUFFER_BYTES)

    async def _sendfile(self, socket: int, part: FilePart) -> None:
        """Straight from the page cache to the socket."""
        at, end = part.offset, part.offset + part.length
        asked_for = at
        while at < end:
            if self.lost:
                raise ClientGone
            while asked_for < min(end, at + 2 * _SENDFILE_BYTES):
                # Asked for ahead, or the loop would wait for the disk.
                os.posix_fadvise(
                    part.descriptor, asked_for, _SENDFILE_BYTES, os.POSIX_FADV_WILLNEED
                )
                asked_for += _SENDFILE_BYTES
            try:
                sent = os.sendfile(socket, part.descriptor, at, min(_SENDFILE_BYTES, end - at))
            except BlockingIOError:
                await self._ready(socket)
                continue
            except (ConnectionError, TimeoutError):
                raise ClientGone from None
            if not sent:
                raise OSError(_SHORT)
            at += sent
            self._written += sent
            await self._let_others_run(sent)

    async def _let_others_run(self, sent: int) -> None:
        """A fast client must not keep the loop from everybody else, nor must very many short
        parts of files."""
        self._held_loop_bytes += max(sent, _SENDFILE_COST_BYTES)
        if self._held_loop_bytes >= _SENDFILE_BYTES:
            self._held_loop_bytes = 0
            await asyncio.sleep(0)

    async def _ready(self, socket: int) -> None:
        self._held_loop_bytes = 0
        self._writable = ready = self._loop.create_future()
        self._loop.add_writer(socket, self.resume)
        try:
            await ready
        finally:
            self._writable = None
            self._loop.remove_writer(socket)


@contextlib.asynccontextmanager
async def _closing(chunks: AsyncIterator[bytes]) -> AsyncIterator[None]:
    """Ends a generator here and now, not whenever somebody collects it."""
    try:
        yield
    finally:
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()
