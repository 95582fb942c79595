"""Structured messages: bodies that contain checksums of their segments.

A message is a header, segments and a trailer. Its numbers are little-endian:

    header   version (1 byte), length of the whole message (8), flags (2), count of segments (2)
    segment  number, from 1 (2 bytes), length of its content (8), content, CRC64 of the content (8)
    trailer  CRC64 of all contents (8)

With the checksum after the data, the sender reads everything only once, and the receiver detects
damage before the whole message has arrived. Neither side buffers more than a chunk.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

from awscrt.checksums import combine_crc64nvme, crc64nvme

from etagere.engine.interface import Refused
from etagere.errors import Refusal

KIND: Final = "XSM/1.0; properties=crc64"
"""The value of the header `x-ms-structured-body` for the only supported kind."""
SEGMENT_BYTES: Final = 4 << 20
"""The length of sent segments, unless there would be too many."""
SEGMENTS_MAX: Final = 0xFFFF

_VERSION: Final = 1
_CRC64_FLAG: Final = 1
_HEADER: Final = struct.Struct("<BQHH")
_SEGMENT_HEADER: Final = struct.Struct("<HQ")
_CRC: Final = struct.Struct("<Q")
_SEGMENT_OVERHEAD: Final = _SEGMENT_HEADER.size + _CRC.size
_OVERHEAD: Final = _HEADER.size + _CRC.size


def is_known_kind(written: str) -> bool:
    return _plain(written) == _plain(KIND)


def _plain(kind: str) -> str:
    return kind.replace(" ", "").lower()


def message_length(content_length: int, segments: int) -> int:
    return _OVERHEAD + segments * _SEGMENT_OVERHEAD + content_length


def segment_count(length: int, content_length: int) -> int | None:
    """Returns the number of segments of a message of this length; None if there is no such
    message."""
    count, rest = divmod(length - content_length - _OVERHEAD, _SEGMENT_OVERHEAD)
    # An empty message may have no segment.
    fewest = 1 if content_length else 0
    return count if not rest and fewest <= count <= SEGMENTS_MAX else None


# Decoding


class Decoder:
    """Decodes a message in chunks of any size."""

    def __init__(self, length: int, content_length: int) -> None:
        """The lengths are those in the headers of the request."""
        self._length = length
        self._content_length = content_length
        self._content_rest = content_length
        self._segments = 0
        self._number = 0
        self._segment_length = 0
        self._segment_rest = 0
        self._segment_crc = 0
        self._crc = 0
        self._read: Callable[[bytes], None] = self._read_header
        self._part = b""
        self._part_bytes = _HEADER.size

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yields the content of the next chunk, and b"" between segments, so that other requests
        can run there. Chunks that are only content are not copied."""
        at = 0
        while at < len(data):
            if self._segment_rest:
                content = data[at : at + self._segment_rest]
                at += len(content)
                self._segment_rest -= len(content)
                self._segment_crc = crc64nvme(content, self._segment_crc)
                yield content
                continue
            if not self._part_bytes:
                raise _malformed("It is longer than its segments are.")
            more = data[at : at + self._part_bytes - len(self._part)]
            at += len(more)
            self._part += more
            if len(self._part) == self._part_bytes:
                part, self._part = self._part, b""
                self._read(part)
                yield b""

    def finish(self) -> None:
        """Ends the message, which must be complete."""
        if self._part_bytes:
            raise _malformed("It ends before its last segment does.")

    def _read_header(self, part: bytes) -> None:
        version, length, flags, self._segments = _HEADER.unpack(part)
        if version != _VERSION:
            raise _malformed(f"Its version is {version}.")
        if flags != _CRC64_FLAG:
            raise _malformed(f"Its flags are {flags}.")
        if length != self._length:
            raise _malformed(f"Its length is {self._length}, and not {length} as it says.")
        if self._segments != segment_count(length, self._content_length):
            raise _malformed(f"It cannot have {self._segments} segments.")
        self._expect_segment()

    def _expect_segment(self) -> None:
        if self._number < self._segments:
            self._expect(_SEGMENT_HEADER, self._read_segment_header)
        else:
            self._expect(_CRC, self._read_trailer)

    def _read_segment_header(self, part: bytes) -> None:
        number, length = _SEGMENT_HEADER.unpack(part)
        self._number += 1
        if number != self._number:
            raise _malformed(f"Segment {self._number} has the number {number}.")
        if length > self._content_rest:
            raise _malformed(f"Segment {number} is longer than the rest of the content.")
        if number == self._segments and length < self._content_rest:
            raise _malformed("The segments are shorter than the content.")
        self._content_rest -= length
        self._segment_length = self._segment_rest = length
        self._segment_crc = 0
        self._expect(_CRC, self._read_segment_crc)

    def _read_segment_crc(self, part: bytes) -> None:
        _require_crc(part, self._segment_crc)
        self._crc = combine_crc64nvme(self._crc, self._segment_crc, self._segment_length)
        self._expect_segment()

    def _read_trailer(self, part: bytes) -> None:
        _require_crc(part, self._crc)
        self._part_bytes = 0

    def _expect(self, part: struct.Struct, read: Callable[[bytes], None]) -> None:
        self._part_bytes, self._read = part.size, read


