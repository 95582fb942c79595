"""A workload with every kind of server activity, for a trace of its system calls.

    python -m tests.simulation.durability_workload DIRECTORY [PLANTED BUG]

The directory must not exist. Phases are marked by writes to the null device, which a trace
shows. The judge of the trace must detect each of the bugs that can be planted.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import sys
import threading
import time
from pathlib import Path

import apsw

from etagere.bodies.collector import Collector
from etagere.bodies.disk import Disk
from etagere.bodies.files import FileBodyStore
from etagere.config import KIB, Config
from etagere.engine import ledger
from etagere.engine.interface import Refused, Unknown
from etagere.model.ids import new_id
from tests.bodies.objects import (
    CopyObject,
    ListBlocks,
    copy_object,
    delete_object,
    download,
    list_blocks,
    stage,
    upload,
)
from tests.engine.sqlite_harness import SqliteHarness
from tests.simulation import share_files
from tests.simulation.syscalls import MARKER, MARKER_FILE

_CONFIG = Config(
    inline_bytes_max=1 * KIB,
    segment_bytes_max=96 * KIB,
    piece_bytes_max=32 * KIB,
    reserve_bytes=64 * KIB,
    checkpoint_pages=60,
)
_SEGMENTED = 20 * KIB
_LATE_SECONDS = 0.05


class NoSync(Disk):
    """Bodies are not synced at all."""

    def sync(self, descriptor: int) -> None:
        pass


class LateSync(Disk):
    """Bodies are synced, but later than acknowledged."""

    def sync(self, descriptor: int) -> None:
        late = os.dup(descriptor)

        def sync() -> None:
            time.sleep(_LATE_SECONDS)
            os.fdatasync(late)
            os.close(late)

        threading.Thread(target=sync).start()


class NoNameSync(Disk):
    """The bytes of a new segment are synced, its name is not."""

    def create(self, path: Path) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


class EarlyRemoval(Disk):
    """A segment is removed right after its last read, before its retirement is durable."""

    def read(self, descriptor: int, length: int, offset: int) -> bytes:
        data = super().read(descriptor, length, offset)
        Path(f"/proc/self/fd/{descriptor}").readlink().unlink(missing_ok=True)
        return data


DISKS: dict[str, type[Disk]] = {
    "no-body-sync": NoSync,
    "late-body-sync": LateSync,
    "no-name-sync": NoNameSync,
    "early-removal": EarlyRemoval,
}
NOT_DURABLE = "not-durable"
SYNC_SELDOM = "sync-seldom"
PLANTS = (*DISKS, NOT_DURABLE, SYNC_SELDOM)


def _sync_seldom() -> None:
    """Uses SQLite's `synchronous=NORMAL`, which syncs the log only at checkpoints."""
    tune = ledger.open_for_writing

    def open_for_writing(directory: Path, config: Config) -> apsw.Connection:
        connection = tune(directory, config)
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    ledger.open_for_writing = open_for_writing


