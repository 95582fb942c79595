"""Killing a process that writes to an open file: what was flushed is there, and the file is in a
state that it once had."""

from __future__ import annotations

import asyncio
import hashlib
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.engine.sqlite_harness import start
from tests.opens.crash_worker import FILE_BYTES, writes
from tests.operations.file.fixture import FileFixture
from tests.operations.fixture import opened_fixture


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_process_loses_nothing_that_was_flushed(tmp_path: Path, seed: int) -> None:
    asyncio.run(asyncio.wait_for(_kill_and_check(tmp_path, seed), 60))


async def _kill_and_check(directory: Path, seed: int) -> None:
    async with opened_fixture(FileFixture, start, directory) as f:
        await f.create()
        await f.put("f", length=FILE_BYTES)
        written, flushed = await asyncio.to_thread(_write_until_killed, directory, seed)
        assert flushed
        stored = _digest(await f.get("f"))
        model, states = bytearray(FILE_BYTES), []
        for number, (offset, data) in enumerate(writes(seed), 1):
            model[offset : offset + len(data)] = data
            if number >= flushed:
                states.append(_digest(model))
            if number > written:
                break
        assert stored in states


def _write_until_killed(directory: Path, seed: int) -> tuple[int, int]:
    """Returns the numbers of the last write that was acknowledged, and of the last one that was
    flushed."""
    command = [sys.executable, "-m", "tests.opens.crash_worker", str(directory), str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        last = {"written": 0, "flushed": 0}
        ends_at = None
        for line in worker.stdout:
            what, number = line.split()
            last[what] = int(number)
            if last["flushed"] and ends_at is None:
                ends_at = time.monotonic() + random.Random(seed).uniform(0.05, 0.6)
            if ends_at is not None and time.monotonic() > ends_at:
                worker.kill()
    return last["written"], last["flushed"]


def _digest(data: bytes | bytearray) -> bytes:
    return hashlib.sha256(data).digest()
