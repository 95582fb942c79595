"""Clients of the public SDK for the queue service of a server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from azure.storage.queue import QueueClient, QueueServiceClient, generate_account_sas
from azure.storage.queue.aio import QueueServiceClient as AsyncQueueServiceClient

from tests.server import ACCOUNT, KEY, Server

HOUR: Final = timedelta(hours=1)
KIB_64: Final = 64 * 1024


def now() -> datetime:
    return datetime.now(UTC)


def url(server: Server, account: str = ACCOUNT) -> str:
    return f"{server.endpoints['queue']}/{account}"


def queue_service(
    server: Server, account: str = ACCOUNT, key: str = KEY, **options: Any
) -> QueueServiceClient:
    """Without retries: every answer counts."""
    credential = {"account_name": account, "account_key": key}
    return QueueServiceClient(url(server, account), credential, retry_total=0, **options)


def async_queue_service(server: Server) -> AsyncQueueServiceClient:
    credential = {"account_name": ACCOUNT, "account_key": KEY}
    return AsyncQueueServiceClient(url(server), credential, retry_total=0)


def holder(queue: QueueClient, token: str) -> QueueClient:
    """The same queue, for whoever has this token and nothing else."""
    service_url = queue.url.rsplit("/", 1)[0]
    return QueueClient(service_url, queue.queue_name, token, retry_total=0)


def account_token(permission: str, types: str, **options: Any) -> str:
    options = {"services": "q", "expiry": now() + HOUR, **options}
    token: str = generate_account_sas(ACCOUNT, KEY, types, permission, **options)
    return token


def contents(queue: QueueClient) -> list[Any]:
    """The texts that can be seen, at most 32."""
    return [message.content for message in queue.peek_messages(32)]
