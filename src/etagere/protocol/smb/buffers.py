"""Buffers of messages, and the variable parts of them, whose offsets and lengths clients choose."""

from __future__ import annotations

from typing import Final

from etagere.nt_status import NtStatus
from etagere.protocol.smb.header import HEADER_BYTES
from etagere.protocol.smb.status import SmbError

Buffer = bytes | bytearray | memoryview

COPY_BYTES_MAX: Final = 16 * 1024
"""Up to this size, copying buffers takes less time than a cipher for several of them (4 µs)."""


def variable_part(body: memoryview, offset: int, length: int, fixed_bytes: int) -> memoryview:
    """Returns a part of the body of a message. `offset` counts from the header, and must not lie in
    the fixed part of the body."""
    if not length:
        return body[:0]
    start = offset - HEADER_BYTES
    if start < fixed_bytes or start + length > len(body):
        raise SmbError(NtStatus.INVALID_PARAMETER)
    return body[start : start + length]


def decode_utf16(data: memoryview) -> str:
    """Returns a name. Unpaired surrogates stay, for the rules of names to refuse them."""
    if len(data) % 2:
        raise SmbError(NtStatus.INVALID_PARAMETER)
    return str(data, "utf-16-le", "surrogatepass")
