"""Sealing segments: what no extent covers is dead, however many steps it takes to find out."""

from __future__ import annotations

import asyncio
import itertools
import random
from functools import partial

import msgspec
import pytest

from etagere.bodies.contents import (
    DEAD,
    DEAD_TOTALS,
    EXTENTS,
    SEGMENTS,
    MissingRecord,
    hold,
)
from etagere.bodies.segments import (
    SealSegment,
    SegmentNumber,
    forget_segment,
    seal,
    seal_segment,
)
from etagere.engine.interface import ReadTxn
from etagere.engine.memory import MemoryEngine
from etagere.model.bodies import Dead, Extent, Piece, Segment, SegmentState
from etagere.model.ids import new_id
from tests.model.bench import Bench

NUMBER, OTHER = 7, 8
LENGTH = 1_000

Runs = list[tuple[int, int]]


def laid(dice: random.Random) -> tuple[Runs, Runs, Runs]:
    """Live extents, dead ones, and the gaps between them."""
    kinds: tuple[Runs, Runs, Runs] = ([], [], [])
    at = 0
    last = 0
    while at < LENGTH:
        length = min(dice.randrange(1, 40), LENGTH - at)
        # Two gaps side by side would be one.
        last = dice.choice([kind for kind in (0, 0, 1, 2) if kind != 2 or last != 2])
        kinds[last].append((at, length))
        at += length
    return kinds


def bench_with(live: Runs, dead: Runs) -> Bench:
    bench = Bench()
    txn = bench.engine.begin()
    for number in (NUMBER, OTHER):
        txn.put(SEGMENTS, (number,), Segment(new_id()))
        for at, length in live:
            txn.put(EXTENTS, (number, at), Extent(length, 1))
        for at, length in dead:
            txn.put(DEAD, (number, at), Dead(length))
    txn.commit()
    return bench


def dead_rows(bench: Bench, number: int) -> Runs:
    return sorted((at, row.length) for (of, at), row in bench.rows(DEAD).items() if of == number)


def one_step(bench: Bench, command: SealSegment) -> int | None:
    return bench.change(lambda txn: seal_segment(txn, command))


def take_steps(bench: Bench, rows_max: int, length: int = LENGTH) -> int:
    steps, start = 0, 0
    while True:
        command = SealSegment(NUMBER, length, start, rows_max)
        steps += 1
        following = one_step(bench, command)
        if following is None:
            return steps
        assert bench.rows(SEGMENTS)[NUMBER,].state is SegmentState.OPEN
        assert following > start
        start = following


@pytest.mark.parametrize("rows_max", [1, 2, 3, 7, 1_000])
@pytest.mark.parametrize("seed", range(8))
def test_gaps_become_dead_in_any_steps(seed: int, rows_max: int) -> None:
    live, dead, gaps = laid(random.Random(seed))
    bench = bench_with(live, dead)
    steps = take_steps(bench, rows_max)
    assert dead_rows(bench, NUMBER) == sorted(dead + gaps)
    assert dead_rows(bench, OTHER) == sorted(dead)
    segment = bench.rows(SEGMENTS)[NUMBER,]
    assert (segment.state, segment.length) == (SegmentState.SEALED, LENGTH)
    assert (steps == 1) == (rows_max == 1_000)


@pytest.mark.parametrize("seed", range(8))
def test_what_dies_between_the_steps_is_dead_once(seed: int) -> None:
    dice = random.Random(seed)
    live, dead, gaps = laid(dice)
    bench = bench_with(live, dead)
    start: int | None = 0
    while start is not None:
        command = SealSegment(NUMBER, LENGTH, start, 2)
        start = one_step(bench, command)
        if live:
            at, length = live.pop(dice.randrange(len(live)))
            dead.append((at, length))
            txn = bench.engine.begin()
            txn.delete(EXTENTS, (NUMBER, at))
            txn.put(DEAD, (NUMBER, at), Dead(length))
            txn.commit()
    assert dead_rows(bench, NUMBER) == sorted(dead + gaps)


