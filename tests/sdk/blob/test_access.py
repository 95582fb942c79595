"""Authentication of blob requests: keys, clock skew and anonymous access."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.storage.blob import BlobServiceClient, ContainerClient, PublicAccess

from tests.sdk.blob.clients import blob_service
from tests.sdk.harness import WRONG_CREDENTIALS, refused, with_headers
from tests.server import (
    SECOND_ACCOUNT,
    SECOND_KEYS,
    Server,
    development_port,
    served,
    unique,
)

# Keys


@pytest.mark.parametrize("key", SECOND_KEYS, ids=["first", "second"])
def test_both_keys_of_an_account(server: Server, key: str) -> None:
    with blob_service(server, SECOND_ACCOUNT, key) as service:
        container = service.create_container(unique())
        assert container.upload_blob("blob", b"content").download_blob().readall() == b"content"
        container.delete_container()


@pytest.mark.parametrize(("account", "key"), WRONG_CREDENTIALS)
def test_wrong_keys(server: Server, account: str, key: str) -> None:
    with blob_service(server, account, key) as service:
        with refused(403, "AuthenticationFailed"):
            list(service.list_containers())
        with refused(403, "AuthenticationFailed"):
            service.create_container("never")
        with pytest.raises(ClientAuthenticationError):
            service.get_container_client("never").get_container_properties()


def test_the_key_of_another_account_is_refused(server: Server, container: ContainerClient) -> None:
    credential = {"account_name": SECOND_ACCOUNT, "account_key": SECOND_KEYS[0]}
    service = BlobServiceClient(server.url("blob"), credential, retry_total=0)
    with service, refused(403, "AuthenticationFailed"):
        service.get_container_client(container.container_name).upload_blob("blob", b"")


def test_connection_strings(server: Server, container: ContainerClient) -> None:
    text = server.connection_string("blob")
    with BlobServiceClient.from_connection_string(text) as service:
        assert service.get_container_client(container.container_name).exists()


def test_development_storage(tmp_path: Path) -> None:
    service = BlobServiceClient.from_connection_string("UseDevelopmentStorage=true")
    with (
        development_port() as port,
        served(tmp_path / "data", "--blob-port", str(port)),
        service,
    ):
        container = service.create_container("development")
        container.upload_blob("blob", b"content")
        assert container.download_blob("blob").readall() == b"content"


@pytest.mark.parametrize("minutes", [-14, 14])
def test_small_clock_skew(container: ContainerClient, minutes: int) -> None:
    container.get_container_properties(raw_request_hook=_sent_at(minutes))


@pytest.mark.parametrize("minutes", [-16, 16, -100_000])
def test_large_clock_skew(container: ContainerClient, minutes: int) -> None:
    with refused(403, "AuthenticationFailed"):
        container.set_container_metadata({}, raw_request_hook=_sent_at(minutes))


def _sent_at(minutes: int) -> Callable[[Any], None]:
    moment = datetime.now(UTC) + timedelta(minutes=minutes)
    return with_headers(x_ms_date=format_datetime(moment, usegmt=True))


# Anonymous access


@pytest.fixture
def anonymous(server: Server, container: ContainerClient) -> Iterator[ContainerClient]:
    """Returns a client for the same container without credentials."""
    container.upload_blob("blob", b"content")
    with ContainerClient(server.url("blob"), container.container_name, retry_total=0) as client:
        yield client


def test_private_containers(anonymous: ContainerClient) -> None:
    with refused(401, "NoAuthenticationInformation"):
        anonymous.download_blob("blob")
    with refused(401, "NoAuthenticationInformation"):
        list(anonymous.list_blobs())
    with refused(401, "NoAuthenticationInformation"):
        anonymous.get_blob_client("missing").download_blob()
    with refused(401, "NoAuthenticationInformation"):
        anonymous.upload_blob("other", b"")


def test_challenge(anonymous: ContainerClient) -> None:
    with pytest.raises(ClientAuthenticationError) as caught:
        anonymous.download_blob("blob")
    headers: dict[str, str] = getattr(caught.value.response, "headers", {})
    assert headers["WWW-Authenticate"].startswith("Bearer ")


def test_public_blobs(container: ContainerClient, anonymous: ContainerClient) -> None:
    container.set_container_access_policy({}, public_access=PublicAccess.BLOB)
    assert anonymous.download_blob("blob").readall() == b"content"
    assert anonymous.get_blob_client("blob").get_blob_properties().size == 7
    with refused(404, "BlobNotFound"):
        anonymous.download_blob("missing")
    with refused(401, "NoAuthenticationInformation"):
        list(anonymous.list_blobs())
    with refused(401, "NoAuthenticationInformation"):
        anonymous.get_container_properties()
    _require_no_writes(anonymous)


def test_public_container(container: ContainerClient, anonymous: ContainerClient) -> None:
    container.set_container_access_policy({}, public_access=PublicAccess.CONTAINER)
    assert anonymous.download_blob("blob").readall() == b"content"
    assert [shown.name for shown in anonymous.list_blobs()] == ["blob"]
    assert anonymous.get_container_properties().public_access == "container"
    with refused(401, "NoAuthenticationInformation"):
        anonymous.get_container_access_policy()
    _require_no_writes(anonymous)


def test_public_access_ends_at_once(container: ContainerClient, anonymous: ContainerClient) -> None:
    for _ in range(20):
        container.set_container_access_policy({}, public_access=PublicAccess.BLOB)
        assert anonymous.download_blob("blob").readall() == b"content"
        container.set_container_access_policy({})
        with refused(401, "NoAuthenticationInformation"):
            anonymous.download_blob("blob")


def _require_no_writes(anonymous: ContainerClient) -> None:
    with refused(401, "NoAuthenticationInformation"):
        anonymous.upload_blob("blob", b"new", overwrite=True)
    with refused(401, "NoAuthenticationInformation"):
        anonymous.delete_blob("blob")
    with refused(401, "NoAuthenticationInformation"):
        anonymous.delete_container()
    with refused(401, "NoAuthenticationInformation"):
        anonymous.acquire_lease()


def test_anonymous_listing_of_containers(server: Server) -> None:
    service = BlobServiceClient(server.url("blob"), retry_total=0)
    with service, refused(401, "NoAuthenticationInformation"):
        list(service.list_containers())
