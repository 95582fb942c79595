"""Interval maps in single steps: cost, guards, depth and width."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from etagere.bodies import intervals
from etagere.bodies.contents import EXTENTS, MissingRecord, add_reference, share
from etagere.bodies.maps import (
    FORMER_INTERVALS,
    GENERATIONS,
    INTERVAL_MAPS,
    INTERVALS,
    MAPS_TO_FLATTEN,
    MAPS_TO_REAP,
)
from etagere.bodies.plans import Hole, SegmentRange, locate, try_locate
from etagere.bodies.reaping import Flatten, flatten, reap_intervals
from etagere.engine.interface import T, WriteTxn
from etagere.engine.records import Collection, K, R, Span
from etagere.model.bodies import Mapped, Piece
from etagere.model.ids import new_id
from tests.model.ledger_fixture import CountingTxn, LedgerFixture

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
def ledger() -> LedgerFixture:
    return LedgerFixture()


def begin(ledger: LedgerFixture, length: int) -> Mapped:
    return ledger.change(lambda txn: intervals.begin(txn, new_id(), length))


def write(ledger: LedgerFixture, content: Mapped, offset: int, *lengths: int) -> Mapped:
    pieces = [ledger.piece(length) for length in lengths]
    return ledger.change(lambda txn: intervals.write(txn, content, offset, pieces, new_id()))


def clear(ledger: LedgerFixture, content: Mapped, start: int, end: int) -> Mapped:
    return ledger.change(lambda txn: intervals.clear(txn, content, start, end, new_id()))


def copy(ledger: LedgerFixture, content: Mapped) -> Mapped:
    ledger.change(lambda txn: share(txn, content))
    return content


def ranges(ledger: LedgerFixture, content: Mapped, limit: int = 100) -> list[tuple[int, int]]:
    return ledger.look(lambda txn, _: intervals.ranges(txn, content, 0, content.length, limit))


def finish(ledger: LedgerFixture) -> int:
    """Flattens and reaps until nothing is left to do; returns the number of steps."""
    steps = 0
    while ledger.change(lambda txn: flatten(txn, Flatten()) or reap_intervals(txn, 100)):
        steps += 1
    return steps


# Cost


class ReadCountingTxn(CountingTxn):
    """A transaction that counts reads as well as writes."""

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
    ledger: LedgerFixture, work: Callable[[WriteTxn], T]
) -> tuple[T, tuple[int, int, Counter[str], Counter[str]]]:
    weighed: list[ReadCountingTxn] = []

    def weighing(txn: WriteTxn) -> T:
        weighed.append(ReadCountingTxn(txn))
        return work(weighed[0])

    return ledger.change(weighing), weighed[0].weight()


def test_an_append_writes_one_interval_and_its_extent(ledger: LedgerFixture) -> None:
    content = write(ledger, begin(ledger, 0), 0, 10)
    piece = ledger.piece(10)
    content, (calls, _, puts, deletes) = weigh(
        ledger, lambda txn: intervals.append(txn, content, [piece], new_id())
    )
    assert content.length == 20
    assert puts == {"intervals": 1, "extents": 1}
    assert not deletes
    assert calls <= 5


def weights(rows: int, formers: int) -> list[Any]:
    """Returns the cost of steps in the middle of a map with so many rows and so many former
    intervals."""
    ledger = LedgerFixture()
    content = write(ledger, begin(ledger, 0), 0, *[10] * rows)
    middle = rows // 2 * 10
    if formers:
        copy(ledger, content)
        for at in range(0, formers, 20):
            content = write(ledger, content, at * 10, *[10] * 20)
        assert len(ledger.rows(FORMER_INTERVALS)) == formers
    found = []
    for shared in (False, True):
        if shared:
            copy(ledger, content)
        steps: tuple[Callable[..., Mapped], ...] = (
            partial(intervals.write, offset=middle, pieces=[ledger.piece(10)]),
            partial(intervals.write, offset=middle + 5, pieces=[ledger.piece(25)]),
            partial(intervals.clear, start=middle + 33, end=middle + 38),
        )
        for step in steps:
            content, weight = weigh(ledger, partial(step, content=content, child_id=new_id()))
            found.append(weight)
        looks: tuple[Callable[..., object], ...] = (
            partial(locate, start=middle + 7, length=9),
            partial(intervals.ranges, start=middle, end=middle + 100, limit=3),
        )
        found += [weigh(ledger, partial(look, content=content))[1] for look in looks]
    return found


def test_steps_cost_the_same_in_a_map_of_any_size() -> None:
    few, many = weights(40, 0), weights(20_000, 0)
    assert few == many


def test_cost_does_not_depend_on_the_history() -> None:
    assert weights(2_000, 40) == weights(2_000, 900)


def test_ranges_read_only_what_they_need(ledger: LedgerFixture) -> None:
    content = begin(ledger, 100_000)
    for at in range(0, 20_000, 20):
        content = write(ledger, content, at, 10)
    found, (_, rows_read, _, _) = weigh(
        ledger, lambda txn: intervals.ranges(txn, content, 0, content.length, 3)
    )
    assert found == [(0, 10), (20, 30), (40, 50), (60, 70)]
    assert rows_read < 50


# Large changes


def test_clearing_many_intervals_is_mostly_deferred(
    ledger: LedgerFixture,
) -> None:
    content = write(ledger, begin(ledger, 0), 0, *[10] * 2_000)
    cleared, (_, _, puts, deletes) = weigh(
        ledger, lambda txn: intervals.clear(txn, content, 5, 19_995, new_id())
    )
    assert sum(puts.values()) < 10
    assert not deletes
    assert ranges(ledger, cleared) == [(0, 5), (19_995, 20_000)]
    assert finish(ledger) > 10
    assert ranges(ledger, cleared) == [(0, 5), (19_995, 20_000)]
    assert len(ledger.rows(EXTENTS)) == 2
    assert len(ledger.rows(INTERVAL_MAPS)) == 1
    assert ledger.rows(INTERVAL_MAPS)[cleared.id,].base is None


def test_every_step_of_reaping_and_flattening_is_bounded(ledger: LedgerFixture) -> None:
    content = write(ledger, begin(ledger, 0), 0, *[10] * 2_000)
    fork = copy(ledger, content)
    content = write(ledger, content, 0, 10)
    fork = write(ledger, fork, 10, 10)
    while True:
        done, (_, _, puts, _) = weigh(ledger, lambda txn: flatten(txn, Flatten(50)))
        if not done:
            break
        assert sum(puts.values()) <= 2 * 50 + 3
    for held in (content, fork):
        ledger.release(held)
    while True:
        done, (_, _, puts, deletes) = weigh(ledger, lambda txn: reap_intervals(txn, 50))
        if not done:
            break
        assert sum(puts.values()) + sum(deletes.values()) <= 3 * 50 + 5
    assert not any(ledger.rows(collection) for collection in EVERYTHING)


# Children


def fork(ledger: LedgerFixture, content: Mapped, offset: int) -> Mapped:
    """Continues from a content that another holder has continued from."""
    other = copy(ledger, content)
    write(ledger, content, offset, 10)
    child = write(ledger, other, offset + 10, 10)
    assert child.id != content.id
    return child


def test_deep_chains_of_children_show_their_bases(ledger: LedgerFixture) -> None:
    """Deeper than the interpreter's stack limit."""
    depth = 1_100
    content = write(ledger, begin(ledger, 0), 0, *[10] * 3)
    for level in range(depth):
        content = fork(ledger, content, 30 + 20 * level)
    found = ranges(ledger, content, 2 * depth)
    assert found == [(0, 30), *((40 + 20 * level, 50 + 20 * level) for level in range(depth))]
    assert len(ledger.segment_ranges(content, 0, 30)) == 3


