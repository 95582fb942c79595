"""Inline intervals in single steps: cost, lookup and folding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from awscrt.checksums import crc64nvme

from etagere.bodies import folding, intervals
from etagere.bodies.contents import EXTENTS
from etagere.bodies.maps import FORMER_INTERVALS, INTERVAL_MAPS, INTERVALS
from etagere.bodies.plans import Hole, SegmentRange, try_locate
from etagere.engine.interface import WriteTxn
from etagere.model.bodies import Body, Mapped, Piece
from etagere.model.ids import new_id
from tests.bodies.test_intervals import EVERYTHING, begin, clear, copy, finish, weigh, write
from tests.model.ledger_fixture import SEGMENT, LedgerFixture

KIB = 1024


@pytest.fixture
def ledger() -> LedgerFixture:
    return LedgerFixture()


@pytest.fixture(autouse=True)
def separate_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps inline intervals from being added to an existing row."""
    monkeypatch.setattr(intervals, "INLINE_INTERVAL_BYTES_MAX", 0)


def write_inline(ledger: LedgerFixture, content: Mapped, *blocks: bytes) -> Mapped:
    for data in blocks:
        content = ledger.change(_writing_inline(content, data))
    return content


def _writing_inline(content: Mapped, data: bytes) -> Callable[[WriteTxn], Mapped]:
    return lambda txn: intervals.write_inline(txn, content, content.length, data, new_id())


def find(ledger: LedgerFixture, content: Mapped) -> tuple[folding.Fold, Body]:
    """Returns what is to be folded, as if it were written."""
    fold, data = ledger.look(lambda txn, _: folding.find(txn, content))
    joined = b"".join(data)
    crc = crc64nvme(joined)
    place = ledger.piece(len(joined))
    piece = Piece(SEGMENT, place.offset, len(joined), crc)
    return fold, Body(b"", len(joined), crc, pieces=(piece,) if joined else ())


def fold(ledger: LedgerFixture, content: Mapped) -> Mapped:
    asked, body = find(ledger, content)
    folded = ledger.change(lambda txn: folding.fold(txn, content, asked, body, new_id()))
    assert folded is not None
    return folded


# Cost


def weight(rows: int) -> tuple[int, int, Counter[str], Counter[str]]:
    ledger = LedgerFixture()
    content = write(ledger, begin(ledger, 0), 0, *[10] * rows)
    content = write_inline(ledger, content, b"one")
    _, found = weigh(ledger, _writing_inline(content, b"two"))
    return found


def test_an_inline_interval_is_one_row_however_many_there_are() -> None:
    _, _, puts, deletes = found = weight(10)
    assert puts == {"intervals": 1}
    assert not deletes
    assert found == weight(5_000)


def test_folding_is_bounded(ledger: LedgerFixture) -> None:
    content = write_inline(ledger, begin(ledger, 0), *[b"x"] * 1_000)
    asked, body = find(ledger, content)
    folded, (_, _, puts, deletes) = weigh(
        ledger, lambda txn: folding.fold(txn, content, asked, body, new_id())
    )
    assert folded is not None
    assert sum(puts.values()) <= 3
    assert sum(deletes.values()) <= 400
    assert len(ledger.rows(INTERVAL_MAPS)) == 1
    assert folded.inline_intervals == 600
    folded = fold(ledger, fold(ledger, folded))
    assert folded.inline_intervals == 0
    assert len(ledger.rows(INTERVALS)) == 3


def test_other_intervals_are_skipped_in_steps(ledger: LedgerFixture) -> None:
    content = write_inline(ledger, begin(ledger, 0), b"first")
    content = write(ledger, content, 5, *[1] * 4_500)
    content = write_inline(ledger, content, b"last")
    inline = []
    for _ in range(3):
        content = fold(ledger, content)
        inline.append(content.inline_bytes)
    assert inline == [4, 4, 0]
    assert content.folded == content.length
    assert {extent.length for extent in ledger.rows(EXTENTS).values()} == {1, 4, 5}


# Lookup


