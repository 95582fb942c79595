"""Directories: names that survive a power cut, and work that one process does at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


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


@contextlib.contextmanager
def alone(directory: Path, name: str) -> Iterator[bool]:
    """Whether this process is the only one that has this lock, which it then keeps from others
    until the end, however that comes."""
    descriptor = os.open(directory / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
