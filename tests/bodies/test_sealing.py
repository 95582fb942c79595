"""Counting dead bytes: when a segment is sealed and afterwards, in any number of steps."""

from __future__ import annotations

import asyncio
import itertools
import random
from functools import partial
from typing import Any

import msgspec
import pytest

from etagere.bodies.contents import (
    COUNTED_DEAD,
    DEAD_TOTALS,
    EXTENTS,
    SEGMENTS,
    UNCOUNTED_DEAD,
    MissingRecord,
    create_extents,
    drop_references,
)
from etagere.bodies.segments import (
    CountDead,
    SealSegment,
    SegmentNumber,
    count_dead,
    forget_segment,
    seal,
    seal_segment,
)
from etagere.engine.interface import ReadTxn
from etagere.engine.memory import MemoryEngine
from etagere.model.bodies import DeadExtent, DeadTotal, Extent, Piece, Segment, SegmentState
from etagere.model.ids import new_id
from tests.model.ledger_fixture import LedgerFixture

NUMBER, OTHER = 7, 8
LENGTH = 1_000

Runs = list[tuple[int, int]]


def layouts(dice: random.Random) -> tuple[Runs, Runs, Runs]:
    """Generates live extents, dead ones and gaps between them."""
    kinds: tuple[Runs, Runs, Runs] = ([], [], [])
    at = 0
    last = 0
    while at < LENGTH:
        length = min(dice.randrange(1, 40), LENGTH - at)
        # Two adjacent gaps would be one.
        last = dice.choice([kind for kind in (0, 0, 1, 2) if kind != 2 or last != 2])
        kinds[last].append((at, length))
        at += length
    return kinds


def ledger_with(live: Runs, dead: Runs, counted: Runs = []) -> LedgerFixture:  # noqa: B006
    """Returns a ledger with two open segments. `counted` are dead extents of schema 1, which are in
    the totals."""
    ledger = LedgerFixture()
    txn = ledger.engine.begin()
    for number in (NUMBER, OTHER):
        txn.put(SEGMENTS, (number,), Segment(new_id()))
        for at, length in live:
            txn.put(EXTENTS, (number, at), Extent(length, 1))
        for at, length in dead:
            txn.put(UNCOUNTED_DEAD, (number, at), DeadExtent(length))
        for at, length in counted:
            txn.put(COUNTED_DEAD, (number, at), DeadExtent(length))
        if counted:
            txn.put(DEAD_TOTALS, (number,), DeadTotal(bytes_of(counted)))
    txn.commit()
    return ledger


def bytes_of(runs: Runs) -> int:
    return sum(length for _, length in runs)


def uncounted(ledger: LedgerFixture, number: int) -> Runs:
    rows = ledger.rows(UNCOUNTED_DEAD).items()
    return sorted((at, row.length) for (of, at), row in rows if of == number)


def total(ledger: LedgerFixture, number: int = NUMBER) -> int:
    totals = ledger.rows(DEAD_TOTALS)
    return totals[number,].length if (number,) in totals else 0


def kill(ledger: LedgerFixture, at: int, length: int) -> None:
    ledger.change(partial(drop_references, pieces=[Piece(NUMBER, at, length, 1)]))


def one_step(ledger: LedgerFixture, rows_max: int, length: int = LENGTH) -> bool:
    return ledger.change(lambda txn: seal_segment(txn, SealSegment(NUMBER, length, rows_max)))


def take_steps(ledger: LedgerFixture, rows_max: int, length: int = LENGTH) -> int:
    steps, before = 1, -1
    while not one_step(ledger, rows_max, length):
        segment = ledger.rows(SEGMENTS)[NUMBER,]
        assert segment.state is SegmentState.OPEN and segment.closed
        assert segment.counted_to > before
        steps, before = steps + 1, segment.counted_to
    return steps


def count_all(ledger: LedgerFixture, rows_max: int = 3) -> int:
    steps = 1
    command = CountDead((NUMBER, OTHER, 99), rows_max)
    while ledger.change(lambda txn: count_dead(txn, command)):
        steps += 1
    return steps


