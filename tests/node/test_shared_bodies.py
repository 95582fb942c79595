"""The bodies that the nodes of a cluster share, as the processes of a node open them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from etagere.bodies.objects.interface import ObjectStore
from etagere.config import MIB, Config
from etagere.coordination.local import LocalCoordinator
from etagere.engine.interface import Fault
from etagere.engine.memory import MemoryEngine
from etagere.node import shared_bodies
from etagere.node.shared_bodies import MARKER_NAME, ObjectBodies
from etagere.protocol.connections.memory import MemoryBudget
from etagere.settings.addresses import parse_bodies_address
from tests.bodies.object_stores.drivers import FaultyObjectStore, MemoryObjectStore

ADDRESS = parse_bodies_address("s3://bucket")


class OpenedStores:
    """Opens drivers of one object store, and counts them."""

    def __init__(self) -> None:
        self.objects = MemoryObjectStore()
        self.opened: list[FaultyObjectStore] = []

    def open(self, _url: str) -> ObjectStore:
        self.opened.append(FaultyObjectStore(self.objects))
        return self.opened[-1]


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> OpenedStores:
    stores = OpenedStores()
    monkeypatch.setattr(shared_bodies, "open_object_store", stores.open)
    return stores


def test_one_client_reads_the_marker_again_and_again(stores: OpenedStores) -> None:
    read = ObjectBodies(ADDRESS).open_marker_reader()
    assert read() is None
    stores.objects.objects[MARKER_NAME] = b"id"
    assert read() == b"id"
    with stores.opened[0].fail_all(), pytest.raises(Fault):
        read()
    assert read() == b"id"
    assert len(stores.opened) == 1


def test_buffers_count_against_the_memory_of_the_front_ends(
    stores: OpenedStores, tmp_path: Path
) -> None:
    memory = MemoryBudget(192 * MIB)
    data = bytes(8 * MIB)

    async def scenario() -> None:
        coordinator = LocalCoordinator(tmp_path)
        store, _ = await ObjectBodies(ADDRESS).open(MemoryEngine(), Config(), coordinator, memory)
        (driver,) = stores.opened
        driver.hold("put")
        async with store.writer(len(data)) as writer:
            await writer.append(data)
            sealing = asyncio.create_task(writer.seal())
            await driver.reached("put")
            assert memory.used_bytes == len(data)
            driver.let_go("put")
            await sealing
        assert memory.used_bytes == 0
        await store.close()

    asyncio.run(scenario())
