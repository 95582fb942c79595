"""Consistent listings of long block lists, read in many short transactions."""

from __future__ import annotations

from etagere.engine.interface import Engine
from etagere.model.blobs import BlockListResult, BlockSize, ListStagedBlocks, OpenedBlockList
from etagere.operations.blob import block_lists
from etagere.protocol.time_slices import TimeSlice

# Per transaction, so that other requests wait for at most a millisecond.
CHUNKS_MAX = 4
STAGED_MAX = 512


async def list_blocks(engine: Engine, opened: OpenedBlockList) -> BlockListResult | None:
    """Returns the blocks of an opened list; None if some are gone."""
    time_slice = TimeSlice()
    committed: list[BlockSize] = []
    for at in range(0, len(opened.chunks), CHUNKS_MAX):
        chunks = opened.chunks[at : at + CHUNKS_MAX]
        found = await engine.read(block_lists.list_committed_blocks, chunks)
        if found is None:
            return None
        committed += found
        await time_slice.yield_if_over()
    uncommitted: list[BlockSize] = []
    while opened.staging is not None and len(uncommitted) < opened.staging.count:
        after = uncommitted[-1].name if uncommitted else b""
        look = ListStagedBlocks(opened.key, opened.staging, after, STAGED_MAX)
        found = await engine.read(block_lists.list_staged_blocks, look)
        if not found:
            return None
        uncommitted += found
        await time_slice.yield_if_over()
    return BlockListResult(opened.now, opened.blob, tuple(committed), tuple(uncommitted))
