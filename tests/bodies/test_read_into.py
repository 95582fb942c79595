"""Reading a plan into a buffer: segments, holes and bytes of the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from etagere.bodies.files import FileBodyStore
from etagere.bodies.plans import Hole, Plan, SegmentRange
from etagere.bodies.store import BodyCorrupt
from tests.engine.harness import start_memory
from tests.operations.fixture import EngineFixture, opened_fixture


def _run(directory: Path, body: Callable[[FileBodyStore], Awaitable[None]]) -> None:
    async def run() -> None:
        async with opened_fixture(EngineFixture, start_memory, directory) as fixture:
            await body(fixture.store)

    asyncio.run(asyncio.wait_for(run(), 30))


async def _read(store: FileBodyStore, plan: Plan, length: int) -> bytes:
    buffer = bytearray(length)
    with store.open_reader() as reader:
        await reader.read_into(plan, memoryview(buffer))
    return bytes(buffer)


def test_the_parts_of_a_plan_follow_each_other(tmp_path: Path) -> None:
    async def body(store: FileBodyStore) -> None:
        async with store.writer(5, inline=False) as writer:
            await writer.append(b"12345")
            (piece,) = (await writer.seal()).pieces
            whole = SegmentRange(piece.segment, piece.offset, 5, piece.crc)
            part = SegmentRange(piece.segment, piece.offset + 1, 2, None)
            assert await _read(store, (whole, Hole(2), b"ab", part), 12) == b"12345\0\0ab23\0"
            assert await _read(store, b"abc", 4) == b"abc\0"
            with pytest.raises(BodyCorrupt):
                await _read(store, (whole._replace(crc=1),), 5)
            with pytest.raises(BodyCorrupt):
                await _read(store, (whole._replace(length=50, crc=None),), 50)

    _run(tmp_path, body)
