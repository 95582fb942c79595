"""Concurrent clients, with one front end and with two."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import ContainerClient as SyncContainerClient
from azure.storage.blob import generate_blob_sas
from azure.storage.blob.aio import BlobClient, BlobServiceClient, ContainerClient

from tests.sdk.blob.clients import async_blob_service, blob_service
from tests.server import ACCOUNT, KEY, Server, served, unique

MIB = 1024 * 1024
LARGE_BYTES = 64 * MIB
LARGE_BYTES_LONG = 256 * MIB
ROUNDS = 60
ROUNDS_LONG = 2_000

Race = Callable[[BlobClient, int, str | None], Awaitable[Any]]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with two front ends."""
    directory: Path = tmp_path_factory.mktemp("pair") / "data"
    with served(directory, "--workers", "2") as server:
        yield server
        assert server.stop() == 0


@contextlib.asynccontextmanager
async def services(server: Server, count: int) -> AsyncIterator[list[BlobServiceClient]]:
    """Several clients, each with its own connections."""
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(async_blob_service(server)) for _ in range(count)]


@contextlib.asynccontextmanager
async def clients(server: Server, count: int) -> AsyncIterator[list[ContainerClient]]:
    """Several clients of one new container."""
    name = unique("shared")
    async with services(server, count) as made:
        await made[0].create_container(name)
        yield [service.get_container_client(name) for service in made]


# Races


async def won(attempt: Awaitable[Any]) -> bool:
    try:
        await attempt
    except HttpResponseError as error:
        assert error.status_code in (404, 409, 412), error
        return False
    return True


async def race(server: Server, rounds: int, begin: Race, run: Race) -> None:
    """Checks that exactly one of the concurrent clients of a round wins, all of which have seen the
    same state."""
    async with clients(server, 6) as racers:
        for number in range(rounds):
            blobs = [racer.get_blob_client(f"blob {number % 7}") for racer in racers]
            await begin(blobs[0], number, None)
            with_etag = await blobs[0].exists()
            etag = (await blobs[0].get_blob_properties()).etag if with_etag else None
            wins = await asyncio.gather(
                *(won(run(blob, racer, etag)) for racer, blob in enumerate(blobs))
            )
            assert wins.count(True) == 1, (number, wins)
            if await blobs[0].exists():
                await _require_winner(blobs[-1], wins.index(True))


async def _require_winner(blob: BlobClient, racer: int) -> None:
    shown = await blob.get_blob_properties()
    result = await (await blob.download_blob()).readall()
    assert result == b"racer %d" % racer or shown.metadata == {"racer": str(racer)}


async def put(blob: BlobClient, number: int, _etag: str | None) -> None:
    await blob.upload_blob(b"round %d" % number, overwrite=True)


async def remove(blob: BlobClient, _number: int, _etag: str | None) -> None:
    if await blob.exists():
        await blob.delete_blob()


def if_same(etag: str | None) -> dict[str, Any]:
    return {"etag": etag, "match_condition": MatchConditions.IfNotModified}


def overwrite(blob: BlobClient, racer: int, etag: str | None) -> Awaitable[Any]:
    return blob.upload_blob(b"racer %d" % racer, overwrite=True, **if_same(etag))


def describe(blob: BlobClient, racer: int, etag: str | None) -> Awaitable[Any]:
    return blob.set_blob_metadata({"racer": str(racer)}, **if_same(etag))


def delete(blob: BlobClient, _racer: int, etag: str | None) -> Awaitable[Any]:
    return blob.delete_blob(**if_same(etag))


def create(blob: BlobClient, racer: int, _etag: str | None) -> Awaitable[Any]:
    return blob.upload_blob(b"racer %d" % racer)


RACES: dict[str, tuple[Race, Race]] = {
    "overwrite": (put, overwrite),
    "describe": (put, describe),
    "delete": (put, delete),
    "create": (remove, create),
}


@pytest.mark.parametrize("kind", RACES)
def test_one_racer_wins(pair: Server, kind: str) -> None:
    asyncio.run(race(pair, ROUNDS, *RACES[kind]))


@pytest.mark.long
@pytest.mark.parametrize("kind", RACES)
def test_one_racer_wins_in_long_runs(pair: Server, kind: str) -> None:
    asyncio.run(race(pair, ROUNDS_LONG, *RACES[kind]))


def test_one_of_many_container_creators_wins(pair: Server) -> None:
    async def main() -> None:
        async with services(pair, 6) as racers:
            for _ in range(30):
                name = unique("raced")
                attempts = (won(racer.create_container(name)) for racer in racers)
                assert (await asyncio.gather(*attempts)).count(True) == 1

    asyncio.run(main())


def test_one_of_many_lease_acquirers_wins(pair: Server) -> None:
    async def main() -> None:
        async with clients(pair, 6) as racers:
            for _ in range(30):
                leases = await asyncio.gather(
                    *(racer.acquire_lease() for racer in racers), return_exceptions=True
                )
                granted = [lease for lease in leases if not isinstance(lease, BaseException)]
                assert len(granted) == 1
                await granted[0].release()

    asyncio.run(main())


