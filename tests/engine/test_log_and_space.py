"""The write-ahead log stays short beside readers, and free pages return to the file system."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from etagere.bodies.audit.walk import check
from etagere.clock import SystemClock
from etagere.config import KIB, MIB, Config
from etagere.engine import checkpoints, copy_lock, ledger
from etagere.engine.groups import Writer
from etagere.engine.interface import ReadClass, ReadTxn
from etagere.engine.sqlite import SqliteEngine
from etagere.engine.writer_client import WriterConnection
from tests.engine import samples
from tests.engine.readers import foreign_reader
from tests.engine.samples import ITEMS, Item, PutItem, PutLarge
from tests.engine.sqlite_harness import SqliteHarness, start
from tests.loops import until
from tests.server import environment

pytestmark = pytest.mark.alone

CONFIG = Config(durable=False)
LOG_BYTES_MAX = 128 * MIB
LOG_BYTES_AFTER_MAX = 64 * MIB
PUT_SECONDS_MAX = 1.5
_SCANNERS = 3


def scan_until_overdue(txn: ReadTxn, _: None) -> int:
    """Scans for as long as its snapshot may be held."""
    seen = 0
    while not txn.is_overdue:
        seen += len(txn.scan(ITEMS, ITEMS.all(), 1_000))
    return seen


async def _scan_for_ever(engine: SqliteEngine, number: int) -> None:
    while True:
        await engine.read_in_thread(scan_until_overdue, None, ReadClass(f"scan {number}"))


async def _put_for(engine: SqliteEngine, log_bytes: int, directory: Path) -> tuple[float, int]:
    """Puts until the log has been rewritten so many times; returns the longest wait of a put and
    the maximum size of the log."""
    slowest, longest, written = 0.0, 0, 0
    while written < log_bytes:
        began = time.perf_counter()
        # Unchanged pages would not be written.
        data = bytes([written // MIB % 256]) * 64 * KIB
        puts = [
            engine.write(samples.put_large, PutLarge(b"%d" % number, data)) for number in range(32)
        ]
        await asyncio.gather(*puts)
        slowest = max(slowest, time.perf_counter() - began)
        longest = max(longest, ledger.log_bytes(directory))
        written += 32 * 64 * KIB
    return slowest, longest


def _with_engine(tmp_path: Path, main: Callable[[SqliteHarness], Awaitable[None]]) -> None:
    async def run() -> None:
        harness = await start(tmp_path / "data", CONFIG)
        try:
            await main(harness)
        finally:
            await harness.close()

    asyncio.run(run())


def test_the_log_starts_over_beside_overlapping_readers(tmp_path: Path) -> None:
    async def main(harness: SqliteHarness) -> None:
        engine = await harness.open()
        for number in range(500):
            await engine.write(samples.put_item, PutItem(f"{number}", Item("x" * 200)))
        scanners = [asyncio.create_task(_scan_for_ever(engine, n)) for n in range(_SCANNERS)]
        slowest, longest = await _put_for(engine, 500 * MIB, harness.directory)
        for scanner in scanners:
            scanner.cancel()
        await asyncio.gather(*scanners, return_exceptions=True)
        assert longest <= LOG_BYTES_MAX
        assert slowest <= PUT_SECONDS_MAX
        await _eventually_at_most(harness, LOG_BYTES_AFTER_MAX)

    _with_engine(tmp_path, main)


def test_the_log_shrinks_when_a_reader_that_held_it_ends(tmp_path: Path) -> None:
    """A foreign reader keeps its snapshot as long as it likes."""

    async def main(harness: SqliteHarness) -> None:
        engine = await harness.open()
        with foreign_reader(harness.directory):
            slowest, longest = await _put_for(engine, 160 * MIB, harness.directory)
        assert longest > LOG_BYTES_MAX, "there is nothing to be seen"
        assert slowest <= PUT_SECONDS_MAX
        await _eventually_at_most(harness, LOG_BYTES_AFTER_MAX)

    _with_engine(tmp_path, main)


def test_the_writer_does_not_wait_for_a_copy_of_the_ledger(tmp_path: Path) -> None:
    """The log grows meanwhile, to the limit for copies. Then the writer waits as for any reader."""

    async def main(harness: SqliteHarness) -> None:
        engine = await harness.open()
        with copy_lock.copying(harness.directory), foreign_reader(harness.directory):
            slowest, longest = await _put_for(engine, 160 * MIB, harness.directory)
        assert longest > LOG_BYTES_MAX, "there is nothing to be seen"
        assert slowest < CONFIG.log_restart_seconds_max
        await _eventually_at_most(harness, LOG_BYTES_AFTER_MAX)

    _with_engine(tmp_path, main)


def test_a_start_writes_nothing_to_an_existing_ledger(tmp_path: Path) -> None:
    """The log cannot grow on a full disk, where a server must start to delete something."""
    ledger.create(tmp_path, CONFIG, SystemClock())
    before = ledger.database_path(tmp_path).read_bytes()
    ledger.create(tmp_path, CONFIG, SystemClock())
    assert ledger.database_path(tmp_path).read_bytes() == before


def test_a_log_that_cannot_restart_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier failed sync may have dropped any part of it, and the next sync would not report
    that."""
    ledger.create(tmp_path, CONFIG, SystemClock())
    log = ledger.log_path(tmp_path)
    calls: list[tuple[str, int]] = []
    write, sync = os.pwrite, os.fsync

    def note(descriptor: int, call: str, length: int = 0) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink() == log:
            calls.append((call, length))

    def watched_write(descriptor: int, data: bytes, offset: int) -> int:
        note(descriptor, "write", len(data))
        return write(descriptor, data, offset)

    def watched_sync(descriptor: int) -> None:
        note(descriptor, "sync")
        sync(descriptor)

    monkeypatch.setattr(os, "pwrite", watched_write)
    monkeypatch.setattr(os, "fsync", watched_sync)
    monkeypatch.setattr(checkpoints, "_START_SECONDS_MAX", 0.05)
    with foreign_reader(tmp_path):
        writer = Writer(tmp_path, CONFIG, SystemClock())
        log_bytes = ledger.log_bytes(tmp_path)
        writer.close()
    assert log_bytes
    assert calls == [("write", log_bytes), ("sync", 0)]


