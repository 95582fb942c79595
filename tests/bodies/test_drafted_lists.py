"""Lists that are put together in steps: the same chunks and counts as those made at once."""

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
    drop,
    extend_list,
    reap_some,
    release,
)
from etagere.bodies.contents import blocks_in as blocks_in_chunk
from etagere.engine.interface import Conflict, ReadTxn, WriteTxn
from etagere.model.bodies import Block, BlockList, Chunked, ChunkUse, ContentToReap, Sharers
from etagere.model.ids import new_id
from tests.bodies.objects import OBJECTS, STAGED, Object, StagedBlocks
from tests.model.accounts import require_balanced, require_empty
from tests.model.bench import Bench

Plan = list[ChunkUse | tuple[Block, ...]]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def staged(bench: Bench, count: int) -> list[Block]:
    """Blocks that somebody holds and keeps."""
    blocks = [bench.block() for _ in range(count)]
    bench.stage(blocks)
    bench.change(lambda txn: txn.put(STAGED, ("a",), StagedBlocks(tuple(blocks))))
    return blocks


def plan(
    bench: Bench, blocks: list[Block], base: Chunked | None = None, *, at_a_time: int = 50_000
) -> Plan:
    chunker = Chunker(CHUNK_PIECES_MAX)

    def look(txn: ReadTxn, _: object) -> None:
        for use in chunks_of(txn, base) if base is not None else ():
            chunker.offer(use, blocks_in_chunk(txn, use))

    bench.look(look)
    bits = [blocks[at : at + at_a_time] for at in range(0, len(blocks), at_a_time)]
    runs = [*chain.from_iterable(chunker.add(bit) for bit in bits), *chunker.finish()]
    return [run.use if isinstance(run, ReusableChunk) else tuple(run) for run in runs]


def carry_out(bench: Bench, chunks: Plan, name: str = "drafted") -> Chunked:
    """Each chunk in a transaction of its own; an object holds what is done so far."""

    def begin(txn: WriteTxn) -> Chunked:
        content = begin_list(txn, new_id())
        txn.put(OBJECTS, (name,), Object(content, 0))
        return content

    def extend(txn: WriteTxn, content: Chunked, chunk: ChunkUse | tuple[Block, ...]) -> Chunked:
        shared, blocks = ((chunk,), ()) if isinstance(chunk, ChunkUse) else ((), chunk)
        longer = extend_list(txn, content, shared, blocks)
        txn.put(OBJECTS, (name,), Object(longer, 0))
        return longer

    content = bench.change(begin)
    for chunk in chunks:
        bench.look(require_balanced)
        before, step = content, chunk
        content = bench.change(lambda txn: extend(txn, before, step))  # noqa: B023 - run at once
    return content


def blocks_in(bench: Bench, content: Chunked) -> list[Block]:
    return bench.look(lambda txn, _: list(blocks_of(txn, content)))


def let_go(bench: Bench, name: str, content: Chunked) -> None:
    def delete(txn: WriteTxn) -> None:
        txn.delete(OBJECTS, (name,))
        release(txn, content)

    bench.change(delete)


def unstage(bench: Bench) -> None:
    def remove(txn: WriteTxn) -> None:
        waiting = txn.get(STAGED, ("a",))
        txn.delete(STAGED, ("a",))
        for block in waiting.blocks if waiting else ():
            drop(txn, block.pieces)

    bench.change(remove)


# Planning


def test_a_plan_of_nothing(bench: Bench) -> None:
    assert plan(bench, []) == []


def test_new_blocks_are_cut_into_chunks(bench: Bench) -> None:
    blocks = staged(bench, 2 * CHUNK_PIECES_MAX + 3)
    chunks = plan(bench, blocks)
    assert [len(chunk) for chunk in chunks if isinstance(chunk, tuple)] == [512, 512, 3]
    assert [block for chunk in chunks for block in chunk] == blocks  # type: ignore[union-attr]


def test_chunks_of_the_base_are_shared_where_they_are_whole(bench: Bench) -> None:
    blocks = [bench.block() for _ in range(2 * CHUNK_PIECES_MAX)]
    bench.stage(blocks)
    base = bench.list_blocks(blocks)
    new = staged(bench, 1)
    first, *between, last = plan(bench, blocks[:512] + new + blocks[512:], base)
    assert first == ChunkUse(base.id, 0, 5_120)
    assert between == [tuple(new)]
    assert last == ChunkUse(base.id, 1, 5_120)
    # One that is not all there is copied.
    assert plan(bench, blocks[1:512], base) == [tuple(blocks[1:512])]
    assert plan(bench, blocks[:511], base) == [tuple(blocks[:511])]


@pytest.mark.parametrize("at_a_time", [1, 7, 127, 128, 500, 512, 513])
def test_chunks_do_not_depend_on_the_bits_a_list_comes_in(bench: Bench, at_a_time: int) -> None:
    """Whole chunks, beginnings of them that go on otherwise or end, and blocks twice."""
    blocks = [bench.block() for _ in range(2 * CHUNK_PIECES_MAX + 140)]
    bench.stage(blocks)
    base = bench.list_blocks(blocks)
    new = staged(bench, 3)
    first, second, third = blocks[:512], blocks[512:1024], blocks[1024:]
    for listed in (
        first + second + third,
        new + second + new + first + first[:100] + third + third[:1],
        first[:1] + first[:2] + first[:511] + first + first[:300] + new + first[:512],
        first[1:] + second[:511],
        new * 400 + third * 3,
        [],
    ):
        assert plan(bench, listed, base, at_a_time=at_a_time) == plan(bench, listed, base)


# Extending


