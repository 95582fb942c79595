"""Writes metrics as the text that Prometheus reads, with the official client library."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final, NamedTuple, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client import exposition as plain_text
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import Metric as MetricFamily
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from etagere.metrics.catalogue import BY_NAME, METRICS, PREFIX, Metric, MetricKind
from etagere.metrics.snapshots import Snapshot

F = TypeVar("F", bound=MetricFamily)

OPENMETRICS: Final = "application/openmetrics-text"
_VERSION: Final = "1.0.0"


class Exposition(NamedTuple):
    """Metrics as text."""

    content_type: str
    text: bytes


def render(
    processes: Mapping[str, Snapshot], store: Snapshot, *, as_openmetrics: bool
) -> Exposition:
    """Writes the metrics of processes, by the value of the label `process`, and those of the
    store."""
    registry = CollectorRegistry()
    registry.register(_Collected(_families(processes, store)))
    if as_openmetrics:
        content_type = f"{OPENMETRICS}; version={_VERSION}; charset=utf-8"
        write: Callable[..., bytes] = openmetrics.generate_latest
        return Exposition(content_type, write(registry, version=_VERSION))
    return Exposition(plain_text.CONTENT_TYPE_PLAIN_0_0_4, plain_text.generate_latest(registry))


class _Collected(Collector):
    """Metrics that were collected already."""

    def __init__(self, families: Iterable[MetricFamily]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[MetricFamily]:
        return self._families

    def describe(self) -> Iterable[MetricFamily]:
        # Otherwise the registry would collect when this is registered.
        return ()


def _families(processes: Mapping[str, Snapshot], store: Snapshot) -> Iterator[MetricFamily]:
    """Yields the families of the catalogue that have samples."""
    families: dict[str, MetricFamily] = {}
    for process, snapshot in processes.items():
        _add(snapshot, families, process)
    _add(store, families)
    for metric in METRICS:
        if metric.name in families:
            yield families[metric.name]


def _add(snapshot: Snapshot, families: dict[str, MetricFamily], *process: str) -> None:
    for value in snapshot.values:
        _add_value(families, value.metric, [*process, *value.labels], value.value)
    for counts in snapshot.counts:
        for label, count in counts.counts.items():
            _add_value(families, counts.metric, [*process, *counts.labels, label], count)
    for histogram in snapshot.histograms:
        metric = BY_NAME[histogram.metric]
        bounds = [*map(str, map(float, metric.bounds)), "+Inf"]
        buckets = list(zip(bounds, accumulate(histogram.counts), strict=True))
        family = families.get(metric.name)
        if family is None:
            family = families[metric.name] = _new(HistogramMetricFamily, metric)
        assert isinstance(family, HistogramMetricFamily)
        family.add_metric([*process, *histogram.labels], buckets, histogram.total)


def _add_value(
    families: dict[str, MetricFamily], name: str, labels: list[str], value: float
) -> None:
    metric = BY_NAME[name]
    family = families.get(name)
    if family is None:
        create = CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily
        family = families[name] = _new(create, metric)
    assert isinstance(family, CounterMetricFamily | GaugeMetricFamily)
    family.add_metric(labels, value)


def _new(create: Callable[..., F], metric: Metric) -> F:
    return create(f"{PREFIX}{metric.name}", metric.help, labels=metric.exported_labels)