def test_adjacent_inline_intervals_are_one_entry_of_a_plan(ledger: LedgerFixture) -> None:
    content = write_inline(ledger, begin(ledger, 3), b"one", b"two")
    content = write(ledger, content, 9, 5)
    content = write_inline(ledger, content, b"three")
    hole, inline, segment_range, last = ledger.plan(content)
    assert (hole, inline, last) == (Hole(3), b"onetwo", b"three")
    assert isinstance(segment_range, SegmentRange)
    assert ledger.plan(content, 4, 4) == b"netw"
    assert ledger.plan(clear(ledger, content, 5, 7), 4, 4) == (b"n", Hole(2), b"w")


def test_many_bytes_in_the_ledger_make_a_long_plan(ledger: LedgerFixture) -> None:
    content = write(ledger, begin(ledger, 0), 0, 100_000)
    content = write_inline(ledger, content, *[bytes(32 * KIB)] * 4)
    assert ledger.look(try_locate, content) is not None
    content = write_inline(ledger, content, b"x")
    assert ledger.look(try_locate, content) is None
    assert ledger.look(lambda txn, _: try_locate(txn, content, 0, 200_000)) is not None
    assert ledger.look(lambda txn, _: try_locate(txn, content, content.length - 1_000)) is not None
    assert ledger.look(try_locate, fold(ledger, content)) is not None


# Folding


def test_removed_inline_intervals_are_not_folded(ledger: LedgerFixture) -> None:
    content = write_inline(ledger, begin(ledger, 0), b"one", b"two", b"three")
    asked, body = find(ledger, content)
    changes: tuple[Callable[[WriteTxn], Mapped], ...] = (
        lambda txn: intervals.clear(txn, content, 4, 5, new_id()),
        lambda txn: intervals.write_inline(txn, content, 4, b"X", new_id()),
        lambda txn: intervals.resize(txn, content, 10, new_id()),
    )
    for change in changes:
        txn = ledger.engine.begin()
        changed = change(txn)
        assert folding.fold(txn, changed, asked, body, new_id()) is None
        txn.rollback()
    longer = write_inline(ledger, content, b"four")
    folded = ledger.change(lambda txn: folding.fold(txn, longer, asked, body, new_id()))
    assert folded is not None
    segment_range, rest = ledger.plan(folded)
    assert isinstance(segment_range, SegmentRange)
    assert (segment_range.length, rest) == (11, b"four")
    assert (folded.folded, folded.inline_bytes, folded.inline_intervals) == (11, 4, 1)


def test_the_same_bytes_of_another_content_are_not_folded(ledger: LedgerFixture) -> None:
    """It may have earlier inline intervals, which would be lost."""
    content = write_inline(
        ledger, fold(ledger, write_inline(ledger, begin(ledger, 0), b"one")), b"two"
    )
    asked, body = find(ledger, content)
    other = write_inline(ledger, begin(ledger, 0), b"one", b"two")
    assert ledger.change(lambda txn: folding.fold(txn, other, asked, body, new_id())) is None


def test_other_holders_keep_the_inline_intervals(ledger: LedgerFixture) -> None:
    content = write_inline(ledger, begin(ledger, 0), b"one", b"two")
    kept = copy(ledger, content)
    content = fold(ledger, content)
    assert content.generation > kept.generation
    assert ledger.plan(kept) == b"onetwo"
    assert isinstance(ledger.plan(content)[0], SegmentRange)
    assert len(ledger.rows(FORMER_INTERVALS)) == 2
    child = write_inline(ledger, kept, b"three")
    assert child.id != content.id
    assert ledger.plan(child) == b"onetwothree"
    finish(ledger)
    assert ledger.plan(child) == b"onetwothree"
    child = fold(ledger, child)
    assert len(ledger.segment_ranges(child)) == 1
    for held in (content, child):
        ledger.release(held)
    finish(ledger)
    assert not any(ledger.rows(collection) for collection in EVERYTHING)


def test_runs_share_an_extent(ledger: LedgerFixture) -> None:
    content = write_inline(ledger, begin(ledger, 0), b"one")
    content = write(ledger, content, 3, 5)
    content = fold(ledger, write_inline(ledger, content, b"two", b"three"))
    first, _, second = ledger.segment_ranges(content)
    assert (first.length, second.length) == (3, 8)
    assert second.offset == first.offset + 3
    assert ledger.rows(EXTENTS)[first.segment, first.offset].references == 2
    ledger.release(content)
    finish(ledger)
    assert not any(ledger.rows(collection) for collection in EVERYTHING)
