"""Many consumers of one queue, with one front end and with two: each message goes to one of
them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from azure.storage.queue import QueueClient
from azure.storage.queue.aio import QueueClient as AsyncQueueClient

from tests.sdk.queue.clients import async_queue_service, queue_service
from tests.server import Server, served, unique

CONSUMERS = 16
MESSAGES = 320
WINDOW_SECONDS = 1
DELIVERIES_MIN = 3
SECONDS_MAX = 120.0


@pytest.fixture(scope="module", params=[1, 2], ids=["one front end", "two front ends"])
def busy_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("busy_server") / "data"
    with served(directory, "--workers", str(request.param)) as server:
        yield server
        assert server.stop() == 0


# Consumers that delete their messages


def test_concurrent_threads(busy_server: Server) -> None:
    with queue_service(busy_server) as service:
        queue = service.create_queue(unique("threads"))
    numbers = [range(first, MESSAGES, CONSUMERS) for first in range(CONSUMERS)]
    with ThreadPoolExecutor(CONSUMERS) as threads:
        list(threads.map(lambda share: _put(busy_server, queue.queue_name, share), numbers))
        taken = list(threads.map(lambda _: _consume(busy_server, queue.queue_name), numbers))
    assert sorted(chain(*taken)) == sorted(map(str, range(MESSAGES)))
    with queue_service(busy_server) as service:
        left = service.get_queue_client(queue.queue_name).get_queue_properties()
        assert left.approximate_message_count == 0


def _put(server: Server, name: str, numbers: range) -> None:
    with queue_service(server) as service:
        queue = service.get_queue_client(name)
        for number in numbers:
            queue.send_message(str(number))


def _consume(server: Server, name: str) -> list[str]:
    """Consumes until no message is visible."""
    with queue_service(server) as service:
        queue: QueueClient = service.get_queue_client(name)
        done = []
        for message in queue.receive_messages(messages_per_page=5, visibility_timeout=60):
            queue.delete_message(message)
            done.append(message.content)
        return done


def test_concurrent_tasks(busy_server: Server) -> None:
    """Some messages are released at first and received again."""

    async def main() -> None:
        name = unique("tasks")
        deliveries: Counter[str] = Counter()
        async with async_queue_service(busy_server) as service:
            queue = await service.create_queue(name)

            async def produce(share: range) -> None:
                for number in share:
                    await queue.send_message(str(number))

            async def consume() -> None:
                while len(deliveries) < MESSAGES:
                    taken = [
                        message
                        async for message in queue.receive_messages(
                            messages_per_page=4, max_messages=4, visibility_timeout=60
                        )
                    ]
                    for message in taken:
                        if int(message.content) % 8 == 0 and message.dequeue_count == 1:
                            await queue.update_message(message, visibility_timeout=0)
                        else:
                            await queue.delete_message(message)
                            deliveries[message.content] += 1
                    if not taken:
                        await asyncio.sleep(0.01)

            shares = [range(first, MESSAGES, CONSUMERS) for first in range(CONSUMERS)]
            async with asyncio.timeout(SECONDS_MAX):
                await asyncio.gather(*map(produce, shares), *(consume() for _ in shares))
            assert deliveries == Counter(map(str, range(MESSAGES)))
            assert (await queue.get_queue_properties()).approximate_message_count == 0

    asyncio.run(main())


# Consumers that delete nothing


class Delivery(NamedTuple):
    """A message that was received between these two times."""

    asked: float
    answered: float
    times: int


def test_a_message_is_delivered_once_per_visibility_timeout(busy_server: Server) -> None:
    async def main() -> None:
        async with async_queue_service(busy_server) as service:
            queue = await service.create_queue(unique("windows"))
            await asyncio.gather(*(queue.send_message(str(number)) for number in range(40)))
            deliveries: dict[str, list[Delivery]] = {str(number): [] for number in range(40)}
            async with asyncio.timeout(SECONDS_MAX):
                await asyncio.gather(*(_watch(queue, deliveries) for _ in range(CONSUMERS)))
        for found in deliveries.values():
            found.sort(key=lambda delivery: delivery.times)
            assert [delivery.times for delivery in found] == list(range(1, len(found) + 1))
            for before, after in pairwise(found):
                # The engine's clock may slew towards the wall clock, by less than this.
                assert after.answered - before.asked > WINDOW_SECONDS * 0.999

    asyncio.run(main())


async def _watch(queue: AsyncQueueClient, deliveries: dict[str, list[Delivery]]) -> None:
    """Receives until every message was delivered often enough."""
    while any(len(found) < DELIVERIES_MIN for found in deliveries.values()):
        asked = time.monotonic()
        message = await queue.receive_message(visibility_timeout=WINDOW_SECONDS)
        if message is None:
            await asyncio.sleep(0.02)
            continue
        delivery = Delivery(asked, time.monotonic(), message.dequeue_count or 0)
        deliveries[message.content].append(delivery)
