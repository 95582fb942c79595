"""The queue service as a whole: its properties, pages of other origins, its second place."""

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
from tests.sdk.queue.clients import now, queue_service, url
from tests.server import (
    ACCOUNT,
    KEY,
    SECOND_ACCOUNT,
    SECOND_KEYS,
    Answer,
    Server,
    refused,
    with_headers,
)

ORIGIN: Final = "https://example.org"
TOLD_OF_A_QUEUE: Final = ("x-ms-approximate-messages-count", "x-ms-meta-colour")
RULE: Final = CorsRule(
    [ORIGIN],
    ["GET", "POST"],
    allowed_headers=["x-ms-*"],
    exposed_headers=["x-ms-request-id"],
    max_age_in_seconds=200,
)


@pytest.fixture
def second(server: Server) -> Iterator[QueueServiceClient]:
    """An account whose properties no other test looks at; they are as they were afterwards."""
    with queue_service(server, SECOND_ACCOUNT, SECOND_KEYS[0]) as client:
        yield client
        client.set_service_properties(
            QueueAnalyticsLogging(), Metrics(enabled=False), Metrics(enabled=False), []
        )


def test_properties_are_kept(second: QueueServiceClient) -> None:
    kept = RetentionPolicy(enabled=True, days=7)
    logging = QueueAnalyticsLogging(read=True, write=False, delete=True, retention_policy=kept)
    hourly = Metrics(enabled=True, include_apis=True, retention_policy=kept)
    second.set_service_properties(logging, hourly, Metrics(enabled=False), [RULE])
    found: dict[str, Any] = second.get_service_properties()
    said = found["analytics_logging"]
    assert (said.read, said.write, said.delete) == (True, False, True)
    assert said.retention_policy.days == 7
    assert (found["hour_metrics"].enabled, found["hour_metrics"].include_apis) == (True, True)
    assert found["minute_metrics"].enabled is False
    (rule,) = found["cors"]
    assert (rule.allowed_origins, rule.allowed_methods) == (ORIGIN, "GET,POST")
    assert (rule.allowed_headers, rule.exposed_headers) == ("x-ms-*", "x-ms-request-id")
    assert rule.max_age_in_seconds == 200


def test_properties_are_those_of_one_service(server: Server, second: QueueServiceClient) -> None:
    second.set_service_properties(cors=[RULE])
    with server.service(SECOND_ACCOUNT, SECOND_KEYS[0]) as blobs:
        assert blobs.get_service_properties()["cors"] == []


def test_more_rules_than_there_may_be(second: QueueServiceClient) -> None:
    with refused(400, "InvalidXmlDocument"):
        second.set_service_properties(cors=[RULE] * 6)


def asked(path: str, *, origin: str = ORIGIN, method: str = "GET", headers: str = "") -> Request:
    request = Request(
        "OPTIONS", path, (), (("Origin", origin), ("Access-Control-Request-Method", method))
    )
    if headers:
        request = request.having(("Access-Control-Request-Headers", headers))
    return request


def test_preflights(server: Server, second: QueueServiceClient) -> None:
    second.set_service_properties(cors=[RULE])
    path = f"/{SECOND_ACCOUNT}/any/messages"
    with Client(server.endpoints["queue"]) as browser:
        answer = browser.ask(asked(path, method="POST", headers="x-ms-version"))
        assert answer.status == 200
        assert answer.headers["access-control-allow-origin"] == ORIGIN
        assert answer.headers["access-control-max-age"] == "200"
        assert answer.headers["access-control-allow-methods"] == "POST"
        assert answer.headers["access-control-allow-headers"] == "x-ms-version"
        for failing in (
            asked(path, origin="https://example.com"),
            asked(path, method="DELETE"),
            asked(path, headers="content-type"),
            asked(f"/{ACCOUNT}/any"),
            asked("/nobody/any"),
        ):
            answer = browser.ask(failing)
            assert (answer.status, answer.code) == (403, "CorsPreflightFailure")
        answer = browser.ask(Request("OPTIONS", path))
        assert (answer.status, answer.code) == (400, "InvalidHeaderValue")


def test_what_a_page_is_told(second: QueueServiceClient) -> None:
    second.set_service_properties(cors=[RULE])
    answer = Answer()
    for origin, allowed in ((ORIGIN, ORIGIN), ("https://example.com", None)):
        list(
            second.list_queues(
                raw_request_hook=with_headers(Origin=origin), raw_response_hook=answer
            )
        )
        assert answer.headers.get("access-control-allow-origin") == allowed
        assert answer.headers["vary"] == "Origin"


# The second place


def looking_at(queues: QueueServiceClient, place: str) -> QueueServiceClient:
    """The SDK asks for statistics at another host, which for us is the same."""
    host = urlsplit(place).netloc
    return QueueServiceClient(place, queues.credential, secondary_hostname=host, retry_total=0)


def test_stats(server: Server, queues: QueueServiceClient) -> None:
    with looking_at(queues, f"{url(server)}-secondary") as client:
        stats: dict[str, Any] = client.get_service_stats()
    assert stats["geo_replication"]["status"] == "live"
    assert abs(stats["geo_replication"]["last_sync_time"] - now()) < timedelta(minutes=1)


def test_the_primary_has_no_stats(server: Server, queues: QueueServiceClient) -> None:
    client = looking_at(queues, url(server))
    with client, refused(400, "InvalidQueryParameterValue"):
        client.get_service_stats()


def test_the_secondary_is_there_to_be_read(
    server: Server, queues: QueueServiceClient, queue: QueueClient
) -> None:
    queue.send_message("text")
    secondary = QueueClient(
        f"{url(server)}-secondary", queue.queue_name, queues.credential, retry_total=0
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


def test_a_head_tells_what_the_headers_of_a_get_do(server: Server, queue: QueueClient) -> None:
    queue.set_queue_metadata({"Colour": "red"})
    queue.send_message("text")
    told = []
    with Client(server.endpoints["queue"]) as client:
        for method in ("GET", "HEAD"):
            request = Request(method, f"/{ACCOUNT}/{queue.queue_name}", (("comp", "metadata"),))
            answer = client.ask(shared_key(ACCOUNT, KEY)(request))
            assert (answer.status, answer.body) == (200, b"")
            told.append({name: answer.headers.get(name) for name in TOLD_OF_A_QUEUE})
    assert told == [{"x-ms-approximate-messages-count": "1", "x-ms-meta-colour": "red"}] * 2
