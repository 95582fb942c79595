"""What a process has counted, as it is sent to the admin process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import msgspec

SNAPSHOT_BYTES_MAX: Final = 192 * 1024
"""The length of a snapshot; that of a datagram is limited, too. A front end whose services have
answered all operations with 20 statuses each needs a quarter of it."""


class Value(msgspec.Struct, frozen=True, array_like=True):
    """The value of a counter or a gauge."""

    metric: str
    labels: tuple[str, ...]
    value: float


class Counts(msgspec.Struct, frozen=True, array_like=True):
    """Counters that differ in their last label."""

    metric: str
    labels: tuple[str, ...]
    counts: dict[str, int]


class Buckets(msgspec.Struct, frozen=True, array_like=True):
    """A histogram: the number of values in each bucket, and their sum."""

    metric: str
    labels: tuple[str, ...]
    counts: tuple[int, ...]
    total: float


class Snapshot(msgspec.Struct):
    """The values of all metrics of a process at one moment. Metrics are named as in the
    catalogue."""

    values: list[Value] = []
    counts: list[Counts] = []
    histograms: list[Buckets] = []

    def add(self, metric: str, value: float, *labels: str) -> None:
        self.values.append(Value(metric, labels, value))

    def add_counts(self, metric: str, counts: Mapping[str, int], *labels: str) -> None:
        """Adds counters by their last label; `labels` are the others."""
        if counts:
            self.counts.append(Counts(metric, labels, dict(counts)))

    def add_histogram(self, metric: str, counts: Sequence[int], total: float, *labels: str) -> None:
        self.histograms.append(Buckets(metric, labels, tuple(counts), total))


class MetricSource(Protocol):
    """A part of a process that counts something."""

    def report(self, snapshot: Snapshot) -> None:
        """Adds what it has counted."""
        ...


encode_snapshot = msgspec.msgpack.Encoder().encode
decode_snapshot = msgspec.msgpack.Decoder(Snapshot).decode
