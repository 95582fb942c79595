"""Large bodies: uploads compared with plain writes and an fdatasync, and checksums."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

from awscrt.checksums import crc64nvme

from benchmarks.figures import Figure, Group, Round, Settings
from benchmarks.objects import PutObject, put_object
from benchmarks.server import forget_peak, peak_mebibytes, running
from etagere.bodies.files import FileBodyStore
from etagere.config import KIB, MIB
from etagere.engine.sqlite import SqliteEngine

_BODY_BYTES = 64 * MIB
_CHUNK_BYTES = 256 * KIB


async def measure(settings: Settings) -> AsyncIterator[Round]:
    count = settings.scaled(_BODY_BYTES, 2 * MIB) // _CHUNK_BYTES
    chunks = [os.urandom(_CHUNK_BYTES) for _ in range(count)]
    mebibytes = len(chunks) * _CHUNK_BYTES / MIB
    with running(settings.directory) as server:
        engine = SqliteEngine(server.directory, server.config)
        store = FileBodyStore(server.directory, engine, server.config)
        for number in range(settings.rounds):
            plain = _write(server.directory.parent / "plain", chunks)
            before = forget_peak()
            upload = await _upload(engine, store, f"object {number}", chunks)
            yield {
                "uploads.speed": mebibytes / upload,
                "uploads.ratio": plain / upload,
                "uploads.crc": mebibytes / 1024 / _checksum(chunks),
                "uploads.memory": peak_mebibytes() - before,
            }
        await store.close()
        await engine.close()


async def _upload(
    engine: SqliteEngine, store: FileBodyStore, name: str, chunks: list[bytes]
) -> float:
    began = time.perf_counter()
    async with store.writer(len(chunks) * _CHUNK_BYTES) as writer:
        for chunk in chunks:
            await writer.append(chunk)
        await engine.write(put_object, PutObject(name, await writer.seal()))
    return time.perf_counter() - began


def _write(path: Path, chunks: list[bytes]) -> float:
    began = time.perf_counter()
    with path.open("xb", buffering=0) as file:
        for chunk in chunks:
            file.write(chunk)
        os.fdatasync(file.fileno())
    elapsed = time.perf_counter() - began
    path.unlink()
    return elapsed


def _checksum(chunks: list[bytes]) -> float:
    began = time.perf_counter()
    crc = 0
    for chunk in chunks:
        crc = crc64nvme(chunk, crc)
    return time.perf_counter() - began


GROUP = Group(
    "uploads",
    measure,
    (
        Figure("uploads.speed", "upload of 64 MiB", " MiB/s"),
        Figure("uploads.ratio", "the same to plain writes with an fdatasync"),
        Figure("uploads.crc", "CRC64 of 256 KiB chunks", " GiB/s"),
        Figure("uploads.memory", "memory that an upload adds to the front end", " MiB"),
    ),
)
