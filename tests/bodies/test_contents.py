"""Reference counts of contents: adopting, sharing, releasing and lookup, record by record."""

from __future__ import annotations

import asyncio
import random

import pytest
from awscrt.checksums import crc64nvme
from hypothesis import given, settings
from hypothesis import strategies as st

from etagere.bodies.contents import (
    BLOCK_LISTS,
    CHUNK_PIECES_MAX,
    CHUNKS,
    CONTENT_SHARERS,
    CONTENTS_TO_REAP,
    EXTENTS,
    INLINE,
    PIECES_MAX,
    SEGMENTS,
    UNCOUNTED_DEAD,
    MissingRecord,
    add_reference,
    adopt_body,
    blocks_of,
    compose,
    reap_some,
    release,
    share,
)
from etagere.bodies.plans import Plan, SegmentRange, locate
from etagere.bodies.segments import MoveExtents, Relocation, move_extents
from etagere.engine.interface import WriteTxn
from etagere.model.base import Command
from etagere.model.bodies import (
    Block,
    Body,
    Chunked,
    Content,
    Empty,
    Extent,
    Inline,
    Mapped,
    Piece,
    Pieces,
    Segment,
    SegmentState,
    Sharers,
)
from etagere.model.ids import new_id
from tests.bodies.objects import OBJECTS, STAGED, Object, StagedBlocks
from tests.model.consistency import require_balanced, require_empty
from tests.model.ledger_fixture import SEGMENT, LedgerFixture, relist


def body_of(pieces: tuple[Piece, ...]) -> Body:
    return Body(new_id(), sum(piece.length for piece in pieces), 0, pieces=pieces)


@pytest.fixture
def ledger() -> LedgerFixture:
    return LedgerFixture()


# Adopting


def put_content(ledger: LedgerFixture, name: str, body: Body) -> Content:
    def work(txn: WriteTxn) -> Content:
        content = adopt_body(txn, body)
        txn.put(OBJECTS, (name,), Object(content, 0))
        return content

    return ledger.change(work)


def test_an_empty_body_costs_nothing(ledger: LedgerFixture) -> None:
    content, counted = ledger.count(lambda txn: adopt_body(txn, Body(new_id(), 0, 0)))
    assert content == Empty()
    assert content.length == 0
    assert not counted.puts
    _, counted = ledger.count(lambda txn: release(txn, share(txn, Empty())))
    assert not counted.puts and not counted.deletes


def test_a_small_body_is_one_record(ledger: LedgerFixture) -> None:
    crc = crc64nvme(b"small")
    body = Body(new_id(), 5, crc, data=b"small")
    content, counted = ledger.count(lambda txn: adopt_body(txn, body))
    assert content == Inline(body.id, 5, crc)
    assert counted.puts == {INLINE.name: 1}
    assert ledger.look(locate, content) == b"small"


@pytest.mark.parametrize("count", [1, PIECES_MAX])
def test_a_few_pieces_are_stored_in_the_object(ledger: LedgerFixture, count: int) -> None:
    body = body_of(tuple(ledger.piece() for _ in range(count)))
    content, counted = ledger.count(lambda txn: adopt_body(txn, body))
    assert content == Pieces(body.id, body.length, body.pieces)
    assert counted.puts == {EXTENTS.name: count}


