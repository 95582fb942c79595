"""Extents: bytes that were written at offsets of a file, in memory.

What is written over other bytes replaces them. Bytes are kept as they were handed over, without a
copy, except that small writes which follow each other are collected in one buffer.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

from etagere.config import KIB

Buffer = bytes | bytearray | memoryview
"""A bytearray belongs to the extents, and only grows. Others do not change at all."""

_JOINED_BYTES_MAX: Final = 64 * KIB
"""Writes are collected in buffers up to this length: larger ones are kept as they are."""


class Extent(NamedTuple):
    """Bytes at an offset, or (None) zeros that need no space. The end is exclusive."""

    start: int
    end: int
    data: Buffer | None


class Run(NamedTuple):
    """Adjacent extents: the buffers, or none for zeros."""

    start: int
    end: int
    buffers: tuple[Buffer, ...]


class Extents:
    """Extents in the order of their offsets, without overlaps."""

    __slots__ = ("_ends", "_found", "_starts")

    def __init__(self) -> None:
        # The offsets once more, to find extents by bisection.
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._found: list[Buffer | None] = []

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[Extent]:
        return map(Extent, self._starts, self._ends, self._found)

    def write(self, start: int, data: bytes | memoryview) -> None:
        length = len(data)
        first, stop = self._touched(start, start + length)
        is_small = length <= _JOINED_BYTES_MAX // 2
        if is_small and first == stop and first and self._ends[first - 1] == start:
            before = self._found[first - 1]
            if isinstance(before, bytearray) and len(before) + length <= _JOINED_BYTES_MAX:
                before += data
                self._ends[first - 1] += length
                return
        kept = bytearray(data) if is_small else data
        self._replace(first, stop, Extent(start, start + length, kept))

    def clear(self, start: int, end: int) -> None:
        """Replaces a range by zeros."""
        first, stop = self._touched(start, end)
        if first and self._found[first - 1] is None and self._ends[first - 1] == start:
            first, start = first - 1, self._starts[first - 1]
        self._replace(first, stop, Extent(start, end, None))

    def forget(self, start: int) -> None:
        """Removes everything from an offset on."""
        first = bisect_right(self._ends, start)
        if first == len(self._starts):
            return
        left = self._part(first, self._starts[first], start)
        del self._starts[first:], self._ends[first:], self._found[first:]
        if left is not None:
            self._insert(first, left)

    def _touched(self, start: int, end: int) -> tuple[int, int]:
        """Returns the numbers of the extents that overlap a range."""
        first = bisect_right(self._ends, start)
        return first, max(first, bisect_left(self._starts, end))

    def _replace(self, first: int, stop: int, new: Extent) -> None:
        kept = [new]
        if first < stop:
            left = self._part(first, self._starts[first], new.start)
            right = self._part(stop - 1, new.end, self._ends[stop - 1])
            kept = [one for one in (left, new, right) if one is not None]
        self._starts[first:stop] = [one.start for one in kept]
        self._ends[first:stop] = [one.end for one in kept]
        self._found[first:stop] = [one.data for one in kept]

    def _insert(self, at: int, new: Extent) -> None:
        self._starts.insert(at, new.start)
        self._ends.insert(at, new.end)
        self._found.insert(at, new.data)

    def _part(self, number: int, start: int, end: int) -> Extent | None:
        """Returns a part of an extent, if it is not empty."""
        if start >= end:
            return None
        whole = Extent(self._starts[number], self._ends[number], self._found[number])
        return Extent(start, end, part_of(whole, start, end))

    def between(self, start: int, end: int) -> list[Extent]:
        """Returns the extents that overlap a range, uncut."""
        first, stop = self._touched(start, end)
        return [
            Extent(self._starts[at], self._ends[at], self._found[at]) for at in range(first, stop)
        ]

    def runs(self) -> list[Run]:
        """Returns the extents with adjacent ones joined, zeros apart from bytes."""
        runs: list[Run] = []
        start = end = -1
        buffers: list[Buffer] = []
        for extent in self:
            if extent.data is None or extent.start != end or not buffers:
                if start >= 0:
                    runs.append(Run(start, end, tuple(buffers)))
                start, buffers = extent.start, []
            end = extent.end
            if extent.data is not None:
                buffers.append(extent.data)
        if start >= 0:
            runs.append(Run(start, end, tuple(buffers)))
        return runs


def part_of(extent: Extent, start: int, end: int) -> Buffer | None:
    """Returns the bytes of an extent between two offsets. Those of a bytearray are copied, because
    it could not grow as long as a view of it exists."""
    data = extent.data
    if data is None:
        return None
    first, stop = start - extent.start, end - extent.start
    if isinstance(data, bytearray):
        return data[first:stop]
    return data if stop - first == len(data) else memoryview(data)[first:stop]
