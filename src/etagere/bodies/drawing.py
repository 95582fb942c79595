"""Bytes drawn from a socket into a file.

The thread that takes them from the kernel sums them up and hands them back at once, while they
are still in the caches of its core.
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
"""Less than this is not worth a thread's turn."""
BYTES_MAX: Final = 8 * MIB
"""In a turn of a thread, which others are waiting for."""
_BUFFER_BYTES = 512 * 1024


class Drawn(NamedTuple):
    """What a thread has drawn."""

    length: int
    """Taken from the socket; all of it is written, unless there is an error."""
    crc: int
    error: OSError | None = None


class _Own(threading.local):
    """What each thread has for itself."""

    def __init__(self) -> None:
        self.buffer = memoryview(bytearray(_BUFFER_BYTES))


_own = _Own()


def draw(
    disk: Disk,
    source: OpenFile,
    target: OpenFile,
    offset: int,
    length: int,
    md5: hashlib._Hash | None,
) -> Drawn:
    """Writes what a socket has, up to this length, without waiting for more."""
    drawn = crc = 0
    try:
        disk.allocate(target.descriptor, offset, length)
        while drawn < length:
            # Whole pages that lie where pages of the file do cost the kernel half as much.
            wanted = min(_BUFFER_BYTES - (offset + drawn) % _BUFFER_BYTES, length - drawn)
            data = _read(source.descriptor, _own.buffer[:wanted])
            drawn += len(data)
            if data:
                crc = crc64nvme(data, crc)
                if md5 is not None:
                    md5.update(data)
                disk.write(target.descriptor, [data], offset + drawn - len(data))
            if len(data) < wanted:
                break
    except OSError as error:
        return Drawn(drawn, crc, error)
    return Drawn(drawn, crc)


def _read(descriptor: int, buffer: memoryview) -> memoryview:
    """As much of the buffer as a socket fills at once."""
    count = 0
    while count < len(buffer):
        try:
            received = readv(descriptor, [buffer[count:]])
        except OSError:
            # There is no more now, or never will be: its connection will find out.
            break
        if not received:
            break
        count += received
    return buffer[:count]
