"""Downloads from an object store."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from etagere.bodies.objects import store as object_body_store
from etagere.bodies.objects.fetching import (
    FETCH_BYTES_MAX,
    FETCH_BYTES_MIN,
    FETCHES_MAX,
    Fetch,
    PlanCursor,
)
from etagere.bodies.plans import Hole, Plan, SegmentRange
from etagere.bodies.store import BodyCorrupt
from etagere.config import KIB, MIB, Config
from etagere.engine.interface import Fault, FaultReason
from etagere.model.bodies import Body
from etagere.protocol.connections.memory import MemoryBudget
from tests.bodies.object_stores.drivers import MemoryObjectStore
from tests.bodies.object_stores.fixture import BodiesInObjects, noise, read, run

CONFIG = Config(durable=False, inline_bytes_max=512, memory_budget_bytes=4 * 16 * MIB)


def at(segment: int, index: int, offset: int, length: int) -> SegmentRange:
    return SegmentRange(segment, index << 32 | offset, length, None)


def shape(
    parts: list[SegmentRange | Hole | bytes], fetch_bytes_max: int = MIB
) -> list[tuple[int, int, int, int]]:
    """Returns the segment, object, offset and length of each fetch of a plan."""
    cursor = PlanCursor(parts)
    fetches: list[tuple[int, int, int, int]] = []
    while (step := cursor.next(fetch_bytes_max)) is not None:
        if isinstance(step, Fetch):
            offset = step.offset & 0xFFFFFFFF
            fetches.append((step.segment, step.offset >> 32, offset, step.length))
    return fetches


def test_adjacent_parts_are_fetched_together() -> None:
    assert shape([at(1, 0, 0, 512), at(1, 0, 512, 512)]) == [(1, 0, 0, 1024)]
    assert shape([at(1, 0, 0, 512), at(1, 0, 4_096, 512)]) == [(1, 0, 0, 4_608)]
    apart: list[SegmentRange | Hole | bytes] = [at(1, 0, 0, 512), at(1, 0, 512 * KIB, 512)]
    assert len(shape(apart)) == 2
    assert len(shape([at(1, 0, 512, 512), at(1, 0, 0, 512)])) == 2
    assert len(shape([at(1, 0, 0, 512), at(1, 1, 512, 512)])) == 2
    assert len(shape([at(1, 0, 0, 512), at(2, 0, 512, 512)])) == 2
    assert len(shape([at(1, 0, 0, 512), Hole(10), at(1, 0, 512, 512)])) == 2


def test_long_parts_are_fetched_in_pieces() -> None:
    assert shape([at(1, 3, 100, 2_010), at(1, 3, 2_110, 5)], 1_000) == [
        (1, 3, 100, 1_000),
        (1, 3, 1_100, 1_000),
        (1, 3, 2_100, 15),
    ]


async def upload(bodies: BodiesInObjects, data: bytes) -> Body:
    async with bodies.store.writer(len(data), inline=False) as writer:
        await writer.append(data)
        return await writer.seal()


def ranges(body: Body) -> list[SegmentRange]:
    return [SegmentRange(p.segment, p.offset, p.length, p.crc) for p in body.pieces]


def test_plans_of_many_parts(tmp_path: Path) -> None:
    async def scenario(bodies: BodiesInObjects) -> None:
        data = noise(1, 300_000)
        (whole,) = ranges(await upload(bodies, data))
        pieces = [
            SegmentRange(whole.segment, whole.offset + start, 500, None)
            for start in (*range(0, 100_000, 500), *range(100_000, 290_000, 1_000), 7, 0)
        ]
        plan: Plan = (b"first", *pieces[:150], Hole(600_000), *pieces[150:], b"", whole)
        expected = b"first"
        for number, piece in enumerate(pieces):
            if number == 150:
                expected += bytes(600_000)
            expected += data[piece.offset - whole.offset :][:500]
        expected += data
        bodies.driver.calls.clear()
        with bodies.store.open_reader() as reader:
            assert await reader.read(plan) == expected
            assert b"".join([chunk async for chunk in reader.chunks(plan, final=True)]) == expected
            buffer = bytearray(len(expected))
            await reader.read_into(plan, memoryview(buffer))
            assert buffer == expected
            assert reader.file_parts(plan) is None
        assert bodies.driver.calls["get"] < 3 * 8

    run(tmp_path, scenario, CONFIG)


async def idle(bodies: BodiesInObjects) -> None:
    """Waits until no get is under way."""
    await asyncio.sleep(0)
    while bodies.driver.under_way["get"]:
        await asyncio.sleep(0.001)


def test_a_reader_that_waits_for_the_store_reads_far_ahead(tmp_path: Path) -> None:
    async def scenario(bodies: BodiesInObjects) -> None:
        data = noise(1, 40 * MIB)
        body = await upload(bodies, data)
        bodies.driver.delays["get"] = 0.05
        assert await read(bodies.store, body) == data
        assert bodies.driver.fetched[0] == MIB
        assert max(bodies.driver.fetched) == FETCH_BYTES_MAX
        assert bodies.driver.under_way_max["get"] == FETCHES_MAX

    run(tmp_path, scenario, Config(durable=False))


def test_a_reader_that_is_slow_reads_little_ahead(tmp_path: Path) -> None:
    async def scenario(bodies: BodiesInObjects) -> None:
        data = noise(1, 12 * MIB)
        body = await upload(bodies, data)
        memory = bodies.store.memory
        held: list[int] = []
        with bodies.store.open_reader() as reader:
            chunks: list[bytes] = []
            async for chunk in reader.chunks(tuple(ranges(body))):
                chunks.append(chunk)
                await idle(bodies)
                await asyncio.sleep(0.01)
                held.append(memory.used_bytes)
        assert b"".join(chunks) == data
        assert max(held) == 4 * MIB
        assert max(held[len(held) // 2 :]) <= 2 * FETCH_BYTES_MIN
        assert max(bodies.driver.fetched) == MIB

    run(tmp_path, scenario, CONFIG)


def test_readers_that_stop_return_their_memory(tmp_path: Path) -> None:
    async def scenario(bodies: BodiesInObjects) -> None:
        body = await upload(bodies, noise(1, 12 * MIB))
        with bodies.store.open_reader() as reader:
            chunks = reader.chunks(tuple(ranges(body)))
            await anext(chunks)
            assert bodies.store.memory.used_bytes == 4 * MIB
            await chunks.aclose()  # type: ignore[attr-defined]
        assert bodies.store.memory.used_bytes == 0

    run(tmp_path, scenario, CONFIG)


def test_readers_without_memory_fetch_little_at_a_time(tmp_path: Path) -> None:
    """Because other readers have it, or because requests need it."""
    budget = MemoryBudget(64 * MIB)

    async def scenario(bodies: BodiesInObjects) -> None:
        data = noise(1, 12 * MIB)
        body = await upload(bodies, data)
        for reserve, release in (
            (bodies.store.memory.reserve, bodies.store.memory.release),
            (budget.reserve, budget.release),
        ):
            bodies.driver.under_way_max.clear()
            bodies.driver.fetched.clear()
            size = 32 * MIB if reserve == budget.reserve else 16 * MIB
            assert reserve(size)
            assert await read(bodies.store, body) == data
            assert bodies.driver.under_way_max["get"] == 1
            assert max(bodies.driver.fetched) == FETCH_BYTES_MIN
            release(size)

    run(tmp_path, scenario, CONFIG, budget=budget)
    assert budget.used_bytes == 0


def test_damaged_and_missing_objects(tmp_path: Path) -> None:
    async def scenario(bodies: BodiesInObjects) -> None:
        data = noise(1, 3 * MIB)
        body = await upload(bodies, data)
        store = bodies.driver.inner
        assert isinstance(store, MemoryObjectStore)
        ((name, stored),) = store.objects.items()
        for damaged in (stored[:-1], stored[:-1] + b"x", b"x" + stored[1:], b""):
            store.objects[name] = damaged
            with pytest.raises(BodyCorrupt):
                await read(bodies.store, body)
        del store.objects[name]
        with pytest.raises(BodyCorrupt, match="missing"):
            await read(bodies.store, body)

    run(tmp_path, scenario, CONFIG)


def test_an_unreachable_store(tmp_path: Path) -> None:
    async def scenario(bodies: BodiesInObjects) -> None:
        data = noise(1, 9 * MIB)
        body = await upload(bodies, data)
        with bodies.driver.fail_all(), pytest.raises(Fault) as raised:
            await read(bodies.store, body)
        assert raised.value.reason is FaultReason.UNAVAILABLE
        assert bodies.store.memory.used_bytes == 0
        assert await read(bodies.store, body) == data

    run(tmp_path, scenario, CONFIG)


def test_reads_do_not_queue_for_long_for_a_store_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_body_store, "_GETS_MAX", 2)
    monkeypatch.setattr(object_body_store, "_QUEUE_SECONDS_MAX", 0.1)

    async def scenario(bodies: BodiesInObjects) -> None:
        data = noise(1, 2_000)
        body = await upload(bodies, data)
        bodies.driver.hold("get")
        hanging = [asyncio.create_task(read(bodies.store, body)) for _ in range(2)]
        await bodies.driver.reached("get")
        with pytest.raises(Fault, match="too many requests wait") as raised:
            await asyncio.wait_for(read(bodies.store, body), 5)
        assert raised.value.reason is FaultReason.UNAVAILABLE
        bodies.driver.let_go("get")
        assert await asyncio.gather(*hanging, read(bodies.store, body)) == [data] * 3

    run(tmp_path, scenario, CONFIG)