class Workload:
    """The script, phase by phase."""

    def __init__(self, directory: Path, plant: str) -> None:
        self._directory = directory
        self._config = dataclasses.replace(_CONFIG, durable=plant != NOT_DURABLE)
        self._disk = DISKS.get(plant, Disk)()
        if plant == SYNC_SELDOM:
            _sync_seldom()
        self._harness = SqliteHarness(directory, self._config)

    async def run(self) -> None:
        try:
            await self._run()
        finally:
            self._harness.stop()

    async def _run(self) -> None:
        _mark("start")
        self._harness.start()
        self._engine = await self._harness.open()
        self._store = FileBodyStore(self._directory, self._engine, self._config, self._disk)
        for phase in (
            self.inline,
            self.ledger,
            self.segments,
            self.blocks,
            self.files,
            self.checkpoint,
            self.killed,
            self.collect,
        ):
            _mark(phase.__name__)
            await phase()
        _mark("restart")
        await self._store.close()
        await self._harness.restart()
        self._engine = await self._harness.open()
        self._store = FileBodyStore(self._directory, self._engine, self._config, self._disk)
        await self._upload("after", 100, _SEGMENTED)
        _mark("stop")
        await self._store.close()
        await self._harness.close()

    async def _upload(self, prefix: str, *sizes: int) -> None:
        """Uploads concurrently, so that uploads share commits and syncs."""
        uploads = [
            upload(self._engine, self._store, f"{prefix}-{number}", bytes([97 + number]) * size)
            for number, size in enumerate(sizes)
        ]
        await asyncio.gather(*uploads)

    async def inline(self) -> None:
        await self._upload("inline", *[100] * 10)

    async def ledger(self) -> None:
        """Changes and refusals without bodies."""
        copies = [
            self._engine.write(copy_object, CopyObject("inline-0", f"copy-{number}"))
            for number in range(10)
        ]
        await asyncio.gather(*copies)
        try:
            await self._engine.write(delete_object, "there is none")
            raise AssertionError("a delete of nothing was not refused")
        except Refused:
            pass

    async def segments(self) -> None:
        """Fills a few segments, with a body that spans two of them."""
        await self._upload("single", *[_SEGMENTED] * 6)
        await self._upload("long", 80 * KIB, 70 * KIB, _SEGMENTED)

    async def blocks(self) -> None:
        for first in (10, 12):
            blocks = [bytes([65 + first + number]) * 2_000 for number in range(2)]
            await stage(self._engine, self._store, "listed", blocks)
            keep = (0,) if first > 10 else ()
            await self._engine.write(list_blocks, ListBlocks("listed", new_id(), keep))

    async def files(self) -> None:
        """Ranges of files that overlap, and a file that replaces another."""
        engine, store = self._engine, self._store
        await share_files.create_share(engine)
        for name in ("first", "second"):
            await share_files.create_file(engine, name)
        writes = [
            share_files.write_range(engine, store, name, start, bytes([start % 251]) * _SEGMENTED)
            for name in ("first", "second")
            for start in (0, 5_000, 100_000)
        ]
        await asyncio.gather(*writes)
        await share_files.rename_file(engine, "first", "second")

    async def checkpoint(self) -> None:
        """Commits until the log is moved into the database and restarted."""
        for number in range(40):
            await self._upload(f"many-{number % 3}", 500, 600)

    async def killed(self) -> None:
        """Another writer recovers the log of a killed one."""
        writer = self._harness.writer_pid()
        self._harness.kill_writer()
        await asyncio.to_thread(self._harness.wait_for_writer, other_than=writer)
        with contextlib.suppress(Unknown):  # the connection may not have noticed the loss yet
            await self._engine.write(copy_object, CopyObject("inline-0", "copy-0"))
        await self._upload("killed", 100, _SEGMENTED)

    async def collect(self) -> None:
        """Makes segments sparse, and has them rewritten and removed."""
        await self._upload("single", *[100] * 3)
        await self._store.maintain()
        collector = Collector(self._engine, self._store, self._config)
        collected = await collector.collect()
        if not (collected.extents_moved and collected.segments_removed):
            raise AssertionError(f"there was too little to collect: {collected}")
        if type(self._disk) is Disk:
            data = await download(self._engine, self._store, "single-5")
            assert data == b"f" * _SEGMENTED


def _mark(phase: str) -> None:
    null = os.open(MARKER_FILE, os.O_WRONLY)
    os.write(null, f"{MARKER}{phase}\n".encode())
    os.close(null)


def main(directory: str, plant: str = "") -> None:
    if plant and plant not in PLANTS:
        raise SystemExit(f"{plant} is none of {', '.join(PLANTS)}")
    asyncio.run(Workload(Path(directory), plant).run())


if __name__ == "__main__":
    main(*sys.argv[1:])
