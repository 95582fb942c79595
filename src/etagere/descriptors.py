"""Numbers of open files, and how long they may be used."""

from __future__ import annotations

import contextlib
import os
import resource
from typing import NamedTuple

# What a limit is taken for where there is none.
_UNLIMITED = 1 << 20


class OpenFile:
    """A file or socket that is closed when the last one who refers to this object lets go of it.

    A thread that was left behind by whoever asked for its work still holds it, and never finds
    that its number has become another file's.
    """

    __slots__ = ("descriptor",)

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.descriptor)


class FilePart(NamedTuple):
    """Bytes of an open file. While somebody refers to `keeper`, its descriptor stays open."""

    descriptor: int
    offset: int
    length: int
    keeper: object


def raise_limit() -> int:
    """Lets this process and its children open as many files as they may; returns the number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return soft if soft != resource.RLIM_INFINITY else _UNLIMITED
