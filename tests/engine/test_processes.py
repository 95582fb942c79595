"""Several front-end processes on one ledger: isolation, fairness and visibility."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from etagere.clock import Clock
from etagere.config import Config
from etagere.engine.interface import WriteTxn, operation
from etagere.engine.sqlite import SqliteEngine
from etagere.engine.writer import SOCKET_NAME
from etagere.model.base import Command
from tests.clocks import SharedWords
from tests.engine import samples
from tests.engine.samples import ITEMS, Item, PutItem, Transfer
from tests.engine.sqlite_harness import SqliteHarness
from tests.model.processes import HelperProcess

CONFIG = Config(durable=False)
_SPIN_SECONDS_MAX = 20.0
_ATTEMPTS = 3
"""A defect shows every time, a pause of a busy machine does not."""


class Burn(Command, frozen=True):
    key: str
    seconds: float


@operation
def burn(txn: WriteTxn, command: Burn) -> int:
    """An operation that takes a given time."""
    until = time.perf_counter() + command.seconds
    while time.perf_counter() < until:
        pass
    item = txn.get(ITEMS, (command.key,)) or Item()
    return txn.put(ITEMS, (command.key,), Item(number=item.number + 1)).number


class FrontEnd:
    """A front-end process under test."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._tasks: list[asyncio.Task[object]] = []

    async def open(self) -> None:
        self.engine = SqliteEngine(self._directory, CONFIG, self._clock)
        await self.engine.write(samples.put_item, PutItem(f"opened by {os.getpid()}"))

    async def put(self, key: str, number: int) -> None:
        await self.engine.write(samples.put_item, PutItem(key, Item(number=number)))

    async def number(self, key: str) -> int:
        item = await self.engine.read(samples.get_item, key)
        return item.number if item else 0

    async def read_for(self, seconds: float) -> list[float]:
        """Returns the duration of each of many reads."""
        took = []
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            began = time.perf_counter()
            await self.engine.read(samples.get_item, "key")
            took.append(time.perf_counter() - began)
            await asyncio.sleep(0.001)
        return took

    async def burn_once(self, key: str, seconds: float) -> float:
        """Returns the total duration."""
        began = time.perf_counter()
        await self.engine.write(burn, Burn(key, seconds))
        return time.perf_counter() - began

    async def writes_before(self, key: str, other: str) -> int:
        """Writes, and returns how many operations on another key were completed meanwhile."""
        before = await self.number(other)
        await self.engine.write(burn, Burn(key, 0.0))
        return await self.number(other) - before

    async def write_for(self, key: str, seconds: float, tasks: int, cost: float) -> int:
        """Returns how many writes so many tasks completed."""
        until = time.perf_counter() + seconds
        done = 0

        async def write() -> None:
            nonlocal done
            while time.perf_counter() < until:
                await self.engine.write(burn, Burn(key, cost))
                done += 1

        await asyncio.gather(*(write() for _ in range(tasks)))
        return done

    async def begin_burning(self, key: str, seconds: float, count: int) -> None:
        """Sends many operations at once and does not wait for them."""
        for _ in range(count):
            work = self.engine.write(burn, Burn(key, seconds))
            self._tasks.append(asyncio.create_task(work))
        await self.until_sent()

    async def begin_transfers(self, source: str, count: int) -> None:
        for number in range(count):
            work = self.engine.write(samples.transfer, Transfer(source, f"{source}/{number}", 1))
            self._tasks.append(asyncio.create_task(work))
        await self.until_sent()

    async def until_sent(self) -> None:
        for _ in range(3):
            await asyncio.sleep(0)

    async def sums(self) -> int:
        """Returns the sum over all accounts, which transfers do not change."""
        rows = await self.engine.read(samples.sum_twice, await self.keys())
        assert rows.by_gets == rows.by_scan
        return rows.by_gets

    async def keys(self) -> list[str]:
        return await self.engine.read(samples.scan_items, samples.Scan(ITEMS.all(), 100_000))

    async def ping(self, words: tuple[int, int], rounds: int) -> int:
        """Writes a number, signals it, and waits for the reply; counts missed numbers."""
        written, awaited = words
        missed = 0
        for number in range(1, rounds + 1):
            await self.put("ping", number)
            WORDS[written] = number
            _spin_until(awaited, number)
            missed += await self.number("pong") != number
        return missed

    async def pong(self, words: tuple[int, int], rounds: int) -> int:
        written, awaited = words
        missed = 0
        for number in range(1, rounds + 1):
            _spin_until(awaited, number)
            missed += await self.number("ping") != number
            await self.put("pong", number)
            WORDS[written] = number
        return missed


WORDS = SharedWords(2)


def _spin_until(word: int, number: int) -> None:
    """Notices the other process's signal within microseconds."""
    until = time.monotonic() + _SPIN_SECONDS_MAX
    while WORDS[word] != number:
        assert time.monotonic() < until, "the other process has gone silent"
        os.sched_yield()


