"""The lock that a process holds while it copies the ledger from one snapshot.

The write-ahead log cannot be restarted meanwhile, and the writer does not wait for it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from etagere import directories

LOCK_NAME = "copy.lock"


@contextlib.contextmanager
def copying(directory: Path) -> Iterator[None]:
    """Tells the writer that a reader holds a snapshot until it has copied the ledger."""
    descriptor = directories.open_private(directory / LOCK_NAME)
    try:
        directories.give_to_owner(descriptor, directory)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def is_being_copied(directory: Path) -> bool:
    """Returns whether a process copies the ledger."""
    try:
        descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
