"""How the bytes of objects are described in the ledger.

    segment   a file that one process appends to and nobody changes
    extent    a run of bytes in a segment that was written, checksummed and made durable as one
    piece     a part of an extent (mostly all of it) as something refers to it
    content   what an object points at: nothing, bytes in the ledger, a few pieces, a list
              of chunks of pieces, or a map of intervals
    body      bytes that were uploaded and are durable, but that nothing in the ledger has yet

An extent is identified by the place where it was first written. When the collector moves it, a
`Move` records its new place, so that references to it need not change.
"""

from __future__ import annotations

import enum

from etagere.model.base import Part, Record


class Piece(Part, frozen=True):
    """`length` bytes, starting at `skip`, of the extent that was first written at (segment,
    offset)."""

    segment: int
    offset: int
    length: int
    crc: int | None = None
    """The CRC64 of exactly these bytes, if it is known."""
    skip: int = 0

    @property
    def extent(self) -> tuple[int, int]:
        return self.segment, self.offset


class Body(Part, frozen=True):
    """A sealed upload. Small bodies contain their bytes, large ones refer to pieces."""

    id: bytes
    length: int
    crc: int
    data: bytes = b""
    pieces: tuple[Piece, ...] = ()


class Empty(Part, frozen=True, tag=0):
    """An empty content."""

    @property
    def length(self) -> int:
        return 0


class Inline(Part, frozen=True, tag=1):
    """A content whose bytes are in the ledger."""

    id: bytes
    length: int
    crc: int


class Pieces(Part, frozen=True, tag=2):
    """A content of a few pieces."""

    id: bytes
    length: int
    pieces: tuple[Piece, ...]


class Chunked(Part, frozen=True, tag=3):
    """A content of any number of pieces, in chunks that can be shared."""

    id: bytes
    length: int


class Mapped(Part, frozen=True, tag=4):
    """A generation of an interval map: the content of page and append blobs, and of files."""

    id: bytes
    length: int
    generation: int
    folded: int = 0
    """No inline interval begins before this offset."""
    inline_bytes: int = 0
    """The number of inline bytes, at most,"""
    inline_intervals: int = 0
    """and the number of inline intervals."""
    tail: int = 0
    """The offset of the last inline interval, if there is one."""


Content = Empty | Inline | Pieces | Chunked | Mapped


class Block(Part, frozen=True):
    """A named sequence of pieces, as in a block list."""

    name: bytes
    pieces: tuple[Piece, ...]

    @property
    def length(self) -> int:
        return sum(piece.length for piece in self.pieces)


class InlineBytes(Record, frozen=True):
    """The bytes of an inline content."""

    data: bytes


class ChunkUse(Part, frozen=True):
    """A chunk in a block list, identified by the content it was created for and a number."""

    content: bytes
    number: int
    length: int

    @property
    def key(self) -> tuple[bytes, int]:
        return self.content, self.number


class BlockList(Record, frozen=True):
    """The chunks of a chunked content, in order."""

    chunks: tuple[ChunkUse, ...]


class Chunk(Record, frozen=True):
    """A sequence of blocks. It never changes, and is shared by all lists that contain it."""

    blocks: tuple[Block, ...]


class Sharers(Record, frozen=True):
    """The number of holders of a content or chunk besides the first. No record means one holder."""

    extra: int


class ContentToReap(Record, frozen=True):
    """A mark on a content without holders, whose pieces the collector has to release."""


class Extent(Record, frozen=True):
    """A live extent, under its current place."""

    length: int
    crc: int | None
    references: int = 1
    origin: tuple[int, int] | None = None
    """Where it was first written, if it was moved."""


class Move(Record, frozen=True):
    """The current place of an extent that was moved."""

    segment: int
    offset: int


class DeadExtent(Record, frozen=True):
    """An extent without references."""

    length: int


class DeadTotal(Record, frozen=True):
    """The number of dead bytes of a segment, without those of `DeadExtent` records."""

    length: int


class SegmentState(enum.Enum):
    """The state of a segment."""

    OPEN = "open"
    """Its owner writes to it, or has uploads in it that nothing refers to yet."""
    SEALED = "sealed"
    """Nothing is written to it; bytes that no extent covers are dead."""
    RETIRED = "retired"
    """Nothing refers to it; the file is removed once no reader can need it."""


class Segment(Record, frozen=True):
    """A file of extents, and the process that created it."""

    owner: bytes
    state: SegmentState = SegmentState.OPEN
    length: int = 0
    """In bytes, once it is sealed."""
    closed: bool = False
    """Whether sealing has begun: nothing in it gets a first reference any more."""
    counted_to: int = 0
    """While it is being sealed: `DeadTotal` contains the dead extents before this offset,"""
    covered_bytes: int = 0
    """and live and dead extents before it have this many bytes. What they do not cover of `length`
    is dead as well."""


class Counter(Record, frozen=True):
    """The last number that was used."""

    last: int


class IntervalMap(Record, frozen=True):
    """A content of pieces at offsets, with several generations.

    A generation is one state of the map. Only the newest can be written to. A write to an older one
    creates a child map, which shows its base where it has no intervals.
    """

    newest: int
    family: bytes
    """The root of its chain of bases. Contents of one family can be compared."""
    base: bytes | None = None
    base_generation: int = 0
    base_length: int = 0
    flattened: int = 0
    """The part of the base before this offset has been copied, and is not read."""
    longest: int = 0
    """The maximum length of former intervals."""
    cleared: int = 0
    """The maximum end of cleared holes."""


class Interval(Record, frozen=True):
    """An interval of the newest generation, under (map, offset)."""

    piece: Piece | bytes | None
    """A piece; or the bytes of an inline interval; or None for a hole that was cleared or hides the
    base."""
    length: int
    born: int
    """The first generation that contains it."""
    crc: int | None = None
    """The CRC64 of an inline interval. Those of older versions have none."""


class FormerInterval(Record, frozen=True):
    """An interval that only older generations contain, under (map, offset, first generation)."""

    piece: Piece | bytes | None
    length: int
    ended: int
    """The first generation that does not contain it."""
    crc: int | None = None
    """The CRC64 of an inline interval."""


class Holders(Record, frozen=True):
    """The number of holders of a generation: objects, and child maps."""

    count: int


class MapToReap(Record, frozen=True):
    """A map of which a generation has lost its last holder, and the progress of the search for
    intervals that no held generation contains."""

    former: bool = True
    """Whether former intervals are being searched; they come before those of the newest
    generation."""
    offset: int = 0
    born: int = 0
    again: bool = False
    """Another generation was released meanwhile, so that the search must start again."""


class MapToFlatten(Record, frozen=True):
    """A map whose base has to be copied into it."""