@pytest.mark.parametrize("count", [PIECES_MAX + 1, CHUNK_PIECES_MAX, CHUNK_PIECES_MAX + 1])
def test_many_pieces_make_chunks(ledger: LedgerFixture, count: int) -> None:
    body = body_of(tuple(ledger.piece() for _ in range(count)))
    content = put_content(ledger, "a", body)
    assert content == Chunked(body.id, body.length)
    assert len(ledger.rows(CHUNKS)) == -(-count // CHUNK_PIECES_MAX)
    ledger.look(require_balanced)
    plan = ledger.segment_ranges(content)
    assert [(s.offset, s.length) for s in plan] == [(p.offset, p.length) for p in body.pieces]


# Sharing and releasing


@pytest.mark.parametrize("count", [0, 1, PIECES_MAX + 1])
def test_the_last_release_removes_the_content(ledger: LedgerFixture, count: int) -> None:
    pieces = tuple(ledger.piece() for _ in range(count))
    body = body_of(pieces) if count else Body(new_id(), 1, crc64nvme(b"x"), data=b"x")
    content = put_content(ledger, "a", body)
    for extra in range(1, 4):
        ledger.change(lambda txn: share(txn, content))
        assert ledger.rows(CONTENT_SHARERS) == {(body.id,): Sharers(extra)}
    for extra in (2, 1, 0):
        ledger.release(content)
        left = {(body.id,): Sharers(extra)} if extra else {}
        assert ledger.rows(CONTENT_SHARERS) == left
        ledger.look(locate, content)
        assert ledger.rows(UNCOUNTED_DEAD) == {}
    ledger.change(lambda txn: txn.delete(OBJECTS, ("a",)))
    ledger.release(content)
    ledger.reap_all()
    ledger.look(require_empty)
    assert set(ledger.rows(UNCOUNTED_DEAD)) == {piece.extent for piece in pieces}


def test_a_copy_of_a_long_list_is_one_record(ledger: LedgerFixture) -> None:
    body = body_of(tuple(ledger.piece(1) for _ in range(50_000)))
    content = put_content(ledger, "a", body)
    _, counted = ledger.count(lambda txn: share(txn, content))
    assert sum(counted.puts.values()) == 1
    _, counted = ledger.count(lambda txn: release(txn, content))
    assert sum((counted.puts + counted.deletes).values()) == 1
    _, counted = ledger.count(lambda txn: release(txn, content))
    assert sum((counted.puts + counted.deletes).values()) == 1


def test_damaged_contents_can_be_released_but_not_used(ledger: LedgerFixture) -> None:
    """An extent is missing; a delete must work all the same."""
    pieces = (ledger.piece(), ledger.piece())
    content = put_content(ledger, "a", body_of(pieces))
    ledger.change(lambda txn: txn.delete(EXTENTS, pieces[0].extent))
    with pytest.raises(MissingRecord):
        ledger.change(lambda txn: add_reference(txn, pieces[0]))
    ledger.release(content)
    assert ledger.rows(EXTENTS) == {}
    assert set(ledger.rows(UNCOUNTED_DEAD)) == {pieces[1].extent}


@pytest.mark.parametrize("state", [None, SegmentState.SEALED, SegmentState.RETIRED])
def test_only_open_segments_have_new_extents(
    ledger: LedgerFixture, state: SegmentState | None
) -> None:
    def close(txn: WriteTxn) -> None:
        if state is None:
            txn.delete(SEGMENTS, (SEGMENT,))
        else:
            txn.put(SEGMENTS, (SEGMENT,), Segment(b"owner", state))

    ledger.change(close)
    with pytest.raises(MissingRecord):
        ledger.change(lambda txn: adopt_body(txn, body_of((ledger.piece(),))))
    assert ledger.rows(EXTENTS) == {}


# Block lists


def test_chunks_are_bounded(ledger: LedgerFixture) -> None:
    blocks = [ledger.block(count) for count in (1, 2, 3, 500, 12, 512, 1, 513, 1) for _ in range(3)]
    ledger.stage(blocks)
    content = ledger.list_blocks(blocks)
    for chunk in ledger.rows(CHUNKS).values():
        pieces = [len(block.pieces) for block in chunk.blocks]
        # Blocks are never split.
        assert sum(pieces) <= CHUNK_PIECES_MAX or len(pieces) == 1
    assert list(ledger.look(lambda txn, _: list(blocks_of(txn, content)))) == blocks
    ledger.look(require_balanced)


def test_appending_shares_the_whole_chunks(ledger: LedgerFixture) -> None:
    blocks = [ledger.block() for _ in range(2_000)]
    ledger.stage(blocks)
    content = ledger.list_blocks(blocks)
    ledger.look(require_balanced)
    for _ in range(20):
        blocks.append(ledger.block())
        ledger.stage(blocks[-1:])
        old = content

        def append(txn: WriteTxn, old: Chunked = old) -> Chunked:
            return relist(txn, blocks, old)

        content, counted = ledger.count(append)
        assert counted.puts["chunks"] == 1
        # One record per shared chunk, and one per small block that is listed again.
        assert sum(counted.puts.values()) <= 4 + 20 + 4
        ledger.reap_all()
        ledger.look(require_balanced)
    assert list(ledger.look(lambda txn, _: list(blocks_of(txn, content)))) == blocks


def test_repeated_appends_keep_chunks_large(ledger: LedgerFixture) -> None:
    """However often a list grows by one block, its chunks keep a useful size."""
    blocks: list[Block] = []
    content: Chunked | None = None
    for _ in range(700):
        blocks.append(ledger.block())
        ledger.stage(blocks[-1:])
        content = ledger.list_blocks(blocks, content)
        ledger.reap_all()
    assert len(ledger.rows(CHUNKS)) <= 8
    ledger.look(require_balanced)


@given(st.data())
@settings(deadline=None, max_examples=60, derandomize=True)
def test_any_edit_of_a_list_counts_exactly(data: st.DataObject) -> None:
    """Shuffled, repeated, cut and replaced in the middle: every count is exact."""
    ledger = LedgerFixture()
    blocks = [ledger.block(count) for count in data.draw(st.lists(st.integers(0, 3), max_size=9))]
    long = data.draw(st.sampled_from([0, 130, 600]))
    blocks += [ledger.block() for _ in range(long)]
    ledger.stage(blocks)
    content = ledger.list_blocks(blocks)
    for _ in range(3):
        blocks = data.draw(edits(ledger, blocks))
        content = ledger.list_blocks(blocks, content)
        ledger.look(require_balanced)
        assert ledger.look(lambda txn, c: list(blocks_of(txn, c)), content) == blocks
        if data.draw(st.booleans()):
            ledger.reap_all()
            ledger.look(require_balanced)
    ledger.change(lambda txn: txn.delete(OBJECTS, ("a",)))
    ledger.release(content)
    ledger.reap_all()
    ledger.look(require_empty)


@st.composite
def edits(draw: st.DrawFn, ledger: LedgerFixture, blocks: list[Block]) -> list[Block]:
    """Returns the blocks after one more edit; new ones are staged."""
    kind = draw(st.sampled_from(["append", "replace", "shuffle", "repeat", "cut", "twice"]))
    place = draw(st.integers(0, max(len(blocks) - 1, 0)))
    new = ledger.block(draw(st.integers(1, 2)))
    if kind == "shuffle":
        return random.Random(place).sample(blocks, len(blocks))
    if kind == "repeat":
        return blocks[: place + 1] + blocks[place:]
    if kind == "cut":
        return blocks[:place]
    ledger.stage([new])
    if kind == "append":
        return [*blocks, new]
    if kind == "replace":
        return [*blocks[:place], new, *blocks[place + 1 :]]
    # A new block that is used more than once from the start.
    return [new, *blocks, new]


def test_a_list_twice_over_shares_its_chunks_twice(ledger: LedgerFixture) -> None:
    blocks = [ledger.block() for _ in range(1_024)]
    ledger.stage(blocks)
    content = ledger.list_blocks(blocks)
    doubled, counted = ledger.count(lambda txn: relist(txn, blocks + blocks, content))
    assert counted.puts["chunks"] == 0
    assert doubled.length == 2 * content.length
    ledger.reap_all()
    ledger.look(require_balanced)


def test_replacing_a_block_in_the_middle_rewrites_its_chunk_only(ledger: LedgerFixture) -> None:
    blocks = [ledger.block() for _ in range(5 * CHUNK_PIECES_MAX)]
    ledger.stage(blocks)
    content = ledger.list_blocks(blocks)
    blocks[1_300] = ledger.block()
    ledger.stage(blocks[1_300:1_301])
    _, counted = ledger.count(lambda txn: relist(txn, blocks, content))
    assert counted.puts["chunks"] == 1
    assert counted.puts["chunk_sharers"] == 4
    ledger.reap_all()
    ledger.look(require_balanced)


# Reaping


def test_reaping_is_bounded(ledger: LedgerFixture) -> None:
    pieces = tuple(ledger.piece() for _ in range(10 * CHUNK_PIECES_MAX))
    content = put_content(ledger, "a", body_of(pieces))
    ledger.change(lambda txn: txn.delete(OBJECTS, ("a",)))
    ledger.release(content)
    reaped, counted = ledger.count(lambda txn: reap_some(txn, 3))
    assert reaped == 3
    assert counted.deletes == {EXTENTS.name: 3 * CHUNK_PIECES_MAX, CHUNKS.name: 3}
    ledger.look(require_balanced)
    assert [ledger.change(lambda txn: reap_some(txn, 3)) for _ in range(4)] == [3, 3, 1, 0]
    ledger.look(require_empty)


@pytest.mark.parametrize("chunks_max", [1, 2, 8])
def test_releasing_several_contents_at_once(ledger: LedgerFixture, chunks_max: int) -> None:
    shared = [ledger.block() for _ in range(300)]
    ledger.stage(shared)
    contents = [ledger.list_blocks(shared)]
    for number in range(12):
        pieces = tuple(ledger.piece() for _ in range((number % 3) * 400 + 9))
        contents.append(adopted(ledger, pieces))
    ledger.change(lambda txn: compose(txn, b"\x01" * 16, []))
    contents.append(Chunked(b"\x01" * 16, 0))
    for content in contents:
        ledger.release(content)
    ledger.change(lambda txn: txn.delete(OBJECTS, ("a",)))
    assert len(ledger.rows(CONTENTS_TO_REAP)) == len(contents)
    steps = 0
    while reaped := ledger.change(lambda txn: reap_some(txn, chunks_max)):
        assert reaped <= chunks_max
        steps += 1
        ledger.look(require_balanced)
    assert steps <= 40
    ledger.look(require_empty)


def adopted(ledger: LedgerFixture, pieces: tuple[Piece, ...]) -> Chunked:
    content = ledger.change(lambda txn: adopt_body(txn, body_of(pieces)))
    assert isinstance(content, Chunked)
    return content


# Lookup


class BlockLayout(Command, frozen=True):
    """Blocks of pieces and their bytes."""

    blocks: tuple[Block, ...]
    segments: dict[int, bytes]


@st.composite
def laid_out(draw: st.DrawFn) -> BlockLayout:
    """Generates pieces of random lengths, some of them parts of longer extents."""
    shapes = draw(st.lists(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), max_size=3)))
    data, blocks = bytearray(), []
    for shape in shapes:
        pieces = []
        for length, skip in shape:
            pieces.append(Piece(SEGMENT, len(data), length, None, skip))
            data += bytes((len(data) + n) % 256 for n in range(skip + length))
        blocks.append(Block(b"name", tuple(pieces)))
    return BlockLayout(tuple(blocks), {SEGMENT: bytes(data)})


