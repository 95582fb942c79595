"""The system calls that change a backup, in one place, so that tests can make them fail."""

from __future__ import annotations

import os
from pathlib import Path

from etagere import directories


class Files:
    """The files of a backup, or of a directory that one is restored to."""

    def create(self, path: Path) -> int:
        """Creates or empties a file that only its owner can access, and opens it."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)

    def write(self, descriptor: int, data: bytes | memoryview, offset: int) -> None:
        rest = memoryview(data)
        while rest:
            written = os.pwrite(descriptor, rest, offset)
            rest, offset = rest[written:], offset + written

    def truncate(self, descriptor: int, length: int) -> None:
        os.ftruncate(descriptor, length)

    def sync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def rename(self, path: Path, new_path: Path) -> None:
        path.rename(new_path)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def make_directory(self, path: Path) -> None:
        """Creates a directory that only its owner can access; its name is durable on return."""
        directories.make(path)

    def remove_directory(self, path: Path) -> None:
        path.rmdir()

    def sync_directory(self, path: Path) -> None:
        directories.sync(path)
