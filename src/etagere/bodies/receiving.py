"""Receiving bytes from a socket into a file or into memory.

One thread reads the bytes, computes their checksums and writes them, while they are still in the
caches of its core.
"""

from __future__ import annotations

import hashlib
import threading
from os import readv
from typing import Final, NamedTuple

from awscrt.checksums import crc64nvme

from etagere.bodies.disk import Disk
from etagere.config import MIB
from etagere.descriptors import OpenFile

BYTES_MIN: Final = 256 * 1024
"""Less than this is not worth the use of a thread."""
BYTES_MAX: Final = 8 * MIB
"""The most that a thread receives at once, because others are waiting for it."""
_BUFFER_BYTES = 512 * 1024


class Received(NamedTuple):
    """The result of receiving."""

    length: int
    """The bytes read from the socket; all of them are written unless there is an error."""
    crc: int
    error: OSError | None = None


class _ThreadBuffer(threading.local):
    """The buffer of a thread."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(_BUFFER_BYTES))


_thread_buffer = _ThreadBuffer()


def receive_to_file(
    disk: Disk,
    source: OpenFile,
    target: OpenFile,
    offset: int,
    length: int,
    md5: hashlib._Hash | None,
) -> Received:
    """Writes the bytes that are available in a socket, up to this length, without waiting for
    more."""
    total = crc = 0
    try:
        disk.allocate(target.descriptor, offset, length)
        while total < length:
            # Writing whole, aligned pages costs the kernel half as much.
            wanted = min(_BUFFER_BYTES - (offset + total) % _BUFFER_BYTES, length - total)
            data = _read(source.descriptor, _thread_buffer.view[:wanted])
            total += len(data)
            if data:
                crc = crc64nvme(data, crc)
                if md5 is not None:
                    md5.update(data)
                disk.write(target.descriptor, [data], offset + total - len(data))
            if len(data) < wanted:
                break
    except OSError as error:
        return Received(total, crc, error)
    return Received(total, crc)


def receive_to_memory(source: OpenFile, target: memoryview, md5: hashlib._Hash | None) -> Received:
    """Reads the bytes that are available in a socket, as many as the target takes, without waiting
    for more."""
    total = crc = 0
    while total < len(target):
        wanted = min(_BUFFER_BYTES, len(target) - total)
        data = _read(source.descriptor, target[total : total + wanted])
        total += len(data)
        if data:
            crc = crc64nvme(data, crc)
            if md5 is not None:
                md5.update(data)
        if len(data) < wanted:
            break
    return Received(total, crc)


def _read(descriptor: int, buffer: memoryview) -> memoryview:
    """Returns the part of the buffer that the socket fills without waiting."""
    count = 0
    while count < len(buffer):
        try:
            count_read = readv(descriptor, [buffer[count:]])
        except OSError:
            # There are no more bytes now, or the connection failed, which its owner will detect.
            break
        if not count_read:
            break
        count += count_read
    return buffer[:count]
