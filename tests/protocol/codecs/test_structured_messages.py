"""Structured messages: decoded and encoded in any chunks, and refused if malformed."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Iterable

import pytest
from awscrt.checksums import crc64nvme
from hypothesis import given
from hypothesis import strategies as st

from etagere.engine.interface import Refused
from etagere.protocol.codecs import structured_messages
from etagere.protocol.codecs.structured_messages import (
    SEGMENT_BYTES,
    SEGMENTS_MAX,
    Decoder,
    Encoder,
    encoded,
    is_known_kind,
    message_length,
    segment_count,
)


def message(*segments: bytes) -> bytes:
    """Encodes a message independently, from the description of the format."""
    content = b"".join(segments)
    length = 13 + 18 * len(segments) + len(content) + 8
    parts = [struct.pack("<BQHH", 1, length, 1, len(segments))]
    for number, segment in enumerate(segments, 1):
        parts += [struct.pack("<HQ", number, len(segment)), segment]
        parts.append(struct.pack("<Q", crc64nvme(segment)))
    return b"".join([*parts, struct.pack("<Q", crc64nvme(content))])


def cut(data: bytes, size: int) -> Iterable[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def decoded(data: bytes, content_length: int, chunk: int = 1 << 30) -> bytes:
    decoder = Decoder(len(data), content_length)
    content = b"".join(part for piece in cut(data, chunk) for part in decoder.feed(piece))
    decoder.finish()
    return content


# Reading

GOLDEN = bytes.fromhex(
    "01" "2a00000000000000" "0100" "0100"  # version, length, flags, segments
    "0100" "0300000000000000" "616263"  # number, length, "abc"
    "ebfac13fbbcae505" "ebfac13fbbcae505"  # as clients compute them
)  # fmt: skip


def test_the_bytes_of_a_message() -> None:
    assert message(b"abc") == GOLDEN
    assert encoded(b"abc") == GOLDEN
    assert decoded(GOLDEN, 3) == b"abc"


@pytest.mark.parametrize("chunk", [1, 2, 7, 13, 14, 1 << 20])
@pytest.mark.parametrize(
    "segments", [(), (b"",), (b"a",), (b"abc", b"defgh"), (b"", b"a"), (b"x" * 1000,) * 3]
)
def test_reading(segments: tuple[bytes, ...], chunk: int) -> None:
    content = b"".join(segments)
    assert decoded(message(*segments), len(content), chunk) == content


@given(st.lists(st.binary(max_size=40), max_size=6), st.integers(1, 50))
def test_reading_any(segments: list[bytes], chunk: int) -> None:
    content = b"".join(segments)
    if content or len(segments) < 2:
        assert decoded(message(*segments), len(content), chunk) == content


def test_content_is_not_copied() -> None:
    data = message(b"x" * 100)
    decoder = Decoder(len(data), 100)
    assert not any(decoder.feed(data[:23]))
    inside = data[23:90]
    (part,) = decoder.feed(inside)
    assert part is inside


def changed(data: bytes, at: int, value: bytes) -> bytes:
    return data[:at] + value + data[at + len(value) :]


GOOD = message(b"abc", b"defgh")
SECOND = 13 + 10 + 3 + 8


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (changed(GOOD, 0, b"\x00"), "InvalidInput"),  # version
        (changed(GOOD, 0, b"\x02"), "InvalidInput"),
        (changed(GOOD, 1, struct.pack("<Q", len(GOOD) - 1)), "InvalidInput"),
        (changed(GOOD, 1, b"\xff" * 8), "InvalidInput"),
        (changed(GOOD, 9, b"\x00\x00"), "InvalidInput"),  # flags
        (changed(GOOD, 9, b"\x03\x00"), "InvalidInput"),
        (changed(GOOD, 11, b"\x00\x00"), "InvalidInput"),  # count
        (changed(GOOD, 11, b"\x01\x00"), "InvalidInput"),
        (changed(GOOD, 11, b"\x03\x00"), "InvalidInput"),
        (changed(GOOD, 13, b"\x00\x00"), "InvalidInput"),  # number
        (changed(GOOD, SECOND, b"\x01\x00"), "InvalidInput"),
        (changed(GOOD, SECOND, b"\x03\x00"), "InvalidInput"),
        (changed(GOOD, 15, struct.pack("<Q", 9)), "InvalidInput"),  # length
        (changed(GOOD, 15, b"\xff" * 8), "InvalidInput"),
        (changed(GOOD, SECOND + 2, struct.pack("<Q", 4)), "InvalidInput"),
        (changed(GOOD, SECOND + 2, struct.pack("<Q", 6)), "InvalidInput"),
        (changed(GOOD, 15, struct.pack("<Q", 4)), "Crc64Mismatch"),
        (changed(GOOD, 23, b"x"), "Crc64Mismatch"),  # content
        (changed(GOOD, 26, b"\x00"), "Crc64Mismatch"),  # its checksum
        (changed(GOOD, SECOND + 10, b"x"), "Crc64Mismatch"),
        (GOOD[:-1] + bytes([GOOD[-1] ^ 1]), "Crc64Mismatch"),  # trailer
    ],
)
@pytest.mark.parametrize("chunk", [1, 1 << 20])
def test_damage(data: bytes, code: str, chunk: int) -> None:
    with pytest.raises(Refused) as refused:
        decoded(data, 8, chunk)
    assert refused.value.refusal.code == code


def test_errors_contain_both_checksums() -> None:
    with pytest.raises(Refused) as refused:
        decoded(changed(message(b"abc"), 23, b"x"), 3)
    facts = refused.value.refusal.facts
    assert facts["UserSpecifiedCrc"] != facts["ServerCalculatedCrc"]


@pytest.mark.parametrize("length", range(len(GOOD)))
def test_truncated_messages(length: int) -> None:
    decoder = Decoder(len(GOOD), 8)
    list(decoder.feed(GOOD[:length]))
    with pytest.raises(Refused, match="InvalidInput"):
        decoder.finish()


def test_trailing_bytes() -> None:
    decoder = Decoder(len(GOOD), 8)
    list(decoder.feed(GOOD))
    with pytest.raises(Refused, match="InvalidInput"):
        list(decoder.feed(b"x"))


@given(st.binary(max_size=120), st.integers(0, 100))
def test_arbitrary_bytes(data: bytes, content_length: int) -> None:
    with pytest.raises(Refused):
        decoded(data, content_length)


@given(st.integers(0, len(GOOD) - 1), st.integers(1, 255))
def test_any_changed_byte_is_detected(at: int, by: int) -> None:
    with pytest.raises(Refused):
        decoded(changed(GOOD, at, bytes([GOOD[at] ^ by])), 8)


# Lengths


@pytest.mark.parametrize(
    ("length", "content_length", "count"),
    [
        (21, 0, 0),
        (39, 0, 1),
        (40, 1, 1),
        (58, 1, 2),
        (22, 1, None),
        (20, 0, None),
        (0, 0, None),
        (39, 1, None),
        (41, 1, None),
        (40, 10**18, None),
        (message_length(10, SEGMENTS_MAX), 10, SEGMENTS_MAX),
        (message_length(10, SEGMENTS_MAX + 1), 10, None),
    ],
)
def test_number_of_segments(length: int, content_length: int, count: int | None) -> None:
    assert segment_count(length, content_length) == count


@pytest.mark.parametrize(
    ("kind", "known"),
    [
        ("XSM/1.0; properties=crc64", True),
        ("xsm/1.0;properties=CRC64", True),
        ("XSM/1.0", False),
        ("XSM/2.0; properties=crc64", False),
        ("XSM/1.0; properties=md5", False),
        ("", False),
    ],
)
def test_kinds(kind: str, known: bool) -> None:
    assert is_known_kind(kind) is known


# Writing


@given(st.binary(max_size=100), st.integers(1, 30), st.integers(1, 30))
def test_round_trip(content: bytes, segment: int, chunk: int) -> None:
    encoder = Encoder(len(content), segment)
    parts = [encoder.start()]
    for piece in cut(content, chunk):
        parts += encoder.feed(piece)
    data = b"".join([*parts, encoder.end()])
    assert len(data) == encoder.length
    assert data == message(*(cut(content, segment) if content else [b""]))
    assert decoded(data, len(content)) == content


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_segments_of_four_mebibytes(more: int) -> None:
    content = bytes(SEGMENT_BYTES + more)
    assert encoded(content) == message(*cut(content, 4 << 20))


def test_very_long_contents_have_longer_segments() -> None:
    most = SEGMENTS_MAX * SEGMENT_BYTES
    assert Encoder(most).length == message_length(most, SEGMENTS_MAX)
    beyond = 190 << 40
    count = segment_count(Encoder(beyond).length, beyond)
    assert count is not None
    assert SEGMENTS_MAX // 2 < count <= SEGMENTS_MAX


def test_other_lengths_than_announced() -> None:
    encoder = Encoder(3)
    encoder.start()
    with pytest.raises(ValueError, match="less"):
        encoder.end()
    with pytest.raises(ValueError, match="more"):
        list(encoder.feed(b"abcd"))


def test_streams() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"ab"
        yield b"cdefgh"

    async def collected() -> bytes:
        return b"".join([part async for part in structured_messages.stream(Encoder(8), chunks())])

    assert asyncio.run(collected()) == message(b"abcdefgh")
