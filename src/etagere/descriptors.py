"""File descriptors: their lifetime and their limit."""

from __future__ import annotations

import contextlib
import os
import resource
from typing import NamedTuple

# Used in place of a limit where there is none.
_UNLIMITED = 1 << 20


class OpenFile:
    """An open file or socket, closed with the last reference to this object.

    A thread whose task was cancelled still has a reference, so the number of its descriptor cannot
    become that of another file.
    """

    __slots__ = ("descriptor",)

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.descriptor)


class FilePart(NamedTuple):
    """A part of an open file. The descriptor stays open while there are references to `keeper`."""

    descriptor: int
    offset: int
    length: int
    keeper: object
    segment: int | None = None
    """The number of the segment that the file is, for error messages."""

    def unreadable(self, error: OSError) -> OSError:
        """Returns an error of reading this part, with its place."""
        place = f"segment {self.segment} at {self.offset}"
        if error.errno is None:
            return OSError(f"{place}: {error}")
        return OSError(error.errno, os.strerror(error.errno), place)


def raise_limit() -> int:
    """Raises the limit of open files to the hard limit; returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return soft if soft != resource.RLIM_INFINITY else _UNLIMITED
