"""Interval maps step by step: what a step costs, what it guards, how deep and wide it may go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from etagere.bodies import intervals
from etagere.bodies.contents import (
    EXTENTS,
    Hole,
    MissingRecord,
    SegmentRange,
    is_long,
    locate,
    refer,
    share,
)
from etagere.bodies.maps import (
    FORMER_INTERVALS,
    GENERATIONS,
    INTERVAL_MAPS,
    INTERVALS,
    MAPS_TO_FLATTEN,
    MAPS_TO_REAP,
)
from etagere.bodies.reaping import Flatten, flatten, reap_intervals
from etagere.engine.interface import T, WriteTxn
from etagere.engine.records import Collection, K, R, Span
from etagere.model.bodies import Mapped, Piece
from etagere.model.ids import new_id
from tests.model.bench import Bench, CountingTxn

TIB = 1 << 40
EVERYTHING = (
    INTERVAL_MAPS,
    INTERVALS,
    FORMER_INTERVALS,
    GENERATIONS,
    MAPS_TO_REAP,
    MAPS_TO_FLATTEN,
    EXTENTS,
)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def begin(bench: Bench, length: int) -> Mapped:
    return bench.change(lambda txn: intervals.begin(txn, new_id(), length))


def write(bench: Bench, content: Mapped, offset: int, *lengths: int) -> Mapped:
    pieces = [bench.piece(length) for length in lengths]
    return bench.change(lambda txn: intervals.write(txn, content, offset, pieces, new_id()))


def clear(bench: Bench, content: Mapped, start: int, end: int) -> Mapped:
    return bench.change(lambda txn: intervals.clear(txn, content, start, end, new_id()))


def copy(bench: Bench, content: Mapped) -> Mapped:
    bench.change(lambda txn: share(txn, content))
    return content


def ranges(bench: Bench, content: Mapped, limit: int = 100) -> list[tuple[int, int]]:
    return bench.look(lambda txn, _: intervals.ranges(txn, content, 0, content.length, limit))


def finish(bench: Bench) -> int:
    """Copies and reaps until nothing is left to do; returns how many steps it took."""
    steps = 0
    while bench.change(lambda txn: flatten(txn, Flatten()) or reap_intervals(txn, 100)):
        steps += 1
    return steps


# Costs


class WeighingTxn(CountingTxn):
    """Counts what is read as well."""

    def __init__(self, beneath: WriteTxn) -> None:
        super().__init__(beneath)
        self.calls = 0
        self.rows_read = 0

    def get(self, collection: Collection[K, R], key: K, guard: Any = None) -> R | None:
        self.calls += 1
        return super().get(collection, key, guard)

    def scan(
        self,
        collection: Collection[K, R],
        span: Span,
        limit: int,
        *,
        reverse: bool = False,
        claim: bool = False,
    ) -> list[tuple[K, R]]:
        self.calls += 1
        found = super().scan(collection, span, limit, reverse=reverse, claim=claim)
        self.rows_read += len(found)
        return found

    def weight(self) -> tuple[int, int, Counter[str], Counter[str]]:
        return self.calls, self.rows_read, self.puts, self.deletes


def weigh(
    bench: Bench, work: Callable[[WriteTxn], T]
) -> tuple[T, tuple[int, int, Counter[str], Counter[str]]]:
    weighed: list[WeighingTxn] = []

    def weighing(txn: WriteTxn) -> T:
        weighed.append(WeighingTxn(txn))
        return work(weighed[0])

    return bench.change(weighing), weighed[0].weight()


def test_an_append_writes_one_interval_and_its_extent(bench: Bench) -> None:
    content = write(bench, begin(bench, 0), 0, 10)
    piece = bench.piece(10)
    content, (calls, _, puts, deletes) = weigh(
        bench, lambda txn: intervals.append(txn, content, [piece], new_id())
    )
    assert content.length == 20
    assert puts == {"intervals": 1, "extents": 1}
    assert not deletes
    assert calls <= 5


def weights(rows: int, formers: int) -> list[Any]:
    """What steps in the middle of a map with so many rows cost, behind so many former ones."""
    bench = Bench()
    content = write(bench, begin(bench, 0), 0, *[10] * rows)
    middle = rows // 2 * 10
    if formers:
        copy(bench, content)
        for at in range(0, formers, 20):
            content = write(bench, content, at * 10, *[10] * 20)
        assert len(bench.rows(FORMER_INTERVALS)) == formers
    found = []
    for shared in (False, True):
        if shared:
            copy(bench, content)
        steps: tuple[Callable[..., Mapped], ...] = (
            partial(intervals.write, offset=middle, pieces=[bench.piece(10)]),
            partial(intervals.write, offset=middle + 5, pieces=[bench.piece(25)]),
            partial(intervals.clear, start=middle + 33, end=middle + 38),
        )
        for step in steps:
            content, weight = weigh(bench, partial(step, content=content, child_id=new_id()))
            found.append(weight)
        looks: tuple[Callable[..., object], ...] = (
            partial(locate, start=middle + 7, length=9),
            partial(intervals.ranges, start=middle, end=middle + 100, limit=3),
        )
        found += [weigh(bench, partial(look, content=content))[1] for look in looks]
    return found


def test_steps_cost_the_same_in_a_map_of_any_size() -> None:
    few, many = weights(40, 0), weights(20_000, 0)
    assert few == many


def test_a_long_history_costs_nothing() -> None:
    assert weights(2_000, 40) == weights(2_000, 900)


def test_ranges_read_no_further_than_they_have_to(bench: Bench) -> None:
    content = begin(bench, 100_000)
    for at in range(0, 20_000, 20):
        content = write(bench, content, at, 10)
    found, (_, rows_read, _, _) = weigh(
        bench, lambda txn: intervals.ranges(txn, content, 0, content.length, 3)
    )
    assert found == [(0, 10), (20, 30), (40, 50), (60, 70)]
    assert rows_read < 50


# Much at once


def test_clearing_many_intervals_takes_few_steps_now_and_the_rest_later(bench: Bench) -> None:
    content = write(bench, begin(bench, 0), 0, *[10] * 2_000)
    cleared, (_, _, puts, deletes) = weigh(
        bench, lambda txn: intervals.clear(txn, content, 5, 19_995, new_id())
    )
    assert sum(puts.values()) < 10
    assert not deletes
    assert ranges(bench, cleared) == [(0, 5), (19_995, 20_000)]
    assert finish(bench) > 10
    assert ranges(bench, cleared) == [(0, 5), (19_995, 20_000)]
    assert len(bench.rows(EXTENTS)) == 2
    assert len(bench.rows(INTERVAL_MAPS)) == 1
    assert bench.rows(INTERVAL_MAPS)[cleared.id,].base is None


def test_every_step_of_reaping_and_flattening_is_bounded(bench: Bench) -> None:
    content = write(bench, begin(bench, 0), 0, *[10] * 2_000)
    fork = copy(bench, content)
    content = write(bench, content, 0, 10)
    fork = write(bench, fork, 10, 10)
    while True:
        done, (_, _, puts, _) = weigh(bench, lambda txn: flatten(txn, Flatten(50)))
        if not done:
            break
        assert sum(puts.values()) <= 2 * 50 + 3
    for held in (content, fork):
        bench.release(held)
    while True:
        done, (_, _, puts, deletes) = weigh(bench, lambda txn: reap_intervals(txn, 50))
        if not done:
            break
        assert sum(puts.values()) + sum(deletes.values()) <= 3 * 50 + 5
    assert not any(bench.rows(collection) for collection in EVERYTHING)


# Children


def fork(bench: Bench, content: Mapped, offset: int) -> Mapped:
    """Goes on from a content that somebody else has gone on from."""
    other = copy(bench, content)
    write(bench, content, offset, 10)
    child = write(bench, other, offset + 10, 10)
    assert child.id != content.id
    return child


def test_children_of_children_show_all_their_bases(bench: Bench) -> None:
    """More of them than there could be frames on a stack."""
    depth = 1_100
    content = write(bench, begin(bench, 0), 0, *[10] * 3)
    for level in range(depth):
        content = fork(bench, content, 30 + 20 * level)
    found = ranges(bench, content, 2 * depth)
    assert found == [(0, 30), *((40 + 20 * level, 50 + 20 * level) for level in range(depth))]
    assert len(bench.segment_ranges(content, 0, 30)) == 3


def test_flattened_children_let_their_bases_go(bench: Bench) -> None:
    first = write(bench, begin(bench, 0), 0, *[10] * 3)
    content = first
    for level in range(20):
        content = fork(bench, content, 30 + 20 * level)
    before = bench.segment_ranges(content)
    finish(bench)
    assert bench.segment_ranges(content) == before
    assert {record.base for record in bench.rows(INTERVAL_MAPS).values()} == {None}


def test_a_child_shows_what_its_base_showed_when_it_began(bench: Bench) -> None:
    content = write(bench, begin(bench, 100), 0, 50)
    old = bench.segment_ranges(content)
    kept = copy(bench, content)
    content = clear(bench, content, 0, 100)
    child = clear(bench, kept, 60, 70)
    assert bench.segment_ranges(child) == old
    assert bench.plan(content) == (Hole(100),)
    shorter = bench.change(lambda txn: intervals.resize(txn, child, 20, new_id()))
    longer = bench.change(lambda txn: intervals.resize(txn, shorter, 100, new_id()))
    assert longer.id == child.id
    assert bench.plan(longer) == (old[0]._replace(length=20), Hole(80))


# Holes and pieces


def test_a_hole_of_any_length_is_one_entry(bench: Bench) -> None:
    content = begin(bench, 8 * TIB)
    assert bench.plan(content) == (Hole(8 * TIB),)
    assert bench.plan(content, 5, 10) == (Hole(10),)
    content = write(bench, content, 4 * TIB, 512)
    (segment_range,) = bench.segment_ranges(content, 4 * TIB, 512)
    assert bench.plan(content) == (Hole(4 * TIB), segment_range, Hole(4 * TIB - 512))
    assert not bench.look(is_long, content)


def test_checksums_are_known_of_whole_pieces_only(bench: Bench) -> None:
    piece = bench.piece(100)
    piece = Piece(piece.segment, piece.offset, 100, 777)
    content = begin(bench, 100)
    content = bench.change(lambda txn: intervals.write(txn, content, 0, [piece], new_id()))
    (whole,) = bench.segment_ranges(content)
    assert whole == SegmentRange(piece.segment, piece.offset, 100, 777)
    (part,) = bench.segment_ranges(content, 10, 20)
    assert part == SegmentRange(piece.segment, piece.offset + 10, 20, None)
    content = clear(bench, content, 40, 60)
    left, right = bench.segment_ranges(content)
    assert left == SegmentRange(piece.segment, piece.offset, 40, None)
    assert right == SegmentRange(piece.segment, piece.offset + 60, 40, None)
    assert bench.rows(EXTENTS)[piece.extent].references == 2


def test_a_content_of_many_parts_is_long(bench: Bench) -> None:
    content = write(bench, begin(bench, 0), 0, *[10] * 400)
    assert bench.look(is_long, content)
    assert not bench.look(lambda txn, _: is_long(txn, content, 100, 500))


def test_what_is_laid_must_be_alive(bench: Bench) -> None:
    content = begin(bench, 100)
    with pytest.raises(MissingRecord):
        bench.change(lambda txn: intervals.write_shared(txn, content, 0, [bench.piece()], new_id()))
    assert ranges(bench, content) == []


# Comparing


def test_contents_of_other_families_are_not_compared(bench: Bench) -> None:
    one, other = write(bench, begin(bench, 50), 0, 10), begin(bench, 50)
    compare = intervals.changes
    assert bench.look(lambda txn, _: compare(txn, one, other, 0, 50, 9)) is None
    kept = copy(bench, one)
    child = fork(bench, kept, 20)
    assert bench.look(lambda txn, _: compare(txn, kept, child, 0, 50, 9)) == [(30, 40, True)]
    assert bench.look(lambda txn, _: compare(txn, child, kept, 0, 50, 9)) == [(30, 40, False)]
    finish(bench)
    assert bench.look(lambda txn, _: compare(txn, kept, child, 0, 50, 9)) == [(30, 40, True)]


def test_one_more_than_the_limit_is_shown(bench: Bench) -> None:
    old = copy(bench, begin(bench, 1_000))
    new = old
    for at in range(0, 200, 20):
        new = write(bench, new, at, 10)
    find = intervals.changes
    found = bench.look(lambda txn, _: find(txn, old, new, 0, 1_000, 2))
    assert found == [(0, 10, True), (20, 30, True), (40, 50, True)]
    assert bench.look(lambda txn, _: find(txn, old, new, 25, 45, 9)) == [
        (25, 30, True),
        (40, 45, True),
    ]


# Letting go


def test_a_generation_that_goes_while_the_map_is_searched_is_searched_for_again(
    bench: Bench,
) -> None:
    content = write(bench, begin(bench, 0), 0, *[10] * 20)
    olders = []
    for _ in range(3):
        olders.append(copy(bench, content))
        for at in range(0, 200, 10):
            content = write(bench, content, at, 10)
    bench.release(olders[0])
    bench.change(lambda txn: reap_intervals(txn, 15))
    bench.release(olders[1])
    finish(bench)
    assert len(bench.rows(FORMER_INTERVALS)) == 20
    assert len(bench.rows(EXTENTS)) == 40
    bench.release(olders[2])
    bench.release(content)
    finish(bench)
    assert not any(bench.rows(collection) for collection in EVERYTHING)


def test_a_damaged_map_can_still_be_let_go_of(bench: Bench) -> None:
    content = write(bench, begin(bench, 100), 0, 50)
    bench.change(lambda txn: txn.delete(INTERVAL_MAPS, (content.id,)))
    with pytest.raises(MissingRecord):
        bench.change(lambda txn: intervals.clear(txn, content, 0, 10, new_id()))
    bench.release(content)
    finish(bench)
    assert not any(bench.rows(collection) for collection in EVERYTHING)
    bench.release(content)
    with pytest.raises(MissingRecord):
        bench.change(lambda txn: refer(txn, Piece(1, 0, 50)))
