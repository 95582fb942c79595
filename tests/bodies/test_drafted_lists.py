"""Block lists that are built in steps: the same chunks and counts as those built at once."""

from __future__ import annotations

from contextlib import suppress
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etagere.bodies.chunking import Chunker, ReusableChunk
from etagere.bodies.contents import (
    BLOCK_LISTS,
    CHUNK_PIECES_MAX,
    CHUNK_SHARERS,
    CHUNKS,
    CONTENTS_TO_REAP,
    EXTENTS,
    MissingRecord,
    begin_list,
    blocks_of,
    chunks_of,
    drop_references,
    extend_list,
    reap_some,
    release,
)
from etagere.bodies.contents import blocks_in as blocks_in_chunk
from etagere.engine.interface import Conflict, ReadTxn, WriteTxn
from etagere.model.bodies import Block, BlockList, Chunked, ChunkUse, ContentToReap, Sharers
from etagere.model.ids import new_id
from tests.bodies.objects import OBJECTS, STAGED, Object, StagedBlocks
from tests.model.consistency import require_balanced, require_empty
from tests.model.ledger_fixture import LedgerFixture

Plan = list[ChunkUse | tuple[Block, ...]]


@pytest.fixture
def ledger() -> LedgerFixture:
    return LedgerFixture()


def staged(ledger: LedgerFixture, count: int) -> list[Block]:
    """Stages blocks that have another holder too."""
    blocks = [ledger.block() for _ in range(count)]
    ledger.stage(blocks)
    ledger.change(lambda txn: txn.put(STAGED, ("a",), StagedBlocks(tuple(blocks))))
    return blocks


def plan(
    ledger: LedgerFixture,
    blocks: list[Block],
    base: Chunked | None = None,
    *,
    at_a_time: int = 50_000,
) -> Plan:
    chunker = Chunker(CHUNK_PIECES_MAX)

    def look(txn: ReadTxn, _: object) -> None:
        for use in chunks_of(txn, base) if base is not None else ():
            chunker.offer(use, blocks_in_chunk(txn, use))

    ledger.look(look)
    bits = [blocks[at : at + at_a_time] for at in range(0, len(blocks), at_a_time)]
    runs = [*chain.from_iterable(chunker.add(bit) for bit in bits), *chunker.finish()]
    return [run.use if isinstance(run, ReusableChunk) else tuple(run) for run in runs]


def carry_out(ledger: LedgerFixture, chunks: Plan, name: str = "drafted") -> Chunked:
    """Runs a plan, each chunk in its own transaction; an object holds the list so far."""

    def begin(txn: WriteTxn) -> Chunked:
        content = begin_list(txn, new_id())
        txn.put(OBJECTS, (name,), Object(content, 0))
        return content

    def extend(txn: WriteTxn, content: Chunked, chunk: ChunkUse | tuple[Block, ...]) -> Chunked:
        shared, blocks = ((chunk,), ()) if isinstance(chunk, ChunkUse) else ((), chunk)
        longer = extend_list(txn, content, shared, blocks)
        txn.put(OBJECTS, (name,), Object(longer, 0))
        return longer

    content = ledger.change(begin)
    for chunk in chunks:
        ledger.look(require_balanced)
        before, step = content, chunk
        content = ledger.change(lambda txn: extend(txn, before, step))  # noqa: B023 - run at once
    return content


def blocks_in(ledger: LedgerFixture, content: Chunked) -> list[Block]:
    return ledger.look(lambda txn, _: list(blocks_of(txn, content)))


def let_go(ledger: LedgerFixture, name: str, content: Chunked) -> None:
    def delete(txn: WriteTxn) -> None:
        txn.delete(OBJECTS, (name,))
        release(txn, content)

    ledger.change(delete)


def unstage(ledger: LedgerFixture) -> None:
    def remove(txn: WriteTxn) -> None:
        waiting = txn.get(STAGED, ("a",))
        txn.delete(STAGED, ("a",))
        for block in waiting.blocks if waiting else ():
            drop_references(txn, block.pieces)

    ledger.change(remove)


# Planning


