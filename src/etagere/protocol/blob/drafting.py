"""Drafts of long block lists: reading the sources and assembling the list, in short steps."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from etagere.bodies.chunking import Chunker, ReusableChunk
from etagere.engine.interface import Engine, Fault, FaultReason, Refused, Unknown
from etagere.errors import Refusal
from etagere.model.blobs import (
    AbandonDraft,
    Blob,
    BlockSource,
    DraftSources,
    ExtendDraft,
    FindCommittedBlocks,
    FindStagedBlocks,
    ListedBlock,
    PutBlockList,
    PutDraft,
)
from etagere.model.bodies import Block, ChunkUse
from etagere.model.ids import new_id
from etagere.operations.blob import block_lists
from etagere.protocol.time_slices import TimeSlice
from etagere.rules.blocks import resolve

# Per step, so that other requests wait for at most a millisecond or two.
DRAFTED_PIECES_MAX = 192
SHARED_CHUNKS_MAX = 16
READ_CHUNKS_MAX = 8
_BLOCKS_PER_STEP = 2_000


class _StepLimits(NamedTuple):
    """The limits of a list that is put in one step: the number of its blocks, and of chunks of the
    blob that are read for it."""

    blocks_max: int
    chunks_max: int


# Longer lists, or those that read more of the blob, would delay other requests for too long.
_ONE_STEP = _StepLimits(1_000, 4)
# If the blocks are changed during each of several drafts, other requests wait a little longer, but
# not much longer: many such lists may be sent at once.
_ONE_LONG_STEP = _StepLimits(2_000, 8)
_DRAFT_PAUSES_SECONDS = (0.0, 0.1, 0.2, 0.4, 0.8)


async def put_list(engine: Engine, command: PutBlockList) -> Blob:
    """Puts a block list, in one step or drafted."""
    blob = await _put_at_once(engine, command, _ONE_STEP)
    for pause_seconds in _DRAFT_PAUSES_SECONDS:
        if blob is not None:
            return blob
        await asyncio.sleep(pause_seconds)
        blob = await put_drafted(engine, command)
    blob = blob or await _put_at_once(engine, command, _ONE_LONG_STEP)
    if blob is None:
        raise Fault(FaultReason.CONTENTION, "the blocks of a long list changed again and again")
    return blob


async def _put_at_once(engine: Engine, command: PutBlockList, limits: _StepLimits) -> Blob | None:
    if len(command.blocks) > limits.blocks_max:
        return None
    limited = replace(command, base_chunks_max=limits.chunks_max)
    return await engine.write(block_lists.put_block_list, limited)


async def put_drafted(engine: Engine, command: PutBlockList) -> Blob | None:
    """Puts a block list in many short steps and one that decides; returns None, without a decision,
    if the sources of the draft were changed meanwhile."""
    drafting = Drafting(engine, command, new_id())
    blob: Blob | None = None
    try:
        if await _draft(engine, drafting):
            blob = await engine.write(block_lists.put_draft, drafting.decision())
    finally:
        if blob is None:
            with contextlib.suppress(Fault, Unknown):
                await engine.write(block_lists.abandon_draft, drafting.abandoned())
    return blob


async def _draft(engine: Engine, drafting: Drafting) -> bool:
    """Creates the draft; returns whether it is complete."""
    try:
        async with contextlib.aclosing(drafting.steps()) as steps:
            async for step in steps:
                try:
                    await engine.write(block_lists.extend_draft, step)
                except Refused:
                    return False
    except Outdated:
        return False
    return True


class Outdated(Exception):
    """The sources of a draft have changed."""


class Drafting:
    """Assembles a list from many short reads.

    Each read is a transaction of its own. All of them, and the final decision, check the stamp of
    the staging and the content of the blob, so that they see the same state.
    """

    def __init__(self, engine: Engine, command: PutBlockList, content_id: bytes) -> None:
        self._engine = engine
        self._command = command
        self._asked = replace(command, content_id=content_id, blocks=())
        self._sources = DraftSources(None, None)
        self._committed: dict[bytes, Block] | None = None
        self._chunker = Chunker(DRAFTED_PIECES_MAX)
        self._shared: list[ChunkUse] = []
        self._begins = True
        self._time_slice = TimeSlice()

    def decision(self) -> PutDraft:
        """Returns the command that puts the blob, once all steps are done."""
        return PutDraft(self._asked, self._sources.staging_stamp, self._sources.base_id)

    def abandoned(self) -> AbandonDraft:
        return AbandonDraft(self._asked.content_id)

    async def steps(self) -> AsyncGenerator[ExtendDraft, None]:
        """Yields short commands that assemble the draft. Raises `Outdated`, or the refusal of the
        list."""
        self._sources = await self._engine.read(block_lists.draft_sources, self._command)
        listed = self._command.blocks
        for at in range(0, len(listed), DRAFTED_PIECES_MAX):
            blocks = await self._look_up(listed[at : at + DRAFTED_PIECES_MAX])
            for step in self._extended_by(self._chunker.add(blocks)):
                yield step
                self._time_slice.restart()
            await self._time_slice.yield_if_over()
        for step in self._extended_by(self._chunker.finish()):
            yield step
        if self._shared:
            yield self._step(())
        await self._free_blocks()

    async def _look_up(self, bit: tuple[ListedBlock, ...]) -> list[Block]:
        staged = await self._find_staged(bit)
        blocks = resolve(bit, staged, self._committed or {})
        if isinstance(blocks, Refusal) and self._committed is None:
            self._committed = await self._find_committed()
            blocks = resolve(bit, staged, self._committed)
        if isinstance(blocks, Refusal):
            raise Refused(blocks)
        return blocks

    async def _find_staged(self, bit: tuple[ListedBlock, ...]) -> dict[bytes, Block]:
        names = {block.name for block in bit if block.source is not BlockSource.COMMITTED}
        if not names or self._sources.staging_stamp is None:
            return {}
        look = FindStagedBlocks(self._asked, self._sources, frozenset(names))
        found = await self._engine.read(block_lists.find_staged_blocks, look)
        if found is None:
            raise Outdated
        return found

    async def _find_committed(self) -> dict[bytes, Block]:
        """Returns the committed blocks that the list names; of two with the same name, the last one
        counts. No more blocks are kept than the list has: memory is reserved for the list, and not
        for the blob, which may have many more."""
        wanted = await self._names_of_committed()
        committed: dict[bytes, Block] = {}
        shareable_max = len(self._command.blocks)
        uses = self._sources.base_chunks
        for at in range(0, len(uses), READ_CHUNKS_MAX):
            some = uses[at : at + READ_CHUNKS_MAX]
            look = FindCommittedBlocks(self._asked, self._sources, some)
            found = await self._engine.read(block_lists.find_committed_blocks, look)
            if found is None:
                raise Outdated
            for use, blocks in zip(some, found, strict=True):
                named = [block for block in blocks if block.name in wanted]
                if len(named) == len(blocks) <= shareable_max:
                    self._chunker.offer(use, blocks)
                    shareable_max -= len(blocks)
                for block in named:
                    committed[block.name] = block
            await self._time_slice.yield_if_over()
        return committed

    async def _names_of_committed(self) -> set[bytes]:
        """Returns the names of the listed blocks that may be committed ones."""
        names: set[bytes] = set()
        listed = self._command.blocks
        for at in range(0, len(listed), _BLOCKS_PER_STEP):
            for block in listed[at : at + _BLOCKS_PER_STEP]:
                if block.source is not BlockSource.UNCOMMITTED:
                    names.add(block.name)
            await self._time_slice.yield_if_over()
        return names

    async def _free_blocks(self) -> None:
        """Frees the blocks in steps, since there may be tens of thousands."""
        self._chunker = Chunker(DRAFTED_PIECES_MAX)
        committed = self._committed or {}
        while committed:
            for _ in range(min(len(committed), _BLOCKS_PER_STEP)):
                committed.popitem()
            await self._time_slice.yield_if_over()

    def _extended_by(self, chunks: Iterable[ReusableChunk | list[Block]]) -> Iterator[ExtendDraft]:
        for chunk in chunks:
            if not isinstance(chunk, ReusableChunk):
                yield self._step(tuple(chunk))
                continue
            self._shared.append(chunk.use)
            if len(self._shared) == SHARED_CHUNKS_MAX:
                yield self._step(())

    def _step(self, blocks: tuple[Block, ...]) -> ExtendDraft:
        step = ExtendDraft(self._asked.content_id, tuple(self._shared), blocks, self._begins)
        self._shared.clear()
        self._begins = False
        return step
