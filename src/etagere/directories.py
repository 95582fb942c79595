"""Directories: names that survive a power cut, files that only their owner can read, and work
that one process does at a time."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

logger = logging.getLogger(__name__)

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def sync(directory: Path) -> None:
    """Makes the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make(directory: Path) -> None:
    """Makes a directory, private and durable, with all that are missing above it."""
    if directory.is_dir():
        return
    make(directory.parent)
    directory.mkdir(mode=0o700, exist_ok=True)
    sync(directory.parent)


def open_private(path: Path, flags: int = os.O_RDWR) -> int:
    """Opens a file that only its owner may read and write; it is made if it is missing."""
    return os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, 0o600)


def make_private(path: Path) -> None:
    """Takes a file or directory, and the files in that, away from everybody but its owner. What
    is missing is left alone; what belongs to somebody else, too, and is logged."""
    try:
        status = path.stat()
        if status.st_mode & _OTHERS:
            path.chmod(stat.S_IMODE(status.st_mode) & ~_OTHERS)
        if stat.S_ISDIR(status.st_mode):
            for entry in path.iterdir():
                make_private(entry)
    except FileNotFoundError:
        return
    except OSError as error:
        logger.warning(
            "cannot restrict access to %s, other users may read it: %s", path, error.strerror
        )


def is_private(path: Path) -> bool:
    """Whether nobody but its owner can look into a directory."""
    return not path.stat().st_mode & _OTHERS


@contextlib.contextmanager
def alone(directory: Path, name: str) -> Iterator[bool]:
    """Whether this process is the only one that has this lock, which it then keeps from others
    until the end, however that comes."""
    descriptor = open_private(directory / name)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            locked = False
        else:
            locked = True
        yield locked
    finally:
        os.close(descriptor)
