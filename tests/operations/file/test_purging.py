"""The job that purges deleted shares and histories, as a front end runs it, and concurrent
clients."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable

from etagere.engine.interface import ReadTxn, Steps
from etagere.jobs.purging import purge
from etagere.jobs.supervision import Job
from etagere.model.files import Entry, ListEntries
from etagere.operations.file.purging import may_purge
from etagere.operations.pages import FilledPage, FillPage
from tests.operations.file.fixture import FileFixture, file_test, list_entries, path_of
from tests.operations.fixture import code_of
from tests.operations.pages import RowsPage

INTERVAL_SECONDS = 0.001


@contextlib.asynccontextmanager
async def purging(files: FileFixture) -> AsyncIterator[None]:
    """Runs the job until there is nothing to do."""
    job = Job("purging", lambda: purge(files.engine, files.store.coordinator), INTERVAL_SECONDS)
    task = asyncio.create_task(job.run())
    yield
    while await files.read(may_purge, None):
        await asyncio.sleep(INTERVAL_SECONDS)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@file_test
async def test_the_job_purges_shares_and_histories(files: FileFixture) -> None:
    await files.create()
    for number in range(30):
        await files.put(f"f{number}", b"bytes")
    taken = await files.snapshot()
    for number in range(30):
        await files.put(f"f{number}", b"other")
    async with purging(files):
        await files.delete_snapshot(taken)
    await files.require_sound()
    async with purging(files):
        await files.delete_share()
    await files.require_empty()


_NAMES = ("a", "b", "c")


async def _client(files: FileFixture, seed: int) -> int:
    """Sends random requests; returns how many succeeded."""
    chance, done = random.Random(seed), 0
    for _ in range(100):
        done += await code_of(_request(files, chance)) == ""
    return done


def _request(files: FileFixture, chance: random.Random) -> Awaitable[object]:
    path, target = ("/".join(chance.choices(_NAMES, k=chance.randint(1, 3))) for _ in range(2))
    is_directory = chance.random() < 0.6
    match chance.randrange(12):
        case 0 | 1 | 2 | 3:
            return files.mkdir(path)
        case 4 | 5:
            return files.put(path, b"x" * chance.randint(0, 9))
        case 6 | 7:
            return files.delete(path, is_directory=is_directory)
        case 8:
            return files.snapshot()
        case _:
            return files.rename(path, target, is_directory=is_directory, replace=True)


@file_test
async def test_concurrent_clients_leave_a_tree(files: FileFixture) -> None:
    """Creates, moves and deletes at the same time: no orphan, no cycle, nothing lost or leaked."""
    await files.create()
    async with purging(files):
        done = await asyncio.gather(*(_client(files, seed) for seed in range(6)))
        *taken, _ = await files.shares(snapshots=True)
        for row in taken[::2]:
            await files.delete_snapshot(row.snapshot)
    assert sum(done) > 30
    await files.require_sound()
    for row in taken[1::2]:
        await files.tree(row.snapshot)
    await files.delete_share()
    await files.require_empty()


class _OverdueTxn:
    """A read transaction whose snapshot is overdue after some scans."""

    def __init__(self, txn: ReadTxn, scans: int) -> None:
        self._txn = txn
        self._left = scans

    def __getattr__(self, name: str) -> object:
        return getattr(self._txn, name)

    def scan(self, *args: object, **named: object) -> object:
        self._left -= 1
        return self._txn.scan(*args, **named)  # type: ignore[arg-type]

    @property
    def is_overdue(self) -> bool:
        return self._left <= 0


def _run(steps: Steps[FilledPage[Entry]]) -> tuple[FilledPage[Entry], int]:
    """Returns the page, and the number of steps."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            return ended.value, count
        count += 1


@file_test
async def test_a_listing_of_many_newer_entries_takes_several_steps(files: FileFixture) -> None:
    """A page ends when its snapshot of the ledger is overdue, even if it found nothing."""
    await files.create()
    await files.put("zzz")
    taken = await files.snapshot()
    for number in range(200):
        await files.put(f"f{number:03}")

    def list_some(txn: ReadTxn, marker: str) -> tuple[list[str], str]:
        page = RowsPage[Entry](1_000)
        asked = ListEntries(path_of("", taken), 1_000, marker=marker)
        command = FillPage(asked, lambda _now: page)
        overdue: ReadTxn = _OverdueTxn(txn, 3)  # type: ignore[assignment]
        filled, steps = _run(list_entries(overdue, command))
        assert steps >= 1
        following = "" if filled.following is None else filled.following.name.upper()
        return [entry.name for entry in page.rows], following

    found, pages, marker = [], 0, ""
    while True:
        names, following = await files.read(list_some, marker)
        found += names
        pages += 1
        if not following:
            break
        assert following > marker
        marker = following
    assert found == ["zzz"]
    assert pages > 2
