"""Uploads to an object store that threads read directly from their sockets."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from awscrt.checksums import crc64nvme

from etagere.config import KIB, MIB, Config
from tests.bodies.object_stores.fixture import BodiesInObjects, noise, read, run
from tests.bodies.test_receiving import FakeLentSocket, FakeRequestBody

CONFIG = Config(durable=False, memory_budget_bytes=4 * 32 * MIB)


@pytest.mark.parametrize("without_memory", [False, True])
@pytest.mark.parametrize(
    "steps",
    [
        (),
        (100,),
        (100, 200_000, 300, 1_000_000, 1, 5),
        (256 * KIB, 256 * KIB, 512 * KIB, 3 * MIB, 7),
    ],
)
@pytest.mark.parametrize("size", [300 * KIB, 3 * MIB + 1, 9 * MIB + 3])
def test_bodies_arrive_in_pieces(
    tmp_path: Path, size: int, steps: tuple[int, ...], without_memory: bool
) -> None:
    async def scenario(bodies: BodiesInObjects) -> None:
        taken = 32 * MIB if without_memory else 0
        assert bodies.store.memory.reserve(taken)
        arriving = FakeRequestBody(noise(1, size), steps)
        async with bodies.store.writer(size, md5=True) as writer:
            await writer.append_body(arriving)
            body = await writer.seal()
        assert writer.md5 == hashlib.md5(arriving.data, usedforsecurity=False).digest()
        assert (body.length, body.crc) == (size, crc64nvme(arriving.data))
        assert await read(bodies.store, body) == arriving.data
        assert None not in arriving.returned
        bodies.store.memory.release(taken)
        arriving.pipe.sender.close()

    run(tmp_path, scenario, CONFIG)


class BreakingRequestBody(FakeRequestBody):
    """A request body whose client goes away."""

    def lend_socket(self) -> FakeLentSocket | None:
        if len(self.returned) == 3:
            raise ConnectionError
        return super().lend_socket()


def test_an_upload_that_breaks_off(tmp_path: Path) -> None:
    async def scenario(bodies: BodiesInObjects) -> None:
        arriving = BreakingRequestBody(noise(1, 20 * MIB), ())
        with pytest.raises(ConnectionError):
            async with bodies.store.writer(20 * MIB, md5=True) as writer:
                await writer.append_body(arriving)
        assert bodies.store.memory.used_bytes == 0
        await bodies.put("a", noise(2, 100_000))
        await bodies.reopen()
        (segment,) = (await bodies.segments()).values()
        assert segment.length == 100_000
        arriving.pipe.sender.close()

    run(tmp_path, scenario, CONFIG)
