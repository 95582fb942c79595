"""The metrics of a running server that has served known requests, and the documents that name
them."""

from __future__ import annotations

import http.client
import json
import re
from typing import Any
from urllib.parse import urlsplit

import pytest

from etagere.metrics.catalogue import BY_NAME, METRICS, Metric, MetricKind
from tests.admin.client import SECONDS_MAX, Scrape, scrape
from tests.admin.conftest import BLOB_BYTES, BLOBS, MESSAGES, READS
from tests.server import ROOT, Server, eventually

DASHBOARD = ROOT / "dashboards" / "etagere.json"
ALERTS = ROOT / "dashboards" / "alerts.yml"
OPERATIONS = ROOT / "docs" / "operations.md"
NEEDS_TLS = ("certificate_expiry_timestamp_seconds",)
NEEDS_CLUSTER = tuple(name for name in BY_NAME if name.startswith("database_"))
"""Metrics that the server of these tests does not have."""


@pytest.fixture(scope="module")
def measured(used_server: Server) -> Scrape:
    return scrape(used_server)


def test_counters_equal_what_was_sent(measured: Scrape) -> None:
    def requests(service: str, operation: str, status: str) -> float:
        labels = {"service": service, "operation": operation}
        durations = measured.total("etagere_request_duration_seconds_count", **labels)
        assert durations == measured.total("etagere_requests_total", **labels)
        return measured.total("etagere_requests_total", status=status, **labels)

    assert requests("blob", "create_container", "201") == 1
    assert requests("blob", "put_blob", "201") == BLOBS
    assert requests("blob", "get_blob", "206") == READS
    assert requests("blob", "get_blob", "404") == 1
    assert requests("queue", "put_message", "201") == MESSAGES
    assert requests("table", "insert_entity", "201") == 1
    assert requests("file", "create_share", "201") == 1
    assert requests("smb", "create", "SUCCESS") == 1
    assert measured.total("etagere_refusals_total", code="BlobNotFound") == 1
    assert measured.total("etagere_request_body_bytes_total", service="blob") == BLOBS * BLOB_BYTES
    assert measured.total("etagere_leases", kind="blob") == 1
    assert measured.total("etagere_objects", kind="message") == MESSAGES
    assert measured.total("etagere_smb_opens") == 0


def test_the_writer_answers_each_operation_in_a_group(measured: Scrape) -> None:
    operations = measured.total("etagere_writer_operations_total")
    assert operations == measured.total("etagere_writer_group_operations_sum")
    assert operations >= BLOBS + MESSAGES
    groups = measured.total("etagere_writer_group_operations_count")
    assert groups == measured.total("etagere_writer_commit_duration_seconds_count")
    assert groups == measured.total("etagere_writer_queue_wait_seconds_count")


def test_clients_cannot_add_time_series(used_server: Server) -> None:
    """Whatever clients send, labels have values of the server's tables."""
    before = scrape(used_server).labels
    for method, path in (
        ("GET", "/devstoreaccount1?comp=made-up"),
        ("BREW", "/devstoreaccount1/container/blob"),
        ("PATCH", "/devstoreaccount1/container/blob"),
        ("GET", "/other-account/x?comp=list"),
        ("GET", "/%zz"),
    ):
        connection = http.client.HTTPConnection(
            urlsplit(used_server.endpoints["blob"]).netloc, timeout=SECONDS_MAX
        )
        connection.request(method, path)
        assert connection.getresponse().status >= 400
        connection.close()
    eventually(
        lambda: scrape(used_server).total("etagere_requests_total", operation="unknown") > 0,
        "requests for unknown operations",
    )
    after = scrape(used_server)
    assert after.labels == before
    texts = {
        text
        for family in after.families
        for sample in family.samples
        for text in sample.labels.values()
    }
    assert not {text for text in texts if "made-up" in text or "account" in text}


def test_every_metric_is_exported_with_its_labels(measured: Scrape) -> None:
    exported = [metric for metric in METRICS if metric.name not in NEEDS_TLS + NEEDS_CLUSTER]
    for metric in exported:
        name = metric.exported_name
        if metric.kind is MetricKind.HISTOGRAM:
            name += "_count"
        assert measured.labels[name] == set(metric.exported_labels), metric
    types = {family.name: family.type for family in measured.families}
    assert {types[f"etagere_{metric.name}"] for metric in exported} == {
        kind.value for kind in MetricKind
    }
    assert len(types) == len(exported)


def test_the_documentation_lists_every_metric() -> None:
    rows = re.findall(
        r"^\| `(etagere_\w+)` \| (\w+) \| ([^|]*) \| ([^|]*) \|$", OPERATIONS.read_text(), re.M
    )
    assert rows == [_documented(metric) for metric in METRICS]


def _documented(metric: Metric) -> tuple[str, str, str, str]:
    labels = ", ".join(f"`{label}`" for label in metric.exported_labels)
    return metric.exported_name, metric.kind.value, labels, metric.help


# Expressions in the dashboard and in the alert rules


def test_the_dashboard_uses_existing_metrics(measured: Scrape) -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    expressions = [
        target["expr"] for panel in _panels(dashboard) for target in panel.get("targets", ())
    ]
    assert len(expressions) >= 15
    for expression in expressions:
        _check(expression, measured)
    legends = [
        label
        for panel in _panels(dashboard)
        for target in panel.get("targets", ())
        for label in re.findall(r"{{(\w+)}}", target.get("legendFormat", ""))
    ]
    assert set(legends) <= set().union(*measured.labels.values())
    ids = [panel["id"] for panel in _panels(dashboard)]
    assert len(set(ids)) == len(ids)


def _panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = dashboard["panels"]
    return panels


def test_the_alert_rules_use_existing_metrics(measured: Scrape) -> None:
    text = ALERTS.read_text()
    expressions = re.findall(r"^ +expr: (.+)$", text, re.M)
    assert len(expressions) == text.count("- alert: ") >= 6
    for expression in expressions:
        _check(expression, measured)


_SELECTOR = re.compile(r"\b(etagere_\w+|up)\b(?:{([^}]*)})?")
_MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"[^"]*"')
_GROUPING = re.compile(r"\b(?:by|without|on)\s*\(([^)]*)\)")


def _check(expression: str, measured: Scrape) -> None:
    """Checks the names of metrics and labels in a PromQL expression."""
    used: set[str] = set()
    known = {**measured.labels}
    for name in NEEDS_TLS + NEEDS_CLUSTER:
        metric = BY_NAME[name]
        suffixes = ("_sum", "_count") if metric.kind is MetricKind.HISTOGRAM else ("",)
        for suffix in suffixes:
            known[f"{metric.exported_name}{suffix}"] = set(metric.exported_labels)
    selectors = _SELECTOR.findall(expression)
    assert selectors, expression
    for name, matchers in selectors:
        if name == "up":
            continue  # Prometheus adds it, and these labels
        assert name in known, (name, expression)
        used |= known[name]
        for label in _MATCHER.findall(matchers):
            assert label in {*known[name], "job", "instance"}, (label, expression)
    for labels in _GROUPING.findall(expression):
        for label in filter(None, re.split(r"\s*,\s*", labels.strip())):
            assert label in {*used, "job", "instance"}, (label, expression)


@pytest.mark.parametrize(
    "expression",
    [
        "rate(etagere_request_total[5m])",
        'etagere_requests_total{method="GET"}',
        "sum by (account) (etagere_requests_total)",
        "1",
    ],
)
def test_wrong_expressions_are_found(measured: Scrape, expression: str) -> None:
    with pytest.raises(AssertionError):
        _check(expression, measured)
