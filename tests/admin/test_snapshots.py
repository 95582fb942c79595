"""Counters, snapshots and their text, without a server."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from etagere.admin.rendering import render
from etagere.errors import ERRORS
from etagere.jobs.health import HealthSocket, ask_metrics
from etagere.metrics.catalogue import BY_NAME, METRICS
from etagere.metrics.counters import (
    GROUP_OPERATIONS,
    REQUEST_SECONDS,
    WRITE_SECONDS,
    Histogram,
    ServiceCounters,
)
from etagere.metrics.snapshots import SNAPSHOT_BYTES_MAX, Snapshot, encode_snapshot
from etagere.protocol.blob.operations import OPERATIONS as BLOB_OPERATIONS
from etagere.protocol.queue.operations import OPERATIONS as QUEUE_OPERATIONS
from etagere.protocol.table.operations import OPERATIONS as TABLE_OPERATIONS

OPERATIONS = {"blob": BLOB_OPERATIONS, "queue": QUEUE_OPERATIONS, "table": TABLE_OPERATIONS}


def test_upper_bounds_are_inclusive() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 2.5):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 1]
    assert histogram.total == 7.5


@pytest.mark.parametrize("bounds", [REQUEST_SECONDS, WRITE_SECONDS, GROUP_OPERATIONS])
def test_bounds_are_in_order(bounds: tuple[float, ...]) -> None:
    assert list(bounds) == sorted(set(bounds))
    assert len(bounds) <= 12  # each is a time series per operation and process


def test_buckets_are_cumulative() -> None:
    snapshot = Snapshot()
    histogram = Histogram(WRITE_SECONDS)
    for seconds in (0.0001, 0.0001, 0.004, 60.0):
        histogram.observe(seconds)
    snapshot.add_histogram("write_duration_seconds", histogram.counts, histogram.total)
    text = render({"front-end-1": snapshot}, Snapshot(), as_openmetrics=False).text.decode()
    (family,) = text_string_to_metric_families(text)
    buckets = [sample.value for sample in family.samples if sample.name.endswith("_bucket")]
    assert buckets == [2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 4]
    assert [sample.value for sample in family.samples if sample.name.endswith("_count")] == [4]


def test_names_follow_the_conventions() -> None:
    assert len(BY_NAME) == len(METRICS)
    for metric in METRICS:
        assert not metric.name.endswith(("_total", "_count", "_sum", "_bucket", "_ms"))
        assert not {"job", "instance", "le"} & set(metric.exported_labels)
        assert metric.help.endswith(".")
        assert bool(metric.bounds) == (metric.kind.value == "histogram")


def _largest_snapshot() -> Snapshot:
    """Returns more than a front end ever counts: all operations with 20 statuses, all errors."""
    snapshot = Snapshot()
    for service, operations in OPERATIONS.items():
        counters = ServiceCounters(service)
        for operation in operations:
            for status in range(400, 420):
                counters.count(operation.name, status, 0.5)
            statuses = counters._operations[operation.name].statuses
            statuses.update(dict.fromkeys(statuses, 1 << 40))
        for code in ERRORS:
            counters.count_refusal(code)
        counters.report(snapshot)
    return snapshot


def test_the_largest_snapshot_fits_into_a_datagram(tmp_path: Path) -> None:
    snapshot = _largest_snapshot()
    assert len(encode_snapshot(snapshot)) < SNAPSHOT_BYTES_MAX
    answering = HealthSocket(tmp_path, "one")
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asker:
            asker.bind("")
            asker.connect(str(tmp_path / "health" / "one.sock"))
            asker.settimeout(5.0)
            asker.send(b"m")
            answering.answer(dict, lambda: snapshot)
            assert asker.recv(SNAPSHOT_BYTES_MAX) == encode_snapshot(snapshot)
    finally:
        answering.close()


def test_a_process_that_is_gone_has_no_metrics(tmp_path: Path) -> None:
    HealthSocket(tmp_path, "one").close()
    assert ask_metrics(tmp_path, ["one", "never"], 0.1) == {}
