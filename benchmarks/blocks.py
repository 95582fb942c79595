"""Commits and copies of long block lists."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

from benchmarks.figures import Figure, Group, Round, Settings
from benchmarks.objects import (
    CommitBlocks,
    CopyObject,
    StageBlocks,
    commit_blocks,
    copy_object,
    stage_blocks,
)
from benchmarks.server import running
from etagere.bodies.segments import OpenSegment, open_segment
from etagere.engine.sqlite import SqliteEngine
from etagere.model.bodies import Block, Piece
from etagere.model.ids import new_id

_BLOCKS = 50_000
_NAME_BYTES = 48
_BLOCK_BYTES = 4 << 20
_BLOCKS_PER_OPERATION = 1_000


async def measure(settings: Settings) -> AsyncIterator[Round]:
    count = settings.scaled(_BLOCKS, 2_000)
    with running(settings.directory) as server:
        engine = SqliteEngine(server.directory, server.config)
        for number in range(settings.rounds):
            upload = new_id()
            names = await _stage(engine, upload, count)
            began = time.perf_counter()
            await engine.write(commit_blocks, CommitBlocks("list", upload, new_id(), names))
            committed = time.perf_counter()
            await engine.write(copy_object, CopyObject("list", f"copy {number}"))
            copied = time.perf_counter()
            yield {"blocks.commit": committed - began, "blocks.copy": 1000 * (copied - committed)}
        await engine.close()


async def _stage(engine: SqliteEngine, upload: bytes, count: int) -> tuple[bytes, ...]:
    """Stages blocks without bytes, which are never read."""
    segment = await engine.write(open_segment, OpenSegment(new_id()))
    names = tuple(b"%0*d" % (_NAME_BYTES, number) for number in range(count))
    for first in range(0, count, _BLOCKS_PER_OPERATION):
        blocks = tuple(
            Block(names[n], (Piece(segment, n * _BLOCK_BYTES, _BLOCK_BYTES, n),))
            for n in range(first, min(count, first + _BLOCKS_PER_OPERATION))
        )
        await engine.write(stage_blocks, StageBlocks(upload, blocks))
    return names


GROUP = Group(
    "blocks",
    measure,
    (
        Figure("blocks.commit", "a list of 50,000 blocks committed", " s", at_most=1.0),
        Figure("blocks.copy", "the same list copied", " ms", at_most=10.0),
    ),
)
