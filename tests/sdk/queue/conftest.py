"""Queues on the shared server of the SDK tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.storage.queue import QueueClient, QueueServiceClient

from tests.sdk.queue.clients import queue_service
from tests.server import Server, unique


@pytest.fixture(scope="session")
def queues(server: Server) -> Iterator[QueueServiceClient]:
    with queue_service(server) as client:
        yield client


@pytest.fixture
def queue(queues: QueueServiceClient) -> Iterator[QueueClient]:
    made = queues.create_queue(unique("queue"))
    yield made
    with contextlib.suppress(ResourceNotFoundError):
        made.delete_queue()
