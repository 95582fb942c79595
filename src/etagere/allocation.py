"""Settings of the C library's allocator: freed memory is kept for reuse, then returned.

Memory that large bodies and listings have freed stays with the process at first: getting it from
the kernel again, page by page, costs a third of the time of an upload. What is still unused some
seconds later is returned to the kernel.

Other C libraries than GNU's have no such settings, and nothing here does anything with them.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import resource
from pathlib import Path
from typing import Final

_MIB = 1 << 20

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -2, -3, -8
_KEPT: Final = {
    _MMAP_THRESHOLD: 32 * _MIB,
    _TRIM_THRESHOLD: 64 * _MIB,
    _TOP_PAD: 8 * _MIB,
    # One arena for all threads: the allocator never trims the others.
    _ARENA_MAX: 1,
}
_UNUSED_BYTES_MAX: Final = 24 * _MIB
"""Unused memory beyond this is returned to the kernel. The limit applies to each front end."""
_GROWN_BYTES_MIN: Final = 16 * _MIB
_PAGE_BYTES: Final = resource.getpagesize()


class _Usage(ctypes.Structure):
    """`struct mallinfo2`."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


def keep_memory() -> None:
    """Configures the allocator to keep freed memory for reuse."""
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, value in _KEPT.items():
            mallopt(parameter, value)


class MemoryTrimmer:
    """Returns unused memory to the kernel after a burst of bodies or listings."""

    def __init__(self) -> None:
        self._library = _library()
        self._unused_bytes = 0
        self._trimmed = (0, 0)

    async def run(self) -> None:
        """Checks once, and returns memory that was already unused at the previous check: during a
        burst, the next large body would have to get it again."""
        if self._library is None:
            return
        before, self._unused_bytes = self._unused_bytes, self._library.mallinfo2().fordblks
        if min(before, self._unused_bytes) <= _UNUSED_BYTES_MAX or not self._has_grown():
            return
        # Only young objects: examining all open handles of SMB clients would stall the event loop.
        gc.collect(1)
        self._library.malloc_trim(_KEPT[_TOP_PAD])
        self._trimmed = self._library.mallinfo2().fordblks, _resident_bytes()

    def _has_grown(self) -> bool:
        """Whether there is more to return. The allocator reports returned memory as unused, too."""
        unused, resident = self._trimmed
        return (
            self._unused_bytes > unused + _GROWN_BYTES_MIN
            or _resident_bytes() > resident + _GROWN_BYTES_MIN
        )


def _library() -> ctypes.CDLL | None:
    """The C library, or None if it has no such functions."""
    try:
        library = ctypes.CDLL(None)
        library.mallinfo2.restype = _Usage
        library.malloc_trim.argtypes = [ctypes.c_size_t]
    except (OSError, AttributeError):
        return None
    return library


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_bytes().split()[1]) * _PAGE_BYTES
