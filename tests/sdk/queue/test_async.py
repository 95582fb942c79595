"""The asynchronous client: the main operations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from azure.storage.queue import AccessPolicy, QueueMessage
from azure.storage.queue.aio import QueueClient

from tests.sdk.harness import HOUR, now, refused
from tests.sdk.queue.clients import KIB_64, async_queue_service
from tests.server import Server, unique


@asynccontextmanager
async def made(server: Server) -> AsyncIterator[QueueClient]:
    async with async_queue_service(server) as service:
        queue = await service.create_queue(unique("async"), metadata={"Key": "Value"})
        yield queue
        await queue.delete_queue()


def run(server: Server, test: Callable[[QueueClient], Awaitable[None]]) -> None:
    async def main() -> None:
        async with made(server) as queue:
            await test(queue)

    asyncio.run(main())


async def take(queue: QueueClient) -> QueueMessage:
    taken = await queue.receive_message()
    assert taken is not None
    return taken


def test_queues(server: Server) -> None:
    async def test(queue: QueueClient) -> None:
        shown = await queue.get_queue_properties()
        assert (shown.metadata, shown.approximate_message_count) == ({"Key": "Value"}, 0)
        with refused(409, "QueueAlreadyExists"):
            await queue.create_queue()
        await queue.set_queue_metadata({"Other": "1"})
        assert (await queue.get_queue_properties()).metadata == {"Other": "1"}
        await queue.set_queue_access_policy({"it": AccessPolicy("r", now() + HOUR)})
        assert list(await queue.get_queue_access_policy()) == ["it"]
        await queue.delete_queue()
        with refused(404, "QueueNotFound"):
            await queue.get_queue_properties()
        await queue.create_queue()

    run(server, test)


def test_messages(server: Server) -> None:
    async def test(queue: QueueClient) -> None:
        sent = await queue.send_message("hello", time_to_live=-1)
        (seen,) = await queue.peek_messages()
        assert (seen.id, seen.content, seen.dequeue_count) == (sent.id, "hello", 0)
        taken = await take(queue)
        assert (taken.id, taken.dequeue_count) == (sent.id, 1)
        assert await queue.receive_message() is None
        with refused(404, "MessageNotFound"):
            await queue.delete_message(sent)
        updated = await queue.update_message(taken, content="é" * 2_000, visibility_timeout=0)
        assert (await take(queue)).content == "é" * 2_000
        with refused(404, "MessageNotFound"):
            await queue.delete_message(updated)
        await queue.clear_messages()
        assert (await queue.get_queue_properties()).approximate_message_count == 0

    run(server, test)


def test_lists(server: Server) -> None:
    async def main() -> None:
        async with async_queue_service(server) as service:
            prefix = unique("listed")
            names = [f"{prefix}-{number}" for number in range(5)]
            await asyncio.gather(*map(service.create_queue, names))
            listed = service.list_queues(name_starts_with=prefix, results_per_page=2)
            assert [found.name async for found in listed] == names
            await asyncio.gather(*map(service.delete_queue, names))

    asyncio.run(main())


def test_concurrent_requests(server: Server) -> None:
    async def test(queue: QueueClient) -> None:
        texts = [str(number) * (KIB_64 // 8) for number in range(50)]
        await asyncio.gather(*map(queue.send_message, texts))
        assert (await queue.get_queue_properties()).approximate_message_count == len(texts)
        taken = [message async for message in queue.receive_messages(messages_per_page=32)]
        assert sorted(message.content for message in taken) == sorted(texts)
        await asyncio.gather(*map(queue.delete_message, taken))
        assert (await queue.get_queue_properties()).approximate_message_count == 0

    run(server, test)
