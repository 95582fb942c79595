"""Uploads to an object store: packing, memory, faults."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest
from awscrt.checksums import crc64nvme

from etagere.bodies.objects.interface import ObjectExists
from etagere.bodies.objects.store import ObjectBodyStore
from etagere.config import KIB, MIB, Config
from etagere.engine.interface import Fault, FaultReason
from etagere.model.bodies import SegmentState
from etagere.protocol.connections.memory import MemoryBudget
from tests.bodies.object_stores.fixture import CONFIG, BodiesInObjects, noise, read, run

OBJECT = CONFIG.piece_bytes_max
LARGE = Config(durable=False, segment_bytes_max=64 * MIB, memory_budget_bytes=4 * 16 * MIB)
"""Objects of the usual length."""
SIZES = [0, 1, 512, 513, 1_000, OBJECT - 1, OBJECT, OBJECT + 1, 3 * OBJECT, 10 * OBJECT + 77]


async def write(
    store: ObjectBodyStore, data: bytes, length: int | None = None, step: int = 64 * KIB
) -> bytes:
    """Uploads, and returns what is read back."""
    async with store.writer(length, md5=True) as writer:
        for at in range(0, len(data), step):
            await writer.append(data[at : at + step])
        body = await writer.seal()
    assert (body.length, body.crc) == (len(data), crc64nvme(data))
    assert writer.md5 == hashlib.md5(data, usedforsecurity=False).digest()
    assert sum(piece.length for piece in body.pieces) in (0, len(data))
    return await read(store, body)


@pytest.mark.parametrize("config", [CONFIG, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("is_known", [True, False])
def test_bodies_of_every_length(tmp_path: Path, config: Config, is_known: bool) -> None:
    async def scenario(bodies: BodiesInObjects) -> None:
        sizes = SIZES if config is CONFIG else [MIB - 1, MIB + 1, 8 * MIB, 17 * MIB + 5]
        for seed, size in enumerate(sizes):
            data = noise(seed, size)
            for step in (size or 1, 100_000):
                length = size if is_known else None
                assert await write(bodies.store, data, length, step) == data

    run(tmp_path, scenario, config)


def test_small_bodies_share_objects(tmp_path: Path) -> None:
    async def scenario(bodies: BodiesInObjects) -> None:
        datas = [noise(number, 2_000 + number) for number in range(200)]
        names = [f"{number}" for number in range(200)]
        bodies.driver.delays["put"] = 0.01
        await asyncio.gather(*map(bodies.put, names, datas))
        assert bodies.driver.calls["put"] < 20
        assert [await bodies.get(name) for name in names] == datas
        await bodies.reopen()
        (segment,) = (await bodies.segments()).values()
        assert segment.length == sum(map(len, datas))
        await bodies.require_balanced()

    run(tmp_path, scenario)


def test_a_slow_put_does_not_delay_small_bodies(tmp_path: Path) -> None:
    async def scenario(bodies: BodiesInObjects) -> None:
        bodies.driver.hold("put")
        slow = asyncio.create_task(bodies.put("slow", noise(1, 2_000)))
        await bodies.driver.reached("put")
        proceed = bodies.driver.let_others_go("put")
        await asyncio.wait_for(bodies.put("quick", noise(2, 2_000)), 5)
        assert not slow.done()
        proceed.set()
        await slow
        assert await bodies.get("slow") == noise(1, 2_000)

    run(tmp_path, scenario)


def test_an_upload_holds_three_objects_at_most(tmp_path: Path) -> None:
    async def scenario(bodies: BodiesInObjects) -> None:
        data = noise(1, 64 * MIB)
        bodies.driver.delays["put"] = 0.2
        async with bodies.store.writer(len(data), md5=True) as writer:
            for at in range(0, len(data), MIB):
                await writer.append(memoryview(data)[at : at + MIB])
                assert bodies.store.memory.used_bytes <= 3 * 8 * MIB
            body = await writer.seal()
        assert len(body.pieces) == 8
        assert bodies.driver.under_way_max["put"] in (2, 3)
        assert await read(bodies.store, body) == data

    config = Config(durable=False, memory_budget_bytes=4 * 64 * MIB)
    run(tmp_path, scenario, config)


def test_uploads_without_memory_go_on_with_short_objects(tmp_path: Path) -> None:
    async def scenario(bodies: BodiesInObjects) -> None:
        assert bodies.store.memory.reserve(16 * MIB)
        datas = [noise(number, 5 * MIB) for number in range(3)]
        assert await asyncio.gather(
            *(write(bodies.store, data, len(data)) for data in datas)
        ) == datas  # fmt: skip
        assert max(bodies.driver.sizes) == MIB
        bodies.store.memory.release(16 * MIB)

    run(tmp_path, scenario, LARGE)


def test_objects_in_memory_count_against_the_budget_of_the_server(tmp_path: Path) -> None:
    budget = MemoryBudget(64 * MIB)

    async def scenario(bodies: BodiesInObjects) -> None:
        data = noise(1, 8 * MIB)
        bodies.driver.hold("put")
        upload = asyncio.create_task(write(bodies.store, data, len(data)))
        await bodies.driver.reached("put")
        assert budget.used_bytes == 8 * MIB
        # Another upload gets none while requests use half of the budget.
        assert budget.reserve(32 * MIB)
        other = asyncio.create_task(write(bodies.store, data, len(data)))
        bodies.driver.let_go("put")
        assert await upload == data
        assert await other == data
        assert bodies.driver.sizes.count(MIB) == 8
        budget.release(32 * MIB)

    run(tmp_path, scenario, LARGE, budget=budget)
    assert budget.used_bytes == 0


@pytest.mark.parametrize("afterwards", [False, True])
@pytest.mark.parametrize("size", [2_000, 5 * OBJECT])
@pytest.mark.parametrize("number", [1, 3])
def test_a_put_that_fails(tmp_path: Path, afterwards: bool, size: int, number: int) -> None:
    """The upload fails, whether its object was stored or not, and what was stored is collected."""

    async def scenario(bodies: BodiesInObjects) -> None:
        await bodies.put("kept", noise(1, 3 * OBJECT))
        fault = Fault(FaultReason.UNAVAILABLE, "broken")
        bodies.driver.strike("put", number, fault, afterwards=afterwards)
        faults = []
        for attempt in range(3):
            try:
                await bodies.put(f"lost-{attempt}", noise(2, size))
            except Fault as raised:
                faults.append(raised)
        assert [raised.reason for raised in faults] == [FaultReason.UNAVAILABLE]
        assert faults[0] is not fault
        await bodies.reopen()
        for attempt in range(3):
            if await bodies.get(f"lost-{attempt}") is not None:
                await bodies.delete(f"lost-{attempt}")
        for _ in range(3):
            await bodies.collect()
        assert await bodies.get("kept") == noise(1, 3 * OBJECT)
        assert await bodies.stored_bytes() <= 1.25 * await bodies.live_bytes()
        await bodies.require_balanced()

    run(tmp_path, scenario)


def test_all_uploads_of_a_failed_pack_fail(tmp_path: Path) -> None:
    async def scenario(bodies: BodiesInObjects) -> None:
        bodies.driver.delays["put"] = 0.02
        bodies.driver.strike("put", 2, Fault(FaultReason.UNAVAILABLE, "broken"))
        uploads = [bodies.put(f"{number}", noise(number, 2_000)) for number in range(10)]
        outcomes = await asyncio.gather(*uploads, return_exceptions=True)
        assert outcomes[0] is None
        assert all(isinstance(outcome, Fault) for outcome in outcomes[1:])
        assert len(set(map(id, outcomes[1:]))) == 9
        assert [await bodies.get(f"{number}") for number in range(1, 10)] == [None] * 9
        await bodies.put("1", noise(1, 2_000))
        await bodies.require_balanced()

    run(tmp_path, scenario)


def test_an_object_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    async def scenario(bodies: BodiesInObjects) -> None:
        bodies.driver.strike("put", 1, ObjectExists("x"))
        with pytest.raises(Fault, match="exists"):
            await bodies.put("a", noise(1, 2_000))
        await bodies.put("a", noise(1, 2_000))
        assert await bodies.get("a") == noise(1, 2_000)

    run(tmp_path, scenario)


@pytest.mark.parametrize("size", [2_000, 10 * OBJECT])
def test_cancelled_uploads_return_their_memory(tmp_path: Path, size: int) -> None:
    async def scenario(bodies: BodiesInObjects) -> None:
        for number in range(20):
            bodies.driver.delays["put"] = 0.002
            task = asyncio.create_task(bodies.put("a", noise(1, size)))
            await asyncio.sleep(number * 0.001)
            task.cancel()
            await asyncio.wait([task])
        bodies.driver.delays.clear()
        await bodies.put("b", noise(2, size))
        assert await bodies.get("b") == noise(2, size)
        await bodies.reopen()
        assert bodies.store.memory.used_bytes == 0
        for _ in range(3):
            await bodies.collect()
        await bodies.reopen()
        await bodies.collect()
        assert await bodies.stored_bytes() <= 1.25 * await bodies.live_bytes()
        await bodies.require_balanced()

    run(tmp_path, scenario)


def test_segments_have_a_limited_number_of_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etagere.bodies.objects.store.OBJECTS_PER_SEGMENT_MAX", 5)

    async def scenario(bodies: BodiesInObjects) -> None:
        for number in range(12):
            await bodies.put(f"{number}", noise(number, 1_000))
        await bodies.collect()
        segments = await bodies.segments()
        sealed = [s.length for s in segments.values() if s.state is SegmentState.SEALED]
        assert (len(segments), sealed) == (3, [5_000, 5_000])

    run(tmp_path, scenario)
