"""Directories whose names survive a power cut."""

from __future__ import annotations

import os
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
