"""Frames out of a stream of bytes."""

from __future__ import annotations

import pytest

from etagere.protocol.smb.framing import FrameReader, frame_prefix
from etagere.protocol.smb.status import Disconnect

FRAMES = [b"a", b"b" * 1_000, b"c" * 40_000, b"d" * 32_764, b"e" * 32_765, b"f" * 200_000, b"g"]


def feed(reader: FrameReader, data: bytes) -> int:
    """Puts bytes into the buffer of the reader, as a socket would; returns how many fit."""
    buffer = reader.buffer()
    count = min(len(buffer), len(data))
    buffer[:count] = data[:count]
    reader.advance(count)
    return count


@pytest.mark.parametrize("piece", [1, 3, 4, 5, 1_000, 32_768, 1 << 20])
def test_frames(piece: int) -> None:
    reader = FrameReader(1 << 20)
    frames = FRAMES if piece > 5 else FRAMES[:2]
    stream = b"".join(frame_prefix(len(frame)) + frame for frame in frames)
    found = []
    while stream:
        count = feed(reader, stream[:piece])
        assert count
        stream = stream[count:]
        while (frame := reader.next()) is not None:
            found.append(bytes(frame))
    assert found == frames
    assert not reader.is_within_frame


def test_frames_keep_their_memory() -> None:
    reader = FrameReader(1 << 20)
    feed(reader, frame_prefix(3) + b"one" + frame_prefix(3) + b"two")
    first, second = reader.next(), reader.next()
    assert first is not None
    assert second is not None
    feed(reader, frame_prefix(3) + b"xxx")
    assert (bytes(first), bytes(second)) == (b"one", b"two")


def test_keepalives_are_ignored() -> None:
    reader = FrameReader(1 << 20)
    feed(reader, b"\x85\0\0\0" * 3 + frame_prefix(1) + b"x")
    frame = reader.next()
    assert frame is not None
    assert bytes(frame) == b"x"


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1", b"\x81\0\0\x44", b"\0\0\0\0", b"\x85\0\0\1", b"\0\x10\0\1"]
)
def test_what_is_no_frame(data: bytes) -> None:
    reader = FrameReader(1 << 20)
    feed(reader, data)
    with pytest.raises(Disconnect):
        reader.next()


def test_frames_that_nobody_takes_fill_the_buffer() -> None:
    reader = FrameReader(1_000)
    count = 0
    while fitting := feed(reader, frame_prefix(60) + b"x" * 60):
        count += fitting
    # Before the logon there is less of it.
    assert count == 4_096
    reader.grow(1 << 20)
    while fitting := feed(reader, frame_prefix(60) + b"x" * 60):
        count += fitting
    assert count == 32_768
    assert not reader.buffer()
    while reader.next() is not None:
        pass
    assert reader.buffer()
