"""The table service as a whole: its properties, pages of other origins, its second place."""

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
from tests.sdk.table.clients import OWNER, now, refused, rows, table_service, url
from tests.server import ACCOUNT, SECOND_ACCOUNT, SECOND_KEYS, Answer, Server, with_headers

ORIGIN: Final = "https://example.org"
RULE: Final = TableCorsRule(
    [ORIGIN],
    ["GET", "POST", "MERGE"],
    allowed_headers=["x-ms-*"],
    exposed_headers=["x-ms-request-id"],
    max_age_in_seconds=200,
)


@pytest.fixture
def second(server: Server) -> Iterator[TableServiceClient]:
    """An account whose properties no other test looks at; they are as they were afterwards."""
    with table_service(server, SECOND_ACCOUNT, SECOND_KEYS[0]) as client:
        yield client
        client.set_service_properties(
            analytics_logging=TableAnalyticsLogging(),
            hour_metrics=TableMetrics(),
            minute_metrics=TableMetrics(),
            cors=[],
        )


def test_properties_are_kept(second: TableServiceClient) -> None:
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
    said = found["analytics_logging"]
    assert (said.read, said.write, said.delete) == (True, False, True)
    assert said.retention_policy.days == 7
    assert (found["hour_metrics"].enabled, found["hour_metrics"].include_apis) == (True, True)
    assert found["minute_metrics"].enabled is False
    (rule,) = found["cors"]
    assert (rule.allowed_origins, rule.allowed_methods) == ([ORIGIN], ["GET", "POST", "MERGE"])
    assert rule.max_age_in_seconds == 200


def test_properties_are_those_of_one_service(server: Server, second: TableServiceClient) -> None:
    second.set_service_properties(cors=[RULE])
    with server.service(SECOND_ACCOUNT, SECOND_KEYS[0]) as blobs:
        assert blobs.get_service_properties()["cors"] == []


def test_more_rules_than_there_may_be(second: TableServiceClient) -> None:
    with refused(400, "InvalidXmlDocument"):
        second.set_service_properties(cors=[RULE] * 6)


def asked(path: str, *, origin: str = ORIGIN, method: str = "GET", headers: str = "") -> Request:
    request = Request(
        "OPTIONS", path, (), (("Origin", origin), ("Access-Control-Request-Method", method))
    )
    if headers:
        request = request.having(("Access-Control-Request-Headers", headers))
    return request


@pytest.mark.parametrize("below", ["Tables", "People()", "$batch"])
def test_preflights(server: Server, second: TableServiceClient, below: str) -> None:
    second.set_service_properties(cors=[RULE])
    path = f"/{SECOND_ACCOUNT}/{below}"
    with Client(server.endpoints["table"]) as browser:
        for method in ("POST", "MERGE"):
            answer = browser.ask(asked(path, method=method, headers="x-ms-version"))
            assert answer.status == 200
            assert answer.headers["access-control-allow-origin"] == ORIGIN
            assert answer.headers["access-control-max-age"] == "200"
            assert answer.headers["access-control-allow-methods"] == method
            assert answer.headers["access-control-allow-headers"] == "x-ms-version"
        for failing in (
            asked(path, origin="https://example.com"),
            asked(path, method="DELETE"),
            asked(path, headers="content-type"),
            asked(f"/{ACCOUNT}/{below}"),
            asked(f"/nobody/{below}"),
        ):
            answer = browser.ask(failing)
            assert (answer.status, answer.code) == (403, "CorsPreflightFailure")
        answer = browser.ask(Request("OPTIONS", path))
        assert (answer.status, answer.code) == (400, "InvalidHeaderValue")


def test_what_a_page_is_told(second: TableServiceClient) -> None:
    second.set_service_properties(cors=[RULE])
    answer = Answer()
    for origin, allowed in ((ORIGIN, ORIGIN), ("https://example.com", None)):
        hook = with_headers(Origin=origin)
        list(second.list_tables(raw_request_hook=hook, raw_response_hook=answer))
        assert answer.headers.get("access-control-allow-origin") == allowed
        assert answer.headers["vary"] == "Origin"


# The second place


def looking_at(place: str) -> TableServiceClient:
    """The SDK asks for statistics at another host, which for us is the same."""
    host = urlsplit(place).netloc
    return TableServiceClient(place, credential=OWNER, secondary_hostname=host, retry_total=0)


def test_stats(server: Server) -> None:
    with looking_at(f"{url(server)}-secondary") as client:
        stats: dict[str, Any] = dict(client.get_service_stats())
    assert stats["geo_replication"]["status"] == "live"
    assert abs(stats["geo_replication"]["last_sync_time"] - now()) < timedelta(minutes=1)


def test_the_primary_has_no_stats(server: Server) -> None:
    client = looking_at(url(server))
    with client, refused(400, "InvalidQueryParameterValue"):
        client.get_service_stats()


def test_the_secondary_is_there_to_be_read(server: Server, table: TableClient) -> None:
    entity = {"PartitionKey": "p", "RowKey": "r"}
    table.create_entity(entity)
    with looking_at(f"{url(server)}-secondary") as service:
        other = service.get_table_client(table.table_name)
        assert rows(other) == ["r"]
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
    assert rows(table) == ["r"]