# ETags


def test_etags_identify_contents(pair: Server) -> None:
    seen: dict[str, bytes] = {}

    def note(etag: str, content: bytes) -> None:
        assert seen.setdefault(etag, content) == content

    async def write(blob: BlobClient, writer: int) -> None:
        for number in range(60):
            content = b"%d of %d" % (number, writer)
            result = await blob.upload_blob(content, overwrite=True)
            assert result["etag"] not in seen or seen[result["etag"]] == content
            note(result["etag"], content)

    async def read(blob: BlobClient) -> None:
        for _ in range(60):
            downloaded = await blob.download_blob()
            note(downloaded.properties.etag, await downloaded.readall())

    async def main() -> None:
        async with clients(pair, 8) as containers:
            blobs = [container.get_blob_client("blob") for container in containers]
            await blobs[0].upload_blob(b"first")
            writers = [write(blob, number) for number, blob in enumerate(blobs[:4])]
            await asyncio.gather(*writers, *map(read, blobs[4:]))
        assert len(seen) >= 4 * 60

    asyncio.run(main())


# Large downloads


def version_of(number: int, length: int = LARGE_BYTES) -> bytes:
    return (random.Random(number).randbytes(1021) * (length // 1021 + 1))[:length]


def test_large_downloads_during_overwrites(server: Server, container: SyncContainerClient) -> None:
    download_during_overwrites(server, container, LARGE_BYTES)


@pytest.mark.long
def test_larger_downloads_during_overwrites(server: Server, container: SyncContainerClient) -> None:
    download_during_overwrites(server, container, LARGE_BYTES_LONG)


def download_during_overwrites(server: Server, container: SyncContainerClient, length: int) -> None:
    """Checks that each download is one complete version."""
    versions = [version_of(number, length) for number in range(3)]
    container.upload_blob("blob", versions[0])
    stop = threading.Event()

    def keep_overwriting() -> None:
        with blob_service(server) as service:
            blob = service.get_blob_client(container.container_name, "blob")
            number = 0
            while not stop.is_set():
                number += 1
                blob.upload_blob(versions[number % 3], overwrite=True)

    writer = threading.Thread(target=keep_overwriting)
    writer.start()
    try:
        with blob_service(server, max_single_get_size=length) as service:
            blob = service.get_blob_client(container.container_name, "blob")
            for _ in range(6):
                assert blob.download_blob().readall() in versions
    finally:
        stop.set()
        writer.join()


def test_a_slow_download_survives_the_deletion_of_its_blob(container: SyncContainerClient) -> None:
    content = version_of(7)
    blob = container.upload_blob("blob", content)
    token = generate_blob_sas(
        ACCOUNT,
        container.container_name,
        "blob",
        account_key=KEY,
        permission="r",
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )
    with urllib.request.urlopen(f"{blob.url}?{token}", timeout=20) as response:
        received = response.read(MIB)
        blob.upload_blob(b"new", overwrite=True)
        blob.delete_blob()
        for number in range(4):
            container.upload_blob(f"other {number}", bytes(8 * MIB))
        received += response.read()
    assert received == content


# Read your own writes


def test_writes_are_visible_to_all_clients_at_once(pair: Server) -> None:
    checks = 0

    async def write_and_read(number: int, containers: list[ContainerClient]) -> None:
        nonlocal checks
        for turn in range(70):
            blobs = [container.get_blob_client(f"blob {number}") for container in containers]
            written = b"%d %d" % (number, turn)
            result = await blobs[turn % 4].upload_blob(written, overwrite=True)
            for downloaded in await asyncio.gather(*(blob.download_blob() for blob in blobs)):
                assert downloaded.properties.etag == result["etag"]
                assert await downloaded.readall() == written
                checks += 1
            if turn % 5 == 4:
                await blobs[0].delete_blob()
                assert not any(await asyncio.gather(*(blob.exists() for blob in blobs)))
                checks += len(blobs)

    async def main() -> None:
        async with clients(pair, 4) as containers:
            await connect_to_both(pair, containers)
            await asyncio.gather(*(write_and_read(number, containers) for number in range(6)))
        assert checks >= 1500

    asyncio.run(main())


async def connect_to_both(server: Server, containers: list[ContainerClient]) -> None:
    """Opens connections until each front end has some; they are kept alive and reused."""
    before = sockets(server)
    for burst in range(4, 100, 4):
        await asyncio.gather(
            *(container.exists() for container in containers for _ in range(burst))
        )
        busy = [pid for pid, count in sockets(server).items() if count > before.get(pid, 0)]
        if len(busy) == 2:
            return
    raise AssertionError("one front end takes all connections")


def sockets(server: Server) -> dict[int, int]:
    """Returns the number of open sockets per process of a server."""
    return {
        pid: sum(map(is_socket, Path(f"/proc/{pid}/fd").iterdir())) for pid in server.children()
    }


def is_socket(link: Path) -> bool:
    # The descriptor may have been closed meanwhile.
    with contextlib.suppress(FileNotFoundError):
        return str(link.readlink()).startswith("socket:")
    return False