def bytes_at(laid: BlockLayout, plan: Plan) -> bytes:
    if isinstance(plan, bytes):
        return plan
    found = b""
    for segment_range in plan:
        assert isinstance(segment_range, SegmentRange)
        found += laid.segments[segment_range.segment][segment_range.offset :][
            : segment_range.length
        ]
    return found


def content_bytes(laid: BlockLayout) -> bytes:
    found = b""
    for block in laid.blocks:
        for piece in block.pieces:
            start = piece.offset + piece.skip
            found += laid.segments[piece.segment][start : start + piece.length]
    return found


def require_every_range(ledger: LedgerFixture, content: Content, laid: BlockLayout) -> None:
    data = content_bytes(laid)
    for start in range(len(data) + 2):
        for length in (None, *range(len(data) - start + 3)):
            stop = None if length is None else start + length
            assert bytes_at(laid, ledger.plan(content, start, length)) == data[start:stop]


@given(laid_out(), st.booleans(), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=40, derandomize=True)
def test_every_range_is_found(laid: BlockLayout, chunked: bool, chance: random.Random) -> None:
    """Before and after extents were moved, whether or not the old segment still exists."""
    ledger = LedgerFixture()
    pieces = tuple(piece for block in laid.blocks for piece in block.pieces)
    if len(pieces) > 12:
        return
    ledger.stage(list(laid.blocks))
    length = sum(piece.length for piece in pieces)
    content: Content = Pieces(new_id(), length, pieces)
    if chunked:
        content = ledger.list_blocks(list(laid.blocks))
    require_every_range(ledger, content, laid)
    moved = [piece for piece in pieces if chance.random() < 0.7]
    laid.segments[2] = move_to(ledger, laid, moved)
    require_every_range(ledger, content, laid)
    if pieces and len(moved) == len(pieces):
        retired = Segment(b"owner", SegmentState.RETIRED)
        ledger.change(lambda txn: txn.put(SEGMENTS, (SEGMENT,), retired))
        require_every_range(ledger, content, laid)
        # Plans no longer refer to the old place.
        assert {segment_range.segment for segment_range in ledger.segment_ranges(content)} == {2}


