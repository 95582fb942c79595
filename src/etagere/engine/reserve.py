"""Reserved disk space, so that operations that free space can run on a full disk.

A delete needs space in the write-ahead log before it can free any. The reserve is a file of
allocated blocks, released when the disk is full and allocated again when there is space. While it
is released, only operations that reclaim space run.
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


def release_if_full(directory: Path) -> None:
    """Releases the reserve if the disk is so full that the ledger could not even be opened."""
    path = directory / RESERVE_NAME
    room = os.statvfs(directory)
    if path.exists() and room.f_bavail * room.f_frsize < _OPENING_BYTES:
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

    def restore(self) -> bool:
        """Allocates the reserve if there is enough space; returns whether it is allocated now."""
        try:
            self.released = not self._allocate()
        except OSError:
            self.released = True
        return not self.released

    def _allocate(self) -> bool:
        with os.fdopen(directories.open_private(self._path), "r+b") as file:
            if os.fstat(file.fileno()).st_blocks * 512 >= self._size_bytes:
                return True
            room = os.fstatvfs(file.fileno())
            if room.f_bavail * room.f_frsize < self._size_bytes * ROOM_FACTOR:
                return False
            try:
                os.posix_fallocate(file.fileno(), 0, self._size_bytes)
            except OSError:
                file.truncate(0)
                raise
        return True
