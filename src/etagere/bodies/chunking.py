"""Splitting block lists into chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from etagere.model.bodies import Block, ChunkUse

REUSE_BLOCKS_MIN = 128
"""A chunk with fewer blocks is copied rather than shared, so that lists that are edited often do
not end up with ever smaller chunks."""


class ReusableChunk(NamedTuple):
    """A chunk of another list, and its blocks."""

    use: ChunkUse
    blocks: tuple[Block, ...]


class Chunker:
    """Splits a block list, which may be added in parts, into chunks of another list that can be
    shared and rows of blocks for new chunks. The result does not depend on the parts."""

    def __init__(self, pieces_max: int) -> None:
        self._pieces_max = pieces_max
        self._shareable: dict[Block, ReusableChunk] = {}
        self._row: list[Block] = []
        self._pieces = 0
        # Blocks that may be the beginning of a chunk to share; the next blocks decide.
        self._undecided: list[Block] = []

    def offer(self, use: ChunkUse, blocks: tuple[Block, ...]) -> None:
        """Offers a chunk of another list, to be shared if the new list contains all of it."""
        if len(blocks) >= REUSE_BLOCKS_MIN:
            self._shareable[blocks[0]] = ReusableChunk(use, blocks)

    def add(self, blocks: Sequence[Block]) -> Iterator[ReusableChunk | list[Block]]:
        """Adds blocks; yields the chunks that are complete."""
        return self._split([*self._undecided, *blocks] if self._undecided else blocks, ended=False)

    def finish(self) -> Iterator[ReusableChunk | list[Block]]:
        """Yields the remaining chunks at the end of the list."""
        yield from self._split(self._undecided, ended=True)
        if self._row:
            yield self._row

    def _split(
        self, blocks: Sequence[Block], *, ended: bool
    ) -> Iterator[ReusableChunk | list[Block]]:
        self._undecided = []
        at = 0
        while at < len(blocks):
            block = blocks[at]
            shared = self._shareable.get(block) if self._shareable else None
            if shared is not None:
                count = len(shared.blocks)
                there = tuple(blocks[at : at + count])
                if there == shared.blocks:
                    if self._row:
                        yield self._row
                    self._row, self._pieces = [], 0
                    yield shared
                    at += count
                    continue
                if not ended and there == shared.blocks[: len(there)]:
                    self._undecided = list(there)
                    return
            if self._row and self._pieces + len(block.pieces) > self._pieces_max:
                yield self._row
                self._row, self._pieces = [], 0
            self._row.append(block)
            self._pieces += len(block.pieces)
            at += 1
