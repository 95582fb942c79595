"""Appending to inline intervals: few rows for many blocks, and every holder sees only its bytes."""

from __future__ import annotations

import random

import pytest

from etagere.bodies import folding, intervals
from etagere.bodies.intervals import INLINE_INTERVAL_BYTES_MAX
from etagere.bodies.maps import INTERVALS
from etagere.bodies.plans import SegmentRange
from etagere.model.bodies import Interval, Mapped
from etagere.model.ids import new_id
from tests.bodies.test_inline_intervals import find, fold, write_inline
from tests.bodies.test_intervals import begin, copy, write
from tests.model.ledger_fixture import LedgerFixture


@pytest.fixture
def ledger() -> LedgerFixture:
    return LedgerFixture()


def rows(ledger: LedgerFixture) -> list[Interval]:
    return list(ledger.rows(INTERVALS).values())


def test_blocks_share_a_row_until_it_is_full(ledger: LedgerFixture) -> None:
    content = write_inline(
        ledger, begin(ledger, 0), *[bytes([number]) * 1_000 for number in range(20)]
    )
    assert [row.length for row in rows(ledger)] == [7_000, 7_000, 6_000]
    assert (content.inline_intervals, content.inline_bytes, content.tail) == (3, 20_000, 14_000)
    expected = b"".join(bytes([number]) * 1_000 for number in range(20))
    assert ledger.plan(content) == expected
    content = write_inline(ledger, content, bytes(INLINE_INTERVAL_BYTES_MAX - 6_000), b"x")
    assert [row.length for row in rows(ledger)][2:] == [INLINE_INTERVAL_BYTES_MAX, 1]


def test_older_holders_keep_their_bytes(ledger: LedgerFixture) -> None:
    content = write_inline(ledger, begin(ledger, 0), b"one", b"two")
    kept = copy(ledger, content)
    content = write_inline(ledger, content, b"three", b"four")
    assert ledger.plan(kept) == b"onetwo"
    assert ledger.plan(content) == b"onetwothreefour"
    # In its own row, which is appended to in turn.
    assert sorted(row.length for row in rows(ledger)) == [6, 9]
    child = write_inline(ledger, kept, b"other", b"wise")
    assert ledger.plan(child) == b"onetwootherwise"
    assert ledger.plan(content) == b"onetwothreefour"


@pytest.mark.parametrize("between", ["piece", "hole"])
def test_only_the_last_row_is_appended_to(ledger: LedgerFixture, between: str) -> None:
    content = write_inline(ledger, begin(ledger, 0), b"one")
    if between == "piece":
        content = write(ledger, content, 3, 5)
    else:
        longer = content
        content = ledger.change(lambda txn: intervals.resize(txn, longer, 8, new_id()))
    content = write_inline(ledger, content, b"two", b"three")
    first, _, last = ledger.plan(content)
    assert (first, last) == (b"one", b"twothree")
    assert (content.inline_intervals, content.tail) == (2, 8)


def test_a_growing_row_is_not_folded(ledger: LedgerFixture) -> None:
    content = write_inline(ledger, begin(ledger, 0), *[b"x" * 1_000] * 20)
    folded = fold(ledger, content)
    assert (folded.folded, folded.inline_bytes, folded.inline_intervals) == (14_000, 6_000, 1)
    segment_range, rest = ledger.plan(folded)
    assert isinstance(segment_range, SegmentRange)
    assert (segment_range.length, rest) == (14_000, b"x" * 6_000)
    asked, _ = find(ledger, folded)
    assert not asked.runs
    full = write_inline(ledger, folded, b"y" * (INLINE_INTERVAL_BYTES_MAX - 6_000))
    assert fold(ledger, full).inline_intervals == 0


def test_a_row_that_grew_is_folded_up_to_its_scanned_length(
    ledger: LedgerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scan took it for full."""
    content = write_inline(ledger, begin(ledger, 0), b"one", b"two")
    with monkeypatch.context() as patch:
        patch.setattr(intervals, "INLINE_INTERVAL_BYTES_MAX", 0)
        asked, body = find(ledger, content)
    longer = write_inline(ledger, content, b"three")
    assert len(rows(ledger)) == 1
    folded = ledger.change(lambda txn: folding.fold(txn, longer, asked, body, new_id()))
    assert folded is not None
    segment_range, rest = ledger.plan(folded)
    assert isinstance(segment_range, SegmentRange)
    assert (segment_range.length, rest) == (6, b"three")
    assert ledger.plan(write_inline(ledger, folded, b"four"))[1] == b"threefour"


def test_random_histories_match_the_model(ledger: LedgerFixture) -> None:
    dice = random.Random(7)
    states: list[tuple[Mapped, bytes]] = [(begin(ledger, 0), b"")]
    for _ in range(400):
        at = dice.randrange(len(states))
        content, shown = states[at]
        match dice.randrange(8):
            case 0 if len(states) < 6:
                states.append((copy(ledger, content), shown))
            case 1:
                states[at] = (fold(ledger, content), shown)
            case _:
                data = dice.randbytes(dice.choice([1, 10, 900, 3_000, 8_000]))
                states[at] = (write_inline(ledger, content, data), shown + data)
        for content, shown in states:
            plan = ledger.plan(content)
            offset = 0
            for part in (plan,) if isinstance(plan, bytes) else plan:
                length = len(part) if isinstance(part, bytes) else part.length
                if isinstance(part, bytes):
                    assert part == shown[offset : offset + length]
                offset += length
            assert offset == content.length == len(shown)
