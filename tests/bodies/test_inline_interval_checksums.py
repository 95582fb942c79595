"""Checksums of inline intervals: damage is detected by reads and folds, and after later changes."""

from __future__ import annotations

import msgspec
import pytest
from awscrt.checksums import crc64nvme
from msgspec.structs import replace

from etagere.bodies import intervals
from etagere.bodies.contents import BodyCorrupt
from etagere.bodies.maps import FORMER_INTERVALS, INTERVALS
from etagere.bodies.plans import DamagedRange, Plan, require_intact
from etagere.engine.interface import Fault, WriteTxn
from etagere.model.bodies import Interval, Mapped
from etagere.model.ids import new_id
from tests.bodies.test_inline_intervals import find, write_inline
from tests.bodies.test_intervals import begin, copy
from tests.model.ledger_fixture import LedgerFixture

DATA = b"0123456789" * 10


@pytest.fixture
def ledger() -> LedgerFixture:
    return LedgerFixture()


@pytest.fixture
def content(ledger: LedgerFixture) -> Mapped:
    return write_inline(ledger, begin(ledger, 0), DATA[:40], DATA[40:])


def flip_bit(ledger: LedgerFixture) -> None:
    """Flips a bit of the only inline interval."""

    def change(txn: WriteTxn) -> None:
        ((key, row),) = txn.scan(INTERVALS, INTERVALS.all(), 2)
        assert isinstance(row.piece, bytes)
        spoilt = row.piece[:5] + bytes([row.piece[5] ^ 1]) + row.piece[6:]
        txn.put(INTERVALS, key, replace(row, piece=spoilt))

    ledger.change(change)


def is_damaged(plan: Plan) -> bool:
    return isinstance(plan, tuple) and any(isinstance(part, DamagedRange) for part in plan)


def test_every_row_has_the_checksum_of_its_bytes(ledger: LedgerFixture, content: Mapped) -> None:
    (row,) = ledger.rows(INTERVALS).values()
    assert row.crc == crc64nvme(DATA)
    kept = copy(ledger, content)
    content = ledger.change(lambda txn: intervals.clear(txn, content, 30, 60, new_id()))
    rows = [*ledger.rows(INTERVALS).values(), *ledger.rows(FORMER_INTERVALS).values()]
    checked = [row for row in rows if isinstance(row.piece, bytes)]
    assert len(checked) > 2
    assert all(row.crc == crc64nvme(row.piece) for row in checked if isinstance(row.piece, bytes))
    assert ledger.plan(kept) == DATA
    assert ledger.plan(kept, 7, 20) == DATA[7:27]


def test_every_reader_detects_damage(ledger: LedgerFixture, content: Mapped) -> None:
    flip_bit(ledger)
    for plan in (ledger.plan(content), ledger.plan(content, 50, 10)):
        assert is_damaged(plan)
        with pytest.raises(BodyCorrupt, match="the inline interval at"):
            require_intact(plan)


def test_damage_is_not_folded(ledger: LedgerFixture) -> None:
    content = write_inline(ledger, begin(ledger, 0), bytes(intervals.INLINE_INTERVAL_BYTES_MAX))
    asked, _ = find(ledger, content)
    assert asked.inline_intervals == 1
    flip_bit(ledger)
    with pytest.raises(Fault, match="BodyCorrupt"):
        find(ledger, content)


def test_appending_does_not_hide_damage(ledger: LedgerFixture, content: Mapped) -> None:
    flip_bit(ledger)
    content = write_inline(ledger, content, b"more")
    (row,) = ledger.rows(INTERVALS).values()
    assert row.length == len(DATA) + 4
    assert is_damaged(ledger.plan(content))


def test_parts_of_a_damaged_inline_interval_are_damaged(
    ledger: LedgerFixture, content: Mapped
) -> None:
    kept = copy(ledger, content)
    flip_bit(ledger)
    content = ledger.change(lambda txn: intervals.clear(txn, content, 30, 60, new_id()))
    assert is_damaged(ledger.plan(content, 0, 10))
    assert is_damaged(ledger.plan(content, 70, 10))
    assert is_damaged(ledger.plan(kept))
    assert not is_damaged(ledger.plan(content, 35, 10))


def test_rows_of_older_versions(ledger: LedgerFixture) -> None:
    content = write_inline(ledger, begin(ledger, 0), b"older")
    older = msgspec.msgpack.encode([1, b"older", 5, content.generation])
    assert INTERVALS.decode(older) == Interval(b"older", 5, content.generation)

    def change(txn: WriteTxn) -> None:
        txn.put(INTERVALS, (content.id, 0), INTERVALS.decode(older))

    ledger.change(change)
    assert ledger.plan(content) == b"older"
    content = write_inline(ledger, content, b" and newer")
    assert ledger.plan(content) == b"older and newer"
    (row,) = ledger.rows(INTERVALS).values()
    assert row.crc == crc64nvme(b"older and newer")
