"""The storage of segments, as files or objects: the interface for the collector."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol


class SegmentBackend(Protocol):
    """The stored bytes of segments, by the numbers of the segments."""

    move_bytes_max: int
    """How many bytes the collector moves in one step, at most."""
    search_seconds: float
    """The time between two searches for stored segments without a record. Infinite if only a crash
    leaves any."""

    def describe(self, number: int) -> str:
        """Returns where a segment is stored, for messages."""
        ...

    async def size(self, number: int) -> int:
        """Returns how many bytes of a segment are stored; 0 if there is nothing."""
        ...

    def read(self, number: int, places: Sequence[tuple[int, int]]) -> AsyncGenerator[bytes, None]:
        """Yields the bytes at each of these places, which are offsets and lengths in ascending
        order. What is missing or cannot be read is logged, and yields fewer bytes. Raises `Fault`
        if the storage is unavailable."""
        ...

    async def remove(self, numbers: Sequence[int]) -> dict[int, int]:
        """Removes segments, durably. Returns the numbers and sizes of those that are gone; failures
        are logged, and are to be retried."""
        ...

    async def numbers(self) -> set[int]:
        """Returns the numbers of all segments of which anything is stored."""
        ...
