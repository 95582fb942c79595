"""The pins of a process as other processes see them, and how they are dated without clocks.

A process that needs to know what is pinned starts a pin round: it takes the next number of a
counter in the database. Every process learns the last number with its heartbeat, and notes it with
each wide pin that it takes. So a pin with number n was taken after round n had started, and the
process that started the round knows when that was by its own clock.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

from etagere.coordination.interface import PinnedSegments
from etagere.coordination.pins import CountedPin

ENCODED_BYTES_MAX: Final = 1 << 20
"""A process that keeps more segments than fit publishes that it keeps all."""
_ROUNDS_MAX: Final = 1_000
"""The number of pin rounds of which a process keeps the time."""
_BEFORE_ALL: Final = 0
"""The number that a pin has which keeps every segment."""


class PublishedPins(NamedTuple):
    """What the readers of one process keep, at one time."""

    oldest: int | None
    """The lowest number of a pin round that a wide pin was taken after; None without wide pins."""
    segments: bytes
    """The segments that are pinned by themselves, encoded."""


class SharedPins:
    """The pins of this process. The thread of the heartbeats reads them while others take and end
    pins, without a lock: a pin is never missing from both dictionaries, if they are read in the
    opposite order in which `narrow` changes them."""

    def __init__(self) -> None:
        self.last_pin_round = _BEFORE_ALL
        """The number of the last pin round that this process knows of."""
        self._wide: dict[CountedPin, int] = {}
        self._counts: dict[int, int] = {}

    def pin(self) -> CountedPin:
        """Takes a wide pin."""
        pin = CountedPin(self)
        self._wide[pin] = self.last_pin_round
        return pin

    def end_wide(self, pin: CountedPin) -> None:
        """Ends a wide pin."""
        del self._wide[pin]

    def keep(self, segments: set[int]) -> None:
        """Adds a pin to each of these segments."""
        counts = self._counts
        for segment in segments:
            counts[segment] = counts.get(segment, 0) + 1

    def release(self, segment: int) -> None:
        """Removes a pin from a segment."""
        left = self._counts[segment] - 1
        if left:
            self._counts[segment] = left
        else:
            del self._counts[segment]

    def capture(self) -> PublishedPins:
        """Returns what is pinned now."""
        numbers, segments = self._copy()
        encoded = encode(segments)
        if len(encoded) > ENCODED_BYTES_MAX:
            return PublishedPins(_BEFORE_ALL, b"")
        return PublishedPins(min(numbers, default=None), encoded)

    def _copy(self) -> tuple[list[int], list[int]]:
        while True:
            # A dictionary that another thread changes meanwhile, which is rare, raises an error.
            with contextlib.suppress(RuntimeError):
                numbers = list(self._wide.values())
                return numbers, list(self._counts)


class StartedPinRounds:
    """The pin rounds that this process has started, and when, by its own clock."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._times: list[int] = []

    def add(self, number: int, started_at: int) -> None:
        """Adds a round that started after this time, and has a higher number than all before."""
        self._numbers.append(number)
        self._times.append(started_at)
        if len(self._numbers) > _ROUNDS_MAX:
            del self._numbers[0], self._times[0]

    def time_of(self, number: int) -> int:
        """Returns a time before which no pin with this number was taken. Another process may have
        started the round."""
        position = bisect_right(self._numbers, number)
        return self._times[position - 1] if position else _BEFORE_ALL


def pinned_segments(
    published: Iterable[PublishedPins], started: StartedPinRounds
) -> PinnedSegments:
    """Returns what is pinned, given what all live processes have published after the last pin round
    of this process started."""
    times: list[int] = []
    segments: set[int] = set()
    for pins in published:
        if pins.oldest is not None:
            times.append(started.time_of(pins.oldest))
        segments.update(decode(pins.segments))
    return PinnedSegments(min(times, default=None), frozenset(segments))


def encode(segments: Iterable[int]) -> bytes:
    """Encodes numbers of segments as differences in ascending order, seven bits per byte."""
    encoded = bytearray()
    before = 0
    for segment in sorted(segments):
        left = segment - before
        before = segment
        while left > 0x7F:
            encoded.append(left & 0x7F | 0x80)
            left >>= 7
        encoded.append(left)
    return bytes(encoded)


def decode(encoded: bytes) -> list[int]:
    """Returns the numbers that were encoded."""
    segments: list[int] = []
    number = shift = difference = 0
    for byte in encoded:
        difference |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            number += difference
            segments.append(number)
            shift = difference = 0
    return segments
