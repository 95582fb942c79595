"""Pins as counts: which segments the readers of this process keep."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Protocol

logger = logging.getLogger(__name__)


class PinsFull(Exception):
    """There is no space to list more segments."""


class PinTable(Protocol):
    """The pins of one process."""

    def end_wide(self, pin: CountedPin) -> None:
        """Ends a wide pin."""
        ...

    def keep(self, segments: set[int]) -> None:
        """Adds a pin to each of these segments, or adds none and raises `PinsFull`."""
        ...

    def release(self, segment: int) -> None:
        """Removes a pin from a segment."""
        ...


class CountedPin:
    """A pin of this process."""

    __slots__ = ("_segments", "_table")

    def __init__(self, table: PinTable) -> None:
        self._table = table
        self._segments: set[int] | None = None
        """None while it is wide."""

    def __enter__(self) -> CountedPin:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def narrow(self, segments: Iterable[int]) -> None:
        if self._segments is not None:
            return
        wanted = set(segments)
        try:
            self._table.keep(wanted)
        except PinsFull as error:
            # The pin stays wide: that is safe.
            logger.warning(
                "a reader pins all segments, because its pin table cannot grow: %s", error
            )
            return
        self._segments = wanted
        self._table.end_wide(self)

    def release(self, segment: int) -> None:
        if self._segments is not None and segment in self._segments:
            self._segments.discard(segment)
            self._table.release(segment)

    def close(self) -> None:
        if self._segments is None:
            self._table.end_wide(self)
            self._segments = set()
            return
        for segment in self._segments:
            self._table.release(segment)
        self._segments.clear()
