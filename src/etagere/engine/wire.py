"""The protocol between a front end and the writer.

    request  length u32 · id u32 · name length u16 · origin length u8 · operation name · origin ·
             command
    answer   length u32 · id u32 · outcome u8 · payload

The length counts what follows it. The origin is the ID of the client's request, for the log.
Commands and payloads are MessagePack.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from typing import NamedTuple

from etagere.engine.interface import FaultReason
from etagere.model.base import Part

_REQUEST = struct.Struct("<IIHB")
_ANSWER = struct.Struct("<IIB")
_REQUEST_HEAD = struct.Struct("<IHB")
_ANSWER_HEAD = struct.Struct("<IB")
_LENGTH_BYTES = 4
_LENGTH = struct.Struct("<I")
REQUEST_ID_MAX = 2**32 - 1


class Outcome(enum.IntEnum):
    """The outcome of a request."""

    RESULT = 0
    REFUSED = 1
    CONFLICT = 2
    FAULT = 3
    UNKNOWN = 4


class FaultNote(Part, frozen=True):
    """The payload of a fault."""

    reason: FaultReason
    detail: str


class BadFrame(Exception):
    """A peer sent something that is not a frame, or one that is too long."""


class Request(NamedTuple):
    """One command to run."""

    id: int
    operation: bytes
    command: memoryview
    origin: bytes = b""
    """The ID of the client's request, or the name of the job; empty: unknown."""


def encode_request(request_id: int, operation: bytes, command: bytes, origin: bytes = b"") -> bytes:
    length = _REQUEST.size - _LENGTH_BYTES + len(operation) + len(origin) + len(command)
    head = _REQUEST.pack(length, request_id, len(operation), len(origin))
    return b"".join((head, operation, origin, command))


def decode_request(frame: memoryview) -> Request:
    """Decodes a frame without its length field."""
    if len(frame) < _REQUEST_HEAD.size:
        raise BadFrame(f"a frame of {len(frame)} bytes")
    request_id, name_length, origin_length = _REQUEST_HEAD.unpack_from(frame)
    name_end = _REQUEST_HEAD.size + name_length
    origin_end = name_end + origin_length
    return Request(
        request_id,
        bytes(frame[_REQUEST_HEAD.size : name_end]),
        frame[origin_end:],
        bytes(frame[name_end:origin_end]),
    )


def encode_answer(request_id: int, outcome: Outcome, payload: bytes) -> bytes:
    length = _ANSWER.size - _LENGTH_BYTES + len(payload)
    return _ANSWER.pack(length, request_id, outcome) + payload


def decode_answer(frame: memoryview) -> tuple[int, int, memoryview]:
    """Returns the id, outcome and payload of a frame without its length field."""
    request_id, outcome = _ANSWER_HEAD.unpack_from(frame)
    return request_id, outcome, frame[_ANSWER_HEAD.size :]


class FrameReader:
    """Splits a stream of bytes into frames, without copying those that arrive complete."""

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._parts: list[bytes] = []
        self._have = 0
        self._need = _LENGTH_BYTES

    def feed(self, data: bytes) -> Iterator[memoryview]:
        """Yields the frames that are now complete."""
        if self._have:
            self._parts.append(data)
            self._have += len(data)
            if self._have < self._need:
                return
            data = b"".join(self._parts)
            self._parts = []
            self._have = 0
        view = memoryview(data)
        at, end = 0, len(data)
        self._need = _LENGTH_BYTES
        while end - at >= _LENGTH_BYTES:
            (length,) = _LENGTH.unpack_from(data, at)
            if length > self._frame_bytes_max:
                raise BadFrame(f"a frame of {length} bytes")
            if end - at - _LENGTH_BYTES < length:
                self._need = _LENGTH_BYTES + length
                break
            at += _LENGTH_BYTES
            yield view[at : at + length]
            at += length
        if at < end:
            self._parts = [bytes(view[at:])]
            self._have = end - at
