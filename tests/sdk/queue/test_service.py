"""The queue service as a whole: properties, CORS, the secondary."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from azure.storage.queue import (
    CorsRule,
    Metrics,
    QueueAnalyticsLogging,
    QueueClient,
    QueueServiceClient,
    RetentionPolicy,
)

from tests.probes.client import Client, Request, shared_key
from tests.sdk.blob.clients import blob_service
from tests.sdk.harness import ORIGIN, ResponseRecorder, now, preflight, refused, with_headers
from tests.sdk.queue.clients import queue_service
from tests.server import ACCOUNT, KEY, SECOND_ACCOUNT, SECOND_KEYS, Server

SECONDARY: Final = f"{ACCOUNT}-secondary"
QUEUE_HEADERS: Final = ("x-ms-approximate-messages-count", "x-ms-meta-colour")
RULE: Final = CorsRule(
    [ORIGIN],
    ["GET", "POST"],
    allowed_headers=["x-ms-*"],
    exposed_headers=["x-ms-request-id"],
    max_age_in_seconds=200,
)


@pytest.fixture
def second(server: Server) -> Iterator[QueueServiceClient]:
    """An account whose properties no other test reads; they are reset afterwards."""
    with queue_service(server, SECOND_ACCOUNT, SECOND_KEYS[0]) as client:
        yield client
        client.set_service_properties(
            QueueAnalyticsLogging(), Metrics(enabled=False), Metrics(enabled=False), []
        )


def test_properties_round_trip(second: QueueServiceClient) -> None:
    kept = RetentionPolicy(enabled=True, days=7)
    logging = QueueAnalyticsLogging(read=True, write=False, delete=True, retention_policy=kept)
    hourly = Metrics(enabled=True, include_apis=True, retention_policy=kept)
    second.set_service_properties(logging, hourly, Metrics(enabled=False), [RULE])
    found: dict[str, Any] = second.get_service_properties()
    logged = found["analytics_logging"]
    assert (logged.read, logged.write, logged.delete) == (True, False, True)
    assert logged.retention_policy.days == 7
    assert (found["hour_metrics"].enabled, found["hour_metrics"].include_apis) == (True, True)
    assert found["minute_metrics"].enabled is False
    (rule,) = found["cors"]
    assert (rule.allowed_origins, rule.allowed_methods) == (ORIGIN, "GET,POST")
    assert (rule.allowed_headers, rule.exposed_headers) == ("x-ms-*", "x-ms-request-id")
    assert rule.max_age_in_seconds == 200


def test_properties_belong_to_one_service(server: Server, second: QueueServiceClient) -> None:
    second.set_service_properties(cors=[RULE])
    with blob_service(server, SECOND_ACCOUNT, SECOND_KEYS[0]) as blobs:
        assert blobs.get_service_properties()["cors"] == []


def test_too_many_cors_rules(second: QueueServiceClient) -> None:
    with refused(400, "InvalidXmlDocument"):
        second.set_service_properties(cors=[RULE] * 6)


def test_preflights(server: Server, second: QueueServiceClient) -> None:
    second.set_service_properties(cors=[RULE])
    path = f"/{SECOND_ACCOUNT}/any/messages"
    with Client(server.endpoints["queue"]) as browser:
        answer = browser.ask(preflight(path, method="POST", headers="x-ms-version"))
        assert answer.status == 200
        assert answer.headers["access-control-allow-origin"] == ORIGIN
        assert answer.headers["access-control-max-age"] == "200"
        assert answer.headers["access-control-allow-methods"] == "POST"
        assert answer.headers["access-control-allow-headers"] == "x-ms-version"
        for failing in (
            preflight(path, origin="https://example.com"),
            preflight(path, method="DELETE"),
            preflight(path, headers="content-type"),
            preflight(f"/{ACCOUNT}/any"),
            preflight("/nobody/any"),
        ):
            answer = browser.ask(failing)
            assert (answer.status, answer.code) == (403, "CorsPreflightFailure")
        answer = browser.ask(Request("OPTIONS", path))
        assert (answer.status, answer.code) == (400, "InvalidHeaderValue")


def test_cors_response_headers(second: QueueServiceClient) -> None:
    second.set_service_properties(cors=[RULE])
    answer = ResponseRecorder()
    for origin, allowed in ((ORIGIN, ORIGIN), ("https://example.com", None)):
        list(
            second.list_queues(
                raw_request_hook=with_headers(Origin=origin), raw_response_hook=answer
            )
        )
        assert answer.headers.get("access-control-allow-origin") == allowed
        assert answer.headers["vary"] == "Origin"


# The secondary


def stats_client(queues: QueueServiceClient, url: str) -> QueueServiceClient:
    """Returns a client that requests statistics from this URL; the SDK uses the secondary host."""
    host = urlsplit(url).netloc
    return QueueServiceClient(url, queues.credential, secondary_hostname=host, retry_total=0)


def test_stats(server: Server, queues: QueueServiceClient) -> None:
    with stats_client(queues, server.url("queue", SECONDARY)) as client:
        stats: dict[str, Any] = client.get_service_stats()
    assert stats["geo_replication"]["status"] == "live"
    assert abs(stats["geo_replication"]["last_sync_time"] - now()) < timedelta(minutes=1)


def test_the_primary_has_no_stats(server: Server, queues: QueueServiceClient) -> None:
    client = stats_client(queues, server.url("queue"))
    with client, refused(400, "InvalidQueryParameterValue"):
        client.get_service_stats()


def test_the_secondary_is_read_only(
    server: Server, queues: QueueServiceClient, queue: QueueClient
) -> None:
    queue.send_message("text")
    secondary = QueueClient(
        server.url("queue", SECONDARY), queue.queue_name, queues.credential, retry_total=0
    )
    with secondary:
        assert [message.content for message in secondary.peek_messages()] == ["text"]
        assert secondary.get_queue_properties().approximate_message_count == 1
        with refused(403, "InsufficientAccountPermissions"):
            secondary.send_message("never")
        with refused(403, "InsufficientAccountPermissions"):
            secondary.clear_messages()
        with refused(403, "InsufficientAccountPermissions"):
            secondary.receive_message()
    assert queue.get_queue_properties().approximate_message_count == 1


# Requests that the SDK does not send


def test_head_returns_the_headers_of_get(server: Server, queue: QueueClient) -> None:
    queue.set_queue_metadata({"Colour": "red"})
    queue.send_message("text")
    headers = []
    with Client(server.endpoints["queue"]) as client:
        for method in ("GET", "HEAD"):
            request = Request(method, f"/{ACCOUNT}/{queue.queue_name}", (("comp", "metadata"),))
            answer = client.ask(shared_key(ACCOUNT, KEY)(request))
            assert (answer.status, answer.body) == (200, b"")
            headers.append({name: answer.headers.get(name) for name in QUEUE_HEADERS})
    assert headers == [{"x-ms-approximate-messages-count": "1", "x-ms-meta-colour": "red"}] * 2
