"""The fixture of the tests of the blob operations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from hypothesis.strategies import SearchStrategy

from etagere.bodies.audit.walk import check
from etagere.bodies.segments import Reap, reap
from etagere.engine.interface import Refused, T
from etagere.model.blobs import (
    Blob,
    BlobName,
    BlobResult,
    BlockListResult,
    BlockSource,
    GetBlob,
    GetBlockList,
    LeaseBlob,
    ListedBlock,
    OpenBlob,
    PutBlob,
    PutBlock,
    PutBlockList,
    SnapshotBlob,
)
from etagere.model.bodies import Body
from etagere.model.common import ContentHeaders, Metadata
from etagere.model.conditions import NO_CONDITIONS, Conditions
from etagere.model.containers import Container, ContainerName, CreateContainer
from etagere.model.ids import new_id
from etagere.model.leases import LeaseAction
from etagere.operations.blob.blobs import lease_blob, open_blob, put_blob
from etagere.operations.blob.block_lists import get_block_list, put_block_list
from etagere.operations.blob.containers import create_container
from etagere.operations.blob.purging import PurgeContainers, purge_containers
from etagere.operations.blob.snapshots import snapshot_blob
from etagere.operations.blob.staging import PurgeStagings, purge_discarded, put_block
from tests.operations.blob.consistency import held_records, require_balanced, require_reachable
from tests.operations.fixture import ACCOUNT, EngineFixture, Test, engine_property_test, engine_test

BOX = ContainerName(ACCOUNT, "box")


class BlobFixture(EngineFixture):
    """Blob operations with short signatures, on one container."""

    async def create(self, name: ContainerName = BOX) -> Container:
        return await self.write(create_container, CreateContainer(name, new_id()))

    async def put(
        self,
        name: str,
        data: bytes = b"",
        conditions: Conditions = NO_CONDITIONS,
        *,
        container: ContainerName = BOX,
        lease_id: bytes | None = None,
        headers: ContentHeaders = ContentHeaders(),  # noqa: B008 - frozen
        only_if_absent: bool = False,
    ) -> Blob:
        async with self.store.writer(len(data)) as writer:
            await writer.append(data)
            command = PutBlob(
                BlobName(container, name),
                await writer.seal(),
                headers,
                (),
                conditions,
                lease_id,
                only_if_absent,
            )
            return await self.write(put_blob, command)

    async def get(
        self,
        name: str,
        first: int | None = None,
        last: int | None = None,
        *,
        snapshot: int | None = None,
    ) -> bytes:
        with self.store.open_reader() as reader:
            ask = OpenBlob(GetBlob(BlobName(BOX, name), snapshot=snapshot), first, last)
            opened = await self.read(open_blob, ask)
            assert opened is not None
            return b"".join([chunk async for chunk in reader.chunks(opened.plan)])

    # Blocks

    async def stage(
        self,
        name: str,
        block: bytes,
        data: bytes,
        *,
        container: ContainerName = BOX,
        lease_id: bytes | None = None,
        only_if_absent: bool = False,
    ) -> None:
        blob = BlobName(container, name)
        async with self.store.writer(len(data), inline=False) as writer:
            await writer.append(data)
            body = await writer.seal()
            command = PutBlock(blob, block, body, new_id(), lease_id, only_if_absent)
            await self.write(put_block, command)

    async def stage_all(self, name: str, blocks: dict[bytes, bytes]) -> None:
        for block, data in blocks.items():
            await self.stage(name, block, data)

    async def commit(
        self,
        name: str,
        blocks: Iterable[ListedBlock],
        conditions: Conditions = NO_CONDITIONS,
        *,
        lease_id: bytes | None = None,
        only_if_absent: bool = False,
    ) -> Blob:
        command = PutBlockList(
            BlobName(BOX, name),
            new_id(),
            tuple(blocks),
            conditions=conditions,
            lease_id=lease_id,
            only_if_absent=only_if_absent,
        )
        blob = await self.write(put_block_list, command)
        assert blob is not None
        return blob

    async def block_list(self, name: str, *, snapshot: int | None = None) -> BlockListResult:
        ask = GetBlockList(BlobName(BOX, name), True, True, snapshot=snapshot)
        return await self.read(get_block_list, ask)

    async def staged(self, name: str) -> list[bytes]:
        """Returns the names of the uncommitted blocks; none if there is no such blob."""
        try:
            return [block.name for block in (await self.block_list(name)).uncommitted]
        except Refused:
            return []

    # Snapshots and leases

    async def snapshot(self, name: str, metadata: Metadata = ()) -> int:
        return (
            await self.write(snapshot_blob, SnapshotBlob(BlobName(BOX, name), metadata))
        ).snapshot

    async def lease(self, name: str, action: LeaseAction) -> BlobResult:
        return await self.write(lease_blob, LeaseBlob(BlobName(BOX, name), action))

    # Garbage collection and consistency

    async def purge(self) -> None:
        """Removes everything that is no longer referenced, whatever its age."""
        while await self.write(purge_containers, PurgeContainers()):
            pass
        while await self.write(purge_discarded, PurgeStagings()):
            pass
        while await self.write(reap, Reap()):
            pass

    async def require_sound(self) -> None:
        """Checks that no reference count is wrong and nothing is lost or leaked."""
        await self.read(require_balanced, None)
        await self.read(require_reachable, None)
        if self.is_on_disk:
            assert check(self.directory).findings == []

    async def require_empty(self) -> None:
        """Checks that the store is consistent and holds no bytes once it is purged."""
        await self.purge()
        await self.require_sound()
        assert await self.read(held_records, None) == 0


def committed(*names: bytes) -> list[ListedBlock]:
    return [ListedBlock(BlockSource.COMMITTED, name) for name in names]


def uncommitted(*names: bytes) -> list[ListedBlock]:
    return [ListedBlock(BlockSource.UNCOMMITTED, name) for name in names]


def latest(*names: bytes) -> list[ListedBlock]:
    return [ListedBlock(BlockSource.LATEST, name) for name in names]


NOTHING_SENT = Body(b"", 0, 0)
"""The body of a command before its upload."""


def blob_test(body: Callable[[BlobFixture], Awaitable[None]]) -> Test:
    """Turns a coroutine into a test that runs with every engine."""
    return engine_test(BlobFixture, body)


def blob_property_test(
    examples: SearchStrategy[T], *, count: int
) -> Callable[[Callable[[BlobFixture, T], Awaitable[None]]], Test]:
    """Turns a coroutine into a property test that runs with every engine."""
    return lambda body: engine_property_test(BlobFixture, examples, count, body)
