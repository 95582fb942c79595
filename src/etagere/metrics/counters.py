"""Counters for hot paths: an addition in a dictionary or a list, no locks and no label lookups."""

from __future__ import annotations

import enum
from bisect import bisect_left
from typing import Final

from etagere.metrics.snapshots import Snapshot

UNKNOWN: Final = "unknown"
"""The operation of requests that match none."""

REQUEST_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 5.0, 30.0)
WRITE_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5)
GROUP_OPERATIONS: Final = (1, 2, 4, 8, 16, 32, 64, 128)
GROUP_ROUND_TRIPS: Final = (1, 2, 3, 4, 6, 8, 16, 32)
"""The upper bounds of the buckets of histograms, inclusive."""


class Histogram:
    """Counts values in buckets, and adds them up."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """The number of values in each bucket; the last has no upper bound."""
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value


class OperationCounters:
    """The requests for one operation of a service."""

    __slots__ = ("seconds", "statuses")

    def __init__(self) -> None:
        self.statuses: dict[int, int] = {}
        self.seconds = Histogram(REQUEST_SECONDS)


class ServiceCounters:
    """The requests to one service in one front end.

    Operations, statuses and error codes are those of the server's own tables, so that clients
    cannot add to their number.
    """

    def __init__(self, service: str) -> None:
        self._service = service
        self._operations: dict[str, OperationCounters] = {}
        self._refusals: dict[str, int] = {}
        self.received_bytes = 0
        self.sent_bytes = 0
        self.aborted = 0
        """Requests whose clients disconnected before the response."""

    def count(self, operation: str, status: int, seconds: float) -> None:
        """Counts a request that was answered."""
        try:
            counters = self._operations[operation]
        except KeyError:
            counters = self._operations[operation] = OperationCounters()
        try:
            counters.statuses[status] += 1
        except KeyError:
            counters.statuses[status] = 1
        # As `observe`, without the call.
        histogram = counters.seconds
        histogram.counts[bisect_left(REQUEST_SECONDS, seconds)] += 1
        histogram.total += seconds

    def count_refusal(self, code: str) -> None:
        self._refusals[code] = self._refusals.get(code, 0) + 1

    def report(self, snapshot: Snapshot) -> None:
        service = self._service
        for name, counters in self._operations.items():
            statuses = {_name(status): count for status, count in counters.statuses.items()}
            snapshot.add_counts("requests", statuses, service, name)
            seconds = counters.seconds
            snapshot.add_histogram(
                "request_duration_seconds", seconds.counts, seconds.total, service, name
            )
        snapshot.add_counts("refusals", self._refusals, service)
        snapshot.add("request_body_bytes", self.received_bytes, service)
        snapshot.add("response_body_bytes", self.sent_bytes, service)
        snapshot.add("requests_aborted", self.aborted, service)


class WriterCounters:
    """The groups that the writer has run."""

    def __init__(self, outcomes: type[enum.IntEnum]) -> None:
        """`outcomes` are those of an operation, numbered from 0."""
        self.commit_seconds = Histogram(WRITE_SECONDS)
        self.queue_seconds = Histogram(WRITE_SECONDS)
        """How long the oldest operation of each group waited."""
        self.group_operations = Histogram(GROUP_OPERATIONS)
        self._outcomes = outcomes
        self.outcomes = [0] * len(outcomes)
        """The number of operations with each outcome. (To look an `IntEnum` up in a dictionary
        takes three times as long.)"""

    def report(self, snapshot: Snapshot) -> None:
        counts = {known.name.lower(): self.outcomes[known] for known in self._outcomes}
        snapshot.add_counts("writer_operations", counts)
        for metric, histogram in (
            ("writer_commit_duration_seconds", self.commit_seconds),
            ("writer_queue_wait_seconds", self.queue_seconds),
            ("writer_group_operations", self.group_operations),
        ):
            snapshot.add_histogram(metric, histogram.counts, histogram.total)


class ClusterWriterCounters(WriterCounters):
    """The groups that the writer of a node has run in PostgreSQL."""

    def __init__(self, outcomes: type[enum.IntEnum]) -> None:
        super().__init__(outcomes)
        self.group_round_trips = Histogram(GROUP_ROUND_TRIPS)
        self.wrong_predictions = 0
        """Operations that ran again, because a record or the time was not as predicted."""

    def report(self, snapshot: Snapshot) -> None:
        super().report(snapshot)
        round_trips = self.group_round_trips
        snapshot.add_histogram("database_group_round_trips", round_trips.counts, round_trips.total)
        snapshot.add("database_wrong_predictions", self.wrong_predictions)


class SmbCounters(ServiceCounters):
    """The requests of SMB clients. An operation is a command, a status an NTSTATUS."""

    def __init__(self) -> None:
        super().__init__("smb")
        self.breaks = 0
        """Notifications that a client may cache less than before."""

    def report(self, snapshot: Snapshot) -> None:
        super().report(snapshot)
        snapshot.add("smb_breaks", self.breaks)


def _name(status: int) -> str:
    return status.name if isinstance(status, enum.Enum) else str(status)