def test_begun_anew_it_ends_the_same() -> None:
    live, dead, gaps = laid(random.Random(3))
    bench = bench_with(live, dead)
    for _ in range(2):
        one_step(bench, SealSegment(NUMBER, LENGTH, 0, 3))
    take_steps(bench, 3)
    assert dead_rows(bench, NUMBER) == sorted(dead + gaps)


def test_what_is_sealed_stays_as_it_is() -> None:
    bench = bench_with([(0, 10)], [])
    assert take_steps(bench, 5, 10) == 1
    assert take_steps(bench, 5, 50) == 1
    assert dead_rows(bench, NUMBER) == []
    assert bench.rows(SEGMENTS)[NUMBER,].length == 10


def full_of_holes() -> MemoryEngine:
    """A segment of 5,000 bytes, every other one of which is alive."""
    engine = MemoryEngine()
    txn = engine.begin()
    txn.put(SEGMENTS, (NUMBER,), Segment(new_id()))
    for at in range(0, 5_000, 2):
        txn.put(EXTENTS, (NUMBER, at), Extent(1, 1))
    txn.commit()
    return engine


def test_all_of_the_steps() -> None:
    async def scenario() -> None:
        engine = full_of_holes()
        await seal(engine, NUMBER, 5_000)
        txn = engine.begin()
        assert len(txn.scan(DEAD, DEAD.all(), 10_000)) == 2_500

    asyncio.run(scenario())


def test_what_is_dead_is_counted_at_every_step() -> None:
    """Sealing counts it, forgetting a segment uncounts it: a check in between finds no fault."""

    async def scenario() -> None:
        engine = full_of_holes()

        def look(txn: ReadTxn, _: None) -> tuple[int, int]:
            rows = txn.scan(DEAD, DEAD.all(), 10_000)
            total = txn.get(DEAD_TOTALS, (NUMBER,))
            return sum(dead.length for _, dead in rows), total.length if total else 0

        start: int | None = 0
        while start is not None:
            start = await engine.write(seal_segment, SealSegment(NUMBER, 5_000, start, 100))
            dead, total = await engine.read(look, None)
            assert dead == total > 0
        assert await engine.read(look, None) == (2_500, 2_500)
        steps = 1
        while not await engine.write(forget_segment, SegmentNumber(NUMBER)):
            dead, total = await engine.read(look, None)
            assert dead == total
            steps += 1
        assert await engine.read(look, None) == (0, 0)
        assert steps > 5

    asyncio.run(scenario())


@pytest.mark.parametrize("seed", range(8))
def test_what_arrives_between_the_steps_is_refused(seed: int) -> None:
    """The command of a process that died may be run after the first steps: its bytes were counted
    as dead. Were they to live, they would be counted again when they die."""
    live, dead, gaps = laid(random.Random(seed))
    bench = bench_with(live, dead)
    start: int | None = 0
    late = iter(gaps)
    while start is not None:
        start = one_step(bench, SealSegment(NUMBER, LENGTH, start, 2))
        for at, length in itertools.islice(late, 1):
            with pytest.raises(MissingRecord):
                bench.change(partial(hold, pieces=[Piece(NUMBER, at, length, 1)]))
    assert dead_rows(bench, NUMBER) == sorted(dead + gaps)
    total = bench.rows(DEAD_TOTALS)[NUMBER,].length
    assert total == sum(length for _, length in gaps)
    assert {at for of, at in bench.rows(EXTENTS) if of == NUMBER} == {at for at, _ in live}


def test_segments_of_older_versions_are_open_until_they_are_sealed() -> None:
    """Their records end before the field that says that sealing has begun."""
    owner = new_id()
    older = msgspec.msgpack.encode([1, owner, "open", 0])
    assert SEGMENTS.decode(older) == Segment(owner)
    assert not SEGMENTS.decode(older).closed
