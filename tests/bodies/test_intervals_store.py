"""Interval maps on real segments: bytes, holes, the collector and the check."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import Any

import pytest

from etagere.bodies.audit.walk import check
from etagere.bodies.collector import Collector
from etagere.bodies.contents import EXTENTS, UNCOUNTED_DEAD
from etagere.bodies.files import FileBodyStore
from etagere.bodies.maps import (
    FORMER_INTERVALS,
    GENERATIONS,
    INTERVAL_MAPS,
    INTERVALS,
    MAPS_TO_FLATTEN,
    MAPS_TO_REAP,
)
from etagere.bodies.plans import Hole, SegmentRange
from etagere.bodies.reading import runs
from etagere.engine.interface import Engine
from etagere.engine.memory import MemoryEngine
from etagere.engine.records import Collection
from tests.bodies import mapped_objects
from tests.bodies.objects import CopyObject, copy_object, delete_object, download, upload
from tests.bodies.stores import CONFIG
from tests.engine.sqlite_harness import SqliteHarness
from tests.model.consistency import rows

LENGTH = 20_000
NAMES = ("a", "b", "c", "d", "e")
MIB = 1 << 20


class RandomClient:
    """Makes random changes to objects and to a model of plain bytes."""

    def __init__(self, directory: Path, engine: Engine, seed: int) -> None:
        self.engine = engine
        self.store = FileBodyStore(directory, engine, CONFIG)
        self.collector = Collector(engine, self.store, CONFIG)
        self.dice = random.Random(seed)
        self.expected: dict[str, bytearray] = {}

    async def step(self) -> None:
        name, other = self.dice.choice(NAMES), self.dice.choice(NAMES)
        data = self.expected.get(name)
        if data is None:
            await mapped_objects.begin(self.engine, name, LENGTH)
            self.expected[name] = bytearray(LENGTH)
            return
        start, size = self.dice.randrange(len(data) + 1), self.dice.randrange(1, 3_000)
        match self.dice.randrange(14):
            case 0 | 1 | 2 | 3:
                new = self.dice.randbytes(size)
                await mapped_objects.write(self.engine, self.store, name, start, new)
                data[start : start + size] = new
            case 4:
                new = self.dice.randbytes(size)
                await mapped_objects.write(self.engine, self.store, name, None, new)
                data += new
            case 5:
                await mapped_objects.clear(self.engine, name, start, start + 3 * size)
                end = min(start + 3 * size, len(data))
                data[start:end] = bytes(end - start)
            case 6:
                length = self.dice.randrange(LENGTH)
                await mapped_objects.resize(self.engine, name, length)
                self.expected[name] = (data + bytes(length))[:length]
            case 7 | 8:
                if name != other:
                    await self.engine.write(copy_object, CopyObject(name, other))
                    self.expected[other] = bytearray(data)
            case 9:
                await self.engine.write(delete_object, name)
                del self.expected[name]
            case 10:
                await self.store.maintain()
                await self.collector.collect()
            case 11 | 12:
                for _ in range(5):
                    new = self.dice.randbytes(size // 5)
                    await mapped_objects.write_inline(self.engine, name, new)
                    data += new
            case 13:
                await mapped_objects.fold(self.engine, self.store, name)

    async def compare(self) -> None:
        for name in NAMES:
            found = await download(self.engine, self.store, name)
            data = self.expected.get(name)
            assert found == (None if data is None else bytes(data))

    async def end(self) -> None:
        for name in list(self.expected):
            await self.engine.write(delete_object, name)
        for _ in range(3):
            await self.collector.collect()
        for collection in (
            INTERVAL_MAPS,
            INTERVALS,
            FORMER_INTERVALS,
            GENERATIONS,
            MAPS_TO_REAP,
            MAPS_TO_FLATTEN,
            EXTENTS,
        ):
            assert await self.engine.read(rows, collection) == {}


async def play(player: RandomClient, steps: int, every: int) -> None:
    for number in range(steps):
        await player.step()
        if not number % every:
            await player.compare()
    await player.compare()


@pytest.mark.parametrize("seed", range(3))
def test_contents_match_the_model(tmp_path: Path, seed: int) -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        player = RandomClient(tmp_path, engine, seed)
        await play(player, 250, 5)
        await player.end()
        await player.store.close()
        await engine.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("seed", range(2))
def test_the_check_has_no_findings_after_any_step(tmp_path: Path, seed: int) -> None:
    async def scenario() -> None:
        harness = SqliteHarness(tmp_path / "data", CONFIG)
        harness.start()
        try:
            player = RandomClient(harness.directory, await harness.open(), 100 + seed)
            for _ in range(8):
                await play(player, 25, 25)
                report = await asyncio.to_thread(check, harness.directory, CONFIG)
                assert not report.findings, [str(found) for found in report.findings]
            await player.end()
            report = await asyncio.to_thread(check, harness.directory, CONFIG)
            assert not report.findings
            assert report.extents == 0
            await player.store.close()
        finally:
            await harness.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_reaping_a_copy_keeps_the_original(tmp_path: Path) -> None:
    """Overwritten bytes that only the copy held are dead once it is gone."""

    async def scenario() -> None:
        engine = MemoryEngine()
        store = FileBodyStore(tmp_path, engine, CONFIG)
        collector = Collector(engine, store, CONFIG)
        await mapped_objects.begin(engine, "a", LENGTH)
        await mapped_objects.write(engine, store, "a", 0, b"x" * 4_000)
        await engine.write(copy_object, CopyObject("a", "b"))
        await mapped_objects.write(engine, store, "a", 0, b"y" * 4_000)
        await collector.collect()
        assert len(await engine.read(rows, EXTENTS)) == 2
        await engine.write(delete_object, "b")
        await collector.collect()
        assert len(await engine.read(rows, EXTENTS)) == 1
        assert [dead.length for dead in (await engine.read(rows, UNCOUNTED_DEAD)).values()] == [
            4_000
        ]
        assert (await download(engine, store, "a") or b"")[:4_001] == b"y" * 4_000 + b"\0"
        await store.close()
        await engine.close()

    asyncio.run(scenario())


def test_a_damaged_base_does_not_block_reaping(tmp_path: Path) -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        store = FileBodyStore(tmp_path, engine, CONFIG)
        collector = Collector(engine, store, CONFIG)
        damages: tuple[Collection[Any, Any], ...] = (INTERVAL_MAPS, EXTENTS)
        for damaged in damages:
            name = f"{damaged.name}-a"
            await mapped_objects.begin(engine, name, LENGTH)
            await mapped_objects.write(engine, store, name, 0, b"x" * 4_000)
            await engine.write(copy_object, CopyObject(name, f"{damaged.name}-b"))
            await mapped_objects.clear(engine, name, 0, 512)
            key = list(await engine.read(rows, damaged))[-1]
            await mapped_objects.clear(engine, f"{damaged.name}-b", 1_024, 2_048)
            txn = engine.begin()
            txn.delete(damaged, key)
            txn.commit()
        await upload(engine, store, "other", bytes(50_000))
        await engine.write(delete_object, "other")
        await store.maintain()
        await store.maintain()
        collected = await collector.collect()
        assert collected.segments_removed
        await store.close()
        await engine.close()

    asyncio.run(scenario())


# Holes


def test_holes_are_read_as_zeros_in_chunks(tmp_path: Path) -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        store = FileBodyStore(tmp_path, engine, CONFIG)
        reader = store.open_reader()
        sizes = [len(chunk) async for chunk in reader.chunks((Hole(3 * MIB + 5), Hole(1)))]
        assert sum(sizes) == 3 * MIB + 6
        assert max(sizes) <= MIB
        async for chunk in reader.chunks((Hole(8 << 40),)):
            assert chunk == bytes(len(chunk))
            break
        reader.close()
        await store.close()
        await engine.close()

    asyncio.run(scenario())


def test_zeros_come_from_a_sparse_file(tmp_path: Path) -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        store = FileBodyStore(tmp_path, engine, CONFIG)
        file = store.zeros()
        assert store.zeros() is file
        assert os.pread(file.descriptor, 10, (8 << 40) - 5) == bytes(10)
        assert os.fstat(file.descriptor).st_size > 8 << 40
        assert os.fstat(file.descriptor).st_blocks == 0
        await store.close()
        await engine.close()

    asyncio.run(scenario())


def test_runs_join_adjacent_extents_and_keep_holes_apart() -> None:
    plan = (
        Hole(7),
        SegmentRange(1, 0, 10, None),
        SegmentRange(1, 10, 5, None),
        Hole(8 << 40),
        SegmentRange(1, 15, 5, None),
        SegmentRange(2, 20, 5, None),
        Hole(1),
    )
    assert list(runs(plan)) == [
        (None, 0, 7),
        (1, 0, 15),
        (None, 0, 8 << 40),
        (1, 15, 5),
        (2, 20, 5),
        (None, 0, 1),
    ]
    assert list(runs(())) == []
