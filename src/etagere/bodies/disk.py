"""The system calls that the body store uses, in one place, so that tests can observe them and make
them fail."""

from __future__ import annotations

import ctypes
import errno
import os
from collections import deque
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from etagere import directories
from etagere.engine.interface import Fault, FaultReason

_FULL = {errno.ENOSPC, errno.EDQUOT}
_CANNOT_ALLOCATE = {errno.EINTR, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}
"""The errors of kernels and file systems that cannot allocate in advance. With these,
`posix_fallocate` would write to every block instead."""
_fallocate = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
if _fallocate is not None:
    _fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
_VECTORS_MAX = 512
"""Buffers per call, below the kernel's limit."""


class Disk:
    """The files of this machine. Without `durable`, nothing is synced: for temporary stores."""

    def __init__(self, *, durable: bool = True) -> None:
        self._durable = durable

    def create(self, path: Path) -> int:
        """Creates a file, open for reading and writing; its name is durable on return."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            self.sync_directory(path.parent)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def open(self, path: Path) -> int:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def write(self, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        """Writes all buffers, one after the other."""
        rest = deque(memoryview(buffer) for buffer in buffers)
        while rest:
            written = os.pwritev(descriptor, list(islice(rest, _VECTORS_MAX)), offset)
            offset += written
            while rest and written >= len(rest[0]):
                written -= len(rest.popleft())
            if written:
                rest[0] = rest[0][written:]

    def allocate(self, descriptor: int, offset: int, length: int) -> None:
        """Allocates the blocks of a range that is about to be written: cheaper for the whole range
        than page by page."""
        if _fallocate is not None and _fallocate(descriptor, 0, offset, length):
            reason = ctypes.get_errno()
            if reason not in _CANNOT_ALLOCATE:
                raise OSError(reason, os.strerror(reason))

    def sync(self, descriptor: int) -> None:
        if self._durable:
            os.fdatasync(descriptor)

    def sync_directory(self, directory: Path) -> None:
        """Makes the entries of a directory durable, including removals."""
        if self._durable:
            directories.sync(directory)

    def read(self, descriptor: int, length: int, offset: int) -> bytes:
        return os.pread(descriptor, length, offset)

    def read_cached(self, descriptor: int, length: int, offset: int) -> bytes | None:
        """Reads from the page cache; returns None if that would have to wait for the disk."""
        buffer = bytearray(length)
        is_read = self.read_cached_into(descriptor, memoryview(buffer), offset)
        return bytes(buffer) if is_read else None

    def read_into(self, descriptor: int, buffer: memoryview, offset: int) -> int:
        """Fills a buffer; returns the number of bytes, which is less at the end of the file."""
        return os.preadv(descriptor, [buffer], offset)

    def read_cached_into(self, descriptor: int, buffer: memoryview, offset: int) -> bool:
        """Fills a buffer from the page cache; returns False if that would have to wait for the
        disk."""
        try:
            return os.preadv(descriptor, [buffer], offset, os.RWF_NOWAIT) == len(buffer)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EOPNOTSUPP):
                return False
            raise

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def free_bytes(self, directory: Path) -> int:
        room = os.statvfs(directory)
        return room.f_bavail * room.f_frsize


def fault_of(error: OSError) -> Fault:
    """Returns the fault for a failed system call."""
    reason = FaultReason.DISK_FULL if error.errno in _FULL else FaultReason.FAILED
    return Fault(reason, str(error))
