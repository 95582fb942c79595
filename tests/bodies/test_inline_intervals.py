"""Inline intervals step by step: what they cost, how they are found, and when they are folded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from awscrt.checksums import crc64nvme

from etagere.bodies import folding, intervals
from etagere.bodies.contents import EXTENTS, Hole, SegmentRange, is_long
from etagere.bodies.maps import FORMER_INTERVALS, INTERVAL_MAPS, INTERVALS
from etagere.engine.interface import WriteTxn
from etagere.model.bodies import Body, Mapped, Piece
from etagere.model.ids import new_id
from tests.bodies.test_intervals import EVERYTHING, begin, clear, copy, finish, weigh, write
from tests.model.bench import SEGMENT, Bench

KIB = 1024


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture(autouse=True)
def each_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """None is added to another."""
    monkeypatch.setattr(intervals, "INLINE_INTERVAL_BYTES_MAX", 0)


def write_inline(bench: Bench, content: Mapped, *blocks: bytes) -> Mapped:
    for data in blocks:
        content = bench.change(_writing_inline(content, data))
    return content


def _writing_inline(content: Mapped, data: bytes) -> Callable[[WriteTxn], Mapped]:
    return lambda txn: intervals.write_inline(txn, content, content.length, data, new_id())


def find(bench: Bench, content: Mapped) -> tuple[folding.Fold, Body]:
    """What is to be folded, as if it were written."""
    fold, data = bench.look(lambda txn, _: folding.find(txn, content))
    joined = b"".join(data)
    crc = crc64nvme(joined)
    place = bench.piece(len(joined))
    piece = Piece(SEGMENT, place.offset, len(joined), crc)
    return fold, Body(b"", len(joined), crc, pieces=(piece,) if joined else ())


def fold(bench: Bench, content: Mapped) -> Mapped:
    asked, body = find(bench, content)
    folded = bench.change(lambda txn: folding.fold(txn, content, asked, body, new_id()))
    assert folded is not None
    return folded


# Costs


def weight(rows: int) -> tuple[int, int, Counter[str], Counter[str]]:
    bench = Bench()
    content = write(bench, begin(bench, 0), 0, *[10] * rows)
    content = write_inline(bench, content, b"one")
    _, found = weigh(bench, _writing_inline(content, b"two"))
    return found


def test_an_inline_interval_is_one_row_however_many_there_are() -> None:
    _, _, puts, deletes = found = weight(10)
    assert puts == {"intervals": 1}
    assert not deletes
    assert found == weight(5_000)


def test_folding_is_bounded(bench: Bench) -> None:
    content = write_inline(bench, begin(bench, 0), *[b"x"] * 1_000)
    asked, body = find(bench, content)
    folded, (_, _, puts, deletes) = weigh(
        bench, lambda txn: folding.fold(txn, content, asked, body, new_id())
    )
    assert folded is not None
    assert sum(puts.values()) <= 3
    assert sum(deletes.values()) <= 400
    assert len(bench.rows(INTERVAL_MAPS)) == 1
    assert folded.inline_intervals == 600
    folded = fold(bench, fold(bench, folded))
    assert folded.inline_intervals == 0
    assert len(bench.rows(INTERVALS)) == 3


def test_much_between_inline_intervals_is_passed_in_steps(bench: Bench) -> None:
    content = write_inline(bench, begin(bench, 0), b"first")
    content = write(bench, content, 5, *[1] * 4_500)
    content = write_inline(bench, content, b"last")
    inline = []
    for _ in range(3):
        content = fold(bench, content)
        inline.append(content.inline_bytes)
    assert inline == [4, 4, 0]
    assert content.folded == content.length
    assert {extent.length for extent in bench.rows(EXTENTS).values()} == {1, 4, 5}


# Finding


def test_inline_intervals_behind_each_other_are_one_entry_of_a_plan(bench: Bench) -> None:
    content = write_inline(bench, begin(bench, 3), b"one", b"two")
    content = write(bench, content, 9, 5)
    content = write_inline(bench, content, b"three")
    hole, inline, segment_range, last = bench.plan(content)
    assert (hole, inline, last) == (Hole(3), b"onetwo", b"three")
    assert isinstance(segment_range, SegmentRange)
    assert bench.plan(content, 4, 4) == b"netw"
    assert bench.plan(clear(bench, content, 5, 7), 4, 4) == (b"n", Hole(2), b"w")


def test_much_in_the_ledger_is_long(bench: Bench) -> None:
    content = write(bench, begin(bench, 0), 0, 100_000)
    content = write_inline(bench, content, *[bytes(32 * KIB)] * 4)
    assert not bench.look(is_long, content)
    content = write_inline(bench, content, b"x")
    assert bench.look(is_long, content)
    assert not bench.look(lambda txn, _: is_long(txn, content, 0, 200_000))
    assert not bench.look(lambda txn, _: is_long(txn, content, content.length - 1_000))
    assert not bench.look(is_long, fold(bench, content))


# Folding


def test_what_is_not_there_any_more_is_not_folded(bench: Bench) -> None:
    content = write_inline(bench, begin(bench, 0), b"one", b"two", b"three")
    asked, body = find(bench, content)
    changes: tuple[Callable[[WriteTxn], Mapped], ...] = (
        lambda txn: intervals.clear(txn, content, 4, 5, new_id()),
        lambda txn: intervals.write_inline(txn, content, 4, b"X", new_id()),
        lambda txn: intervals.resize(txn, content, 10, new_id()),
    )
    for change in changes:
        txn = bench.engine.begin()
        changed = change(txn)
        assert folding.fold(txn, changed, asked, body, new_id()) is None
        txn.rollback()
    longer = write_inline(bench, content, b"four")
    folded = bench.change(lambda txn: folding.fold(txn, longer, asked, body, new_id()))
    assert folded is not None
    segment_range, rest = bench.plan(folded)
    assert isinstance(segment_range, SegmentRange)
    assert (segment_range.length, rest) == (11, b"four")
    assert (folded.folded, folded.inline_bytes, folded.inline_intervals) == (11, 4, 1)


def test_the_same_bytes_of_another_content_are_not_folded(bench: Bench) -> None:
    """It may have inline intervals before them, which would be forgotten."""
    content = write_inline(bench, fold(bench, write_inline(bench, begin(bench, 0), b"one")), b"two")
    asked, body = find(bench, content)
    other = write_inline(bench, begin(bench, 0), b"one", b"two")
    assert bench.change(lambda txn: folding.fold(txn, other, asked, body, new_id())) is None


def test_who_shares_keeps_the_inline_intervals(bench: Bench) -> None:
    content = write_inline(bench, begin(bench, 0), b"one", b"two")
    kept = copy(bench, content)
    content = fold(bench, content)
    assert content.generation > kept.generation
    assert bench.plan(kept) == b"onetwo"
    assert isinstance(bench.plan(content)[0], SegmentRange)
    assert len(bench.rows(FORMER_INTERVALS)) == 2
    child = write_inline(bench, kept, b"three")
    assert child.id != content.id
    assert bench.plan(child) == b"onetwothree"
    finish(bench)
    assert bench.plan(child) == b"onetwothree"
    child = fold(bench, child)
    assert len(bench.segment_ranges(child)) == 1
    for held in (content, child):
        bench.release(held)
    finish(bench)
    assert not any(bench.rows(collection) for collection in EVERYTHING)


def test_runs_share_an_extent(bench: Bench) -> None:
    content = write_inline(bench, begin(bench, 0), b"one")
    content = write(bench, content, 3, 5)
    content = fold(bench, write_inline(bench, content, b"two", b"three"))
    first, _, second = bench.segment_ranges(content)
    assert (first.length, second.length) == (3, 8)
    assert second.offset == first.offset + 3
    assert bench.rows(EXTENTS)[first.segment, first.offset].references == 2
    bench.release(content)
    finish(bench)
    assert not any(bench.rows(collection) for collection in EVERYTHING)
