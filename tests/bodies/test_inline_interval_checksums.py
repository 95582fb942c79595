"""Checksums of inline intervals: damage is detected when they are read or folded, and stays visible
whatever becomes of their bytes."""

from __future__ import annotations

import msgspec
import pytest
from awscrt.checksums import crc64nvme
from msgspec.structs import replace

from etagere.bodies import intervals
from etagere.bodies.contents import BodyCorrupt, DamagedRange, Plan, require_intact
from etagere.bodies.maps import FORMER_INTERVALS, INTERVALS
from etagere.engine.interface import Fault, WriteTxn
from etagere.model.bodies import Interval, Mapped
from etagere.model.ids import new_id
from tests.bodies.test_inline_intervals import find, write_inline
from tests.bodies.test_intervals import begin, copy
from tests.model.bench import Bench

DATA = b"0123456789" * 10


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def content(bench: Bench) -> Mapped:
    return write_inline(bench, begin(bench, 0), DATA[:40], DATA[40:])


def spoil(bench: Bench) -> None:
    """A bit of the only inline interval is another."""

    def change(txn: WriteTxn) -> None:
        ((key, row),) = txn.scan(INTERVALS, INTERVALS.all(), 2)
        assert isinstance(row.piece, bytes)
        spoilt = row.piece[:5] + bytes([row.piece[5] ^ 1]) + row.piece[6:]
        txn.put(INTERVALS, key, replace(row, piece=spoilt))

    bench.change(change)


def is_damaged(plan: Plan) -> bool:
    return isinstance(plan, tuple) and any(isinstance(part, DamagedRange) for part in plan)


def test_every_row_has_the_checksum_of_its_bytes(bench: Bench, content: Mapped) -> None:
    (row,) = bench.rows(INTERVALS).values()
    assert row.crc == crc64nvme(DATA)
    kept = copy(bench, content)
    content = bench.change(lambda txn: intervals.clear(txn, content, 30, 60, new_id()))
    rows = [*bench.rows(INTERVALS).values(), *bench.rows(FORMER_INTERVALS).values()]
    checked = [row for row in rows if isinstance(row.piece, bytes)]
    assert len(checked) > 2
    assert all(row.crc == crc64nvme(row.piece) for row in checked if isinstance(row.piece, bytes))
    assert bench.plan(kept) == DATA
    assert bench.plan(kept, 7, 20) == DATA[7:27]


def test_damage_is_seen_by_every_reader(bench: Bench, content: Mapped) -> None:
    spoil(bench)
    for plan in (bench.plan(content), bench.plan(content, 50, 10)):
        assert is_damaged(plan)
        with pytest.raises(BodyCorrupt, match="the inline interval at"):
            require_intact(plan)


def test_damage_is_not_folded(bench: Bench) -> None:
    content = write_inline(bench, begin(bench, 0), bytes(intervals.INLINE_INTERVAL_BYTES_MAX))
    asked, _ = find(bench, content)
    assert asked.inline_intervals == 1
    spoil(bench)
    with pytest.raises(Fault, match="BodyCorrupt"):
        find(bench, content)


def test_what_is_added_does_not_hide_damage(bench: Bench, content: Mapped) -> None:
    spoil(bench)
    content = write_inline(bench, content, b"more")
    (row,) = bench.rows(INTERVALS).values()
    assert row.length == len(DATA) + 4
    assert is_damaged(bench.plan(content))


def test_parts_of_what_is_damaged_are_damaged(bench: Bench, content: Mapped) -> None:
    kept = copy(bench, content)
    spoil(bench)
    content = bench.change(lambda txn: intervals.clear(txn, content, 30, 60, new_id()))
    assert is_damaged(bench.plan(content, 0, 10))
    assert is_damaged(bench.plan(content, 70, 10))
    assert is_damaged(bench.plan(kept))
    assert not is_damaged(bench.plan(content, 35, 10))


def test_rows_of_older_versions_are_read_and_added_to(bench: Bench) -> None:
    content = write_inline(bench, begin(bench, 0), b"older")
    older = msgspec.msgpack.encode([1, b"older", 5, content.generation])
    assert INTERVALS.decode(older) == Interval(b"older", 5, content.generation)

    def change(txn: WriteTxn) -> None:
        txn.put(INTERVALS, (content.id, 0), INTERVALS.decode(older))

    bench.change(change)
    assert bench.plan(content) == b"older"
    content = write_inline(bench, content, b" and newer")
    assert bench.plan(content) == b"older and newer"
    (row,) = bench.rows(INTERVALS).values()
    assert row.crc == crc64nvme(b"older and newer")
