"""How slow a client may be."""

from __future__ import annotations


class Pace:
    """Measures how far a client is behind a minimum rate, as seconds.

    Time in which the client is waited for is added, and the time that its bytes may take at the
    minimum rate is taken off. Bytes that come faster are no credit for later: a client that sends
    nothing any more is behind by as much as it has been silent.
    """

    __slots__ = ("_bytes_total", "behind_seconds")

    def __init__(self, bytes_total: int = 0) -> None:
        self._bytes_total = bytes_total
        self.behind_seconds = 0.0

    def measure(self, waited_seconds: float, bytes_total: int, bytes_per_second_min: float) -> None:
        """`bytes_total` is the number of all bytes that have come, or were taken, so far."""
        came = bytes_total - self._bytes_total
        self._bytes_total = bytes_total
        behind = self.behind_seconds + waited_seconds - came / bytes_per_second_min
        self.behind_seconds = max(0.0, behind)
