"""The table service as a whole: properties, CORS, the secondary."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from azure.data.tables import (
    TableAnalyticsLogging,
    TableClient,
    TableCorsRule,
    TableMetrics,
    TableRetentionPolicy,
    TableServiceClient,
)

from tests.probes.client import Client, Request
from tests.sdk.blob.clients import blob_service
from tests.sdk.harness import ORIGIN, ResponseRecorder, now, preflight, refused, with_headers
from tests.sdk.table.clients import OWNER, row_keys, table_service
from tests.server import ACCOUNT, SECOND_ACCOUNT, SECOND_KEYS, Server

SECONDARY: Final = f"{ACCOUNT}-secondary"
RULE: Final = TableCorsRule(
    [ORIGIN],
    ["GET", "POST", "MERGE"],
    allowed_headers=["x-ms-*"],
    exposed_headers=["x-ms-request-id"],
    max_age_in_seconds=200,
)


@pytest.fixture
def second(server: Server) -> Iterator[TableServiceClient]:
    """An account whose properties no other test reads; they are reset afterwards."""
    with table_service(server, SECOND_ACCOUNT, SECOND_KEYS[0]) as client:
        yield client
        client.set_service_properties(
            analytics_logging=TableAnalyticsLogging(),
            hour_metrics=TableMetrics(),
            minute_metrics=TableMetrics(),
            cors=[],
        )


def test_properties_round_trip(second: TableServiceClient) -> None:
    kept = TableRetentionPolicy(enabled=True, days=7)
    logging = TableAnalyticsLogging(read=True, write=False, delete=True, retention_policy=kept)
    hourly = TableMetrics(enabled=True, include_apis=True, retention_policy=kept)
    second.set_service_properties(
        analytics_logging=logging,
        hour_metrics=hourly,
        minute_metrics=TableMetrics(),
        cors=[RULE],
    )
    found: dict[str, Any] = dict(second.get_service_properties())
    logged = found["analytics_logging"]
    assert (logged.read, logged.write, logged.delete) == (True, False, True)
    assert logged.retention_policy.days == 7
    assert (found["hour_metrics"].enabled, found["hour_metrics"].include_apis) == (True, True)
    assert found["minute_metrics"].enabled is False
    (rule,) = found["cors"]
    assert (rule.allowed_origins, rule.allowed_methods) == ([ORIGIN], ["GET", "POST", "MERGE"])
    assert rule.max_age_in_seconds == 200


def test_properties_belong_to_one_service(server: Server, second: TableServiceClient) -> None:
    second.set_service_properties(cors=[RULE])
    with blob_service(server, SECOND_ACCOUNT, SECOND_KEYS[0]) as blobs:
        assert blobs.get_service_properties()["cors"] == []


def test_too_many_cors_rules(second: TableServiceClient) -> None:
    with refused(400, "InvalidXmlDocument"):
        second.set_service_properties(cors=[RULE] * 6)


@pytest.mark.parametrize("below", ["Tables", "People()", "$batch"])
def test_preflights(server: Server, second: TableServiceClient, below: str) -> None:
    second.set_service_properties(cors=[RULE])
    path = f"/{SECOND_ACCOUNT}/{below}"
    with Client(server.endpoints["table"]) as browser:
        for method in ("POST", "MERGE"):
            answer = browser.ask(preflight(path, method=method, headers="x-ms-version"))
            assert answer.status == 200
            assert answer.headers["access-control-allow-origin"] == ORIGIN
            assert answer.headers["access-control-max-age"] == "200"
            assert answer.headers["access-control-allow-methods"] == method
            assert answer.headers["access-control-allow-headers"] == "x-ms-version"
        for failing in (
            preflight(path, origin="https://example.com"),
            preflight(path, method="DELETE"),
            preflight(path, headers="content-type"),
            preflight(f"/{ACCOUNT}/{below}"),
            preflight(f"/nobody/{below}"),
        ):
            answer = browser.ask(failing)
            assert (answer.status, answer.code) == (403, "CorsPreflightFailure")
        answer = browser.ask(Request("OPTIONS", path))
        assert (answer.status, answer.code) == (400, "InvalidHeaderValue")


def test_cors_response_headers(second: TableServiceClient) -> None:
    second.set_service_properties(cors=[RULE])
    answer = ResponseRecorder()
    for origin, allowed in ((ORIGIN, ORIGIN), ("https://example.com", None)):
        hook = with_headers(Origin=origin)
        list(second.list_tables(raw_request_hook=hook, raw_response_hook=answer))
        assert answer.headers.get("access-control-allow-origin") == allowed
        assert answer.headers["vary"] == "Origin"


# The secondary


def stats_client(url: str) -> TableServiceClient:
    """Returns a client that requests statistics from this URL; the SDK uses the secondary host."""
    host = urlsplit(url).netloc
    return TableServiceClient(url, credential=OWNER, secondary_hostname=host, retry_total=0)


def test_stats(server: Server) -> None:
    with stats_client(server.url("table", SECONDARY)) as client:
        stats: dict[str, Any] = dict(client.get_service_stats())
    assert stats["geo_replication"]["status"] == "live"
    assert abs(stats["geo_replication"]["last_sync_time"] - now()) < timedelta(minutes=1)


def test_the_primary_has_no_stats(server: Server) -> None:
    client = stats_client(server.url("table"))
    with client, refused(400, "InvalidQueryParameterValue"):
        client.get_service_stats()


def test_the_secondary_is_read_only(server: Server, table: TableClient) -> None:
    entity = {"PartitionKey": "p", "RowKey": "r"}
    table.create_entity(entity)
    with stats_client(server.url("table", SECONDARY)) as service:
        other = service.get_table_client(table.table_name)
        assert row_keys(other) == ["r"]
        assert other.get_entity("p", "r")["RowKey"] == "r"
        assert table.table_name in {found.name for found in service.list_tables()}
        for call in (
            lambda: other.create_entity({**entity, "RowKey": "never"}),
            lambda: other.upsert_entity(entity),
            lambda: other.delete_entity("p", "r"),
            lambda: other.submit_transaction([("delete", entity)]),
            other.delete_table,
            lambda: service.create_table("Never"),
        ):
            with refused(403, "InsufficientAccountPermissions"):
                call()
    assert row_keys(table) == ["r"]
