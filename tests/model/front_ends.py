"""Front ends of a store, in the test's process and in others, driven step by step."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Coroutine
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from etagere.bodies.audit.walk import check
from etagere.bodies.collector import Collected, Collector
from etagere.bodies.contents import EXTENTS, SEGMENTS
from etagere.bodies.disk import Disk
from etagere.bodies.files import FileBodyStore
from etagere.bodies.objects.audited_objects import AuditedObjects
from etagere.bodies.objects.store import ObjectBodyStore
from etagere.bodies.plans import Plan
from etagere.bodies.store import BodyReader, BodyWriter
from etagere.clock import Clock
from etagere.config import KIB, MIB, Config
from etagere.coordination.local import LocalCoordinator
from etagere.engine.interface import Refused
from etagere.engine.records import Collection
from etagere.engine.sqlite import SqliteEngine
from etagere.model.bodies import Body, Extent, Segment
from etagere.model.ids import new_id
from tests.bodies import objects
from tests.bodies.object_stores.drivers import DirectoryObjectStore, FaultyObjectStore
from tests.bodies.objects import CopyObject, ListBlocks, PutObject
from tests.engine.sqlite_harness import SqliteHarness
from tests.model.consistency import OBJECTS_NAME, require_balanced, rows
from tests.model.disks import QuickDisk, WatchedDisk
from tests.model.processes import HelperProcess

T = TypeVar("T")

SMALL = Config(
    durable=False,
    inline_bytes_max=512,
    piece_bytes_max=4 * KIB,
    segment_bytes_max=32 * KIB,
    reserve_bytes=1 * MIB,
    writer_answer_seconds_max=20.0,
)
"""Limits so small that a few kilobytes reach every boundary."""


def noise(seed: int, length: int) -> bytes:
    """Returns unique bytes."""
    return random.Random(seed).randbytes(length)


class _Reading(NamedTuple):
    reader: BodyReader
    chunks: AsyncIterator[bytes]


class _Upload(NamedTuple):
    name: str
    writer: BodyWriter
    body: Body


class FrontEnd:
    """The parts of a front-end process: a handle on the ledger, a body store, a collector."""

    def __init__(
        self,
        directory: Path,
        config: Config,
        clock: Clock,
        disk: Disk,
        *,
        in_objects: bool = False,
    ) -> None:
        self._directory = directory
        self._in_objects = in_objects
        self._config = config
        self._clock = clock
        self.disk = disk
        self._readings: dict[int, _Reading] = {}
        self._uploads: dict[int, _Upload] = {}
        self._last_handle = 0

    async def open(self) -> None:
        self.engine = SqliteEngine(self._directory, self._config, self._clock)
        self.store = self._open_store()
        self.collector = Collector(self.engine, self.store, self._config)

    def _open_store(self) -> FileBodyStore | ObjectBodyStore:
        if not self._in_objects:
            return FileBodyStore(self._directory, self.engine, self._config, self.disk)
        self.objects = FaultyObjectStore(DirectoryObjectStore(self._directory / OBJECTS_NAME))
        coordinator = LocalCoordinator(self._directory)
        return ObjectBodyStore(self.objects, self.engine, coordinator, self._config)

    async def close(self) -> None:
        for handle in list(self._readings):
            await self.finish_read(handle)
        for handle in list(self._uploads):
            await self.abandon(handle)
        await self.store.close()
        await self.engine.close()

    async def put(self, name: str, data: bytes, if_match: int | None = None) -> int:
        """Returns the new version, or 0 if it was refused."""
        try:
            return await objects.upload(self.engine, self.store, name, data, if_match)
        except Refused:
            return 0

    async def get(self, name: str) -> bytes | None:
        return await objects.download(self.engine, self.store, name)

    async def copy(self, source: str, target: str) -> int:
        try:
            return await self.engine.write(objects.copy_object, CopyObject(source, target))
        except Refused:
            return 0

    async def delete(self, name: str) -> bool:
        try:
            await self.engine.write(objects.delete_object, name)
        except Refused:
            return False
        return True

    async def stage(self, name: str, blocks: list[bytes]) -> None:
        await objects.stage(self.engine, self.store, name, blocks)

    async def list_blocks(self, name: str, keep: tuple[int, ...]) -> int:
        return await self.engine.write(objects.list_blocks, ListBlocks(name, new_id(), keep))

    # Reads in steps

    async def begin_read(self, name: str) -> int:
        """Pins and looks up the object without reading; returns a handle, or 0 if there is no such
        object."""
        reader = self.store.open_reader()
        found = await self.engine.read(objects.find_object, name)
        if found is None:
            reader.close()
            return 0
        reader.limit_to(found[1])
        return self._keep_reading(reader, found[1])

    def _keep_reading(self, reader: BodyReader, plan: Plan) -> int:
        self._last_handle += 1
        self._readings[self._last_handle] = _Reading(reader, reader.chunks(plan, final=True))
        return self._last_handle

    async def step_read(self, handle: int) -> bytes:
        """Returns the next chunk; empty at the end."""
        return await anext(self._readings[handle].chunks, b"")

    async def finish_read(self, handle: int) -> bytes:
        """Returns the rest and releases the pin."""
        reading = self._readings.pop(handle)
        try:
            return b"".join([chunk async for chunk in reading.chunks])
        finally:
            reading.reader.close()

    async def read_for(self, seconds: float, names: tuple[str, ...]) -> int:
        """Reads objects that repeat one block of 16 bytes, some of them slowly; returns how many it
        has read. Each must be of one version from the first byte to the last."""
        dice = random.Random(id(self))
        deadline = time.monotonic() + seconds
        count = 0
        while time.monotonic() < deadline:
            handle = await self.begin_read(dice.choice(names))
            read = await self.step_read(handle)
            await asyncio.sleep(dice.choice((0, 0, 0.01, 0.1)))
            read += await self.finish_read(handle)
            assert read == read[:16] * (len(read) // 16)
            count += 1
        return count

    # Uploads in steps

    async def begin_upload(self, name: str, data: bytes) -> int:
        """Uploads and seals, but does not adopt; returns a handle."""
        writer = await self.store.writer().__aenter__()
        await writer.append(data)
        self._last_handle += 1
        self._uploads[self._last_handle] = _Upload(name, writer, await writer.seal())
        return self._last_handle

    async def adopt(self, handle: int) -> int:
        upload = self._uploads.pop(handle)
        async with upload.writer:
            return await self.engine.write(objects.put_object, PutObject(upload.name, upload.body))

    async def body(self, handle: int) -> Body:
        return self._uploads[handle].body

    async def abandon(self, handle: int) -> None:
        async with self._uploads.pop(handle).writer:
            pass

    # Maintenance

    async def maintain(self) -> None:
        await self.store.maintain()

    async def collect(self) -> Collected:
        return await self.collector.collect()

    async def tidy(self) -> Collected:
        """Runs one round of the background task of a process."""
        await self.store.maintain()
        return await self.collector.collect()

    async def let_loop_run(self) -> None:
        """Runs the event loop, which notices lost connections."""
        for _ in range(3):
            await asyncio.sleep(0)


class LocalFrontEnd:
    """The front end in the test's own process, called like those in others."""

    def __init__(self, runner: asyncio.Runner, front_end: FrontEnd) -> None:
        self._runner = runner
        self.front_end = front_end

    def call(self, method: str, *arguments: object) -> Any:
        return self._runner.run(getattr(self.front_end, method)(*arguments))


