"""Reading the records of all segments."""

from __future__ import annotations

import asyncio
from typing import Final

from etagere.engine.interface import Engine, ReadTxn
from etagere.engine.records import Collection, R

_ROWS_PER_SLICE: Final = 200


async def read_all(engine: Engine, collection: Collection[tuple[int], R]) -> list[tuple[int, R]]:
    """Returns the records of a collection whose keys are the numbers of segments, and yields to
    other tasks after each slice."""
    found: list[tuple[int, R]] = []

    def further(txn: ReadTxn, _: None) -> list[tuple[int, R]]:
        span = collection.all()
        if found:
            span = collection.after(span, (found[-1][0],))
        rows = txn.scan(collection, span, _ROWS_PER_SLICE)
        return [(number, record) for (number,), record in rows]

    while rows := await engine.read(further, None):
        found += rows
        await asyncio.sleep(0)
    return found