@pytest.mark.parametrize("rows_max", [1, 2, 3, 7, 1_000])
@pytest.mark.parametrize("seed", range(8))
def test_all_dead_bytes_are_counted_in_any_number_of_steps(seed: int, rows_max: int) -> None:
    live, dead, gaps = layouts(random.Random(seed))
    ledger = ledger_with(live, dead)
    steps = take_steps(ledger, rows_max)
    assert total(ledger) == bytes_of(dead + gaps)
    assert uncounted(ledger, NUMBER) == []
    assert (total(ledger, OTHER), uncounted(ledger, OTHER)) == (0, sorted(dead))
    segment = ledger.rows(SEGMENTS)[NUMBER,]
    assert (segment.state, segment.length) == (SegmentState.SEALED, LENGTH)
    assert (steps == 1) == (rows_max == 1_000)


@pytest.mark.parametrize("rows_max", [1, 3, 1_000])
@pytest.mark.parametrize("seed", range(4))
def test_bytes_counted_by_schema_1_are_not_counted_again(seed: int, rows_max: int) -> None:
    live, dead, gaps = layouts(random.Random(seed))
    ledger = ledger_with(live, dead[::2], dead[1::2])
    take_steps(ledger, rows_max)
    assert total(ledger) == bytes_of(dead + gaps)


