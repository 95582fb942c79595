"""The collector over an object store: what crashes leave behind, readers, space."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from etagere.engine.interface import Fault, FaultReason
from etagere.model.bodies import SegmentState
from tests.bodies.object_stores.fixture import CONFIG, BodiesInObjects, noise, run
from tests.bodies.objects import find_object

OBJECT = CONFIG.piece_bytes_max


async def collect_all(bodies: BodiesInObjects) -> None:
    for _ in range(3):
        await bodies.collect()


async def require_compact(bodies: BodiesInObjects) -> None:
    """Checks that a restart and a collection leave little dead space, and no uncounted bytes."""
    await bodies.reopen()
    await collect_all(bodies)
    await bodies.require_balanced()
    live, stored = await bodies.live_bytes(), await bodies.stored_bytes()
    assert stored <= 1.25 * live, (stored, live)


def test_the_uploads_of_a_crashed_process(tmp_path: Path) -> None:
    async def scenario(bodies: BodiesInObjects) -> None:
        await bodies.put("kept", noise(1, 2_000))
        writer = bodies.store.writer(3 * OBJECT)
        await writer.append(noise(2, 3 * OBJECT))
        await writer.seal()
        bodies.crash()
        await collect_all(bodies)
        assert await bodies.get("kept") == noise(1, 2_000)
        await require_compact(bodies)

    run(tmp_path, scenario)


def test_objects_that_are_put_too_late(tmp_path: Path) -> None:
    """A process that was thought to be dead puts objects into sealed and forgotten segments."""

    async def scenario(bodies: BodiesInObjects) -> None:
        await bodies.put("a", noise(1, 3 * OBJECT))
        await bodies.put("b", noise(2, 5 * OBJECT))
        (number,) = await bodies.segments()
        bodies.crash()
        await bodies.collect()
        await bodies.driver.put(f"segments/{number:08x}/00000fff", [bytes(1_000)])
        await bodies.delete("b")
        await collect_all(bodies)
        assert number not in await bodies.segments()
        await bodies.driver.put(f"segments/{number:08x}/00000ffe", [bytes(10 * OBJECT)])
        await bodies.driver.put("segments/000fffff/00000000", [b"of a newer ledger"])
        await bodies.driver.put("segments/other", [b"of somebody else"])
        await bodies.collect()
        assert await bodies.stored_bytes() > 10 * OBJECT
        bodies.collector._next_search = 0.0
        await bodies.collect()
        assert await bodies.get("a") == noise(1, 3 * OBJECT)
        left = {name async for name, _ in bodies.driver.list("")}
        assert {"segments/000fffff/00000000", "segments/other"} < left
        await bodies.driver.delete(["segments/000fffff/00000000", "segments/other"])
        await require_compact(bodies)

    run(tmp_path, scenario)


def test_readers_finish_with_their_version(tmp_path: Path) -> None:
    async def scenario(bodies: BodiesInObjects) -> None:
        data = noise(1, 10 * OBJECT)
        await bodies.put("a", data)
        await bodies.put("b", noise(2, 10 * OBJECT))
        await bodies.reopen()
        reader = bodies.store.open_reader()
        found = await bodies.engine.read(find_object, "a")
        assert found is not None
        plan = found[1]
        reader.limit_to(plan)
        chunks = reader.chunks(plan, final=True)
        read = await anext(chunks)
        await bodies.delete("a")
        await collect_all(bodies)
        assert any(s.state is SegmentState.RETIRED for s in (await bodies.segments()).values())
        read += b"".join([chunk async for chunk in chunks])
        assert read == data
        reader.close()
        await collect_all(bodies)
        await require_compact(bodies)

    run(tmp_path, scenario)


@pytest.mark.parametrize("call", ["put", "get", "delete", "list"])
@pytest.mark.parametrize("afterwards", [False, True])
@pytest.mark.parametrize("is_crash", [False, True], ids=["fault", "crash"])
def test_every_single_fault_of_a_collection(
    tmp_path: Path, call: str, afterwards: bool, is_crash: bool
) -> None:
    """Whichever call fails, or is the last one of its process, the next collection completes what
    it began."""

    async def scenario(bodies: BodiesInObjects) -> None:
        for number in range(1, 100):
            for name in range(8):
                await bodies.put(f"{name}", noise(100 * number + name, OBJECT + name))
            await bodies.reopen()
            for name in range(0, 8, 2):
                await bodies.delete(f"{name}")
            error: BaseException = Fault(FaultReason.UNAVAILABLE, "broken")
            if is_crash:
                error = KeyError("crashed")
            bodies.driver.strike(call, number, error, afterwards=afterwards)
            for _ in range(2):
                try:
                    await bodies.collect()
                except (Fault, KeyError):
                    if is_crash:
                        bodies.crash()
            has_struck = bodies.driver.has_struck
            bodies.driver.strike("", 0, error)
            for name in range(1, 8, 2):
                expected = noise(100 * number + name, OBJECT + name)
                assert await bodies.get(f"{name}") == expected
            await require_compact(bodies)
            if not has_struck:
                return
        pytest.fail("too many calls")

    run(tmp_path, scenario)


def test_uploads_downloads_and_collections_at_once(tmp_path: Path) -> None:
    async def scenario(bodies: BodiesInObjects) -> None:
        dice = random.Random(1)
        is_over = False
        for call in ("put", "get", "delete", "list"):
            bodies.driver.delays[call] = 0.0005
        versions = {f"{number}": 0 for number in range(6)}
        for name in versions:
            await bodies.put(name, bytes(16) * 4_000)

        async def upload(name: str) -> None:
            while not is_over:
                block = dice.randbytes(16)
                await bodies.put(name, block * dice.choice((100, 4_000, 30_000)))
                versions[name] += 1

        async def download() -> None:
            while not is_over:
                data = await bodies.get(dice.choice(list(versions)))
                assert data is not None and data == data[:16] * (len(data) // 16)

        async def collect() -> None:
            while not is_over:
                await bodies.collect()
                await asyncio.sleep(0.01)

        tasks = [asyncio.create_task(upload(name)) for name in versions]
        tasks += [asyncio.create_task(download()) for _ in range(4)]
        tasks.append(asyncio.create_task(collect()))
        await asyncio.wait(tasks, timeout=3, return_when=asyncio.FIRST_EXCEPTION)
        is_over = True
        await asyncio.gather(*tasks)
        assert min(versions.values()) > 0
        bodies.driver.delays.clear()
        await require_compact(bodies)

    run(tmp_path, scenario)


def test_short_segments_are_merged_once(tmp_path: Path) -> None:
    async def scenario(bodies: BodiesInObjects) -> None:
        for number in range(60):
            await bodies.put(f"{number}", noise(number, 1_000))
            await bodies.reopen()
            await bodies.collect()
            assert len(await bodies.segments()) <= 19
        moved = bodies.driver.sizes
        assert sum(moved) <= 60 * 1_000 * 6
        for number in range(60):
            assert await bodies.get(f"{number}") == noise(number, 1_000)
        await require_compact(bodies)

    run(tmp_path, scenario)