def test_a_plan_of_nothing(ledger: LedgerFixture) -> None:
    assert plan(ledger, []) == []


def test_new_blocks_are_cut_into_chunks(ledger: LedgerFixture) -> None:
    blocks = staged(ledger, 2 * CHUNK_PIECES_MAX + 3)
    chunks = plan(ledger, blocks)
    assert [len(chunk) for chunk in chunks if isinstance(chunk, tuple)] == [512, 512, 3]
    assert [block for chunk in chunks for block in chunk] == blocks  # type: ignore[union-attr]


def test_chunks_of_the_base_are_shared_where_they_are_whole(ledger: LedgerFixture) -> None:
    blocks = [ledger.block() for _ in range(2 * CHUNK_PIECES_MAX)]
    ledger.stage(blocks)
    base = ledger.list_blocks(blocks)
    new = staged(ledger, 1)
    first, *between, last = plan(ledger, blocks[:512] + new + blocks[512:], base)
    assert first == ChunkUse(base.id, 0, 5_120)
    assert between == [tuple(new)]
    assert last == ChunkUse(base.id, 1, 5_120)
    # A partial chunk is copied.
    assert plan(ledger, blocks[1:512], base) == [tuple(blocks[1:512])]
    assert plan(ledger, blocks[:511], base) == [tuple(blocks[:511])]


@pytest.mark.parametrize("at_a_time", [1, 7, 127, 128, 500, 512, 513])
def test_chunks_do_not_depend_on_the_size_of_the_steps(
    ledger: LedgerFixture, at_a_time: int
) -> None:
    """With whole chunks, partial chunks and repeated blocks."""
    blocks = [ledger.block() for _ in range(2 * CHUNK_PIECES_MAX + 140)]
    ledger.stage(blocks)
    base = ledger.list_blocks(blocks)
    new = staged(ledger, 3)
    first, second, third = blocks[:512], blocks[512:1024], blocks[1024:]
    for listed in (
        first + second + third,
        new + second + new + first + first[:100] + third + third[:1],
        first[:1] + first[:2] + first[:511] + first + first[:300] + new + first[:512],
        first[1:] + second[:511],
        new * 400 + third * 3,
        [],
    ):
        assert plan(ledger, listed, base, at_a_time=at_a_time) == plan(ledger, listed, base)


# Extending


def test_each_step_counts_what_it_adds(ledger: LedgerFixture) -> None:
    blocks = staged(ledger, 3)
    content = carry_out(ledger, [(blocks[0], blocks[0]), tuple(blocks)])
    assert content.length == 50
    assert blocks_in(ledger, content) == [blocks[0], blocks[0], *blocks]
    counts = [ledger.rows(EXTENTS)[block.pieces[0].extent].references for block in blocks]
    assert counts == [4, 2, 2]
    ledger.look(require_balanced)
    unstage(ledger)
    ledger.look(require_balanced)
    let_go(ledger, "drafted", content)
    ledger.reap_all()
    ledger.look(require_empty)


def test_an_unfinished_list_can_be_released(ledger: LedgerFixture) -> None:
    content = carry_out(ledger, [])
    assert content.length == 0
    assert ledger.rows(BLOCK_LISTS) == {(content.id,): BlockList(())}
    let_go(ledger, "drafted", content)
    assert ledger.rows(CONTENTS_TO_REAP) == {(content.id,): ContentToReap()}
    ledger.reap_all()
    ledger.look(require_empty)


def test_chunks_are_counted_once_per_use(ledger: LedgerFixture) -> None:
    blocks = [ledger.block() for _ in range(300)]
    ledger.stage(blocks)
    base = ledger.list_blocks(blocks)
    (use,) = plan(ledger, blocks, base)
    assert isinstance(use, ChunkUse)
    content = carry_out(ledger, [use, use])
    assert ledger.rows(CHUNK_SHARERS) == {use.key: Sharers(2)}
    assert blocks_in(ledger, content) == blocks + blocks
    let_go(ledger, "a", base)
    ledger.reap_all()
    ledger.look(require_balanced)
    assert blocks_in(ledger, content) == blocks + blocks
    let_go(ledger, "drafted", content)
    ledger.reap_all()
    ledger.look(require_empty)


