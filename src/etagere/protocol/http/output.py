"""The writing half of a connection: responses, no faster than the client reads them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor

from etagere.descriptors import OpenFile
from etagere.protocol.http import sockets
from etagere.protocol.http.messages import ClientGone, FilePart
from etagere.protocol.http.pace import Pace

_BUFFER_BYTES = 256 * 1024
_SENDFILE_BYTES = 4 << 20
_SENDFILE_COST_BYTES = 64 * 1024
"""Sending fewer bytes takes as long as sending this many."""
_THREAD_BYTES_MIN = 512 * 1024
"""Sending fewer bytes is not worth the use of a thread."""
_SENDER_THREADS = max(2, len(os.sched_getaffinity(0)))
"""More threads than cores would only compete; one would wait for the disk while others could
send."""
_senders = ThreadPoolExecutor(_SENDER_THREADS, "senders")
_SHORT = "a file is shorter than the part to be sent"


def read_files(parts: Iterable[FilePart]) -> bytes:
    """Reads all parts into memory."""
    chunks: list[bytes] = []
    for part in parts:
        try:
            chunks.append(os.pread(part.descriptor, part.length, part.offset))
        except OSError as error:
            raise part.unreadable(error) from None
        if len(chunks[-1]) < part.length:
            raise part.unreadable(OSError(_SHORT))
    return b"".join(chunks)


def _prefetch_and_send(
    socket: OpenFile, part: FilePart, at: int, count: int, prefetch: range
) -> int:
    """Returns how many bytes the socket accepted, or the negative number of an error: the traceback
    of an exception would keep the socket open."""
    try:
        if prefetch:
            # Otherwise each request to the disk would be for less, and sending would wait for it.
            length = len(prefetch)
            os.posix_fadvise(part.descriptor, prefetch.start, length, os.POSIX_FADV_WILLNEED)
        return os.sendfile(socket.descriptor, part.descriptor, at, count)
    except OSError as error:
        return -(error.errno or errno.EIO)


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
        self._socket: OpenFile | None = None
        """While files are sent: a duplicate of the transport's socket."""
        self.lost = False
        transport.set_write_buffer_limits(_BUFFER_BYTES)

    # Called by the transport

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

    # Measuring the client

    def pending(self) -> bool:
        """Returns whether anything waits for the client to read it."""
        return self._writable is not None or self._transport.get_write_buffer_size() > 0

    def measure(self, elapsed_seconds: float, bytes_per_second_min: float) -> None:
        """Measures how fast the client reads, while something waits for it."""
        if self.pending():
            self.pace.measure(elapsed_seconds, self.taken(), bytes_per_second_min)
        else:
            self.pace.behind_seconds = 0.0

    def taken(self) -> int:
        """Returns how many bytes the client has acknowledged."""
        return self._written - self._untaken()

    def _untaken(self) -> int:
        """Returns how many bytes were written and not acknowledged, here and in the kernel."""
        queued = 0
        with contextlib.suppress(OSError):
            queued = sockets.untaken_bytes(self._transport.get_extra_info("socket"))
        return self._transport.get_write_buffer_size() + queued

    # Sending a response

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
        """Sends all chunks, whose lengths must add up to `length` if it is given."""
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
                if chunk:  # an empty chunk would end the body
                    self.write(b"%x\r\n" % len(chunk))
                    self.write(chunk)
                    self.write(b"\r\n")
                    await self.drained()
        self.write(b"0\r\n\r\n")

    async def send_files(self, parts: Iterable[FilePart]) -> None:
        """Sends parts of files. Each part is requested after the previous one is sent: each keeps a
        file open, and there may be thousands."""
        if not self._secure:
            await self._emptied()
            # A duplicate, because the transport does not allow others to watch its descriptor.
            self._socket = sockets.duplicate(self._transport.get_extra_info("socket"))
            if self._socket is not None:
                try:
                    for part in parts:
                        await self._sendfile(self._socket.descriptor, part)
                finally:
                    # Closes it now, even if the traceback of an error is kept.
                    self._socket = None
                return
        for part in parts:
            await self._copy(part)

    async def _copy(self, part: FilePart) -> None:
        at, end = part.offset, part.offset + part.length
        while at < end:
            count = min(_BUFFER_BYTES, end - at)
            try:
                chunk = await self._loop.run_in_executor(None, os.pread, part.descriptor, count, at)
            except OSError as error:
                raise part.unreadable(error) from None
            if not chunk:
                raise part.unreadable(OSError(_SHORT))
            self.write(chunk)
            at += len(chunk)
            await self.drained()

    async def _emptied(self) -> None:
        """Waits until the transport's buffer is empty: its bytes come before those of the file."""
        self._transport.set_write_buffer_limits(0)
        while self._transport.get_write_buffer_size():
            self.pause()
            await self.drained()
        if self._transport.is_closing():
            raise ClientGone
        self._transport.set_write_buffer_limits(_BUFFER_BYTES)

    async def _sendfile(self, socket: int, part: FilePart) -> None:
        """Sends a part of a file from the page cache to the socket."""
        at, end = part.offset, part.offset + part.length
        prefetched = at
        while at < end:
            if self.lost:
                raise ClientGone
            count = min(_SENDFILE_BYTES, end - at)
            prefetch = range(prefetched, prefetched)
            if prefetched < min(end, at + _SENDFILE_BYTES):
                prefetch = range(prefetched, min(end, prefetched + 2 * _SENDFILE_BYTES))
                prefetched = prefetch.stop
            try:
                at += await self._send(part, at, count, prefetch)
            except BlockingIOError:
                await self._ready(socket)
            except (ConnectionError, TimeoutError):
                raise ClientGone from None
            except OSError as error:
                raise part.unreadable(error) from None

    async def _send(self, part: FilePart, at: int, count: int, prefetch: range) -> int:
        """Sends as many of these bytes as the socket accepts now. Most of the work is that of the
        kernel: with threads, a process can use several cores for it."""
        assert self._socket is not None
        in_thread = count >= _THREAD_BYTES_MIN
        if in_thread:
            sent = await self._loop.run_in_executor(
                _senders, _prefetch_and_send, self._socket, part, at, count, prefetch
            )
        else:
            sent = _prefetch_and_send(self._socket, part, at, count, prefetch)
        if sent < 0:
            raise OSError(-sent, os.strerror(-sent))
        if not sent:
            raise OSError(_SHORT)
        self._written += sent
        if in_thread:
            self._held_loop_bytes = 0
        else:
            await self._let_others_run(sent)
        return sent

    async def _let_others_run(self, sent: int) -> None:
        """Yields to the event loop every few MiB: neither a fast client nor very many short parts
        may keep others waiting."""
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
    """Closes a generator at once, rather than when it is garbage collected."""
    try:
        yield
    finally:
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()
