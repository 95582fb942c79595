"""SDK clients and SAS tokens for the queue service of a test server."""

from __future__ import annotations

from typing import Any, Final

from azure.storage.queue import (
    QueueClient,
    QueueServiceClient,
    generate_account_sas,
    generate_queue_sas,
)
from azure.storage.queue.aio import QueueServiceClient as AsyncQueueServiceClient

from tests.sdk.harness import HOUR, now
from tests.server import ACCOUNT, KEY, Server

KIB_64: Final = 64 * 1024


def queue_service(
    server: Server, account: str = ACCOUNT, key: str = KEY, **options: Any
) -> QueueServiceClient:
    """Returns a client without retries, so that a test sees every response."""
    credential = {"account_name": account, "account_key": key}
    return QueueServiceClient(server.url("queue", account), credential, retry_total=0, **options)


def async_queue_service(server: Server) -> AsyncQueueServiceClient:
    credential = {"account_name": ACCOUNT, "account_key": KEY}
    return AsyncQueueServiceClient(server.url("queue"), credential, retry_total=0)


def sas_client(queue: QueueClient, token: str) -> QueueClient:
    """Returns a client for the same queue that has only a SAS token."""
    service_url = queue.url.rsplit("/", 1)[0]
    return QueueClient(service_url, queue.queue_name, token, retry_total=0)


def account_token(permission: str, types: str, **options: Any) -> str:
    options = {"services": "q", "expiry": now() + HOUR, **options}
    token: str = generate_account_sas(ACCOUNT, KEY, types, permission, **options)
    return token


def queue_token(queue: QueueClient, **options: Any) -> str:
    options = {"permission": "raup", "expiry": now() + HOUR, "account_key": KEY, **options}
    token: str = generate_queue_sas(ACCOUNT, queue.queue_name, **options)
    return token


def contents(queue: QueueClient) -> list[Any]:
    """Returns the texts of the visible messages, at most 32."""
    return [message.content for message in queue.peek_messages(32)]
