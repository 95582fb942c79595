"""Concurrent changes of interval maps: which ones conflict."""

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
from tests.model.ledger_fixture import LedgerFixture


@pytest.fixture
def ledger() -> LedgerFixture:
    return LedgerFixture()


def conflicts(
    ledger: LedgerFixture, first: Callable[[WriteTxn], object], second: Callable[[WriteTxn], object]
) -> bool:
    """Reports whether the second step has to wait for the first."""
    one, two = ledger.engine.begin(), ledger.engine.begin()
    try:
        first(one)
        second(two)
    except Conflict:
        return True
    finally:
        one.rollback()
        two.rollback()
    return False


def test_a_sole_holder_stays_sole_until_the_commit(ledger: LedgerFixture) -> None:
    content = write(ledger, begin(ledger, 100), 0, 50)
    piece = ledger.piece(10)

    def change(txn: WriteTxn) -> object:
        return intervals.write(txn, content, 0, [piece], new_id())

    for other in (
        lambda txn: share(txn, content),
        lambda txn: release(txn, content),
        lambda txn: intervals.clear(txn, content, 0, 10, new_id()),
    ):
        assert conflicts(ledger, change, other)
        assert conflicts(ledger, other, change)


def test_changing_a_map_excludes_the_reaper(ledger: LedgerFixture) -> None:
    """Otherwise intervals kept for a generation that is being removed would never be reaped."""
    content = write(ledger, begin(ledger, 100), 0, 50)
    copy(ledger, content)
    doomed = copy(ledger, content)
    content = write(ledger, content, 0, 10)
    older = copy(ledger, content)
    content = write(ledger, content, 0, 10)
    ledger.release(older)
    ledger.release(doomed)

    def change(txn: WriteTxn) -> object:
        return intervals.clear(txn, content, 0, 50, new_id())

    assert conflicts(ledger, change, lambda txn: reap_intervals(txn, 10))
    assert conflicts(ledger, lambda txn: reap_intervals(txn, 10), change)


def test_a_base_does_not_change_while_it_is_flattened(ledger: LedgerFixture) -> None:
    content = write(ledger, begin(ledger, 100), 0, 50)
    kept = copy(ledger, content)
    content = write(ledger, content, 0, 10)
    write(ledger, kept, 20, 10)

    def change(txn: WriteTxn) -> object:
        return intervals.clear(txn, content, 0, 50, new_id())

    assert conflicts(ledger, lambda txn: flatten(txn, Flatten()), change)
    assert conflicts(ledger, change, lambda txn: flatten(txn, Flatten()))


def test_two_holders_of_a_map_do_not_conflict(ledger: LedgerFixture) -> None:
    one = write(ledger, begin(ledger, 100), 0, 50)
    two = copy(ledger, one)

    def change(content: Mapped) -> Callable[[WriteTxn], Mapped]:
        return lambda txn: intervals.clear(txn, content, 0, 10, new_id())

    assert conflicts(ledger, change(one), change(two))
    one, two = ledger.change(change(one)), ledger.change(change(two))
    assert one.id != two.id
    assert ranges(ledger, one) == ranges(ledger, two) == [(10, 50)]