def test_each_step_counts_what_it_adds(bench: Bench) -> None:
    blocks = staged(bench, 3)
    content = carry_out(bench, [(blocks[0], blocks[0]), tuple(blocks)])
    assert content.length == 50
    assert blocks_in(bench, content) == [blocks[0], blocks[0], *blocks]
    counts = [bench.rows(EXTENTS)[block.pieces[0].extent].references for block in blocks]
    assert counts == [4, 2, 2]
    bench.look(require_balanced)
    unstage(bench)
    bench.look(require_balanced)
    let_go(bench, "drafted", content)
    bench.reap_all()
    bench.look(require_empty)


def test_a_list_that_was_only_begun_goes_too(bench: Bench) -> None:
    content = carry_out(bench, [])
    assert content.length == 0
    assert bench.rows(BLOCK_LISTS) == {(content.id,): BlockList(())}
    let_go(bench, "drafted", content)
    assert bench.rows(CONTENTS_TO_REAP) == {(content.id,): ContentToReap()}
    bench.reap_all()
    bench.look(require_empty)


def test_chunks_are_shared_as_often_as_they_are_named(bench: Bench) -> None:
    blocks = [bench.block() for _ in range(300)]
    bench.stage(blocks)
    base = bench.list_blocks(blocks)
    (use,) = plan(bench, blocks, base)
    assert isinstance(use, ChunkUse)
    content = carry_out(bench, [use, use])
    assert bench.rows(CHUNK_SHARERS) == {use.key: Sharers(2)}
    assert blocks_in(bench, content) == blocks + blocks
    let_go(bench, "a", base)
    bench.reap_all()
    bench.look(require_balanced)
    assert blocks_in(bench, content) == blocks + blocks
    let_go(bench, "drafted", content)
    bench.reap_all()
    bench.look(require_empty)


def test_what_is_gone_is_not_added(bench: Bench) -> None:
    blocks = [bench.block() for _ in range(300)]
    bench.stage(blocks)
    base = bench.list_blocks(blocks)
    (use,) = plan(bench, blocks, base)
    assert isinstance(use, ChunkUse)
    let_go(bench, "a", base)
    bench.reap_all()
    content = carry_out(bench, [])
    with pytest.raises(MissingRecord):
        bench.change(lambda txn: extend_list(txn, content, (use,), ()))
    with pytest.raises(MissingRecord):
        bench.change(lambda txn: extend_list(txn, content, (), blocks[:1]))
    bench.look(require_balanced)
    with pytest.raises(MissingRecord):
        bench.change(lambda txn: extend_list(txn, Chunked(new_id(), 0), (), ()))


def test_a_chunk_that_is_taken_apart_meanwhile_is_not_shared(bench: Bench) -> None:
    """At whatever point the collector comes: one of the two has to give way."""
    step = 0
    interrupted = True
    while interrupted:
        bench = Bench()
        blocks = [bench.block() for _ in range(300)]
        bench.stage(blocks)
        base = bench.list_blocks(blocks)
        (use,) = plan(bench, blocks, base)
        assert isinstance(use, ChunkUse)
        content = carry_out(bench, [])
        let_go(bench, "a", base)
        interrupted = _share_while_reaping(bench, content, use, step)
        bench.look(require_balanced)
        step += 1
    assert step > 3


def _share_while_reaping(bench: Bench, content: Chunked, use: ChunkUse, step: int) -> bool:
    """Shares a chunk of a dying list, which is reaped before the given step of the transaction;
    says whether there was such a step."""
    steps = 0

    def interrupt() -> None:
        nonlocal steps
        steps += 1
        if steps == step + 1:
            with suppress(Conflict):  # it comes again later
                bench.change(lambda txn: reap_some(txn, 8))

    txn = bench.engine.begin(interrupt)
    try:
        longer = extend_list(txn, content, (use,), ())
        txn.put(OBJECTS, ("drafted",), Object(longer, 0))
        txn.commit()
    except (Conflict, MissingRecord):
        pass  # refused, or run again and then refused
    finally:
        txn.rollback()
    return steps > step


@given(st.data())
@settings(deadline=None, max_examples=40, derandomize=True)
def test_any_list_in_steps_is_the_one_made_at_once(data: st.DataObject) -> None:
    """The same blocks in the same chunks, and every count right on the way."""
    bench = Bench()
    base_blocks = [bench.block() for _ in range(data.draw(st.sampled_from([1, 130, 700])))]
    bench.stage(base_blocks)
    base = bench.list_blocks(base_blocks)
    waiting = staged(bench, data.draw(st.integers(0, 4)))
    listed: list[Block] = []
    for _ in range(data.draw(st.integers(1, 4))):
        source = data.draw(st.sampled_from([base_blocks, waiting]))
        start = data.draw(st.integers(0, len(source)))
        stop = data.draw(st.integers(start, len(source)))
        listed += source if data.draw(st.booleans()) else source[start:stop]
    planned = plan(bench, listed, base, at_a_time=data.draw(st.sampled_from([3, 128, 600])))
    assert planned == plan(bench, listed, base)
    content = carry_out(bench, planned)
    assert blocks_in(bench, content) == listed
    bench.look(require_balanced)
    lengths = [use.length for use in bench.rows(BLOCK_LISTS)[(content.id,)].chunks]
    assert content.length == sum(lengths) == sum(block.length for block in listed)
    unstage(bench)
    let_go(bench, "a", base)
    bench.reap_all()
    bench.look(require_balanced)
    assert blocks_in(bench, content) == listed
    let_go(bench, "drafted", content)
    bench.reap_all()
    bench.look(require_empty)
    assert not bench.rows(CHUNKS)
