"""Ranges of files: what becomes of a range that is cleared.

The service frees the part of it that is aligned, and writes zeros to the rest. Both read as zeros,
but only the freed part is no longer listed among the ranges of the file.
"""

from __future__ import annotations

from typing import Final, NamedTuple

FILE_BYTES_MAX: Final = 4 << 40
CLEAR_ALIGNMENT_BYTES: Final = 512


class ClearedRange(NamedTuple):
    """A range that is cleared: zeroed, freed from one offset to another, and zeroed again."""

    start: int
    freed_start: int
    freed_end: int
    end: int

    @property
    def zeroed(self) -> tuple[tuple[int, int], ...]:
        """The parts that are overwritten with zeros, the longest first."""
        parts = ((self.start, self.freed_start), (self.freed_end, self.end))
        written = [part for part in parts if part[0] < part[1]]
        return tuple(sorted(written, key=lambda part: part[0] - part[1]))

    @property
    def zeros_length(self) -> int:
        """The number of zeros that each of these parts can be taken from."""
        return max((end - start for start, end in self.zeroed), default=0)


def cleared_range(start: int, end: int) -> ClearedRange:
    aligned_start = -(-start // CLEAR_ALIGNMENT_BYTES) * CLEAR_ALIGNMENT_BYTES
    aligned_end = end // CLEAR_ALIGNMENT_BYTES * CLEAR_ALIGNMENT_BYTES
    freed_start = min(aligned_start, end)
    return ClearedRange(start, freed_start, max(freed_start, aligned_end), end)