def move_to(ledger: LedgerFixture, laid: BlockLayout, pieces: list[Piece]) -> bytes:
    """Copies extents to segment 2; returns its content."""
    copied, steps = b"", []
    ledger.change(lambda txn: txn.put(SEGMENTS, (2,), Segment(new_id())))
    for piece in pieces:
        steps.append(Relocation(SEGMENT, piece.offset, 2, len(copied)))
        end = piece.offset + piece.skip + piece.length
        copied += laid.segments[SEGMENT][piece.offset : end]
    assert asyncio.run(ledger.engine.write(move_extents, MoveExtents(tuple(steps)))) == len(pieces)
    return copied


def test_a_whole_piece_comes_with_its_checksum(ledger: LedgerFixture) -> None:
    pieces = (Piece(SEGMENT, 0, 10, 111), Piece(SEGMENT, 10, 10, 222))
    content = put_content(ledger, "a", body_of(pieces))

    def checksums(start: int, length: int) -> list[int | None]:
        return [
            segment_range.crc for segment_range in ledger.segment_ranges(content, start, length)
        ]

    assert checksums(0, 20) == [111, 222]
    assert checksums(0, 19) == [111, None]
    assert checksums(1, 19) == [None, 222]
    assert checksums(10, 10) == [222]
    assert checksums(3, 4) == [None]


def test_missing_extents_are_reported(ledger: LedgerFixture) -> None:
    with pytest.raises(Exception, match="MissingRecord"):
        ledger.look(locate, Inline(new_id(), 5, 0))
    with pytest.raises(Exception, match="MissingRecord"):
        ledger.look(locate, Chunked(new_id(), 5))
    with pytest.raises(Exception, match="MissingRecord"):
        ledger.look(locate, Mapped(new_id(), 5, 1))


# Records


def test_contents_round_trip() -> None:
    for content in (Empty(), Inline(new_id(), 1, 2), Mapped(new_id(), 1, 3), Chunked(new_id(), 1)):
        record = Object(content, 1)
        assert OBJECTS.decode(OBJECTS.encode(record)) == record


def test_staged_blocks_hold_their_extents(ledger: LedgerFixture) -> None:
    block = ledger.block(2)
    ledger.stage([block])
    ledger.change(lambda txn: txn.put(STAGED, ("a",), StagedBlocks((block,))))
    ledger.look(require_balanced)
    assert ledger.rows(EXTENTS)[block.pieces[0].extent] == Extent(10, None)
    assert ledger.rows(BLOCK_LISTS) == {}
