"""Interval maps under several hands: who has to wait for whom."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from etagere.bodies import intervals
from etagere.bodies.contents import release, share
from etagere.bodies.reaping import Flatten, flatten, reap_intervals
from etagere.engine.interface import Conflict, WriteTxn
from etagere.model.bodies import Mapped
from etagere.model.ids import new_id
from tests.bodies.test_intervals import begin, copy, ranges, write
from tests.model.bench import Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()


def in_the_way(
    bench: Bench, first: Callable[[WriteTxn], object], second: Callable[[WriteTxn], object]
) -> bool:
    """Whether the second step has to wait for the first."""
    one, two = bench.engine.begin(), bench.engine.begin()
    try:
        first(one)
        second(two)
    except Conflict:
        return True
    finally:
        one.rollback()
        two.rollback()
    return False


def test_who_is_alone_stays_alone_until_the_end(bench: Bench) -> None:
    content = write(bench, begin(bench, 100), 0, 50)
    piece = bench.piece(10)

    def change(txn: WriteTxn) -> object:
        return intervals.write(txn, content, 0, [piece], new_id())

    for other in (
        lambda txn: share(txn, content),
        lambda txn: release(txn, content),
        lambda txn: intervals.clear(txn, content, 0, 10, new_id()),
    ):
        assert in_the_way(bench, change, other)
        assert in_the_way(bench, other, change)


def test_who_changes_a_map_keeps_the_reaper_from_it(bench: Bench) -> None:
    """What it keeps for a generation that goes meanwhile would never be reaped."""
    content = write(bench, begin(bench, 100), 0, 50)
    copy(bench, content)
    doomed = copy(bench, content)
    content = write(bench, content, 0, 10)
    older = copy(bench, content)
    content = write(bench, content, 0, 10)
    bench.release(older)
    bench.release(doomed)

    def change(txn: WriteTxn) -> object:
        return intervals.clear(txn, content, 0, 50, new_id())

    assert in_the_way(bench, change, lambda txn: reap_intervals(txn, 10))
    assert in_the_way(bench, lambda txn: reap_intervals(txn, 10), change)


def test_a_base_stays_as_it_is_while_it_is_copied(bench: Bench) -> None:
    content = write(bench, begin(bench, 100), 0, 50)
    kept = copy(bench, content)
    content = write(bench, content, 0, 10)
    write(bench, kept, 20, 10)

    def change(txn: WriteTxn) -> object:
        return intervals.clear(txn, content, 0, 50, new_id())

    assert in_the_way(bench, lambda txn: flatten(txn, Flatten()), change)
    assert in_the_way(bench, change, lambda txn: flatten(txn, Flatten()))


def test_two_who_share_go_on_apart(bench: Bench) -> None:
    one = write(bench, begin(bench, 100), 0, 50)
    two = copy(bench, one)

    def change(content: Mapped) -> Callable[[WriteTxn], Mapped]:
        return lambda txn: intervals.clear(txn, content, 0, 10, new_id())

    assert in_the_way(bench, change(one), change(two))
    one, two = bench.change(change(one)), bench.change(change(two))
    assert one.id != two.id
    assert ranges(bench, one) == ranges(bench, two) == [(10, 50)]