def test_flattened_children_release_their_bases(ledger: LedgerFixture) -> None:
    first = write(ledger, begin(ledger, 0), 0, *[10] * 3)
    content = first
    for level in range(20):
        content = fork(ledger, content, 30 + 20 * level)
    before = ledger.segment_ranges(content)
    finish(ledger)
    assert ledger.segment_ranges(content) == before
    assert {record.base for record in ledger.rows(INTERVAL_MAPS).values()} == {None}


def test_a_child_shows_its_base_as_it_was_at_the_fork(ledger: LedgerFixture) -> None:
    content = write(ledger, begin(ledger, 100), 0, 50)
    old = ledger.segment_ranges(content)
    kept = copy(ledger, content)
    content = clear(ledger, content, 0, 100)
    child = clear(ledger, kept, 60, 70)
    assert ledger.segment_ranges(child) == old
    assert ledger.plan(content) == (Hole(100),)
    shorter = ledger.change(lambda txn: intervals.resize(txn, child, 20, new_id()))
    longer = ledger.change(lambda txn: intervals.resize(txn, shorter, 100, new_id()))
    assert longer.id == child.id
    assert ledger.plan(longer) == (old[0]._replace(length=20), Hole(80))


# Holes and pieces


def test_a_hole_of_any_length_is_one_entry(ledger: LedgerFixture) -> None:
    content = begin(ledger, 8 * TIB)
    assert ledger.plan(content) == (Hole(8 * TIB),)
    assert ledger.plan(content, 5, 10) == (Hole(10),)
    content = write(ledger, content, 4 * TIB, 512)
    (segment_range,) = ledger.segment_ranges(content, 4 * TIB, 512)
    assert ledger.plan(content) == (Hole(4 * TIB), segment_range, Hole(4 * TIB - 512))
    assert ledger.look(try_locate, content) is not None


