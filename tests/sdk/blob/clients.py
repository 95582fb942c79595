"""SDK clients and SAS tokens for the blob service of a test server."""

from __future__ import annotations

from typing import Any

from azure.storage.blob import (
    BlobServiceClient,
    ContainerClient,
    generate_account_sas,
    generate_blob_sas,
    generate_container_sas,
)
from azure.storage.blob.aio import BlobServiceClient as AsyncBlobServiceClient

from tests.sdk.harness import HOUR, now
from tests.server import ACCOUNT, KEY, Server


def blob_service(
    server: Server, account: str = ACCOUNT, key: str = KEY, **options: Any
) -> BlobServiceClient:
    """Returns a client without retries, so that a test sees every response."""
    credential = {"account_name": account, "account_key": key}
    return BlobServiceClient(server.url("blob", account), credential, retry_total=0, **options)


def async_blob_service(server: Server, **options: Any) -> AsyncBlobServiceClient:
    credential = {"account_name": ACCOUNT, "account_key": KEY}
    return AsyncBlobServiceClient(server.url("blob"), credential, retry_total=0, **options)


def sas_client(container: ContainerClient, token: str) -> ContainerClient:
    """Returns a client for the same container that has only a SAS token."""
    service_url = container.url.rsplit("/", 1)[0]
    return ContainerClient(service_url, container.container_name, token, retry_total=0)


def sas_service(server: Server, token: str) -> BlobServiceClient:
    """Returns a service client that has only a SAS token."""
    return BlobServiceClient(server.url("blob"), token, retry_total=0)


def account_token(permission: str, types: str, **options: Any) -> str:
    options = {"services": "b", "expiry": now() + HOUR, **options}
    token: str = generate_account_sas(ACCOUNT, KEY, types, permission, **options)
    return token


def container_token(container: ContainerClient, **options: Any) -> str:
    options = {**_default_options(), **options}
    token: str = generate_container_sas(ACCOUNT, container.container_name, **options)
    return token


def blob_token(container: ContainerClient, name: str, **options: Any) -> str:
    options = {**_default_options(), **options}
    token: str = generate_blob_sas(ACCOUNT, container.container_name, name, **options)
    return token


def _default_options() -> dict[str, Any]:
    return {"permission": "r", "expiry": now() + HOUR, "account_key": KEY}
