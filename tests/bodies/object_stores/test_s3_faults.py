"""Bodies in S3 while the server is killed, hangs and returns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from etagere.bodies.objects import s3
from etagere.bodies.objects.s3 import S3ObjectStore, parse_s3_url
from etagere.config import KIB, MIB, Config
from etagere.engine.interface import Fault, FaultReason
from tests.bodies.object_stores.fixture import BodiesInObjects, noise, run
from tests.clusters.s3 import BUCKET, S3Server, s3_server
from tests.loops import until

CONFIG = Config(durable=False, inline_bytes_max=512, piece_bytes_max=1 * MIB)
_CALL_SECONDS_MAX = 3.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A server of its own, which the tests kill."""
    with s3_server(tmp_path_factory.mktemp("s3")) as started:
        yield started


@pytest.fixture
def short_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "_CALL_SECONDS_MAX", _CALL_SECONDS_MAX)


def driver_of(server: S3Server, prefix: str) -> S3ObjectStore:
    return S3ObjectStore(parse_s3_url(f"s3://{BUCKET}/{prefix}"), server.environment)


@pytest.mark.usefixtures("short_calls")
def test_the_server_is_killed_under_load(tmp_path: Path, server: S3Server) -> None:
    """Whatever was acknowledged is there afterwards. Everything else fails in a bounded time, and
    is collected."""

    async def scenario(bodies: BodiesInObjects) -> None:
        stored: dict[str, bytes] = {}
        is_over = False
        faults: list[Fault] = []

        async def upload(number: int) -> None:
            count = 0
            while not is_over:
                count += 1
                name, size = f"{number}-{count}", (2 * KIB, 100 * KIB, 3 * MIB)[count % 3]
                began = time.monotonic()
                try:
                    await bodies.put(name, noise(number * 1_000 + count, size))
                    stored[name] = noise(number * 1_000 + count, size)
                except Fault as fault:
                    faults.append(fault)
                    await asyncio.sleep(0.05)
                assert time.monotonic() - began < 4 * _CALL_SECONDS_MAX

        async def download() -> None:
            while not is_over:
                for name, data in list(stored.items())[-3:]:
                    try:
                        assert await bodies.get(name) == data
                    except Fault as fault:
                        faults.append(fault)
                await asyncio.sleep(0.02)

        tasks = [asyncio.create_task(upload(number)) for number in range(4)]
        tasks.append(asyncio.create_task(download()))
        await until(lambda: len(stored) > 5)
        server.kill()
        await until(lambda: bool(faults))
        await asyncio.to_thread(server.start)
        restarted = len(stored)
        await until(lambda: len(stored) > restarted + 5)
        is_over = True
        await asyncio.gather(*tasks)
        assert {fault.reason for fault in faults} == {FaultReason.UNAVAILABLE}
        for name, data in stored.items():
            assert await bodies.get(name) == data
        await bodies.reopen()
        for _ in range(3):
            await bodies.collect()
        await bodies.require_balanced()
        assert await bodies.stored_bytes() <= 1.25 * await bodies.live_bytes()

    run(tmp_path, scenario, CONFIG, driver_of(server, "killed"))


def test_the_server_hangs(
    tmp_path: Path, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(bodies: BodiesInObjects) -> None:
        await bodies.put("a", noise(1, 3 * MIB))
        monkeypatch.setattr(s3, "_CALL_SECONDS_MAX", _CALL_SECONDS_MAX)
        server.pause()
        try:
            began = time.monotonic()
            outcomes = await asyncio.gather(
                bodies.put("b", noise(2, 3 * MIB)), bodies.get("a"), return_exceptions=True
            )
            assert time.monotonic() - began < 3 * _CALL_SECONDS_MAX
            reasons = [outcome.reason for outcome in outcomes if isinstance(outcome, Fault)]
            assert reasons == [FaultReason.UNAVAILABLE] * 2
        finally:
            server.resume()
            monkeypatch.undo()
        await bodies.put("b", noise(2, 3 * MIB))
        assert await bodies.get("a") == noise(1, 3 * MIB)
        assert await bodies.get("b") == noise(2, 3 * MIB)

    run(tmp_path, scenario, CONFIG, driver_of(server, "hanging"))
