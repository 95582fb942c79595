"""Fair sharing of threads between long reads: by kind of work and by client."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from etagere.engine.interface import Fault, ReadClass
from etagere.engine.scheduling import FairScheduler

pytestmark = pytest.mark.alone

SCAN = ReadClass("scan", "one")
SHORT = ReadClass("count", "two")


class Work:
    """Reads that hold their slots until a test ends them."""

    def __init__(self, slots: int) -> None:
        self.scheduler = FairScheduler(slots)
        self.running: Counter[ReadClass] = Counter()
        self.order: list[ReadClass] = []
        self._ends: list[asyncio.Event] = []

    def begin(self, read_class: ReadClass) -> asyncio.Task[None]:
        return asyncio.create_task(self._hold(read_class))

    async def _hold(self, read_class: ReadClass) -> None:
        end = asyncio.Event()
        async with self.scheduler.slot(read_class):
            self.running[read_class] += 1
            self.order.append(read_class)
            self._ends.append(end)
            await end.wait()
            self.running[read_class] -= 1

    async def end_oldest(self) -> None:
        self._ends.pop(0).set()
        await settle()

    async def end_all(self) -> None:
        while self._ends:
            await self.end_oldest()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_no_lane_occupies_all_slots() -> None:
    async def main() -> None:
        work = Work(3)
        tasks = [work.begin(SCAN) for _ in range(10)]
        await settle()
        assert work.running[SCAN] == 2
        short = work.begin(SHORT)
        await settle()
        assert work.running[SHORT] == 1
        await work.end_all()
        await asyncio.gather(short, *tasks)
        assert not +work.running

    asyncio.run(main())


def test_lanes_and_clients_take_turns() -> None:
    async def main() -> None:
        work = Work(1)
        busy, quiet = ReadClass("scan", "busy"), ReadClass("scan", "quiet")
        tasks = [work.begin(busy) for _ in range(5)]
        await settle()
        tasks += [work.begin(quiet), work.begin(SHORT)]
        await settle()
        await work.end_all()
        await asyncio.gather(*tasks)
        # Not after the four that have waited longer.
        assert work.order.index(quiet) <= 3
        assert work.order.index(SHORT) <= 3
        assert Counter(work.order) == {busy: 5, quiet: 1, SHORT: 1}

    asyncio.run(main())


@pytest.mark.parametrize("granted", [False, True])
def test_the_slot_of_a_cancelled_read_is_not_lost(granted: bool) -> None:
    async def main() -> None:
        work = Work(1)
        first, second = work.begin(SCAN), work.begin(SCAN)
        await settle()
        if granted:
            work._ends.pop(0).set()
            # Up to the point where the slot was handed over, but not taken.
            while not first.done():
                await asyncio.sleep(0)
            assert not work.running[SCAN]
        second.cancel()
        await settle()
        await work.end_all()
        await asyncio.gather(first, second, return_exceptions=True)
        third = work.begin(SCAN)
        await settle()
        assert work.running[SCAN] == 1
        await work.end_all()
        await third

    asyncio.run(main())


def test_waiting_reads_per_client_are_limited() -> None:
    async def main() -> None:
        work = Work(1)
        tasks = [work.begin(SCAN) for _ in range(1_000)]
        await settle()
        refused = [task for task in tasks if task.done() and task.exception()]
        assert all(isinstance(task.exception(), Fault) for task in refused)
        assert 800 < len(refused) < 1_000
        other = work.begin(SHORT)
        await work.end_all()
        await other
        assert SHORT in work.order

    asyncio.run(main())


def test_refused_reads_do_not_disturb_waiting_ones() -> None:
    async def main() -> None:
        work = Work(1)
        waiting = [work.begin(ReadClass("scan", str(number % 20))) for number in range(1_025)]
        await settle()
        late = work.begin(ReadClass("scan", "late"))
        await settle()
        assert isinstance(late.exception(), Fault)
        await work.end_all()
        await asyncio.gather(*waiting)
        assert len(work.order) == len(waiting)

    asyncio.run(main())


def test_a_read_is_cancelled_while_it_gets_its_slot() -> None:
    async def main() -> None:
        work = Work(1)
        first, second = work.begin(SCAN), work.begin(SCAN)
        await settle()
        # In this order, the slot is released after the second was cancelled, but before it runs.
        work._ends.pop(0).set()
        second.cancel()
        await first
        with pytest.raises(asyncio.CancelledError):
            await second
        await work.end_all()

    asyncio.run(main())
