"""Errors in the files of bodies: an upload succeeds or fails, and affects no other."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from etagere.bodies.collector import Collector
from etagere.bodies.segment_files import DIRECTORY_NAME
from etagere.config import KIB, MIB, Config
from etagere.engine.interface import FaultReason, ReadTxn
from etagere.model.bodies import Pieces
from tests.bodies.objects import OBJECTS, download, upload
from tests.simulation.faults import DiskCall, FaultyDisk
from tests.simulation.servers import (
    Ending,
    FrontEnd,
    Server,
    ending_of,
    front_end,
    require_clean,
    run,
    served,
)

UPLOADS = 8
CONFIG = Config(
    inline_bytes_max=4 * KIB,
    piece_bytes_max=1 * MIB,
    segment_bytes_max=64 * MIB,
    reserve_bytes=1 * MIB,
)
REASONS = {errno.ENOSPC: FaultReason.DISK_FULL, errno.EIO: FaultReason.FAILED}
ERRORS = pytest.mark.parametrize("error", list(REASONS))


@contextlib.contextmanager
def clean_server(tmp_path: Path) -> Iterator[Server]:
    with served(tmp_path / "data", CONFIG) as server:
        yield server
        assert server.stop() == 0
    require_clean(server.directory)


def data_of(name: str) -> bytes:
    """Returns the content of a name: unique, and large enough for segments."""
    return (name.encode() * (100 * KIB))[: 100 * KIB]


async def upload_all(front: FrontEnd, names: list[str]) -> dict[str, Ending]:
    calls = [upload(front.engine, front.store, name, data_of(name)) for name in names]
    return dict(zip(names, await asyncio.gather(*map(ending_of, calls)), strict=True))


def segment_of(txn: ReadTxn, name: str) -> int:
    stored = txn.get(OBJECTS, (name,))
    assert stored is not None and isinstance(stored.content, Pieces)
    return stored.content.pieces[0].segment


def require_outcomes(server: Server, shown: dict[str, Ending]) -> None:
    """Reads everything back completely, before and after a crash."""

    async def look() -> None:
        async with front_end(server) as front:
            for name, ending in shown.items():
                expected = data_of(name) if ending.happened else None
                assert await download(front.engine, front.store, name) == expected, (name, ending)

    run(look())
    server.crash_and_restart()
    run(look())


def names(prefix: str) -> list[str]:
    return [f"{prefix}-{number}" for number in range(UPLOADS)]


def faults_in(outcomes: dict[str, Ending]) -> list[FaultReason]:
    """Returns the reasons of failures; uploads can only succeed or fail."""
    assert {ending.kind for ending in outcomes.values()} <= {"done", "fault"}, outcomes
    return [ending.reason for ending in outcomes.values() if ending.reason is not None]


@ERRORS
@pytest.mark.parametrize("short", [False, True])
def test_a_failed_write_fails_one_upload(tmp_path: Path, error: int, short: bool) -> None:
    disk = FaultyDisk()
    with clean_server(tmp_path) as server:

        async def work() -> dict[str, Ending]:
            async with front_end(server, disk) as front:
                outcomes = await upload_all(front, names("before"))
                disk.strike(DiskCall.WRITE, error, nth=3, short=short)
                outcomes |= await upload_all(front, names("during"))
                assert faults_in(outcomes) == [REASONS[error]]
                outcomes |= (after := await upload_all(front, names("after")))
                assert not faults_in(after)
                return outcomes

        require_outcomes(server, run(work()))


@ERRORS
def test_uploads_fail_while_the_disk_cannot_be_written(tmp_path: Path, error: int) -> None:
    disk = FaultyDisk()
    with clean_server(tmp_path) as server:

        async def work() -> dict[str, Ending]:
            async with front_end(server, disk) as front:
                outcomes = await upload_all(front, names("before"))
                disk.strike(DiskCall.WRITE, error, lasting=True)
                outcomes |= (during := await upload_all(front, names("during")))
                assert faults_in(during) == [REASONS[error]] * UPLOADS
                small = await ending_of(upload(front.engine, front.store, "small", b"small"))
                assert small.kind == "done"  # is stored in the ledger
                disk.stop()
                outcomes |= (after := await upload_all(front, names("after")))
                assert not faults_in(after)
                return outcomes

        require_outcomes(server, run(work()))


@ERRORS
def test_a_failed_fsync_poisons_its_segment(tmp_path: Path, error: int) -> None:
    disk = FaultyDisk()
    with clean_server(tmp_path) as server:

        async def work() -> dict[str, Ending]:
            async with front_end(server, disk) as front:
                outcomes = await upload_all(front, names("before"))
                poisoned = await front.engine.read(segment_of, "before-0")
                disk.strike(DiskCall.SYNC, error)
                outcomes |= (during := await upload_all(front, names("during")))
                # All were in that segment when its fsync failed; none may be acknowledged after
                # another fsync.
                assert faults_in(during) == [REASONS[error]] * UPLOADS
                assert disk.injected == 1
                assert disk.synced_after_failed_sync == 0
                disk.written_after_failed_sync.clear()  # writes that were running by then
                outcomes |= (after := await upload_all(front, names("after")))
                assert not faults_in(after)
                assert disk.written_after_failed_sync == []
                for name in after:
                    assert await front.engine.read(segment_of, name) != poisoned
                for name in names("before"):
                    assert await download(front.engine, front.store, name) == data_of(name)
                return outcomes

        require_outcomes(server, run(work()))


def test_an_upload_in_a_poisoned_segment_cannot_finish(tmp_path: Path) -> None:
    """Even one that had space there before, and sends its bytes later."""
    disk = FaultyDisk()
    with clean_server(tmp_path) as server:

        async def work() -> dict[str, Ending]:
            async with front_end(server, disk) as front:
                async with front.store.writer(2 * MIB, inline=False) as slow:
                    await slow.append(b"s" * MIB)  # has its space, and its first bytes written
                    disk.strike(DiskCall.SYNC, errno.EIO)
                    output = await upload_all(front, names("during"))
                    assert faults_in(output) == [FaultReason.FAILED] * UPLOADS
                    await slow.append(b"s" * MIB)
                    assert (await ending_of(slow.seal())).reason is FaultReason.FAILED
                return output | await upload_all(front, names("after"))

        output = run(work())
        assert not faults_in({name: output[name] for name in names("after")})
        require_outcomes(server, output)


@ERRORS
@pytest.mark.parametrize("name_unsynced", [False, True])
def test_a_segment_that_cannot_be_created(tmp_path: Path, error: int, name_unsynced: bool) -> None:
    """`name_unsynced`: the file was created, but its name could not be made durable."""
    disk = FaultyDisk()
    with clean_server(tmp_path) as server:

        async def work() -> dict[str, Ending]:
            async with front_end(server, disk) as front:
                disk.strike(DiskCall.CREATE, error, nth=1, short=name_unsynced)
                outcomes = await upload_all(front, names("during"))
                # The first upload finds no segment; the next one creates another.
                assert faults_in(outcomes) == [REASONS[error]]
                disk.strike(DiskCall.CREATE, error, lasting=True, short=name_unsynced)
                outcomes |= (after := await upload_all(front, names("after")))
                assert not faults_in(after)  # the existing segment is enough
                disk.stop()
                await Collector(front.engine, front.store, CONFIG).collect()
                return outcomes

        require_outcomes(server, run(work()))
        # The remains of the failure have been collected.
        assert len(list((server.directory / DIRECTORY_NAME).iterdir())) == 1