def test_only_whole_pieces_have_checksums(ledger: LedgerFixture) -> None:
    piece = ledger.piece(100)
    piece = Piece(piece.segment, piece.offset, 100, 777)
    content = begin(ledger, 100)
    content = ledger.change(lambda txn: intervals.write(txn, content, 0, [piece], new_id()))
    (whole,) = ledger.segment_ranges(content)
    assert whole == SegmentRange(piece.segment, piece.offset, 100, 777)
    (part,) = ledger.segment_ranges(content, 10, 20)
    assert part == SegmentRange(piece.segment, piece.offset + 10, 20, None)
    content = clear(ledger, content, 40, 60)
    left, right = ledger.segment_ranges(content)
    assert left == SegmentRange(piece.segment, piece.offset, 40, None)
    assert right == SegmentRange(piece.segment, piece.offset + 60, 40, None)
    assert ledger.rows(EXTENTS)[piece.extent].references == 2


def test_a_content_of_many_parts_has_a_long_plan(ledger: LedgerFixture) -> None:
    content = write(ledger, begin(ledger, 0), 0, *[10] * 400)
    assert ledger.look(try_locate, content) is None
    assert ledger.look(lambda txn, _: try_locate(txn, content, 100, 500)) is not None


def test_only_live_extents_can_be_written(ledger: LedgerFixture) -> None:
    content = begin(ledger, 100)
    with pytest.raises(MissingRecord):
        ledger.change(
            lambda txn: intervals.write_shared(txn, content, 0, [ledger.piece()], new_id())
        )
    assert ranges(ledger, content) == []


# Differences


def test_unrelated_contents_are_not_compared(ledger: LedgerFixture) -> None:
    one, other = write(ledger, begin(ledger, 50), 0, 10), begin(ledger, 50)
    compare = intervals.changes
    assert ledger.look(lambda txn, _: compare(txn, one, other, 0, 50, 9)) is None
    kept = copy(ledger, one)
    child = fork(ledger, kept, 20)
    assert ledger.look(lambda txn, _: compare(txn, kept, child, 0, 50, 9)) == [(30, 40, True)]
    assert ledger.look(lambda txn, _: compare(txn, child, kept, 0, 50, 9)) == [(30, 40, False)]
    finish(ledger)
    assert ledger.look(lambda txn, _: compare(txn, kept, child, 0, 50, 9)) == [(30, 40, True)]


def test_one_more_than_the_limit_is_shown(ledger: LedgerFixture) -> None:
    old = copy(ledger, begin(ledger, 1_000))
    new = old
    for at in range(0, 200, 20):
        new = write(ledger, new, at, 10)
    find = intervals.changes
    found = ledger.look(lambda txn, _: find(txn, old, new, 0, 1_000, 2))
    assert found == [(0, 10, True), (20, 30, True), (40, 50, True)]
    assert ledger.look(lambda txn, _: find(txn, old, new, 25, 45, 9)) == [
        (25, 30, True),
        (40, 45, True),
    ]


# Releasing


def test_a_generation_removed_during_a_search(
    ledger: LedgerFixture,
) -> None:
    content = write(ledger, begin(ledger, 0), 0, *[10] * 20)
    olders = []
    for _ in range(3):
        olders.append(copy(ledger, content))
        for at in range(0, 200, 10):
            content = write(ledger, content, at, 10)
    ledger.release(olders[0])
    ledger.change(lambda txn: reap_intervals(txn, 15))
    ledger.release(olders[1])
    finish(ledger)
    assert len(ledger.rows(FORMER_INTERVALS)) == 20
    assert len(ledger.rows(EXTENTS)) == 40
    ledger.release(olders[2])
    ledger.release(content)
    finish(ledger)
    assert not any(ledger.rows(collection) for collection in EVERYTHING)


def test_a_damaged_map_can_be_released(ledger: LedgerFixture) -> None:
    content = write(ledger, begin(ledger, 100), 0, 50)
    ledger.change(lambda txn: txn.delete(INTERVAL_MAPS, (content.id,)))
    with pytest.raises(MissingRecord):
        ledger.change(lambda txn: intervals.clear(txn, content, 0, 10, new_id()))
    ledger.release(content)
    finish(ledger)
    assert not any(ledger.rows(collection) for collection in EVERYTHING)
    ledger.release(content)
    with pytest.raises(MissingRecord):
        ledger.change(lambda txn: add_reference(txn, Piece(1, 0, 50)))
