"""Copying contents from one ledger to another.

A content may have holders that are not copied. So its copy gets another id, and the counts of its
sharers and of the references to its extents are those of the holders that are copied.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from etagere.bodies.contents import (
    BLOCK_LISTS,
    CHUNK_SHARERS,
    CHUNKS,
    CONTENT_SHARERS,
    EXTENTS,
    INLINE,
    MissingRecord,
)
from etagere.bodies.extent_copy import ExtentCopier, RecordSource
from etagere.bodies.maps import (
    FORMER_INTERVALS,
    GENERATIONS,
    INTERVAL_MAPS,
    INTERVALS,
    MAPS_TO_FLATTEN,
    MAPS_TO_REAP,
)
from etagere.engine.records import ENCODE, Collection
from etagere.model.bodies import (
    Block,
    Chunk,
    Chunked,
    ChunkUse,
    Content,
    Empty,
    Holders,
    Inline,
    Mapped,
    MapToReap,
    Piece,
    Pieces,
    Sharers,
)
from etagere.model.ids import ID_BYTES

_TIME_BYTES: Final = 6
"""Ids begin with the time at which they were created, which the id of a copy keeps."""

_CHUNKS_PER_STEP: Final = 100
_TO_REAP: Final = ENCODE(MapToReap())

Add = Callable[[Collection[Any, Any], bytes, bytes], None]
"""Stores the encoded key and record of a copy."""


class CopyIds:
    """Derives the ids of copies from the ids of the originals and a name. With the same name, the
    copy of an original always gets the same id; with another name, another one."""

    def __init__(self, name: bytes) -> None:
        self._name = name

    def copy_id(self, source_id: bytes) -> bytes:
        digest = hashlib.blake2b(source_id, digest_size=ID_BYTES - _TIME_BYTES, key=self._name)
        return source_id[:_TIME_BYTES] + digest.digest()

    def copy_key(self, key: bytes) -> bytes:
        """Returns the encoded key of a copy. The key of the original begins with its id."""
        return self.copy_id(key[:ID_BYTES]) + key[ID_BYTES:]


class ContentCopier:
    """Copies the contents of holders in one snapshot."""

    def __init__(
        self,
        source: RecordSource,
        extents: ExtentCopier,
        ids: CopyIds,
        add: Add,
        *,
        with_inline: bool = True,
    ) -> None:
        """`with_inline`: whether contents whose bytes are in the ledger are copied too."""
        self._source = source
        self._with_inline = with_inline
        self._extents = extents
        self._ids = ids
        self._add = add
        self._shared: Counter[bytes] = Counter()
        """The holders of contents that are shared in the source."""
        self._chunks: Counter[bytes] = Counter()
        """The uses of chunks, by their keys."""
        self._maps: dict[bytes, Counter[int]] = {}
        """The holders of the generations of maps that have several holders in the source."""

    async def copy(self, contents: Sequence[Content], pieces: Sequence[Piece] = ()) -> None:
        """Copies contents, each with one more holder, and the extents of pieces that are held
        directly. Raises `MissingRecord`, `ExtentsDamaged` or `Fault`."""
        await self._extents.copy(self._source, pieces)
        self._extents.add_references(pieces)
        first = self._count_holders(contents)
        if self._with_inline:
            self._copy_inline([content for content in first if isinstance(content, Inline)])
        # A content refers to its extents once, however many holders it has.
        held = [content for content in contents if isinstance(content, Pieces)]
        await self._extents.copy(self._source, _pieces_of(held))
        self._extents.add_references(
            _pieces_of([each for each in first if isinstance(each, Pieces)])
        )
        await self._copy_block_lists([content for content in first if isinstance(content, Chunked)])
        mapped = [content for content in contents if isinstance(content, Mapped)]
        uses = [(content.id, content.generation) for content in mapped]
        while uses:
            uses = await self._copy_maps(uses)

    def copy_of(self, content: Content) -> Content:
        """Returns the copy of a content, as a holder of the copy stores it."""
        if isinstance(content, Empty):
            return content
        if isinstance(content, Pieces):
            pieces = tuple([self._extents.copied_piece(piece) for piece in content.pieces])
            return Pieces(self._ids.copy_id(content.id), content.length, pieces)
        return replace(content, id=self._ids.copy_id(content.id))

    def copied_pieces(self, pieces: Iterable[Piece]) -> tuple[Piece, ...]:
        """Returns the pieces that refer to the copies of extents instead of the originals."""
        return tuple([self._extents.copied_piece(piece) for piece in pieces])

    def finish(self) -> None:
        """Stores the numbers of holders of shared contents, chunks and maps, and the extents."""
        for content_id, count in self._shared.items():
            if count > 1:
                self._add(
                    CONTENT_SHARERS, self._ids.copy_id(content_id), ENCODE(Sharers(count - 1))
                )
        for key, count in self._chunks.items():
            if count > 1:
                self._add(CHUNK_SHARERS, self._ids.copy_key(key), ENCODE(Sharers(count - 1)))
        for map_id, generations in self._maps.items():
            self._add_generations(map_id, generations)
            self._mark_for_reaping(map_id)
        for key, record in self._extents.records():
            self._add(EXTENTS, key, record)

    def _count_holders(self, contents: Sequence[Content]) -> list[Content]:
        """Counts the holders of contents that are shared. Returns the contents that had none
        before."""
        counted = [each for each in contents if not isinstance(each, Empty | Mapped)]
        shared = self._source.find(CONTENT_SHARERS, [content.id for content in counted])
        first: list[Content] = []
        for content in counted:
            if content.id in shared:
                self._shared[content.id] += 1
                if self._shared[content.id] > 1:
                    continue
            first.append(content)
        return first

    def _copy_inline(self, contents: Sequence[Inline]) -> None:
        found = self._find_all(INLINE, [content.id for content in contents])
        for key, value in found.items():
            self._add(INLINE, self._ids.copy_key(key), value)

    def _find_all(
        self, collection: Collection[Any, Any], keys: Sequence[bytes]
    ) -> dict[bytes, bytes]:
        if not keys:
            return {}
        found = dict(self._source.find(collection, keys))
        for key in keys:
            if key not in found:
                raise MissingRecord(f"{collection.name} {key.hex()}")
        return found

    # Block lists

    async def _copy_block_lists(self, contents: Sequence[Chunked]) -> None:
        new: list[bytes] = []
        for key, value in self._find_all(BLOCK_LISTS, [each.id for each in contents]).items():
            blocks = BLOCK_LISTS.decode(value)
            for use in blocks.chunks:
                chunk = CHUNKS.pack(use.key)
                self._chunks[chunk] += 1
                if self._chunks[chunk] == 1:
                    new.append(chunk)
            uses = [
                ChunkUse(self._ids.copy_id(use.content), use.number, use.length)
                for use in blocks.chunks
            ]
            self._add(
                BLOCK_LISTS, self._ids.copy_key(key), ENCODE(replace(blocks, chunks=tuple(uses)))
            )
        for at in range(0, len(new), _CHUNKS_PER_STEP):
            await self._copy_chunks(new[at : at + _CHUNKS_PER_STEP])

    async def _copy_chunks(self, keys: Sequence[bytes]) -> None:
        chunks = {key: CHUNKS.decode(value) for key, value in self._find_all(CHUNKS, keys).items()}
        for key, chunk in chunks.items():
            pieces = [piece for block in chunk.blocks for piece in block.pieces]
            await self._extents.copy(self._source, pieces)
            self._extents.add_references(pieces)
            blocks = [Block(block.name, self.copied_pieces(block.pieces)) for block in chunk.blocks]
            self._add(CHUNKS, self._ids.copy_key(key), ENCODE(Chunk(tuple(blocks))))

    # Maps

    async def _copy_maps(self, uses: Sequence[tuple[bytes, int]]) -> list[tuple[bytes, int]]:
        """Copies maps unless that was done before, and counts the holders of their generations.
        Returns the generations of their bases, which the copies hold."""
        new: dict[bytes, Counter[int]] = {}
        for map_id, generation in uses:
            known = self._maps.get(map_id)
            if known is None:
                known = new.setdefault(map_id, Counter())
            known[generation] += 1
        held = self._count_map_holders(list(new))
        for map_id, generations in new.items():
            if held[map_id] > 1:
                self._maps[map_id] = generations
            else:
                # It has no other holder, so its generations are complete.
                self._add_generations(map_id, generations)
        bases: list[tuple[bytes, int]] = []
        for key, value in self._find_all(INTERVAL_MAPS, list(new)).items():
            record = INTERVAL_MAPS.decode(value)
            if record.base is not None:
                bases.append((record.base, record.base_generation))
            base = None if record.base is None else self._ids.copy_id(record.base)
            copy = replace(record, base=base, family=self._ids.copy_id(record.family))
            self._add(INTERVAL_MAPS, self._ids.copy_key(key), ENCODE(copy))
        for key, mark in self._source.find(MAPS_TO_FLATTEN, list(new)).items():
            self._add(MAPS_TO_FLATTEN, self._ids.copy_key(key), mark)
        for key in self._source.find(MAPS_TO_REAP, list(new)):
            if key not in self._maps:
                self._mark_for_reaping(key)
        await self._copy_intervals(INTERVALS, list(new))
        await self._copy_intervals(FORMER_INTERVALS, list(new))
        return bases

    def _count_map_holders(self, map_ids: Sequence[bytes]) -> Counter[bytes]:
        """Returns the number of holders of each map in the source, over all its generations."""
        held: Counter[bytes] = Counter()
        spans = [GENERATIONS.under((map_id,)) for map_id in map_ids]
        for page in self._source.pages(GENERATIONS, spans) if spans else ():
            for key, value in page:
                held[key[:ID_BYTES]] += GENERATIONS.decode(value).count
        return held

    def _add_generations(self, map_id: bytes, generations: Counter[int]) -> None:
        copy = self._ids.copy_id(map_id)
        for generation, count in generations.items():
            self._add(GENERATIONS, GENERATIONS.pack((copy, generation)), ENCODE(Holders(count)))

    def _mark_for_reaping(self, map_id: bytes) -> None:
        """Marks the copy of a map for reaping: some of its intervals may be visible only in
        generations that were not copied."""
        self._add(MAPS_TO_REAP, self._ids.copy_id(map_id), _TO_REAP)

    async def _copy_intervals(
        self, collection: Collection[Any, Any], map_ids: Sequence[bytes]
    ) -> None:
        spans = [collection.under((map_id,)) for map_id in map_ids]
        for page in self._source.pages(collection, spans) if spans else ():
            records = [(key, collection.decode(value)) for key, value in page]
            pieces = [each.piece for _, each in records if isinstance(each.piece, Piece)]
            await self._extents.copy(self._source, pieces)
            self._extents.add_references(pieces)
            for key, record in records:
                copy = record
                if isinstance(record.piece, Piece):
                    copy = replace(record, piece=self._extents.copied_piece(record.piece))
                self._add(collection, self._ids.copy_key(key), ENCODE(copy))


def _pieces_of(contents: Iterable[Pieces]) -> list[Piece]:
    return [piece for content in contents for piece in content.pieces]
