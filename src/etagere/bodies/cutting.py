"""Cutting block lists into chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from etagere.model.bodies import Block, ChunkUse

REUSE_BLOCKS_MIN = 128
"""A chunk of fewer blocks is copied into a new list rather than shared, so that lists edited
again and again do not crumble into ever smaller chunks."""


class SharedChunk(NamedTuple):
    """A chunk of another list and what is in it."""

    use: ChunkUse
    blocks: tuple[Block, ...]


class Cutter:
    """Cuts a list, which may come bit by bit, into chunks of another one that can be shared and
    rows of blocks that make new ones. However the bits were, the chunks are the same."""

    def __init__(self, pieces_max: int) -> None:
        self._pieces_max = pieces_max
        self._shareable: dict[Block, SharedChunk] = {}
        self._row: list[Block] = []
        self._pieces = 0
        # They may be the beginning of a chunk to share; what comes next will tell.
        self._undecided: list[Block] = []

    def offer(self, use: ChunkUse, blocks: tuple[Block, ...]) -> None:
        """A chunk of another list, of which there is one more use if the list has all of it."""
        if len(blocks) >= REUSE_BLOCKS_MIN:
            self._shareable[blocks[0]] = SharedChunk(use, blocks)

    def cut(self, bit: Sequence[Block]) -> Iterator[SharedChunk | list[Block]]:
        """The chunks that are certain now that these blocks follow."""
        return self._cut([*self._undecided, *bit] if self._undecided else bit, ended=False)

    def end(self) -> Iterator[SharedChunk | list[Block]]:
        """The chunks that are left, since nothing follows."""
        yield from self._cut(self._undecided, ended=True)
        if self._row:
            yield self._row

    def _cut(self, blocks: Sequence[Block], *, ended: bool) -> Iterator[SharedChunk | list[Block]]:
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
