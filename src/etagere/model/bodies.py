"""How the bytes of objects are described in the ledger.

    segment   a file that one process appends to and nobody changes
    extent    a run of bytes in a segment that was written, checksummed and made durable as one
    piece     a part of an extent (mostly all of it) as something refers to it
    content   what an object points at: nothing, bytes in the ledger, a few pieces, a list
              of chunks of pieces, or a map of intervals
    body      bytes that were uploaded and are durable, but that nothing in the ledger has yet

An extent is known for ever by the place it was first written to; when the collector moves
it, a `Move` says where it lies now, so that nothing that refers to it has to change.
"""

from __future__ import annotations

import enum

from etagere.model.base import Part, Record


class Piece(Part, frozen=True):
    """`length` bytes from `skip` on of the extent first written at (segment, offset)."""

    segment: int
    offset: int
    length: int
    crc: int | None = None
    """CRC64 of exactly these bytes, where it is known."""
    skip: int = 0

    @property
    def extent(self) -> tuple[int, int]:
        return self.segment, self.offset


class Body(Part, frozen=True):
    """An upload, sealed: small ones carry their bytes, large ones lie in pieces."""

    id: bytes
    length: int
    crc: int
    data: bytes = b""
    pieces: tuple[Piece, ...] = ()


class Empty(Part, frozen=True, tag=0):
    """No bytes at all."""

    @property
    def length(self) -> int:
        return 0


class Inline(Part, frozen=True, tag=1):
    """Bytes that lie in the ledger."""

    id: bytes
    length: int
    crc: int


class Pieces(Part, frozen=True, tag=2):
    """A few pieces, named right here."""

    id: bytes
    length: int
    pieces: tuple[Piece, ...]


class Chunked(Part, frozen=True, tag=3):
    """Any number of pieces, in shared chunks."""

    id: bytes
    length: int


class Mapped(Part, frozen=True, tag=4):
    """Generation `generation` of an interval map: page, append and file contents."""

    id: bytes
    length: int
    generation: int
    folded: int = 0
    """Before this offset nothing lies in the ledger."""
    inline_bytes: int = 0
    """How many bytes behind it do, at most,"""
    inline_intervals: int = 0
    """and how many intervals they make."""
    tail: int = 0
    """Where the last of them begins, if there is one."""


Content = Empty | Inline | Pieces | Chunked | Mapped


class Block(Part, frozen=True):
    """A named run of pieces, as a block list orders them."""

    name: bytes
    pieces: tuple[Piece, ...]

    @property
    def length(self) -> int:
        return sum(piece.length for piece in self.pieces)


class InlineBytes(Record, frozen=True):
    """The bytes of an inline content."""

    data: bytes


class ChunkUse(Part, frozen=True):
    """One chunk in a block list, named by the content that it was made for and a number."""

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
    """Blocks in a row. Never changed; shared by every list that has this row of blocks."""

    blocks: tuple[Block, ...]


class Sharers(Record, frozen=True):
    """How many hold a content or a chunk besides the first. No record: nobody."""

    extra: int


class ContentToReap(Record, frozen=True):
    """Marks a content without holders, whose pieces the collector is to release."""


class Extent(Record, frozen=True):
    """A live extent, under the place where it lies now."""

    length: int
    crc: int | None
    references: int = 1
    origin: tuple[int, int] | None = None
    """Where it was first written, if it was moved since."""


class Move(Record, frozen=True):
    """Where an extent lies now."""

    segment: int
    offset: int


class DeadExtent(Record, frozen=True):
    """Bytes of a segment that nothing refers to any more."""

    length: int


class DeadTotal(Record, frozen=True):
    """How many bytes of a segment are dead, without those that have a record of their own."""

    length: int


class SegmentState(enum.Enum):
    """What may still happen to a segment."""

    OPEN = "open"
    """Its owner writes to it or has uploads in it that nothing refers to yet."""
    SEALED = "sealed"
    """Nothing is written to it any more; what no extent covers is dead."""
    RETIRED = "retired"
    """Nothing refers to it; the file goes once no reader can still want it."""


class Segment(Record, frozen=True):
    """A file of extents and the process that made it."""

    owner: bytes
    state: SegmentState = SegmentState.OPEN
    length: int = 0
    """Bytes, once sealed."""
    closed: bool = False
    """It is being sealed, or was: nothing new in it is referred to."""
    counted_to: int = 0
    """While it is being sealed: dead bytes before this offset are in its `DeadTotal`."""


class Counter(Record, frozen=True):
    """The last number given out."""

    last: int


class IntervalMap(Record, frozen=True):
    """A content whose pieces lie at offsets and change over generations.

    A generation is one state of the map; a snapshot is a number. Only the newest can be
    written to: whoever goes on from an older one starts a child, which shows its base
    wherever it has nothing of its own.
    """

    newest: int
    family: bytes
    """The map that the first of its bases was. Contents of one family can be compared."""
    base: bytes | None = None
    base_generation: int = 0
    base_length: int = 0
    flattened: int = 0
    """Below this offset the base is not looked at: what it shows there was copied."""
    longest: int = 0
    """No former interval is longer."""
    cleared: int = 0
    """No hole that was made reaches further."""


class Interval(Record, frozen=True):
    """A piece that the newest generation shows, under (map, offset)."""

    piece: Piece | bytes | None
    """Bytes are an inlay: they lie right here. None where a child hides what its base shows, or
    something was cleared."""
    length: int
    born: int
    """The first generation that shows it."""
    crc: int | None = None
    """CRC64 of an inlay. Those of older versions have none."""


class FormerInterval(Record, frozen=True):
    """A piece that only older generations show, under (map, offset, first generation)."""

    piece: Piece | bytes | None
    length: int
    ended: int
    """The first generation that does not show it."""
    crc: int | None = None
    """CRC64 of an inlay."""


class Holders(Record, frozen=True):
    """How many hold a generation of a map: objects, and children based on it."""

    count: int


class MapToReap(Record, frozen=True):
    """A map of which a generation is not held any more, and how far it was searched for
    intervals that nobody can see now."""

    former: bool = True
    """Former intervals are searched first, then those of the newest generation."""
    offset: int = 0
    born: int = 0
    again: bool = False
    """One more generation was released meanwhile."""


class MapToFlatten(Record, frozen=True):
    """A map that has a base, which is to be copied into it."""
