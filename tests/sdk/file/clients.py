"""SDK clients and SAS tokens for the file service of a test server."""

from __future__ import annotations

from typing import Any

from azure.storage.fileshare import (
    ShareClient,
    ShareServiceClient,
    generate_account_sas,
    generate_file_sas,
    generate_share_sas,
)
from azure.storage.fileshare.aio import ShareServiceClient as AsyncShareServiceClient

from tests.sdk.harness import HOUR, now
from tests.server import ACCOUNT, KEY, Server


def file_service(
    server: Server, account: str = ACCOUNT, key: str = KEY, **options: Any
) -> ShareServiceClient:
    """Returns a client without retries, so that a test sees every response."""
    credential = {"account_name": account, "account_key": key}
    return ShareServiceClient(server.url("file", account), credential, retry_total=0, **options)


def async_file_service(server: Server, **options: Any) -> AsyncShareServiceClient:
    credential = {"account_name": ACCOUNT, "account_key": KEY}
    return AsyncShareServiceClient(server.url("file"), credential, retry_total=0, **options)


def sas_client(share: ShareClient, token: str, **options: Any) -> ShareClient:
    """Returns a client for the same share that has only a SAS token."""
    service_url = share.url.rsplit("/", 1)[0]
    options = {"retry_total": 0, **options}
    return ShareClient(service_url, share.share_name, credential=token, **options)


def sas_service(server: Server, token: str) -> ShareServiceClient:
    """Returns a service client that has only a SAS token."""
    return ShareServiceClient(server.url("file"), token, retry_total=0)


def account_token(permission: str, types: str, **options: Any) -> str:
    options = {"expiry": now() + HOUR, **options}
    token: str = generate_account_sas(ACCOUNT, KEY, types, permission, **options)
    return token


def share_token(share: ShareClient, **options: Any) -> str:
    options = {**_default_options(), **options}
    token: str = generate_share_sas(ACCOUNT, share.share_name, **options)
    return token


def file_token(share: ShareClient, path: str, **options: Any) -> str:
    options = {**_default_options(), **options}
    token: str = generate_file_sas(ACCOUNT, share.share_name, path.split("/"), **options)
    return token


def _default_options() -> dict[str, Any]:
    return {"permission": "r", "expiry": now() + HOUR, "account_key": KEY}