@contextlib.contextmanager
def front_ends(directory: Path, count: int) -> Iterator[list[HelperProcess]]:
    """Starts front-end processes, connected in this order."""
    harness = SqliteHarness(directory, CONFIG)
    harness.start()
    try:
        with contextlib.ExitStack() as stack:
            made = [
                stack.enter_context(HelperProcess(lambda: FrontEnd(directory, harness.clock)))
                for _ in range(count)
            ]
            for helper in made:
                helper.call("open")
            yield made
    finally:
        harness.stop()


def test_readers_do_not_wait_for_the_writer(tmp_path: Path) -> None:
    slowest = []
    with front_ends(tmp_path, 3) as (writing, *reading):
        for _ in range(_ATTEMPTS):
            for helper in reading:
                helper.send("read_for", 0.6)
            assert writing.call("burn_once", "key", 0.4) >= 0.4
            slowest.append(max(max(helper.receive()) for helper in reading))
            if slowest[-1] < 0.2:
                return
    raise AssertionError(f"reads took {slowest} s")


def test_acknowledged_writes_are_visible_to_other_processes_at_once(tmp_path: Path) -> None:
    WORDS[0] = WORDS[1] = 0
    with front_ends(tmp_path, 2) as (one, other):
        one.send("ping", (0, 1), 3000)
        other.send("pong", (1, 0), 3000)
        assert (one.receive(), other.receive()) == (0, 0)


@pytest.mark.parametrize("cost", [0.0, 0.0002], ids=["short", "longer"])
def test_every_process_gets_its_share(tmp_path: Path, cost: float) -> None:
    """Even if a group commit ends before all of its members had their turn."""
    done = []
    with front_ends(tmp_path, 4) as helpers:
        for _ in range(_ATTEMPTS):
            for number, helper in enumerate(helpers):
                helper.send("write_for", f"key {number}", 1.0, 100, cost)
            counts = [helper.receive() for helper in helpers]
            done.append(counts)
            if min(counts) * 2 >= sum(counts) / len(counts):
                return
    raise AssertionError(f"the processes wrote {done} times")


@pytest.mark.parametrize("greedy", [0, 1], ids=["first", "last"])
def test_long_operations_of_one_process_delay_another_by_one_of_them(
    tmp_path: Path, greedy: int
) -> None:
    """Whichever of the two came first."""
    most = []
    with front_ends(tmp_path, 2) as helpers:
        for _ in range(_ATTEMPTS):
            helpers[greedy].call("begin_burning", "long", 0.1, 15)
            counts = [helpers[1 - greedy].call("writes_before", "short", "long") for _ in range(3)]
            # One may be running when it arrives, and one more may start before its turn. Another
            # one may end before it sees the result.
            most.append(max(counts))
            if most[-1] <= 3:
                return
    raise AssertionError(f"{most} operations came first")


def test_a_killed_front_end_does_not_disturb_the_others(tmp_path: Path) -> None:
    with front_ends(tmp_path, 5) as (*doomed, one, other):
        one.send("write_for", "one", 1.5, 20, 0.0)
        other.send("read_for", 1.5)
        for number, helper in enumerate(doomed):
            helper.call("begin_transfers", f"doomed {number}", 700)
            helper.kill()
        assert one.receive() > 20
        took = sorted(other.receive())
        assert took[int(len(took) * 0.98)] < 0.5
        # Each of its changes is atomic.
        totals = one.call("number", "one")
        assert one.call("sums") == totals
        assert other.call("number", "one") == totals


def test_without_a_supervisor_the_writer_serves_until_the_front_ends_exit(
    tmp_path: Path,
) -> None:
    """They need it for requests in flight and would wait for it; a new server waits for them."""

    async def run() -> None:
        harness = SqliteHarness(tmp_path / "data", CONFIG)
        harness.start()
        writer_pid = harness.wait_for_writer()
        engine = await harness.open()
        await engine.write(samples.put_item, PutItem("before"))
        harness.stop(signal.SIGKILL)
        await asyncio.sleep(0.2)
        await engine.write(samples.put_item, PutItem("after"))
        await harness.close()
        deadline = time.monotonic() + 20.0
        while Path(f"/proc/{writer_pid}/status").exists():
            assert time.monotonic() < deadline, "the writer is still there"
            await asyncio.sleep(0.01)

    asyncio.run(run())


def test_a_partial_request_of_a_killed_front_end(tmp_path: Path) -> None:
    with front_ends(tmp_path, 1) as (one,):
        for sent in (b"\x01", b"\x40\x00\x00\x00", b"\x40\x00\x00\x00\x01\x00\x00\x00\x04\x00te"):
            with socket.socket(socket.AF_UNIX) as raw:
                directory = os.open(tmp_path, os.O_PATH)
                raw.connect(f"/proc/self/fd/{directory}/{SOCKET_NAME}")
                os.close(directory)
                raw.sendall(sent)
            one.call("put", "key", len(sent))
            assert one.call("number", "key") == len(sent)


def test_counts_of_four_processes_add_up(tmp_path: Path) -> None:
    """Each increments the same record; every acknowledged increment is in the sum."""
    with front_ends(tmp_path, 4) as helpers:
        for helper in helpers:
            helper.send("write_for", "sum", 0.5, 10, 0.0)
        counts = [helper.receive() for helper in helpers]
        assert [helper.call("number", "sum") for helper in helpers] == [sum(counts)] * 4
