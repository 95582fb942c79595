"""A process that writes to an open file until it is killed, and says how far it has got."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from etagere.bodies.files import FileBodyStore
from etagere.clock import SystemClock
from etagere.config import KIB, Config
from etagere.engine.sqlite import SqliteEngine
from etagere.opens.client import connect
from etagere.opens.contents import FileContents
from etagere.opens.table import OpenTable
from tests.opens.contents_fixture import CountedMemory
from tests.opens.fixture import SESSION, R, W, opened
from tests.operations.file.fixture import SHARE

FILE_BYTES = 3_000 * KIB
_WRITE_BYTES_MAX = 600 * KIB
_FLUSHES_PART = 20


def writes(seed: int) -> Iterator[tuple[int, bytes]]:
    """Yields the writes in order."""
    chosen = random.Random(seed)
    number = 0
    while True:
        number += 1
        length = chosen.choice((10, 4 * KIB, _WRITE_BYTES_MAX))
        yield chosen.randrange(FILE_BYTES - length), b"%09d " % number * (length // 10)


async def _work(directory: Path, seed: int) -> None:
    engine = SqliteEngine(directory, Config())
    store = FileBodyStore(directory, engine)
    table = OpenTable(engine)
    contents = FileContents(engine, store, table, CountedMemory(), SystemClock())
    client = await connect(engine, table, SHARE, SESSION, SystemClock())
    handle = await opened(client, "f", R | W)
    chosen = random.Random(seed + 1)
    for number, (offset, data) in enumerate(writes(seed), 1):
        await contents.write(client.share, handle, offset, data)
        print("written", number, flush=True)
        if not chosen.randrange(_FLUSHES_PART):
            await contents.flush(client.share, handle.entry)
            print("flushed", number, flush=True)
        await asyncio.sleep(0.001)


if __name__ == "__main__":
    asyncio.run(_work(Path(sys.argv[1]), int(sys.argv[2])))