def test_released_blocks_are_not_added(ledger: LedgerFixture) -> None:
    blocks = [ledger.block() for _ in range(300)]
    ledger.stage(blocks)
    base = ledger.list_blocks(blocks)
    (use,) = plan(ledger, blocks, base)
    assert isinstance(use, ChunkUse)
    let_go(ledger, "a", base)
    ledger.reap_all()
    content = carry_out(ledger, [])
    with pytest.raises(MissingRecord):
        ledger.change(lambda txn: extend_list(txn, content, (use,), ()))
    with pytest.raises(MissingRecord):
        ledger.change(lambda txn: extend_list(txn, content, (), blocks[:1]))
    ledger.look(require_balanced)
    with pytest.raises(MissingRecord):
        ledger.change(lambda txn: extend_list(txn, Chunked(new_id(), 0), (), ()))


def test_a_chunk_that_is_being_reaped_is_not_shared(ledger: LedgerFixture) -> None:
    """At whatever step the collector runs, one of the two must fail."""
    step = 0
    interrupted = True
    while interrupted:
        ledger = LedgerFixture()
        blocks = [ledger.block() for _ in range(300)]
        ledger.stage(blocks)
        base = ledger.list_blocks(blocks)
        (use,) = plan(ledger, blocks, base)
        assert isinstance(use, ChunkUse)
        content = carry_out(ledger, [])
        let_go(ledger, "a", base)
        interrupted = _share_while_reaping(ledger, content, use, step)
        ledger.look(require_balanced)
        step += 1
    assert step > 3


def _share_while_reaping(ledger: LedgerFixture, content: Chunked, use: ChunkUse, step: int) -> bool:
    """Shares a chunk of a dead list that is reaped before a step of the transaction; reports
    whether there was such a step."""
    steps = 0

    def interrupt() -> None:
        nonlocal steps
        steps += 1
        if steps == step + 1:
            with suppress(Conflict):  # it runs again later
                ledger.change(lambda txn: reap_some(txn, 8))

    txn = ledger.engine.begin(interrupt)
    try:
        longer = extend_list(txn, content, (use,), ())
        txn.put(OBJECTS, ("drafted",), Object(longer, 0))
        txn.commit()
    except (Conflict, MissingRecord):
        pass  # refused, at once or after a retry
    finally:
        txn.rollback()
    return steps > step


@given(st.data())
@settings(deadline=None, max_examples=40, derandomize=True)
def test_lists_built_in_steps_equal_lists_built_at_once(data: st.DataObject) -> None:
    """The same blocks in the same chunks, with every count right at each step."""
    ledger = LedgerFixture()
    base_blocks = [ledger.block() for _ in range(data.draw(st.sampled_from([1, 130, 700])))]
    ledger.stage(base_blocks)
    base = ledger.list_blocks(base_blocks)
    waiting = staged(ledger, data.draw(st.integers(0, 4)))
    listed: list[Block] = []
    for _ in range(data.draw(st.integers(1, 4))):
        source = data.draw(st.sampled_from([base_blocks, waiting]))
        start = data.draw(st.integers(0, len(source)))
        stop = data.draw(st.integers(start, len(source)))
        listed += source if data.draw(st.booleans()) else source[start:stop]
    planned = plan(ledger, listed, base, at_a_time=data.draw(st.sampled_from([3, 128, 600])))
    assert planned == plan(ledger, listed, base)
    content = carry_out(ledger, planned)
    assert blocks_in(ledger, content) == listed
    ledger.look(require_balanced)
    lengths = [use.length for use in ledger.rows(BLOCK_LISTS)[(content.id,)].chunks]
    assert content.length == sum(lengths) == sum(block.length for block in listed)
    unstage(ledger)
    let_go(ledger, "a", base)
    ledger.reap_all()
    ledger.look(require_balanced)
    assert blocks_in(ledger, content) == listed
    let_go(ledger, "drafted", content)
    ledger.reap_all()
    ledger.look(require_empty)
    assert not ledger.rows(CHUNKS)
