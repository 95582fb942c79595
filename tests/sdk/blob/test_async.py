"""The asynchronous client: the main operations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from azure.core import MatchConditions
from azure.storage.blob.aio import BlobPrefix, ContainerClient

from tests.sdk.blob.clients import async_blob_service
from tests.sdk.harness import refused
from tests.server import Server, unique

MIB = 1024 * 1024

# The SDK passes the bytes of an upload to aiohttp as they are.
pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")


@asynccontextmanager
async def made(server: Server) -> AsyncIterator[ContainerClient]:
    async with async_blob_service(server) as service:
        container = await service.create_container(unique("async"))
        yield container
        await container.delete_container()


def run(server: Server, test: Callable[[ContainerClient], Awaitable[None]]) -> None:
    async def main() -> None:
        async with made(server) as container:
            await test(container)

    asyncio.run(main())


def test_blobs(server: Server) -> None:
    async def test(container: ContainerClient) -> None:
        content = b"0123456789" * 500_000
        blob = await container.upload_blob("blob", content, metadata={"Key": "Value"})
        assert await (await blob.download_blob()).readall() == content
        assert await (await blob.download_blob(offset=7, length=5)).readall() == b"78901"
        shown = await blob.get_blob_properties()
        assert (shown.size, shown.metadata) == (len(content), {"Key": "Value"})
        await blob.set_blob_metadata({"Other": "1"})
        assert (await blob.get_blob_properties()).metadata == {"Other": "1"}
        with refused(409, "BlobAlreadyExists"):
            await blob.upload_blob(b"")
        await blob.delete_blob()
        with refused(404, "BlobNotFound"):
            await blob.download_blob()

    run(server, test)


def test_containers(server: Server) -> None:
    async def test(container: ContainerClient) -> None:
        await container.set_container_metadata({"Key": "Value"})
        lease = await container.acquire_lease(15)
        shown = await container.get_container_properties()
        assert shown.metadata == {"Key": "Value"}
        assert shown.lease.state == "leased"
        with refused(412, "LeaseIdMissing"):
            await container.delete_container()
        await lease.release()

    run(server, test)


def test_listing(server: Server) -> None:
    async def test(container: ContainerClient) -> None:
        names = [f"{number % 3}/{number:02}" for number in range(30)]
        await asyncio.gather(*(container.upload_blob(name, b"") for name in names))
        listed = [shown.name async for shown in container.list_blobs(results_per_page=7)]
        assert listed == sorted(names)
        walked: list[Any] = [item async for item in container.walk_blobs()]
        assert all(isinstance(item, BlobPrefix) for item in walked)
        assert [item.name for item in walked] == ["0/", "1/", "2/"]

    run(server, test)


def test_conditions(server: Server) -> None:
    async def test(container: ContainerClient) -> None:
        blob = await container.upload_blob("blob", b"old")
        etag = (await blob.get_blob_properties()).etag
        await blob.upload_blob(b"new", overwrite=True)
        with refused(412, "ConditionNotMet"):
            await blob.upload_blob(
                b"lost", overwrite=True, etag=etag, match_condition=MatchConditions.IfNotModified
            )
        assert await (await blob.download_blob()).readall() == b"new"

    run(server, test)


def test_concurrent_requests(server: Server) -> None:
    async def test(container: ContainerClient) -> None:
        async def one(number: int) -> None:
            content = b"%d" % number * 1000
            blob = await container.upload_blob(str(number), content, validate_content=True)
            assert await (await blob.download_blob()).readall() == content

        await asyncio.gather(*map(one, range(200)))
        assert len([name async for name in container.list_blob_names()]) == 200

    run(server, test)


def test_uploads_from_a_generator(server: Server) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for number in range(16):
            yield bytes([number]) * MIB

    async def test(container: ContainerClient) -> None:
        blob = await container.upload_blob("blob", chunks(), length=16 * MIB)
        downloaded = await (await blob.download_blob()).readall()
        assert downloaded == b"".join([chunk async for chunk in chunks()])

    run(server, test)
