"""A store with an account, as a front end would have it: for tests of the blob operations."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from etagere.bodies.files import FileBodyStore
from etagere.engine.interface import C, Engine, ReadTxn, Refused, T, WriteTxn
from etagere.model.blobs import Blob, BlobHeaders, BlobName, GetBlob, OpenBlob, PutBlob
from etagere.model.conditions import NO_CONDITIONS, Conditions
from etagere.model.containers import Container, ContainerName, CreateContainer
from etagere.model.ids import new_id
from etagere.operations.blob.blobs import open_blob, put_blob
from etagere.operations.blob.containers import create_container
from tests.clocks import SharedClock
from tests.engine.harness import Harness, Start

ACCOUNT = "shelf"
BOX = ContainerName(ACCOUNT, "box")


class Shelf:
    """What a test does with a store, in a few words each."""

    def __init__(self, harness: Harness, engine: Engine, store: FileBodyStore) -> None:
        self.clock: SharedClock = harness.clock
        self.engine = engine
        self.store = store

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

    async def get(self, name: str, first: int | None = None, last: int | None = None) -> bytes:
        with self.store.pinned():
            ask = OpenBlob(GetBlob(BlobName(BOX, name)), first, last)
            opened = await self.read(open_blob, ask)
            assert opened is not None
            plan = opened.plan
            return b"".join([chunk async for chunk in self.store.read(plan)])


async def code_of(call: Awaitable[object]) -> str:
    """The code with which a call is refused; empty if it is not."""
    try:
        await call
    except Refused as refused:
        return refused.refusal.code
    return ""


Body = Callable[[Shelf], Awaitable[None]]


def on_a_shelf(body: Body) -> Callable[[Start, Path], None]:
    """Makes a coroutine a plain test that is run against every engine."""

    async def run(start: Start, directory: Path) -> None:
        harness = await start(directory)
        try:
            engine = await harness.open()
            store = FileBodyStore(directory, engine)
            try:
                await body(Shelf(harness, engine, store))
            finally:
                await store.close()
        finally:
            await harness.close()

    def test(start: Start, tmp_path: Path) -> None:
        asyncio.run(asyncio.wait_for(run(start, tmp_path), timeout=60))

    test.__name__ = getattr(body, "__name__", "test")
    test.__doc__ = body.__doc__
    return test
