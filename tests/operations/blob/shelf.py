"""A store with an account, as a front end would have it: for tests of the blob operations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from hypothesis import given, settings
from hypothesis.strategies import SearchStrategy

from etagere.bodies.audit.walk import check
from etagere.bodies.files import FileBodyStore
from etagere.bodies.segments import Reap, reap
from etagere.engine.interface import C, Engine, ReadTxn, Refused, T, WriteTxn
from etagere.model.blobs import (
    Blob,
    BlobHeaders,
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
from etagere.model.common import Metadata
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
from tests.clocks import SharedClock
from tests.engine.harness import Harness, Start
from tests.operations.blob.accounts import holdings, require_balanced, require_orderly

ACCOUNT = "shelf"
BOX = ContainerName(ACCOUNT, "box")


class Shelf:
    """What a test does with a store, in a few words each."""

    def __init__(
        self, harness: Harness, engine: Engine, store: FileBodyStore, directory: Path
    ) -> None:
        self.clock: SharedClock = harness.clock
        self.engine = engine
        self.store = store
        self.directory = directory
        self._is_on_disk = harness.name == "sqlite"

    async def write(self, operation: Callable[[WriteTxn, C], T], command: C) -> T:
        return await self.engine.write(operation, command)

    async def read(self, operation: Callable[[ReadTxn, C], T], command: C) -> T:
        return await self.engine.read(operation, command)

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
        headers: BlobHeaders = BlobHeaders(),  # noqa: B008 - frozen
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
        """The names of the blocks that wait; none if there is nothing of this name."""
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

    # What is kept

    async def purge(self) -> None:
        """Removes all that nothing shows any more, whatever its age says."""
        while await self.write(purge_containers, PurgeContainers()):
            pass
        while await self.write(purge_discarded, PurgeStagings()):
            pass
        while await self.write(reap, Reap()):
            pass

    async def require_sound(self) -> None:
        """Nothing is counted wrongly, lost or leaked."""
        await self.read(require_balanced, None)
        await self.read(require_orderly, None)
        if self._is_on_disk:
            assert check(self.directory).findings == []

    async def require_bare(self) -> None:
        """Sound, and nothing is held or left to be removed."""
        await self.purge()
        await self.require_sound()
        assert await self.read(holdings, None) == 0


def committed(*names: bytes) -> list[ListedBlock]:
    return [ListedBlock(BlockSource.COMMITTED, name) for name in names]


def uncommitted(*names: bytes) -> list[ListedBlock]:
    return [ListedBlock(BlockSource.UNCOMMITTED, name) for name in names]


def latest(*names: bytes) -> list[ListedBlock]:
    return [ListedBlock(BlockSource.LATEST, name) for name in names]


NOTHING_SENT = Body(b"", 0, 0)
"""The body of a command before its upload."""


async def code_of(call: Awaitable[object]) -> str:
    """The code with which a call is refused; empty if it is not."""
    try:
        await call
    except Refused as refused:
        return refused.refusal.code
    return ""


# How a coroutine becomes a test


@asynccontextmanager
async def a_shelf(start: Start, directory: Path) -> AsyncIterator[Shelf]:
    harness = await start(directory)
    try:
        engine = await harness.open()
        store = FileBodyStore(directory, engine)
        try:
            yield Shelf(harness, engine, store, directory)
        finally:
            await store.close()
    finally:
        await harness.close()


Test = Callable[[Start, Path], None]


def on_a_shelf(body: Callable[[Shelf], Awaitable[None]]) -> Test:
    """Makes a coroutine a plain test that is run against every engine."""

    async def run(start: Start, directory: Path) -> None:
        async with a_shelf(start, directory) as shelf:
            await body(shelf)

    def test(start: Start, tmp_path: Path) -> None:
        asyncio.run(asyncio.wait_for(run(start, tmp_path), timeout=60))

    test.__name__ = getattr(body, "__name__", "test")
    test.__doc__ = body.__doc__
    return test


def on_a_shelf_for_any(
    examples: SearchStrategy[T], *, count: int
) -> Callable[[Callable[[Shelf, T], Awaitable[None]]], Test]:
    """The same for a coroutine of an example as well: all examples share one shelf, because to
    start an engine takes longer than to use it."""

    def decorate(body: Callable[[Shelf, T], Awaitable[None]]) -> Test:
        def test(start: Start, tmp_path: Path) -> None:
            with asyncio.Runner() as runner:
                context = a_shelf(start, tmp_path)
                shelf = runner.run(context.__aenter__())

                @given(examples)
                @settings(deadline=None, max_examples=count, derandomize=True)
                def hold(example: T) -> None:
                    runner.run(_pending_destination(body(shelf, example)))

                try:
                    hold()
                finally:
                    runner.run(context.__aexit__(None, None, None))

        test.__name__ = getattr(body, "__name__", "test")
        test.__doc__ = body.__doc__
        return test

    return decorate


async def _pending_destination(call: Awaitable[None]) -> None:
    await asyncio.wait_for(call, timeout=60)
