"""Service properties of the file service as documents, with elements that the SDK does not have."""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit

from azure.storage.fileshare import generate_account_sas

from tests.sdk.harness import HOUR, now
from tests.server import ACCOUNT, KEY, SECOND_ACCOUNT, SECOND_KEYS, Server

_KEYS = {ACCOUNT: KEY, SECOND_ACCOUNT: SECOND_KEYS[0]}


def keep_deleted_shares(server: Server, days: int, account: str = ACCOUNT, key: str = KEY) -> None:
    """Sets how long deleted shares can be restored; 0: not at all."""
    policy = f"<Enabled>true</Enabled><Days>{days}</Days>" if days else "<Enabled>false</Enabled>"
    element = f"<ShareDeleteRetentionPolicy>{policy}</ShareDeleteRetentionPolicy>"
    assert set_service_property(server, element, account, key) == 202


def set_service_property(
    server: Server, element: str, account: str = ACCOUNT, key: str = KEY
) -> int:
    """Sends one element of the service properties; returns the status."""
    document = f"<StorageServiceProperties>{element}</StorageServiceProperties>"
    return _send(server, "PUT", document, "2026-10-06", account, key)[0]


def get_service_properties(server: Server, version: str, account: str = ACCOUNT) -> str:
    """Returns the document without its declaration."""
    status, document = _send(server, "GET", None, version, account, _KEYS[account])
    assert status == 200
    return document.partition("?>")[2]


def _send(
    server: Server, method: str, document: str | None, version: str, account: str, key: str
) -> tuple[int, str]:
    address = urlsplit(server.url("file", account))
    token = generate_account_sas(account, key, "s", "rw", now() + HOUR)
    target = f"{address.path}?restype=service&comp=properties&{token}"
    connection = http.client.HTTPConnection(address.netloc, timeout=20)
    connection.request(method, target, document, {"x-ms-version": version})
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response.status, body
