"""Properties of the blob service: all that can be set, and refusals."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from azure.storage.blob import (
    BlobAnalyticsLogging,
    BlobServiceClient,
    CorsRule,
    Metrics,
    RetentionPolicy,
    StaticWebsite,
)

from tests.sdk.blob.clients import blob_service
from tests.sdk.harness import refused
from tests.server import SECOND_ACCOUNT, SECOND_KEYS, Server

BYTES_MAX = 64 << 10
OFF = RetentionPolicy(enabled=False)
NOTHING: dict[str, Any] = {
    "analytics_logging": BlobAnalyticsLogging(),
    "hour_metrics": Metrics(),
    "minute_metrics": Metrics(),
    "cors": [],
    "delete_retention_policy": OFF,
    "static_website": StaticWebsite(),
}
INVALID, MISSING = "InvalidXmlNodeValue", "MissingRequiredXmlNode"
UNSUPPORTED, NO_DOCUMENT = "UnsupportedXmlNode", "InvalidXmlDocument"


@pytest.fixture
def account(server: Server) -> Iterator[BlobServiceClient]:
    """An account whose service properties no other test uses."""
    with blob_service(server, SECOND_ACCOUNT, SECOND_KEYS[0]) as client:
        yield client
        client.set_service_properties(**NOTHING)


def sending(document: bytes) -> Callable[[Any], None]:
    """Returns a hook that sends a document as it is."""

    def change(request: Any) -> None:
        request.http_request.set_bytes_body(document)
        # For an empty body the SDK would keep the previous length.
        request.http_request.headers["Content-Length"] = str(len(document))

    return change


def set_document(account: BlobServiceClient, document: bytes) -> None:
    account.set_service_properties(cors=[], raw_request_hook=sending(document))


def wrapped(content: str) -> bytes:
    return f"<StorageServiceProperties>{content}</StorageServiceProperties>".encode()


def test_all_properties(account: BlobServiceClient) -> None:
    kept = RetentionPolicy(enabled=True, days=7)
    account.set_service_properties(
        BlobAnalyticsLogging(read=True, write=True, delete=True, retention_policy=kept),
        Metrics(enabled=True, include_apis=True, retention_policy=kept),
        Metrics(enabled=True, include_apis=False),
        [CorsRule(["https://a.example"], ["GET", "PUT"], max_age_in_seconds=5)],
        "2021-12-02",
        RetentionPolicy(enabled=True, days=365),
        StaticWebsite(
            enabled=True, index_document="index.html", error_document404_path="errors/404.html"
        ),
    )
    shown = account.get_service_properties()
    logging, hour, minute = (
        shown[name] for name in ("analytics_logging", "hour_metrics", "minute_metrics")
    )
    assert (logging.version, logging.read, logging.write, logging.delete) == ("1.0", *[True] * 3)
    assert logging.retention_policy.days == 7
    assert (hour.enabled, hour.include_apis, hour.retention_policy.days) == (True, True, 7)
    assert (minute.enabled, minute.include_apis) == (True, False)
    assert minute.retention_policy.enabled is False
    (rule,) = shown["cors"]
    assert (rule.allowed_origins, rule.allowed_methods) == ("https://a.example", "GET,PUT")
    assert rule.max_age_in_seconds == 5
    assert shown["target_version"] == "2021-12-02"
    deleted = shown["delete_retention_policy"]
    assert (deleted.enabled, deleted.days) == (True, 365)
    website = shown["static_website"]
    assert website.enabled is True
    assert website.index_document == "index.html"
    assert website.error_document404_path == "errors/404.html"
    # Omitted properties are unchanged.
    account.set_service_properties(delete_retention_policy=OFF)
    after = account.get_service_properties()
    assert after["delete_retention_policy"].enabled is False
    assert after["delete_retention_policy"].days is None
    assert after["static_website"].index_document == "index.html"
    assert len(after["cors"]) == 1


def test_permanent_deletes(account: BlobServiceClient) -> None:
    policy = "<Enabled>true</Enabled><Days>3</Days><AllowPermanentDelete>true"
    document = f"<DeleteRetentionPolicy>{policy}</AllowPermanentDelete></DeleteRetentionPolicy>"
    set_document(account, wrapped(document))
    seen: list[bytes] = []

    def look(response: Any) -> None:
        seen.append(response.http_response.body())

    account.get_service_properties(raw_response_hook=look)
    assert b"<Days>3</Days><AllowPermanentDelete>true</AllowPermanentDelete>" in seen[0]


def policy(days: str) -> str:
    enabled = "<Enabled>true</Enabled>"
    return f"<DeleteRetentionPolicy>{enabled}<Days>{days}</Days></DeleteRetentionPolicy>"


def cors(**parts: str) -> str:
    values = {
        "AllowedOrigins": "*",
        "AllowedMethods": "GET",
        "AllowedHeaders": "",
        "ExposedHeaders": "",
        "MaxAgeInSeconds": "1",
        **parts,
    }
    content = "".join(f"<{name}>{value}</{name}>" for name, value in values.items())
    return f"<CorsRule>{content}</CorsRule>"


def metrics(version: str, rest: str) -> str:
    retention = "<RetentionPolicy><Enabled>false</Enabled></RetentionPolicy>"
    return f"<HourMetrics><Version>{version}</Version>{rest}{retention}</HourMetrics>"


@pytest.mark.parametrize(
    ("document", "code"),
    [
        (b"", NO_DOCUMENT),
        (b"no document", NO_DOCUMENT),
        (b"<Other/>", NO_DOCUMENT),
        (b"<StorageServiceProperties>", NO_DOCUMENT),
        (b"<!DOCTYPE a><StorageServiceProperties/>", NO_DOCUMENT),
        (wrapped("<Cors/><Cors/>"), NO_DOCUMENT),
        (wrapped("<Other/>"), UNSUPPORTED),
        (wrapped("<Cors><Other/></Cors>"), UNSUPPORTED),
        (wrapped(f"<Cors>{cors() * 6}</Cors>"), NO_DOCUMENT),
        (wrapped(f"<Cors>{cors(AllowedMethods='TRACE')}</Cors>"), INVALID),
        (wrapped(f"<Cors>{cors(AllowedOrigins='a' * 257)}</Cors>"), INVALID),
        (wrapped(f"<Cors>{cors(MaxAgeInSeconds='-1')}</Cors>"), INVALID),
        (wrapped(f"<Cors>{cors(MaxAgeInSeconds='9' * 5000)}</Cors>"), INVALID),
        (wrapped(f"<Cors>{cors(MaxAgeInSeconds='')}</Cors>"), INVALID),
        (wrapped(policy("0")), NO_DOCUMENT),
        (wrapped(policy("366")), NO_DOCUMENT),
        (wrapped(policy("")), INVALID),
        (wrapped(policy("1").replace("<Days>1</Days>", "")), MISSING),
        (wrapped(metrics("1.0", "<Enabled>true</Enabled>")), MISSING),
        (wrapped(metrics("9.0", "<Enabled>false</Enabled>")), INVALID),
        (wrapped(metrics("1.0", "<Enabled>maybe</Enabled>")), INVALID),
        (wrapped("<DefaultServiceVersion>2021-12-03</DefaultServiceVersion>"), INVALID),
        (wrapped("<DefaultServiceVersion/>"), INVALID),
        (wrapped("<StaticWebsite/>"), MISSING),
    ],
)
def test_refusals_change_nothing(account: BlobServiceClient, document: bytes, code: str) -> None:
    account.set_service_properties(cors=[CorsRule(["https://kept.example"], ["GET"])])
    with refused(400, code):
        set_document(account, document)
    (rule,) = account.get_service_properties()["cors"]
    assert rule.allowed_origins == "https://kept.example"


def test_the_largest_document(account: BlobServiceClient) -> None:
    document = wrapped(f"<Cors>{cors()}</Cors>")
    set_document(account, document.ljust(BYTES_MAX))
    assert len(account.get_service_properties()["cors"]) == 1
    with refused(413, "RequestBodyTooLarge"):
        set_document(account, wrapped("<Cors/>").ljust(BYTES_MAX + 1))
    assert len(account.get_service_properties()["cors"]) == 1


def test_default_version(account: BlobServiceClient) -> None:
    def answered(version: str | None) -> str | None:
        url = urlsplit(account.url)
        connection = http.client.HTTPConnection(url.netloc, timeout=20)
        try:
            headers = {} if version is None else {"x-ms-version": version}
            connection.request("GET", f"{url.path.rstrip('/')}/container/blob", headers=headers)
            return connection.getresponse().getheader("x-ms-version")
        finally:
            connection.close()

    for default in ("2015-12-11", "2021-12-02"):
        account.set_service_properties(target_version=default)
        assert answered(None) == default
        assert answered("2019-12-12") == "2019-12-12"


def test_cors_rules_take_effect_at_once(account: BlobServiceClient) -> None:
    def asked() -> http.client.HTTPResponse:
        url = urlsplit(account.url)
        connection = http.client.HTTPConnection(url.netloc, timeout=20)
        headers = {"Origin": "https://a.example", "Access-Control-Request-Method": "PUT"}
        try:
            connection.request("OPTIONS", f"{url.path.rstrip('/')}/container/blob", headers=headers)
            answer = connection.getresponse()
            answer.read()
            return answer
        finally:
            connection.close()

    account.set_service_properties(cors=[CorsRule(["https://a.example"], ["PUT"])])
    allowed = asked()
    assert allowed.status == 200
    assert allowed.getheader("Access-Control-Allow-Origin") == "https://a.example"
    account.set_service_properties(cors=[])
    assert asked().status == 403
