"""The measure of a slow client."""

from __future__ import annotations


class Pace:
    """Measures how many seconds a client is behind a minimum rate.

    The time spent waiting for the client is added, and the time that its bytes take at the minimum
    rate is subtracted. Sending faster earns no credit: a client that stops sending is behind by
    the time it has been silent.
    """

    __slots__ = ("_bytes_total", "behind_seconds")

    def __init__(self, bytes_total: int = 0) -> None:
        self._bytes_total = bytes_total
        self.behind_seconds = 0.0

    def measure(self, waited_seconds: float, bytes_total: int, bytes_per_second_min: float) -> None:
        """Updates the measure. `bytes_total` counts all bytes sent or read by the client so far."""
        came = bytes_total - self._bytes_total
        self._bytes_total = bytes_total
        behind = self.behind_seconds + waited_seconds - came / bytes_per_second_min
        self.behind_seconds = max(0.0, behind)