class StoreCluster:
    """A store with its writer, one front end in this process and others in their own."""

    def __init__(
        self,
        directory: Path,
        config: Config = SMALL,
        *,
        others: int = 1,
        disk: Disk | None = None,
        in_objects: bool = False,
    ) -> None:
        """With `in_objects`, the bodies are in an object store instead of files."""
        self.directory = directory
        self.in_objects = in_objects
        self.harness = SqliteHarness(directory, config)
        self._runner = asyncio.Runner()
        self.local = LocalFrontEnd(self._runner, self.new_front_end(disk or QuickDisk()))
        self._others = others
        self.helpers: list[HelperProcess] = []

    def new_front_end(self, disk: Disk) -> FrontEnd:
        return FrontEnd(
            self.directory,
            self.harness.config,
            self.harness.clock,
            disk,
            in_objects=self.in_objects,
        )

    @property
    def remote(self) -> HelperProcess:
        return self.helpers[0]

    def __enter__(self) -> StoreCluster:
        self.harness.start()
        try:
            # All forks happen before the first thread and the first lock of this process.
            self.helpers = [
                HelperProcess(lambda: self.new_front_end(QuickDisk())) for _ in range(self._others)
            ]
            for helper in self.helpers:
                helper.call("open")
            self.local.call("open")
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.local.call("close")
        finally:
            self._stop()

    def _stop(self) -> None:
        for helper in self.helpers:
            helper.kill()
        self._runner.close()
        self.harness.stop()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the event loop of the local front end."""
        return self._runner.run(asyncio.wait_for(work, 60))

    def restart_writer(self) -> None:
        """Kills the writer and waits until all front ends have noticed."""
        before = self.harness.writer_pid()
        self.harness.kill_writer()
        self.harness.wait_for_writer(other_than=before)
        self.local.call("let_loop_run")
        for helper in self.helpers:
            helper.call("let_loop_run")

    def reopen_local(self) -> None:
        """Reopens the local front end; to the store it is a new process."""
        self.local.call("close")
        self.local = LocalFrontEnd(self._runner, self.new_front_end(self.local.front_end.disk))
        self.local.call("open")

    def put_sparse(self, name: str, data: bytes) -> None:
        """Puts an object whose neighbours in its segments are dead."""
        self.local.call("put", "neighbour", noise(7, 2 * self.harness.config.piece_bytes_max))
        self.local.call("put", name, data)
        self.local.call("delete", "neighbour")
        self.reopen_local()

    @property
    def disk(self) -> WatchedDisk:
        disk = self.local.front_end.disk
        assert isinstance(disk, WatchedDisk)
        return disk

    def require_balanced(self) -> None:
        """Checks every reference count in the ledger."""
        self.run(self.local.front_end.engine.read(require_balanced, self.directory))

    def require_clean(self) -> None:
        """Checks with `etagere check`, which counts independently."""
        open_segments = None
        if self.in_objects:
            objects_in = partial(DirectoryObjectStore, self.directory / OBJECTS_NAME)
            open_segments = partial(AuditedObjects, objects_in)
        report = check(self.directory, self.harness.config, open_segments=open_segments)
        assert report.findings == []
        assert report.is_complete

    def segments(self) -> dict[int, Segment]:
        segments = self._rows(SEGMENTS)
        return {number: segment for (number,), segment in segments.items()}

    def extents(self) -> dict[tuple[int, int], Extent]:
        return self._rows(EXTENTS)

    def _rows(self, collection: Collection[Any, Any]) -> dict[Any, Any]:
        return self.run(self.local.front_end.engine.read(rows, collection))

    def segment_files(self) -> set[int]:
        """Returns the numbers of the segments that have a file, or objects."""
        if self.in_objects:
            names = [path.name for path in (self.directory / OBJECTS_NAME).iterdir()]
            return {int(name.split("+")[1], 16) for name in names}
        return {int(path.stem, 16) for path in (self.directory / "segments").iterdir()}

    def segment_bytes(self) -> int:
        """Returns the disk space of the segments."""
        if self.in_objects:
            return sum(path.stat().st_size for path in (self.directory / OBJECTS_NAME).iterdir())
        return sum(path.stat().st_blocks * 512 for path in (self.directory / "segments").iterdir())
