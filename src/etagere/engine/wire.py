"""The protocol between a front end and the writer.

    request  length u32 · id u32 · name length u16 · origin length u8 · account length u8 ·
             epoch u64 · deadline u64 · operation name · origin · account · command
    answer   length u32 · id u32 · outcome u8 · payload

The length counts what follows it. The origin is the ID of the client's request, for the log. The
epoch is that of the task of the front end (`tasks.py`), 0 if it has none. The account is the one
that the client writes to, if accounts may move (`account_moves.py`). The deadline is the time after
which the operation must not be committed (`deadlines.py`); those of a connection never decrease.
Commands and payloads are MessagePack.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator

import msgspec

from etagere.engine.interface import FaultReason
from etagere.model.base import Part

_REQUEST = struct.Struct("<IIHBBQQ")
_ANSWER = struct.Struct("<IIB")
_REQUEST_HEAD = struct.Struct("<IHBBQQ")
_ANSWER_HEAD = struct.Struct("<IB")
_REQUEST_HEAD_BYTES = _REQUEST_HEAD.size
_LENGTH_BYTES = 4
_LENGTH = struct.Struct("<I")
REQUEST_ID_MAX = 2**32 - 1
NO_DEADLINE = 2**64 - 1


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


class Request(msgspec.Struct, frozen=True, gc=False):
    """One command to run."""

    id: int
    operation: bytes
    command: memoryview
    origin: bytes = b""
    """The ID of the client's request, or the name of the job; empty: unknown."""
    epoch: int = 0
    """The epoch that the operation requires; 0: none."""
    account: bytes = b""
    """The account that must be writable; empty: none."""
    deadline: int = NO_DEADLINE
    """The time after which the operation must not be committed."""


def encode_request(
    request_id: int,
    operation: bytes,
    command: bytes,
    origin: bytes = b"",
    epoch: int = 0,
    account: bytes = b"",
    deadline: int = NO_DEADLINE,
) -> bytes:
    rest = b"".join((operation, origin, account, command))
    length = _REQUEST_HEAD_BYTES + len(rest)
    lengths = len(operation), len(origin), len(account)
    return _REQUEST.pack(length, request_id, *lengths, epoch, deadline) + rest


def decode_request(frame: memoryview) -> Request:
    """Decodes a frame without its length field."""
    if len(frame) < _REQUEST_HEAD_BYTES:
        raise BadFrame(f"a frame of {len(frame)} bytes")
    request_id, name_length, origin_length, account_length, epoch, deadline = (
        _REQUEST_HEAD.unpack_from(frame)
    )
    name_end = _REQUEST_HEAD_BYTES + name_length
    origin_end = name_end + origin_length
    account_end = origin_end + account_length
    return Request(
        request_id,
        bytes(frame[_REQUEST_HEAD_BYTES:name_end]),
        frame[account_end:],
        bytes(frame[name_end:origin_end]),
        epoch,
        bytes(frame[origin_end:account_end]) if account_length else b"",
        deadline,
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