async def _eventually_at_most(harness: SqliteHarness, bytes_max: int) -> None:
    deadline = time.monotonic() + 10.0
    while ledger.log_bytes(harness.directory) > bytes_max:
        assert time.monotonic() < deadline, ledger.log_bytes(harness.directory)
        await asyncio.sleep(0.05)


def test_free_pages_return_to_the_file_system(tmp_path: Path) -> None:
    path = ledger.database_path(tmp_path / "data")

    async def main(harness: SqliteHarness) -> None:
        engine = await harness.open()
        count = 600
        data = {b"%05d" % number: bytes([number % 251]) * 100 * KIB for number in range(count)}
        for key, value in data.items():
            await engine.write(samples.put_large, PutLarge(key, value))
        await until(lambda: path.stat().st_size > count * 100 * KIB)
        kept = {key for number, key in enumerate(data) if number % 20 == 0}
        for key in data.keys() - kept:
            await engine.write(samples.delete_large, key)
        live = len(kept) * 100 * KIB
        # Beside readers and writers.
        slowest = 0.0
        deadline = time.monotonic() + 20.0
        while path.stat().st_size > 2 * live + 4 * MIB:
            assert time.monotonic() < deadline, path.stat().st_size
            began = time.perf_counter()
            await engine.write(samples.put_item, PutItem("beside"))
            slowest = max(slowest, time.perf_counter() - began)
            await asyncio.sleep(0.002)
        assert slowest < 0.25
        for key in kept:
            found = await engine.read(samples.get_large, key)
            assert found is not None
            assert found.data == data[key]

    _with_engine(tmp_path, main)
    assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_connection_lost_before_its_first_request_is_reopened(tmp_path: Path) -> None:
    async def main(harness: SqliteHarness) -> None:
        engine = await harness.open()
        connect_once, made = engine._writer._open_connection, []

        async def lose_the_first() -> WriterConnection:
            link = await connect_once()
            made.append(link)
            if len(made) == 1:
                link._transport.abort()
                while not link.lost:
                    await asyncio.sleep(0)
            return link

        engine._writer._open_connection = lose_the_first  # type: ignore[method-assign]
        async with asyncio.timeout(5.0):
            await engine.write(samples.put_item, PutItem("asked"))
        assert len(made) == 2

    _with_engine(tmp_path, main)


def test_a_check_does_not_hold_a_snapshot_beside_a_server(tmp_path: Path) -> None:
    """The log can restart after the initial copy."""
    refused: list[str] = []

    async def main(harness: SqliteHarness) -> None:
        engine = await harness.open()
        await engine.write(samples.put_item, PutItem("first"))

        def restart_log(phase: str, _done: int, _total: int) -> None:
            if phase == "copy":
                return
            command = [sys.executable, "-c", _RESTART, str(ledger.database_path(tmp_path / "data"))]
            refused.append(subprocess.check_output(command, text=True).strip())

        report = await asyncio.to_thread(check, harness.directory, progress=restart_log)
        assert not report.findings

    _with_engine(tmp_path, main)
    assert refused
    assert set(refused) == {"(0,)"}


_RESTART = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=2.0)
print(connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()[:1])
"""


def test_an_old_ledger_releases_its_pages_after_compaction(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    _with_engine(tmp_path, _put_and_delete)
    path = ledger.database_path(directory)
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA auto_vacuum = NONE")
        database.execute("VACUUM")
    _with_engine(tmp_path, _put_and_delete)
    assert path.stat().st_size > 20 * MIB, "there is nothing to give back"
    command = [sys.executable, "-m", "etagere", "compact", "--data", str(directory)]
    output = subprocess.check_output(command, text=True, env=environment())
    assert "bytes after" in output
    assert path.stat().st_size < 2 * MIB
    with contextlib.closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA auto_vacuum").fetchone() == (2,)
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def _put_and_delete(harness: SqliteHarness) -> None:
    engine = await harness.open()
    for number in range(300):
        await engine.write(samples.put_large, PutLarge(b"%d" % number, bytes(100 * KIB)))
    for number in range(300):
        await engine.write(samples.delete_large, b"%d" % number)


def test_compacting_beside_a_server_is_refused(tmp_path: Path) -> None:
    async def main(harness: SqliteHarness) -> None:
        command = [sys.executable, "-m", "etagere", "compact", "--data", str(harness.directory)]
        ended = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, env=environment(), check=False
        )
        assert ended.returncode == 2
        assert "stop the server first" in ended.stderr

    _with_engine(tmp_path, main)
