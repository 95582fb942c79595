"""Drafts of long block lists: what is to be read and put together, in short steps."""

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
from etagere.protocol.turns import Turn
from etagere.rules.blocks import resolve

# In one step, so that nobody waits for it for more than a millisecond or two.
DRAFTED_PIECES_MAX = 192
SHARED_CHUNKS_MAX = 16
READ_CHUNKS_MAX = 8
_FREED_BLOCKS = 2_000


class _Reach(NamedTuple):
    """What may be put in one step: how many blocks a list may have, and how many chunks of the blob
    may be read for it."""

    blocks_max: int
    chunks_max: int


# Longer lists, or those that need more of the blob, would keep others waiting for too long.
_ONE_STEP = _Reach(1_000, 4)
# If somebody changes the blocks during each of several drafts, others wait a little longer.
_ONE_LONG_STEP = _Reach(10_000, 20)
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


async def _put_at_once(engine: Engine, command: PutBlockList, reach: _Reach) -> Blob | None:
    if len(command.blocks) > reach.blocks_max:
        return None
    limited = replace(command, base_chunks_max=reach.chunks_max)
    return await engine.write(block_lists.put_block_list, limited)


async def put_drafted(engine: Engine, command: PutBlockList) -> Blob | None:
    """Puts a block list in many short steps and one that decides; None if somebody changed
    meanwhile what the draft was made of, so that nothing is decided yet."""
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
    """Says whether it came to its end."""
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
    """What a draft was being made from is not there any more."""


class Drafting:
    """Finds out what a list comes to without ever looking at all of it.

    Each look is a transaction of its own. That they see one thing all of them make sure of, and
    so does the decision in the end: the stamp of the staging, and the content of the blob.
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
        self._turn = Turn()

    def decision(self) -> PutDraft:
        """The command that makes a blob of the draft when every step is done."""
        return PutDraft(self._asked, self._sources.staging_stamp, self._sources.base_id)

    def abandoned(self) -> AbandonDraft:
        return AbandonDraft(self._asked.content_id)

    async def steps(self) -> AsyncGenerator[ExtendDraft, None]:
        """Commands that put the draft together, each short. Raises `Outdated`, or the refusal of
        the list."""
        self._sources = await self._engine.read(block_lists.draft_sources, self._command)
        listed = self._command.blocks
        for at in range(0, len(listed), DRAFTED_PIECES_MAX):
            blocks = await self._look_up(listed[at : at + DRAFTED_PIECES_MAX])
            for step in self._extended_by(self._chunker.add(blocks)):
                yield step
                self._turn.begin()
            await self._turn.give_way()
        for step in self._extended_by(self._chunker.finish()):
            yield step
        if self._shared:
            yield self._step(())
        await self._let_go()

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
        """All of them: of two that have one name the last one counts."""
        committed: dict[bytes, Block] = {}
        uses = self._sources.base_chunks
        for at in range(0, len(uses), READ_CHUNKS_MAX):
            some = uses[at : at + READ_CHUNKS_MAX]
            look = FindCommittedBlocks(self._asked, self._sources, some)
            found = await self._engine.read(block_lists.find_committed_blocks, look)
            if found is None:
                raise Outdated
            for use, blocks in zip(some, found, strict=True):
                self._chunker.offer(use, blocks)
                for block in blocks:
                    committed[block.name] = block
            await self._turn.give_way()
        return committed

    async def _let_go(self) -> None:
        """Tens of thousands of blocks are not freed in a moment."""
        self._chunker = Chunker(DRAFTED_PIECES_MAX)
        committed = self._committed or {}
        while committed:
            for _ in range(min(len(committed), _FREED_BLOCKS)):
                committed.popitem()
            await self._turn.give_way()

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
