"""Stores that tests back up, and ways to read what was restored."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from etagere.backup.files import Files
from etagere.backup.points import Point
from etagere.backup.repository import locked_for_reading
from etagere.backup.restoring import require_target, restore
from etagere.backup.taking import take
from etagere.backup.verifying import Verified, verify
from etagere.bodies.audit.walk import check
from etagere.bodies.collector import Collector
from etagere.bodies.files import FileBodyStore
from tests.bodies.objects import delete_object, download, upload
from tests.bodies.stores import CONFIG, data_of
from tests.engine.sqlite_harness import SqliteHarness


def no_progress(_phase: str, _done: int, _total: int) -> None:
    pass


def back_up(
    directory: Path, target: Path, *, full: bool = False, files: Files | None = None
) -> Point:
    return take(directory, target, no_progress, full=full, files=files)


def restored(
    backup: Path, name: str, target: Path, *, replace: bool = False, files: Files | None = None
) -> Path:
    """Restores a point and checks the data directory."""
    with locked_for_reading(backup) as repository:
        require_target(target, replace=replace)
        restore(repository, repository.find(name), target, no_progress, files)
    report = check(target, CONFIG)
    assert not report.findings, report.findings
    assert report.is_complete
    return target


def verified(backup: Path) -> Verified:
    with locked_for_reading(backup) as repository:
        return verify(repository, no_progress)


async def change(directory: Path, uploads: dict[str, int], deletes: tuple[str, ...] = ()) -> None:
    """Uploads objects of these sizes and deletes others, and collects the garbage."""
    harness = SqliteHarness(directory, CONFIG)
    harness.start()
    try:
        engine = await harness.open()
        store = FileBodyStore(directory, engine, CONFIG)
        for name, size in uploads.items():
            await upload(engine, store, name, data_of(name, size))
        for name in deletes:
            await engine.write(delete_object, name)
        await store.maintain()
        for _ in range(2):
            await Collector(engine, store, CONFIG).collect()
        await store.close()
    finally:
        await harness.close()
    (directory / "writer.sock").unlink(missing_ok=True)


def read(directory: Path, *names: str) -> list[bytes | None]:
    """Starts a server on a store and downloads these objects."""

    async def download_all() -> list[bytes | None]:
        harness = SqliteHarness(directory, CONFIG)
        harness.start()
        try:
            engine = await harness.open()
            store = FileBodyStore(directory, engine, CONFIG)
            found = [await download(engine, store, name) for name in names]
            await store.close()
            return found
        finally:
            await harness.close()

    return asyncio.run(download_all())


def size_of(backup: Path) -> int:
    return sum(
        (Path(folder) / name).stat().st_size
        for folder, _, names in os.walk(backup)
        for name in names
    )
