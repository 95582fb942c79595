"""Reserved disk space, so that operations that free space can run on a full disk.

A delete needs space in the write-ahead log before it can free any, and the log needs space in the
database before it can be restarted. The reserve is a file of allocated blocks, released when the
disk is full and allocated again when there is space. While it is released, only operations that
reclaim space run.
"""

from __future__ import annotations

import os
from pathlib import Path

from etagere import directories

RESERVE_NAME = "reserve"
# The free space, as a multiple of the reserve, at which it is allocated again. With less, it would
# soon be needed again.
ROOM_FACTOR = 2
# The space needed to open the ledger and to record the start of a server.
_OPENING_BYTES = 1 << 20


def free_bytes(directory: Path) -> int:
    """Returns the free space of the file system of a directory. May raise OSError."""
    room = os.statvfs(directory)
    return room.f_bavail * room.f_frsize


def release_if_full(directory: Path) -> None:
    """Releases the reserve if the disk is so full that the ledger could not even be opened."""
    path = directory / RESERVE_NAME
    if path.exists() and free_bytes(directory) < _OPENING_BYTES:
        os.truncate(path, 0)


def is_released(directory: Path) -> bool:
    """Returns whether the reserve is released, in any process."""
    try:
        return (directory / RESERVE_NAME).stat().st_size == 0
    except FileNotFoundError:
        return False


class Reserve:
    """The writer's reserve file."""

    def __init__(self, directory: Path, size_bytes: int) -> None:
        self._path = directory / RESERVE_NAME
        self._size_bytes = size_bytes
        self.released = True
        self.restore()

    def release(self) -> None:
        """Returns the space to the file system."""
        self.released = True
        os.close(directories.open_private(self._path, os.O_WRONLY | os.O_TRUNC))

    def restore(self, needed_bytes: int = 0) -> bool:
        """Allocates the reserve if there is enough space besides the bytes that the ledger needs;
        returns whether it is allocated now."""
        try:
            self.released = not self._allocate(needed_bytes)
        except OSError:
            self.released = True
        return not self.released

    def _allocate(self, needed_bytes: int) -> bool:
        with os.fdopen(directories.open_private(self._path), "r+b") as file:
            if os.fstat(file.fileno()).st_blocks * 512 >= self._size_bytes:
                return True
            if free_bytes(self._path.parent) < self._size_bytes * ROOM_FACTOR + needed_bytes:
                return False
            try:
                os.posix_fallocate(file.fileno(), 0, self._size_bytes)
            except OSError:
                file.truncate(0)
                raise
        return True
