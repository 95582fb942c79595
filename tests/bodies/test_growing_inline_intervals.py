"""Inline intervals that grow: many small blocks make few rows, and no holder sees bytes that are
not its own."""

from __future__ import annotations

import random

import pytest

from etagere.bodies import folding, intervals
from etagere.bodies.contents import SegmentRange
from etagere.bodies.intervals import INLINE_INTERVAL_BYTES_MAX
from etagere.bodies.maps import INTERVALS
from etagere.model.bodies import Interval, Mapped
from etagere.model.ids import new_id
from tests.bodies.test_inline_intervals import find, fold, write_inline
from tests.bodies.test_intervals import begin, copy, write
from tests.model.bench import Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()


def rows(bench: Bench) -> list[Interval]:
    return list(bench.rows(INTERVALS).values())


def test_blocks_share_a_row_until_it_is_full(bench: Bench) -> None:
    content = write_inline(
        bench, begin(bench, 0), *[bytes([number]) * 1_000 for number in range(20)]
    )
    assert [row.length for row in rows(bench)] == [7_000, 7_000, 6_000]
    assert (content.inline_intervals, content.inline_bytes, content.tail) == (3, 20_000, 14_000)
    expected = b"".join(bytes([number]) * 1_000 for number in range(20))
    assert bench.plan(content) == expected
    content = write_inline(bench, content, bytes(INLINE_INTERVAL_BYTES_MAX - 6_000), b"x")
    assert [row.length for row in rows(bench)][2:] == [INLINE_INTERVAL_BYTES_MAX, 1]


def test_who_holds_an_older_state_sees_what_it_was(bench: Bench) -> None:
    content = write_inline(bench, begin(bench, 0), b"one", b"two")
    kept = copy(bench, content)
    content = write_inline(bench, content, b"three", b"four")
    assert bench.plan(kept) == b"onetwo"
    assert bench.plan(content) == b"onetwothreefour"
    # In a row of its own, which is added to in turn.
    assert sorted(row.length for row in rows(bench)) == [6, 9]
    child = write_inline(bench, kept, b"other", b"wise")
    assert bench.plan(child) == b"onetwootherwise"
    assert bench.plan(content) == b"onetwothreefour"


@pytest.mark.parametrize("between", ["piece", "hole"])
def test_only_the_last_is_added_to(bench: Bench, between: str) -> None:
    content = write_inline(bench, begin(bench, 0), b"one")
    if between == "piece":
        content = write(bench, content, 3, 5)
    else:
        longer = content
        content = bench.change(lambda txn: intervals.resize(txn, longer, 8, new_id()))
    content = write_inline(bench, content, b"two", b"three")
    first, _, last = bench.plan(content)
    assert (first, last) == (b"one", b"twothree")
    assert (content.inline_intervals, content.tail) == (2, 8)


def test_the_last_is_left_as_long_as_it_may_grow(bench: Bench) -> None:
    content = write_inline(bench, begin(bench, 0), *[b"x" * 1_000] * 20)
    folded = fold(bench, content)
    assert (folded.folded, folded.inline_bytes, folded.inline_intervals) == (14_000, 6_000, 1)
    segment_range, rest = bench.plan(folded)
    assert isinstance(segment_range, SegmentRange)
    assert (segment_range.length, rest) == (14_000, b"x" * 6_000)
    asked, _ = find(bench, folded)
    assert not asked.runs
    full = write_inline(bench, folded, b"y" * (INLINE_INTERVAL_BYTES_MAX - 6_000))
    assert fold(bench, full).inline_intervals == 0


def test_what_grew_since_it_was_found_is_folded_as_far_as_it_was(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by whoever takes it for full."""
    content = write_inline(bench, begin(bench, 0), b"one", b"two")
    with monkeypatch.context() as patch:
        patch.setattr(intervals, "INLINE_INTERVAL_BYTES_MAX", 0)
        asked, body = find(bench, content)
    longer = write_inline(bench, content, b"three")
    assert len(rows(bench)) == 1
    folded = bench.change(lambda txn: folding.fold(txn, longer, asked, body, new_id()))
    assert folded is not None
    segment_range, rest = bench.plan(folded)
    assert isinstance(segment_range, SegmentRange)
    assert (segment_range.length, rest) == (6, b"three")
    assert bench.plan(write_inline(bench, folded, b"four"))[1] == b"threefour"


def test_any_history_shows_its_bytes(bench: Bench) -> None:
    dice = random.Random(7)
    states: list[tuple[Mapped, bytes]] = [(begin(bench, 0), b"")]
    for _ in range(400):
        at = dice.randrange(len(states))
        content, shown = states[at]
        match dice.randrange(8):
            case 0 if len(states) < 6:
                states.append((copy(bench, content), shown))
            case 1:
                states[at] = (fold(bench, content), shown)
            case _:
                data = dice.randbytes(dice.choice([1, 10, 900, 3_000, 8_000]))
                states[at] = (write_inline(bench, content, data), shown + data)
        for content, shown in states:
            plan = bench.plan(content)
            offset = 0
            for part in (plan,) if isinstance(plan, bytes) else plan:
                length = len(part) if isinstance(part, bytes) else part.length
                if isinstance(part, bytes):
                    assert part == shown[offset : offset + length]
                offset += length
            assert offset == content.length == len(shown)
