"""Space kept allocated, so that what frees space can still be written on a full disk.

A delete needs room in the write-ahead log before it can give any back. The reserve is a
file of real blocks: spent when the disk is full, made again when there is room. While it
is spent, only operations that reclaim space are run.
"""

from __future__ import annotations

import os
from pathlib import Path

from etagere import directories

RESERVE_NAME = "reserve"
# Room must be plentiful before the reserve is made again, or it would be spent at once.
ROOM_FACTOR = 2
# What it takes to open the ledger and to note that a server has started.
_OPENING_BYTES = 1 << 20


def give_way(directory: Path) -> None:
    """On a disk so full that the ledger cannot even be opened, gives the space back before that
    is tried."""
    path = directory / RESERVE_NAME
    room = os.statvfs(directory)
    if path.exists() and room.f_bavail * room.f_frsize < _OPENING_BYTES:
        os.truncate(path, 0)


def is_spent(directory: Path) -> bool:
    """Whether the reserve has been given back to the file system, as any process can see."""
    try:
        return (directory / RESERVE_NAME).stat().st_size == 0
    except FileNotFoundError:
        return False


class Reserve:
    """The writer's reserve file."""

    def __init__(self, directory: Path, size_bytes: int) -> None:
        self._path = directory / RESERVE_NAME
        self._size_bytes = size_bytes
        self.spent = True
        self.restore()

    def spend(self) -> None:
        """Gives the space back to the file system."""
        self.spent = True
        os.close(directories.open_private(self._path, os.O_WRONLY | os.O_TRUNC))

    def restore(self) -> bool:
        """Allocates the space if there is plenty; says whether it is there now."""
        try:
            self.spent = not self._allocate()
        except OSError:
            self.spent = True
        return not self.spent

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
