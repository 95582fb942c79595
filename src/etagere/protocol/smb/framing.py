"""Frames: each has its length before it, as over NetBIOS ([MS-SMB2] 2.1, [RFC 1002] 4.3).

Small frames are copied out of one buffer, into which the socket is read. A frame that does not fit
into it gets a buffer of its own, into which the rest is read directly.
"""

from __future__ import annotations

from typing import Final

from etagere.protocol.smb.status import Disconnect

LENGTH_BYTES: Final = 4
_FIRST_STAGING_BYTES: Final = 4 * 1024
"""Enough for a logon. Clients that are not authenticated get no more."""
_STAGING_BYTES: Final = 32 * 1024
_SESSION_MESSAGE: Final = 0x00
_KEEPALIVE: Final = 0x85


def frame_prefix(length: int) -> bytes:
    """Returns what is sent before a frame."""
    return length.to_bytes(LENGTH_BYTES, "big")


class FrameReader:
    """Splits what a client sends into frames."""

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        """The longest frame that is accepted now."""
        self._staging = bytearray(_FIRST_STAGING_BYTES)
        self._staging_view = memoryview(self._staging)
        self._start = 0
        self._end = 0
        self._frame: memoryview | None = None
        """A frame that does not fit into the staging buffer."""
        self._filled = 0

    def grow(self, frame_bytes_max: int) -> None:
        """Accepts longer frames from now on, and reads more of them at once."""
        self.frame_bytes_max = frame_bytes_max
        if len(self._staging) < _STAGING_BYTES:
            left = self._end - self._start
            staging = bytearray(_STAGING_BYTES)
            staging[:left] = self._staging_view[self._start : self._end]
            self._staging, self._staging_view = staging, memoryview(staging)
            self._start, self._end = 0, left

    @property
    def is_within_frame(self) -> bool:
        """Whether a frame has begun to arrive."""
        return self._frame is not None or self._end > self._start

    @property
    def large_frame_bytes(self) -> int:
        """The length of the buffer of a frame that has one of its own."""
        return 0 if self._frame is None else len(self._frame)

    def buffer(self) -> memoryview:
        """Returns where the next bytes have to be put; it may be empty."""
        if self._frame is not None:
            return self._frame[self._filled :]
        if self._start == self._end:
            self._start = self._end = 0
        elif self._end == len(self._staging):
            # Only a part of a frame is left, or nobody takes the frames.
            left = self._end - self._start
            self._staging[:left] = self._staging[self._start : self._end]
            self._start, self._end = 0, left
        return self._staging_view[self._end :]

    def advance(self, count: int) -> None:
        """Takes note of bytes that were put into the buffer."""
        if self._frame is not None:
            self._filled += count
        else:
            self._end += count

    def next(self) -> memoryview | None:
        """Returns the next frame; None: it has not arrived completely. Raises `Disconnect`."""
        frame = self._frame
        if frame is not None:
            if self._filled < len(frame):
                return None
            self._frame = None
            return frame
        while self._end - self._start >= LENGTH_BYTES:
            body = self._start + LENGTH_BYTES
            prefix = self._staging[self._start : body]
            length = int.from_bytes(prefix[1:], "big")
            kind = prefix[0]
            if kind == _KEEPALIVE and not length:
                self._start = body
                continue
            if kind != _SESSION_MESSAGE or not length:
                raise Disconnect("what it sends is not SMB")
            if length > self.frame_bytes_max:
                raise Disconnect("a frame is too long")
            end = body + length
            if end <= self._end:
                self._start = end
                return memoryview(bytes(self._staging_view[body:end]))
            if length + LENGTH_BYTES > len(self._staging):
                self._begin_large(body, length)
            return None
        return None

    def _begin_large(self, body: int, length: int) -> None:
        frame = memoryview(bytearray(length))
        self._filled = self._end - body
        frame[: self._filled] = self._staging_view[body : self._end]
        self._frame = frame
        self._start = self._end = 0