@pytest.mark.parametrize("rows_max", [1, 3, 1_000])
@pytest.mark.parametrize("seed", range(4))
def test_space_between_objects_is_not_dead(seed: int, rows_max: int) -> None:
    """In an object store, the upper half of an offset is the number of an object."""
    live, dead, gaps = layouts(random.Random(seed))

    def spread(runs: Runs) -> Runs:
        return [(at // 100 << 32 | at % 100, length) for at, length in runs]

    ledger = ledger_with(spread(live), spread(dead))
    take_steps(ledger, rows_max)
    assert total(ledger) == bytes_of(dead + gaps)
    assert ledger.rows(SEGMENTS)[NUMBER,].length == LENGTH


@pytest.mark.parametrize("rows_max", [1, 2, 1_000])
def test_sealing_goes_on_where_an_earlier_version_stopped(rows_max: int) -> None:
    """Earlier versions counted the bytes between extents in each step."""
    ledger = ledger_with([(10, 20), (50, 10), (100, 50)], [(70, 5)])
    txn = ledger.engine.begin()
    half_sealed = Segment(new_id(), closed=True, counted_to=60)
    txn.put(SEGMENTS, (NUMBER,), half_sealed)
    txn.put(DEAD_TOTALS, (NUMBER,), DeadTotal(30))
    txn.commit()
    take_steps(ledger, rows_max)
    assert total(ledger) == LENGTH - 20 - 10 - 50


@pytest.mark.parametrize("rows_max", [2, 5])
@pytest.mark.parametrize("seed", range(8))
def test_extents_released_between_steps_are_counted_once(seed: int, rows_max: int) -> None:
    dice = random.Random(seed)
    live, dead, gaps = layouts(dice)
    ledger = ledger_with(live, dead)
    sealed = False
    while not sealed:
        sealed = one_step(ledger, rows_max)
        if live:
            run = live.pop(dice.randrange(len(live)))
            dead.append(run)
            kill(ledger, *run)
        count_all(ledger)
    count_all(ledger)
    assert uncounted(ledger, NUMBER) == []
    assert total(ledger) == bytes_of(dead + gaps)


@pytest.mark.parametrize("seed", range(8))
def test_extents_released_during_a_step_are_counted_once(seed: int) -> None:
    """An extent may die after the step has read the live ones and before it reads the dead ones,
    where transactions see what others commit meanwhile."""
    dice = random.Random(seed)
    live, dead, gaps = layouts(dice)
    ledger = ledger_with(live, dead)
    at, length = dice.choice(live)
    txn = ledger.engine.begin()
    scan, scans = txn.scan, itertools.count()

    def scan_late(*arguments: Any, **options: Any) -> Any:
        if next(scans) == 1:
            kill(ledger, at, length)
        return scan(*arguments, **options)

    txn.scan = scan_late  # type: ignore[method-assign]
    assert seal_segment(txn, SealSegment(NUMBER, LENGTH, 1_000))
    txn.commit()
    count_all(ledger)
    assert total(ledger) == bytes_of([*dead, *gaps, (at, length)])


def test_releases_in_sealed_segments_are_counted_in_steps() -> None:
    live, dead, gaps = layouts(random.Random(3))
    ledger = ledger_with(live, dead)
    take_steps(ledger, 1_000)
    for run in live[:7]:
        kill(ledger, *run)
    assert total(ledger) == bytes_of(dead + gaps)
    assert count_all(ledger, 3) == 3
    assert total(ledger) == bytes_of(dead + gaps + live[:7])
    # The other segment is open: its dead bytes are counted when it is sealed.
    assert uncounted(ledger, OTHER) == sorted(dead)
    assert count_all(ledger, 3) == 1


def test_releases_of_one_segment_lock_nothing_in_common() -> None:
    """With this engine, a row that another transaction has locked is a conflict at once."""
    live, dead, _ = layouts(random.Random(5))
    ledger = ledger_with(live, dead)
    transactions = []
    for at, length in live:
        txn = ledger.engine.begin()
        drop_references(txn, [Piece(NUMBER, at, length, 1)])
        transactions.append(txn)
    for txn in transactions:
        txn.commit()
    assert uncounted(ledger, NUMBER) == sorted(live + dead)


def test_sealing_is_idempotent() -> None:
    ledger = ledger_with([(0, 10)], [])
    assert take_steps(ledger, 5, 10) == 1
    assert take_steps(ledger, 5, 50) == 1
    assert total(ledger) == 0
    assert ledger.rows(SEGMENTS)[NUMBER,].length == 10


def full_of_holes() -> MemoryEngine:
    """Returns a segment of 5,000 bytes of which every other one is alive."""
    engine = MemoryEngine()
    txn = engine.begin()
    txn.put(SEGMENTS, (NUMBER,), Segment(new_id()))
    for at in range(0, 5_000, 2):
        txn.put(EXTENTS, (NUMBER, at), Extent(1, 1))
    txn.commit()
    return engine


def test_a_large_segment_is_sealed_counted_and_forgotten_in_steps() -> None:
    async def scenario() -> None:
        engine = full_of_holes()
        await seal(engine, NUMBER, 5_000)

        def look(txn: ReadTxn, _: None) -> tuple[int, int]:
            rows = txn.scan(UNCOUNTED_DEAD, UNCOUNTED_DEAD.all(), 10_000)
            total = txn.get(DEAD_TOTALS, (NUMBER,))
            return len(rows), total.length if total else 0

        assert await engine.read(look, None) == (0, 2_500)
        txn = engine.begin()
        drop_references(txn, [Piece(NUMBER, at, 1, 1) for at in range(0, 5_000, 2)])
        txn.commit()
        assert await engine.read(look, None) == (2_500, 2_500)
        steps = 0
        while not await engine.write(forget_segment, SegmentNumber(NUMBER)):
            steps += 1
        assert await engine.read(look, None) == (0, 0)
        assert steps > 5

    asyncio.run(scenario())


@pytest.mark.parametrize("seed", range(8))
def test_late_adoptions_between_the_steps_are_refused(seed: int) -> None:
    """The command of a process that died may run after the first steps, which counted its bytes as
    dead. If they became live, they would be counted again when released."""
    live, dead, gaps = layouts(random.Random(seed))
    ledger = ledger_with(live, dead)
    late = iter(gaps)
    sealed = False
    while not sealed:
        sealed = one_step(ledger, 2)
        for at, length in itertools.islice(late, 1):
            with pytest.raises(MissingRecord):
                ledger.change(partial(create_extents, pieces=[Piece(NUMBER, at, length, 1)]))
    assert total(ledger) == bytes_of(dead + gaps)
    assert {at for of, at in ledger.rows(EXTENTS) if of == NUMBER} == {at for at, _ in live}


def test_segments_of_older_versions_are_open_until_they_are_sealed() -> None:
    """Their records lack the field for sealing in progress."""
    owner = new_id()
    older = msgspec.msgpack.encode([1, owner, "open", 0])
    assert SEGMENTS.decode(older) == Segment(owner)
    assert not SEGMENTS.decode(older).closed
