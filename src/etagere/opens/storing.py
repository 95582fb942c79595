"""Storing a layer of gathered writes: its bytes first, then one transaction."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from awscrt.checksums import crc64nvme

from etagere.bodies.store import BodyStore
from etagere.engine.interface import Engine
from etagere.model.bodies import Piece
from etagere.model.ids import new_id
from etagere.model.open_files import OpenFileRef, StoreWrites, WrittenRange
from etagere.opens.extents import Buffer, Run
from etagere.opens.gathering import Layer
from etagere.operations.file.writes import store_clears, store_writes


async def store_layer(engine: Engine, store: BodyStore, file: OpenFileRef, layer: Layer) -> bool:
    """Stores a layer; returns False if the file is gone."""
    runs = layer.extents.runs()
    count = sum(run.end - run.start for run in runs if run.buffers)
    async with contextlib.AsyncExitStack() as stack:
        pieces: tuple[Piece, ...] = ()
        if count:
            writer = await stack.enter_async_context(store.writer(count, inline=False))
            for run in runs:
                for buffer in run.buffers:
                    await writer.append(buffer)
            pieces = (await writer.seal()).pieces
        command = StoreWrites(
            file,
            tuple(_ranges(runs, pieces)),
            map_id=new_id(),
            length=layer.length if layer.is_resized else None,
            changed=layer.changed,
            written=layer.written,
        )
        return await engine.write(store_writes if count else store_clears, command)


def _ranges(runs: Sequence[Run], pieces: Sequence[Piece]) -> Iterator[WrittenRange]:
    """Divides the pieces of a body between the ranges that were written. Each part is an extent of
    its own, so that its space is freed as soon as it is overwritten."""
    with_bytes = [run for run in runs if run.buffers]
    if len(with_bytes) <= 1:
        for run in runs:
            yield WrittenRange(run.start, run.end, tuple(pieces) if run.buffers else ())
        return
    left = list(reversed(pieces))
    for run in runs:
        parts: list[Piece] = []
        missing, at = run.end - run.start if run.buffers else 0, 0
        while missing:
            piece = left.pop()
            count = min(missing, piece.length)
            crc = _crc64(run.buffers, at, count)
            parts.append(Piece(piece.segment, piece.offset, count, crc))
            if count < piece.length:
                left.append(Piece(piece.segment, piece.offset + count, piece.length - count))
            at, missing = at + count, missing - count
        yield WrittenRange(run.start, run.end, tuple(parts))


def _crc64(buffers: Sequence[Buffer], skip: int, count: int) -> int:
    """Returns the CRC64 of a part of what the buffers contain."""
    crc = 0
    for buffer in buffers:
        part = memoryview(buffer)[skip : skip + count]
        crc = crc64nvme(part, crc) if part else crc
        skip, count = max(0, skip - len(buffer)), count - len(part)
        if not count:
            break
    return crc