def _require_crc(sent: bytes, crc: int) -> None:
    calculated = _CRC.pack(crc)
    if sent != calculated:
        raise Refused(crc_mismatch(sent, calculated))


def crc_mismatch(sent: bytes, calculated: bytes) -> Refusal:
    facts: dict[str, str | int] = {
        "UserSpecifiedCrc": base64.b64encode(sent).decode(),
        "ServerCalculatedCrc": base64.b64encode(calculated).decode(),
    }
    return Refusal("Crc64Mismatch", facts)


def _malformed(reason: str) -> Refused:
    message = f"The structured message of the request is not valid. {reason}"
    return Refused(Refusal("InvalidInput", {"Reason": reason}, message_override=message))


# Encoding


class Encoder:
    """Encodes a message in chunks of any size."""

    def __init__(self, content_length: int, segment_bytes: int = SEGMENT_BYTES) -> None:
        # The number of a segment has 16 bits, so very long contents have longer segments.
        self._segment_bytes = max(segment_bytes, -(-content_length // SEGMENTS_MAX))
        # Clients expect a segment even if it is empty.
        self._segments = -(-content_length // self._segment_bytes) or 1
        self._rest = content_length
        self._number = 0
        self._segment_rest = 0
        self._segment_length = 0
        self._segment_crc = 0
        self._crc = 0
        self.length = message_length(content_length, self._segments)
        """The length of the message."""

    def start(self) -> bytes:
        header = _HEADER.pack(_VERSION, self.length, _CRC64_FLAG, self._segments)
        return header + self._next_segment()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yields the encoded content, which is copied only at the ends of segments."""
        at = 0
        while at < len(data):
            if not self._segment_rest:
                yield self._segment_end() + self._next_segment()
            content = data[at : at + self._segment_rest]
            if not content:
                raise ValueError("more content came than was announced")
            at += len(content)
            self._segment_rest -= len(content)
            self._segment_crc = crc64nvme(content, self._segment_crc)
            yield content

    def end(self) -> bytes:
        if self._rest or self._segment_rest:
            raise ValueError("less content came than was announced")
        return self._segment_end() + _CRC.pack(self._crc)

    def _next_segment(self) -> bytes:
        self._number += 1
        self._segment_length = self._segment_rest = min(self._segment_bytes, self._rest)
        self._rest -= self._segment_length
        self._segment_crc = 0
        return _SEGMENT_HEADER.pack(self._number, self._segment_length)

    def _segment_end(self) -> bytes:
        self._crc = combine_crc64nvme(self._crc, self._segment_crc, self._segment_length)
        return _CRC.pack(self._segment_crc)


def encoded(content: bytes) -> bytes:
    """Encodes a short content."""
    encoder = Encoder(len(content))
    return b"".join((encoder.start(), *encoder.feed(content), encoder.end()))


async def stream(encoder: Encoder, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Encodes a content of any length, which is read as fast as the message is consumed."""
    yield encoder.start()
    async for chunk in chunks:
        for part in encoder.feed(chunk):
            yield part
    yield encoder.end()
